"""Where credentials come from: botocore's chain of providers, asked once for the whole program."""

from __future__ import annotations

import functools
import getpass
import logging
import os
import re
import ssl
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import botocore.session
from botocore import exceptions as boto
from botocore.compat import compat_shell_split
from botocore.config import Config
from botocore.credentials import create_credential_resolver
from botocore.loaders import Loader, create_loader
from botocore.utils import JSONFileCache

from watcher.errors import CredentialsError, StreamError
from watcher.service.connection import Connection
from watcher.service.credentials import HandedCredentials, Keys, OwnCredentials
from watcher.service.names import region_in
from watcher.service.plain_http import trusting
from watcher.service.said import said

logger = logging.getLogger("watcher")

# STS and SSO answer in a second; one that does not must not keep a call waiting for minutes.
_CALLS = Config(connect_timeout=5, read_timeout=10)
_MFA_CODE = re.compile("[0-9]{6}")
_known: dict[Any, OwnCredentials] = {}
_handed: dict[Connection, HandedCredentials] = {}
_lock = threading.Lock()
_asked = threading.Event()  # while a person is


@functools.cache
def _loader(data_path: str | None) -> Loader:
    """botocore's descriptions of AWS, read once: nearly all that a client costs (45 ms)."""
    return create_loader(data_path)


def session(connection: Connection) -> Any:
    """A session of botocore's. Raises ProfileNotFound."""
    made = botocore.session.Session(profile=connection.profile)
    made.register_component("data_loader", _loader(made.get_config_variable("data_path")))
    return made


def ca_file(session: Any) -> str | None:
    """The configured file of authorities, wherever the program goes to later; None: botocore's.

    As botocore.endpoint.EndpointCreator has it.
    """
    chosen = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
    return chosen and os.path.abspath(chosen)


def refuse_bad_way(session: Any, url: str) -> None:
    """Refuse an endpoint, or a file of authorities, that no call could be made with.

    What makes the calls would say so less clearly, and try them again. Raises ValueError,
    StreamError.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.port == 0:  # a bad port raises by itself
        raise ValueError(f"Invalid endpoint: {url}: it takes http:// or https:// and a host")
    if (file := ca_file(session)) is None or not url.startswith("https:"):
        return
    try:
        trusting(file)
    except OSError as error:
        variable = "AWS_CA_BUNDLE" if os.environ.get("AWS_CA_BUNDLE") else "ca_bundle"
        if not session.get_config_variable("ca_bundle"):
            variable = "REQUESTS_CA_BUNDLE"
        why = "no certificates in it" if isinstance(error, ssl.SSLError) else error.strerror
        raise StreamError(f"{variable}: can't use {file}: {why}") from error


def own_credentials(connection: Connection, region: str | None) -> OwnCredentials:
    """The program's own; the same for all who name the same profile in the same environment.

    `region` is where a role is assumed, unless that is configured elsewhere.
    """
    settings = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    # Not across a fork: who comes out of one has no share in its parent's.
    place = connection.profile, os.environ.get("HOME"), os.getpid(), frozenset(settings.items())
    with _lock:
        if place not in _known:
            load = functools.partial(_load, connection.profile, region)
            _known[place] = OwnCredentials(load)
        return _known[place]


def to_hand_on(connection: Connection, arn: str) -> Keys | None:
    """The program's keys, for its helpers on other machines; None where it has none itself."""
    try:
        return own_credentials(connection, region_in(arn)).keys()
    except (boto.BotoCoreError, boto.ClientError, CredentialsError) as error:
        logger.debug(f"No AWS credentials to hand on: {error}")
        return None


def handed_credentials(connection: Connection, arn: str) -> HandedCredentials:
    """What all clients of a helper for the same connection sign with."""
    own = own_credentials(connection, region_in(arn))
    with _lock:
        return _handed.setdefault(connection, HandedCredentials(own))


def _load(profile: str | None, region: str | None, refused: str | None, may_ask: bool) -> Keys:
    """Whatever is configured now: somebody may have logged in since the last time."""
    asking = session(Connection(profile=profile))
    asking.set_default_client_config(_CALLS)
    # For programs that share the aws CLI's cache, an MFA code is good for all of them.
    cache: Any = _Sessions(refused)
    chain = create_credential_resolver(asking, cache=cache, region_name=region)
    assume_role: Any = chain.get_provider("assume-role")
    assume_role._prompter = functools.partial(_ask, profile, may_ask)
    try:
        with said(functools.partial(_waiting, asking)):
            found: Any = chain.load_credentials()
            if found is None:
                raise boto.NoCredentialsError
            # What was just got would be got again if it ends within 15 minutes.
            frozen = getattr(found, "_frozen_credentials", None) or found.get_frozen_credentials()
    except (boto.BotoCoreError, boto.ClientError, CredentialsError):
        raise
    except Exception as error:  # a provider's program or file that is not there, or not JSON
        raise CredentialsError(f"can't get AWS credentials: {error}") from error
    expires = getattr(found, "_expiry_time", None)
    return Keys(
        frozen.access_key,
        frozen.secret_key,
        frozen.token,
        frozen.account_id,
        expires.timestamp() if expires else None,
    )


def _waiting(asking: Any, seconds: float) -> str | None:
    """What keeps whoever needs credentials waiting; but a person may take their time."""
    if _asked.is_set():
        return None
    text = f"Still waiting for AWS credentials, for {seconds:.0f} s"
    profiles, seen = asking.full_config.get("profiles", {}), set[str]()
    name: str = asking.get_config_variable("profile") or "default"
    while name in profiles and name not in seen:
        seen.add(name)
        if words := compat_shell_split(profiles[name].get("credential_process", "")):
            # Its arguments may hold secrets.
            return f"{text}: credential_process {words[0]} of profile {name} has not ended"
        name = profiles[name].get("source_profile", "")
    return text


class _Sessions(JSONFileCache):
    """The aws CLI's cache of assumed roles: same folder, same names, same form.

    Where it can't be written (a container's file system, most often), it is done without; and
    what AWS has `refused` is not taken from it.
    """

    def __init__(self, refused: str | None) -> None:
        super().__init__(str(Path.home() / ".aws" / "cli" / "cache"))
        self._refused = refused

    def __contains__(self, key: str) -> bool:
        try:
            return bool(self[key]["Credentials"]["AccessKeyId"] != self._refused)
        except (KeyError, TypeError):  # none, or not of this form
            return False

    def __setitem__(self, key: str, value: Any) -> None:
        try:
            super().__setitem__(key, value)
        except OSError as error:
            logger.debug(f"An assumed role is not kept for the next time: {error}")


def _ask(profile: str | None, may_ask: bool, prompt: str) -> str:
    """An MFA code, from the terminal. Raises CredentialsError where nobody can be asked."""
    named = f" --profile {profile}" if profile else ""
    remedy = f"`aws sts get-caller-identity{named}` asks for a code, and what it gets is used here"
    if not may_ask:
        raise CredentialsError(f"the session with MFA has ended; {remedy}")
    if not _has_terminal():
        raise CredentialsError(f"no terminal to ask for an MFA code on; {remedy}")
    _asked.set()
    try:
        code = getpass.getpass(prompt).strip()
    except EOFError:
        raise CredentialsError("no MFA code was given") from None
    finally:
        _asked.clear()
    if not _MFA_CODE.fullmatch(code):
        raise CredentialsError("that was no MFA code, which has 6 digits: start again")
    return code


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return sys.stdin is not None and sys.stdin.isatty()
    return True
