"""Credentials: loaded once, renewed before they expire by one process, shared with readers."""

from __future__ import annotations

import errno
import functools
import getpass
import logging
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from multiprocessing.context import assert_spawning
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import botocore.session
import msgspec
from botocore import exceptions as boto
from botocore.compat import compat_shell_split
from botocore.config import Config
from botocore.configprovider import BOTOCORE_DEFAUT_SESSION_VARIABLES as VARIABLES
from botocore.configprovider import ConfigChainFactory, ConfiguredEndpointProvider, ConfigValueStore
from botocore.credentials import (
    AssumeRoleWithWebIdentityProvider,
    ContainerProvider,
    EnvProvider,
    OriginalEC2Provider,
    ProcessProvider,
    ReadOnlyCredentials,
    create_credential_resolver,
)
from botocore.loaders import Loader, create_loader
from botocore.utils import JSONFileCache

from watcher import process_start
from watcher.aws.arns import region_in
from watcher.aws.config import AwsConfig
from watcher.aws.deadline import CONNECT_SECONDS, READ_SECONDS, log_if_slow
from watcher.call_pool import CallPool
from watcher.clock import CLOCK, Clock
from watcher.errors import CredentialsError, error_text
from watcher.retry import Backoff, worth_logging

logger = logging.getLogger("watcher")

# The renewal's time before the keys expire: botocore renews its cached ones in the last 15 minutes.
_AHEAD_SECONDS = 15 * 60.0
# The random share of it, so that programs that started together renew apart.
_AHEAD_JITTER = (0.7, 0.99)
# The shortest delay between renewals, whatever the keys' expiry.
_LEAST_SECONDS = 1.0
REFUSED_SECONDS = 3.0
"""The delay between lookups of refused keys: someone may have logged in again."""
_BACKOFF = Backoff(first_seconds=1.0, longest_seconds=30.0)
# The longest wait of a call for keys that another thread fetches.
_WAIT_SECONDS = 10.0
SETTLE_SECONDS = 2.0
"""The longest wait of a fork for the thread that renews them."""


class Keys(msgspec.Struct, frozen=True):
    """An access key with its secret and token. Its text never shows them: texts end up in logs."""

    access_key: str
    secret_key: str
    token: str | None = None
    account_id: str | None = None
    expires: float | None = None
    """Epoch seconds; None: never."""

    def __repr__(self) -> str:
        return "Keys(…)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return []


class Credentials(Protocol):
    """Credentials for a client's signatures."""

    def keys(self) -> Keys:
        """Returns the newest access keys."""

    def renew(self) -> None:
        """Drops keys that the service refused; the next use loads others."""

    def renew_expiring(self) -> None:
        """Renews keys in the background where that is due; a loop calls it often."""


class OwnCredentials:
    """The program's own credentials, renewed before they expire, by one thread at a time.

    `load` gets the access key that is to be replaced, if any, and True if it may ask the user (only
    the first time).
    """

    def __init__(
        self,
        load: Callable[[str | None, bool], Keys],
        clock: Clock = CLOCK,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._load = load
        self._clock = clock
        self._jitter = jitter
        self._lock = threading.Lock()
        self._keys: Keys | None = None
        self._loaded_at = 0.0
        self._due = 0.0
        self._failures = 0
        self._error = ""
        self._calls = CallPool(most=1)
        self._renewal: Future[Keys] | None = None

    def keys(self) -> Keys:
        """Returns the newest keys, loaded now if due. Raises `load`'s error the first time."""
        # While another thread loads new keys, the old ones are used.
        if self._is_due() and self._lock.acquire(timeout=0 if self._keys else _WAIT_SECONDS):
            try:
                if self._is_due():
                    self._load_keys()
            finally:
                self._lock.release()
        if self._keys is None or self._error:
            raise CredentialsError(self._error or "still waiting for AWS credentials")
        return self._keys

    def renew(self) -> None:
        """Has the next use load other keys, though not more often than every few seconds."""
        self._due = min(self._due, self._loaded_at + REFUSED_SECONDS)

    def renew_expiring(self) -> None:
        """Loads other keys in a thread where that is due: a loop must not wait for it."""
        if self._is_due() and (self._renewal is None or self._renewal.done()):
            (self._renewal,) = self._calls.start([self.keys], few=0)  # it logs its errors

    def wait_for_thread(self) -> None:
        """Before a fork, which copies held locks: waits for the thread's end.

        Raises OSError if it still runs after a moment.
        """
        if self._renewal is not None and not wait([self._renewal], SETTLE_SECONDS).done:
            raise OSError(errno.EAGAIN, "still waiting for new AWS credentials")

    def newest(self) -> Keys:
        """Returns the current keys, even if others are due; loads the first. Raises as `keys`."""
        return self._keys or self.keys()

    def were_refused(self, access_key: str) -> None:
        """Renews the keys if this is the newest access key, not an older one."""
        if self._keys is not None and self._keys.access_key == access_key:
            self.renew()

    def _is_due(self) -> bool:
        return self._clock.time() >= self._due

    def _load_keys(self) -> None:
        now = self._clock.time()
        try:
            with process_start.signals_of_program():  # it may run a `credential_process`
                old = None if self._keys is None else self._keys.access_key
                keys = self._load(old, self._keys is None)
        except Exception as error:
            if self._keys is None:
                raise
            self._failed(error, now)
            return
        self._loaded_at = now = self._clock.time()
        self._keys, self._failures, self._error = keys, 0, ""
        self._due = self._next_renewal(keys.expires, now)

    def _next_renewal(self, expires: float | None, now: float) -> float:
        """Returns the time of the next renewal: minutes before expiry, but not too early.

        It is never earlier than half of the remaining time.
        """
        if expires is None:
            return float("inf")
        ahead = min(_AHEAD_SECONDS, (expires - now) / 2)
        return max(
            expires - ahead * self._jitter(*_AHEAD_JITTER),
            now + _LEAST_SECONDS,
        )

    def _failed(self, error: Exception, now: float) -> None:
        assert self._keys is not None
        self._loaded_at = now
        self._failures += 1
        self._due = now + _BACKOFF.after(self._failures)
        text = " ".join(error_text(error).split()) or type(error).__name__
        if self._keys.expires is not None and self._keys.expires <= now:
            self._error = f"no new AWS credentials: {text}"
        if worth_logging(self._failures, from_failure=2):
            logger.warning(f"Can't renew the AWS credentials, trying again: {text}")
        else:
            logger.debug(f"Can't renew the AWS credentials: {text}")


class WorkerCredentials:
    """The manager's credentials in a worker, which receives new ones and never loads any.

    Passed to the process at its start.
    """

    def __init__(self, keys: Keys) -> None:
        self.on_refusal: Callable[[str], object] = lambda access_key: None
        """Reports a refused access key to the manager; set in the worker."""
        self._keys = keys
        self._used = keys

    def __reduce__(self) -> tuple[type[WorkerCredentials], tuple[Keys]]:
        assert_spawning(self)  # pickled for a child process only
        return WorkerCredentials, (self._keys,)

    def take(self, keys: Keys) -> None:
        """Uses these keys from now on."""
        self._keys = keys

    def keys(self) -> Keys:
        """Returns the newest keys."""
        self._used = self._keys
        return self._used

    def renew(self) -> None:
        """Reports the refused key to the manager, which knows whether it has others."""
        self.on_refusal(self._used.access_key)

    def renew_expiring(self) -> None:
        """Does nothing: the manager renews them."""


class HandedCredentials:
    """A remote helper's credentials, which the program sends with each task.

    Once expired or refused, the machine's `own` credentials are used.
    """

    def __init__(self, own: OwnCredentials, clock: Clock = CLOCK) -> None:
        self._own = own
        self._clock = clock
        self._keys: Keys | None = None
        self._refused: Keys | None = None

    def take(self, keys: Keys | None) -> None:
        """Uses these keys from now on, unless they were refused."""
        if keys != self._refused:
            self._keys = keys

    def keys(self) -> Keys:
        """Returns the newest keys. Raises as `OwnCredentials.keys`."""
        keys = self._keys
        if keys is None or (keys.expires is not None and keys.expires <= self._clock.time()):
            return self._own.keys()
        return keys

    def renew(self) -> None:
        """Drops refused keys; the driver sends new ones with its next task."""
        if self._keys is None:
            self._own.renew()
        self._keys, self._refused = None, self._keys or self._refused

    def renew_expiring(self) -> None:
        """Does nothing: the driver renews them."""


class SigningCredentials:
    """Credentials in botocore's form (`botocore.credentials.Credentials`)."""

    method = "watcher"

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def load_credentials(self) -> SigningCredentials:
        """Returns itself, as a provider in a session's chain."""
        return self

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """Returns key, secret and token of one moment."""
        keys = self._credentials.keys()
        return ReadOnlyCredentials(keys.access_key, keys.secret_key, keys.token, keys.account_id)

    def get_deferred_property(self, name: str) -> Callable[[], Any]:
        """Returns a function for one property: the account id, for endpoints with it."""
        return lambda: getattr(self._credentials.keys(), name)


# STS and SSO answer in a second; a call must not wait minutes for them.
_CALLS = Config(connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS)
_Provider: TypeAlias = Any
"""A botocore provider, whose private attributes have no stubs."""
_MFA_CODE = re.compile("[0-9]{6}")
_known: dict[Any, OwnCredentials] = {}
_handed: dict[AwsConfig, HandedCredentials] = {}
_lock = threading.Lock()
_asking_user = threading.Event()


@functools.cache
def _loader(data_path: str | None) -> Loader:
    """Returns botocore's descriptions of AWS, read once: most of a client's cost (45 ms)."""
    return create_loader(data_path)


class Session(botocore.session.Session):
    """A botocore session that uses the given variables instead of the process's current ones."""

    def __init__(self, profile: str | None, environ: Mapping[str, str]) -> None:
        self.environ = environ
        super().__init__(profile=profile)
        if environ is not os.environ:
            store = self.get_component("config_store")
            factory = ConfigChainFactory(session=self, environ=environ)
            for name, (file, variables, default, convert) in VARIABLES.items():
                chain = factory.create_config_chain(
                    instance_name=name,
                    env_var_names=variables,
                    config_property_names=file,
                    default=default,
                    conversion_func=convert,
                )
                store.set_config_provider(name, chain)

    def _add_configured_endpoint_provider(
        self, client_name: str, config_store: ConfigValueStore
    ) -> None:
        provider = ConfiguredEndpointProvider(
            full_config=self.full_config,
            scoped_config=self.get_scoped_config(),
            client_name=client_name,
            environ=self.environ,
        )
        config_store.set_config_provider("endpoint_url", provider)


def session(connection: AwsConfig) -> Session:
    """Returns a botocore session. Raises ProfileNotFound."""
    created = Session(connection.profile, _environ(connection))
    created.register_component("data_loader", _loader(created.get_config_variable("data_path")))
    return created


def _environ(connection: AwsConfig) -> Mapping[str, str]:
    """Returns the variables for a connection."""
    fixed = connection.environment
    return os.environ if fixed is None else dict(fixed.variables)


def ca_file(session: Session) -> str | None:
    """Returns the absolute path of the configured CA bundle; None: botocore's.

    It looks where botocore.endpoint.EndpointCreator does.
    """
    chosen: str | None = session.get_config_variable("ca_bundle") or session.environ.get(
        "REQUESTS_CA_BUNDLE"
    )
    return chosen and os.path.abspath(chosen)


def own_credentials(connection: AwsConfig, region: str | None) -> OwnCredentials:
    """Returns the program's own credentials, shared per profile and environment.

    `region` is where a role is assumed, unless that is configured elsewhere.
    """
    environ = _environ(connection)
    settings = {name: value for name, value in environ.items() if name.startswith("AWS_")}
    # Per process: a forked child must not share its parent's.
    settings_key = (
        connection.profile,
        os.environ.get("HOME"),
        os.getpid(),
        frozenset(settings.items()),
    )
    with _lock:
        if settings_key not in _known:
            load = functools.partial(_load, connection, region)
            _known[settings_key] = OwnCredentials(load)
        return _known[settings_key]


def keys_for_helpers(connection: AwsConfig, arn: str) -> Keys | None:
    """Returns the program's keys, for its helpers on other machines; None without any."""
    try:
        return own_credentials(connection, region_in(arn)).keys()
    except (boto.BotoCoreError, boto.ClientError, CredentialsError) as error:
        logger.debug(f"No AWS credentials to hand on: {error}")
        return None


def handed_credentials(connection: AwsConfig, arn: str) -> HandedCredentials:
    """Returns the credentials that a helper's clients of one connection share."""
    own = own_credentials(connection, region_in(arn))
    with _lock:
        return _handed.setdefault(connection, HandedCredentials(own))


def _load(connection: AwsConfig, region: str | None, old: str | None, may_ask: bool) -> Keys:
    """Loads the currently configured credentials, others than the `old` key where there are any."""
    boto_session = session(connection)
    boto_session.set_default_client_config(_CALLS)
    # With the aws CLI's cache, an MFA code serves all programs.
    cache: Any = _AssumedRoleCache(old)
    chain = create_credential_resolver(boto_session, cache=cache, region_name=region)
    assume_role: _Provider = chain.get_provider("assume-role")
    assume_role._prompter = functools.partial(_ask, connection.profile, may_ask)
    if boto_session.environ is not os.environ:
        for provider in chain.providers:
            _fix_environment(provider, boto_session.environ)
    try:
        with log_if_slow(functools.partial(_waiting, boto_session)):
            loaded: Any = chain.load_credentials()
            if loaded is None:
                raise boto.NoCredentialsError
            frozen = getattr(loaded, "_frozen_credentials", None)
            # It loads keys again that expire within 15 minutes, which is of use only where a
            # provider has handed out what it had stored, as that of `aws login` does.
            if frozen is None or frozen.access_key == old or loaded.refresh_needed(refresh_in=0):
                frozen = loaded.get_frozen_credentials()
    except (boto.BotoCoreError, boto.ClientError, CredentialsError):
        raise
    except Exception as error:  # a provider's program or file is missing, or not JSON
        raise CredentialsError(f"can't get AWS credentials: {error_text(error)}") from error
    expires = getattr(loaded, "_expiry_time", None)
    return Keys(
        frozen.access_key,
        frozen.secret_key,
        frozen.token,
        frozen.account_id,
        expires.timestamp() if expires else None,
    )


def _fix_environment(provider: _Provider, environ: Mapping[str, str]) -> None:
    """Makes a botocore provider use these variables instead of the process's."""
    kind = type(provider)
    if kind is EnvProvider:
        provider.environ = environ
    elif kind in (ContainerProvider, OriginalEC2Provider):
        provider._environ = environ
    elif kind is ProcessProvider:
        others = {name: value for name, value in os.environ.items() if name[:4] != "AWS_"}
        provider._popen = functools.partial(subprocess.Popen, env={**others, **environ})
    elif kind is AssumeRoleWithWebIdentityProvider:
        names = {} if provider._disable_env_vars else provider._CONFIG_TO_ENV_VAR
        provider._get_env_config = lambda key: environ.get(names.get(key, ""))


def _waiting(boto_session: Session, seconds: float) -> str | None:
    """Returns a log line about slow credentials; None while the user is asked for a code."""
    if _asking_user.is_set():
        return None
    text = f"Still waiting for AWS credentials, for {seconds:.0f} s"
    profiles, seen = boto_session.full_config.get("profiles", {}), set[str]()
    name: str = boto_session.get_config_variable("profile") or "default"
    while name in profiles and name not in seen:
        seen.add(name)
        if words := compat_shell_split(profiles[name].get("credential_process", "")):
            # Without its arguments, which may hold secrets.
            return f"{text}: credential_process {words[0]} of profile {name} has not ended"
        name = profiles[name].get("source_profile", "")
    return text


class _AssumedRoleCache(JSONFileCache):
    """The aws CLI's cache of assumed roles: same folder, same names, same format.

    It ignores the `old` key, and a failed write (to a container's file system, usually).
    """

    def __init__(self, old: str | None) -> None:
        super().__init__(str(Path.home() / ".aws" / "cli" / "cache"))
        self._old = old

    def __contains__(self, key: str) -> bool:
        try:
            return bool(self[key]["Credentials"]["AccessKeyId"] != self._old)
        except (KeyError, TypeError):  # missing, or of another form
            return False

    def __setitem__(self, key: str, value: object) -> None:
        try:
            super().__setitem__(key, value)
        except OSError as error:
            logger.debug(f"An assumed role is not kept for the next time: {error}")


def _ask(profile: str | None, may_ask: bool, prompt: str) -> str:
    """Returns an MFA code from the terminal.

    Raises CredentialsError where the user can't be asked.
    """
    named = f" --profile {profile}" if profile else ""
    remedy = f"`aws sts get-caller-identity{named}` asks for a code, and watcher uses the result"
    if not may_ask:
        raise CredentialsError(f"the session with MFA has ended; {remedy}")
    if not has_terminal():
        raise CredentialsError(f"no terminal to ask for an MFA code on; {remedy}")
    _asking_user.set()
    try:
        code = getpass.getpass(prompt).strip()
    except EOFError:
        raise CredentialsError("no MFA code was given") from None
    finally:
        _asking_user.clear()
    if not _MFA_CODE.fullmatch(code):
        raise CredentialsError("an MFA code has 6 digits: start again")
    return code


def has_terminal() -> bool:
    """True where the user can be asked on a terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return sys.stdin is not None and sys.stdin.isatty()
    return True
