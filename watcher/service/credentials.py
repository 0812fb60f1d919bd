"""What requests are signed with: got once, renewed by one process, shared with all that read."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import random
import threading
import zlib
from collections.abc import Callable
from multiprocessing.sharedctypes import RawValue
from typing import Any, Protocol

import msgspec
from botocore.credentials import ReadOnlyCredentials

from watcher.backoff import backoff, worth_saying
from watcher.clock import CLOCK, Clock
from watcher.errors import CredentialsError

logger = logging.getLogger("watcher")

# Botocore renews what it keeps on disk in its last quarter of an hour, and no earlier.
_AHEAD_SECONDS = 15 * 60
# Programs that began together need not renew together.
_JITTER = 0.7, 0.99
_LEAST_SECONDS = 1.0
# Refused keys are looked up anew so often: somebody may have logged in again.
_REFUSED_SECONDS = 3.0
_FAILURE_SECONDS = 30.0
# How long a call waits for keys that another thread is getting, and a fork for that thread.
_WAIT_SECONDS = 10.0
_SETTLE_SECONDS = 2.0
# AWS promises no length of session tokens; today's have some 1,500 characters.
_ROOM = 64 * 1024


class Keys(msgspec.Struct, frozen=True):
    """An access key and what belongs to it. Its text never shows them: texts end up in logs."""

    access_key: str
    secret_key: str
    token: str | None = None
    account_id: str | None = None
    expires: float | None = None
    """Epoch seconds; None: never."""

    def __repr__(self) -> str:
        return "Keys(…)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


class Credentials(Protocol):
    """What a client signs with."""

    def keys(self) -> Keys:
        """The newest. Raises botocore's errors, or CredentialsError."""

    def renew(self) -> None:
        """They were refused: there may be others by now."""

    def tend(self) -> None:
        """For a loop, several times a minute: renew them aside where that is due."""


class OwnCredentials:
    """This program's own, renewed ahead of their end, by one thread at a time.

    `load` gets them; it is told the access key that was refused, if one was, and whether it may
    ask a person: only the first time.
    """

    def __init__(
        self,
        load: Callable[[str | None, bool], Keys],
        clock: Clock = CLOCK,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.shared: SharedCredentials | None = None
        """Where workers read them."""
        self._load = load
        self._clock = clock
        self._jitter = jitter
        self._lock = threading.Lock()
        self._keys: Keys | None = None
        self._refused: str | None = None
        self._loaded_at = 0.0
        self._due = 0.0
        self._failures = 0
        self._error = ""
        self._thread: threading.Thread | None = None

    def keys(self) -> Keys:
        """The newest, got now where they are due. Raises what `load` does the first time."""
        # Those who come while others are got go on with what there is.
        if self._is_due() and self._lock.acquire(timeout=0 if self._keys else _WAIT_SECONDS):
            try:
                if self._is_due():
                    self._get()
            finally:
                self._lock.release()
        if self._keys is None or self._error:
            raise CredentialsError(self._error or "still waiting for AWS credentials")
        return self._keys

    def renew(self) -> None:
        """Get others at the next use, though not more often than every few seconds."""
        if self._keys is not None:
            self._refused = self._keys.access_key
        self._due = min(self._due, self._loaded_at + _REFUSED_SECONDS)

    def tend(self) -> None:
        """Get others in a thread of its own where that is due: a loop must not wait for it."""
        if self.shared is not None and self.shared.are_refused():
            self.renew()
        if self._is_due() and not self._is_busy():
            self._thread = threading.Thread(target=self._aside, name="credentials", daemon=True)
            self._thread.start()

    def settle(self) -> None:
        """Before a fork, which copies locks as they stand: no thread may be at work.

        Raises OSError where one still is.
        """
        if self._is_busy():
            assert self._thread is not None
            self._thread.join(_SETTLE_SECONDS)
            if self._is_busy():
                raise OSError(errno.EAGAIN, "still waiting for new AWS credentials")

    def share(self) -> SharedCredentials:
        """These, for processes that are to be started. Raises as `keys`."""
        if self.shared is None:
            self.shared = SharedCredentials(self._keys or self.keys())
        return self.shared

    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _is_due(self) -> bool:
        return self._clock.time() >= self._due

    def _aside(self) -> None:
        with contextlib.suppress(CredentialsError):  # said, and tried again
            self.keys()

    def _get(self) -> None:
        now = self._clock.time()
        try:
            keys = self._load(self._refused, self._keys is None)
        except Exception as error:
            if self._keys is None:
                raise
            self._failed(error, now)
            return
        self._loaded_at = now = self._clock.time()
        self._keys, self._refused, self._failures, self._error = keys, None, 0, ""
        self._due = self._next(keys.expires, now)
        if self.shared is not None:
            self.shared.put(keys)

    def _next(self, expires: float | None, now: float) -> float:
        """When to get others: some minutes before the end, never later than half of the time."""
        if expires is None:
            return float("inf")
        ahead = min(_AHEAD_SECONDS, (expires - now) / 2)
        return max(expires - ahead * self._jitter(*_JITTER), now + _LEAST_SECONDS)

    def _failed(self, error: Exception, now: float) -> None:
        assert self._keys is not None
        self._loaded_at = now
        self._failures += 1
        self._due = now + backoff(self._failures, _LEAST_SECONDS, _FAILURE_SECONDS)
        text = " ".join(str(error).split()) or type(error).__name__
        if self._keys.expires is not None and self._keys.expires <= now:
            self._error = f"no new AWS credentials: {text}"
        if worth_saying(self._failures, unsaid=2):
            logger.warning(f"Can't renew the AWS credentials, trying again: {text}")
        else:
            logger.debug(f"Can't renew the AWS credentials: {text}")


class _Memory(ctypes.Structure):
    """A piece of memory that several processes have; one of them writes the keys."""

    _fields_ = [
        ("version", ctypes.c_uint64),
        ("refused", ctypes.c_uint64),
        ("size", ctypes.c_uint32),
        ("check", ctypes.c_uint32),
        ("text", ctypes.c_uint8 * _ROOM),
    ]


class SharedCredentials:
    """The manager's, in memory that its workers have too; they never look for any themselves.

    To be handed to a process as it is started.
    """

    def __init__(self, keys: Keys) -> None:
        self._memory: Any = RawValue(_Memory)
        self._seen = 0
        self._keys = keys
        self.put(keys)

    def put(self, keys: Keys) -> None:
        """Give all these from now on. For one process only."""
        text = msgspec.json.encode(keys)
        if len(text) > _ROOM:
            raise CredentialsError(f"AWS credentials of {len(text)} bytes are too long")
        memory = self._memory
        ctypes.memmove(memory.text, text, len(text))
        memory.size, memory.check = len(text), zlib.crc32(text)
        memory.version += 1

    def keys(self) -> Keys:
        """The newest."""
        while self._seen != (version := self._memory.version):
            memory = self._memory
            text = ctypes.string_at(memory.text, memory.size)
            # Else it is just being written.
            if zlib.crc32(text) == memory.check:
                self._keys, self._seen = msgspec.json.decode(text, type=Keys), version
        return self._keys

    def renew(self) -> None:
        """Tell the manager that they were refused; it knows whether there are others already."""
        self._memory.refused = self._seen

    def tend(self) -> None:
        """For the manager to do."""

    def are_refused(self) -> bool:
        """For the manager: whether the newest were refused."""
        return bool(self._memory.refused == self._memory.version)


class HandedCredentials:
    """For a helper on another machine: what the program has handed to it with its last task.

    Beyond their end, or refused, they give way to the `own` ones of that machine.
    """

    def __init__(self, own: OwnCredentials, clock: Clock = CLOCK) -> None:
        self._own = own
        self._clock = clock
        self._keys: Keys | None = None
        self._refused: Keys | None = None

    def take(self, keys: Keys | None) -> None:
        """Use these from now on."""
        if keys != self._refused:
            self._keys = keys

    def keys(self) -> Keys:
        """The newest. Raises as `OwnCredentials.keys`."""
        keys = self._keys
        if keys is None or (keys.expires is not None and keys.expires <= self._clock.time()):
            return self._own.keys()
        return keys

    def renew(self) -> None:
        """They were refused."""
        if self._keys is None:
            self._own.renew()
        self._keys, self._refused = None, self._keys or self._refused

    def tend(self) -> None:
        """For the program to do."""


class Signing:
    """Credentials as botocore's clients take them (`botocore.credentials.Credentials`)."""

    method = "watcher"

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def load_credentials(self) -> Signing:
        """What a session asks of its chain of providers."""
        return self

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """Those of one moment, that fit together."""
        keys = self._credentials.keys()
        return ReadOnlyCredentials(keys.access_key, keys.secret_key, keys.token, keys.account_id)

    def get_deferred_property(self, name: str) -> Callable[[], Any]:
        """One of them, when it is needed: the account's id, for endpoints that have it."""
        return lambda: getattr(self._credentials.keys(), name)
