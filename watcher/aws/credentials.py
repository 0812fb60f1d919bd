"""Credentials: loaded once, renewed before they expire by one process, shared with readers."""

from __future__ import annotations

import errno
import functools
import getpass
import logging
import os
import threading
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, wait
from multiprocessing.context import assert_spawning
from pathlib import Path
from typing import Any, TypeAlias

import botocore.session
import msgspec
from botocore import exceptions as boto
from botocore.config import Config
from botocore.configprovider import BOTOCORE_DEFAUT_SESSION_VARIABLES as VARIABLES
from botocore.configprovider import ConfigChainFactory, ConfiguredEndpointProvider, ConfigValueStore
from botocore.credentials import (
    EnvProvider,
    ReadOnlyCredentials,
    create_credential_resolver,
)
from botocore.loaders import Loader, create_loader
from botocore.utils import JSONFileCache

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


class OwnCredentials:
    """The program's own credentials, renewed before they expire, by one thread at a time.

    `load` gets the access key that is to be replaced, if any, and True if it may ask the user (only
    the first time).
    """

    def __init__(self, load: Callable[[str | None, bool], Keys], clock: Clock = CLOCK) -> None:
        self._load = load
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: Keys | None = None
        self._taken: Keys | None = None
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

    def take(self, keys: Keys) -> None:
        """Uses another machine's keys until they expire or are refused; then its own again."""
        if keys != self._taken:  # else they may have been refused
            self._taken = self._keys = keys
            self._loaded_at, self._error = 0.0, ""
            self._due = float("inf") if keys.expires is None else keys.expires

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
        old = None if self._keys is None else self._keys.access_key
        try:
            self._keys = self._load(old, self._keys is None)
        except Exception as error:
            if self._keys is None:
                raise
            self._on_failure(self._keys, error)
            return
        self._loaded_at = now = self._clock.time()
        self._failures, self._error, self._due = 0, "", float("inf")
        if (expires := self._keys.expires) is not None:
            ahead = min(_AHEAD_SECONDS, (expires - now) / 2)
            self._due = max(expires - ahead, now + _LEAST_SECONDS)

    def _on_failure(self, keys: Keys, error: Exception) -> None:
        self._loaded_at = now = self._clock.time()
        self._failures += 1
        self._due = now + _BACKOFF.after(self._failures)
        text = " ".join(error_text(error).split()) or type(error).__name__
        if keys.expires is not None and keys.expires <= now:
            self._error = f"no new AWS credentials: {text}"
        level = logging.WARNING if worth_logging(self._failures, from_failure=2) else logging.DEBUG
        logger.log(level, f"Can't renew the AWS credentials, trying again: {text}")


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


Credentials: TypeAlias = OwnCredentials | WorkerCredentials


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
_known: dict[Hashable, OwnCredentials] = {}
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
            for name, (in_file, variables, default, convert) in VARIABLES.items():
                chain = factory.create_config_chain(name, variables, in_file, default, convert)
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
    settings = frozenset(each for each in environ.items() if each[0].startswith("AWS_"))
    # Per process: a forked child must not share its parent's.
    place = (connection.profile, os.environ.get("HOME"), os.getpid(), settings)
    return _shared(place, connection, region)


def _shared(place: Hashable, connection: AwsConfig, region: str | None) -> OwnCredentials:
    with _lock:
        if place not in _known:
            _known[place] = OwnCredentials(functools.partial(_load, connection, region))
        return _known[place]


def keys_for_helpers(connection: AwsConfig, arn: str) -> Keys | None:
    """Returns the program's keys, for its helpers on other machines; None without any."""
    try:
        return own_credentials(connection, region_in(arn)).keys()
    except (boto.BotoCoreError, boto.ClientError, CredentialsError) as error:
        logger.debug(f"No AWS credentials to hand on: {error}")
        return None


def handed_credentials(connection: AwsConfig, arn: str) -> OwnCredentials:
    """Returns what a helper's readers of one connection share: it takes the program's keys."""
    return _shared(connection, connection, region_in(arn))


def _load(connection: AwsConfig, region: str | None, old: str | None, may_ask: bool) -> Keys:
    """Loads the currently configured credentials, others than the `old` key where there are any."""
    boto_session = session(connection)
    boto_session.set_default_client_config(_CALLS)
    # With the aws CLI's cache, an MFA code serves all programs.
    cache: Any = _AssumedRoleCache(old)
    chain = create_credential_resolver(boto_session, cache=cache, region_name=region)
    assume_role: _Provider = chain.get_provider("assume-role")
    assume_role._prompter = functools.partial(_ask, connection.profile, may_ask)
    for provider in chain.providers:
        if isinstance(provider, EnvProvider):
            provider.environ = boto_session.environ
    try:
        with log_if_slow(_waiting):
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


def _waiting(seconds: float) -> str | None:
    """Returns a log line about slow credentials; None while the user is asked for a code."""
    text = f"Still waiting for AWS credentials, for {seconds:.0f} s"
    return None if _asking_user.is_set() else text


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
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        text = f"no terminal to ask for an MFA code on; {remedy}"
        raise CredentialsError(text) from None
    _asking_user.set()
    try:
        return getpass.getpass(prompt).strip()
    except EOFError:
        raise CredentialsError("no MFA code was given") from None
    finally:
        _asking_user.clear()
