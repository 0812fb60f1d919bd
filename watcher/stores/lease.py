"""The lease on a shared checkpoint: one watch delivers, others of the same name stand by.

Nobody's wall clock is compared with another's. The holder may deliver for so many seconds after it
has *begun* its last write, by its own clock. One that stands by takes over once it has *seen* the
same write for longer than that, by its own clock. What the holder has sent late fails: every write
names the one that it takes the place of.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Protocol

import msgspec

from watcher import process_start
from watcher.aws.lease_table import LeaseRecord
from watcher.clock import CLOCK, Clock
from watcher.errors import CheckpointError, LeaseLostError, StreamError, WatcherError
from watcher.stores.protocol import Store
from watcher.stores.timing import LEASE_SECONDS, LeaseTiming
from watcher.streams.checkpoint_format import (
    SnapshotRequest,
    Token,
    encode_all,
    from_checkpoint,
    with_request,
)

logger = logging.getLogger("watcher")

# The attempts at a write beside another one's.
_WRITES = 5


class LeaseStorage(Protocol):
    """Keeps the lease and the tokens: `LeaseTable`, `LeaseObject`, `SharedObject`.

    All raise CheckpointError.
    """

    @property
    def name(self) -> str:
        """Its name in messages."""

    def make(self) -> None:
        """Have its table there, or its bucket answer. Raises UsageError where it can't be used."""

    def get(self) -> LeaseRecord | None:
        """Returns what is stored now."""

    def replace(self, leased: LeaseRecord, seen: LeaseRecord | None) -> bool:
        """Write it in the place of what was seen; False where that is not there any more."""

    def close(self) -> None:
        """Give back what it holds: its connections."""


def own_name() -> str:
    """Returns a holder's name, of this one watch."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


class Lease:
    """One watch's claim. Its methods may be called by a thread that renews it, too."""

    def __init__(
        self,
        storage: LeaseStorage,
        holder: str,
        clock: Clock = CLOCK,
        timing: LeaseTiming | None = None,
    ) -> None:
        self._timing = timing or LeaseTiming()
        self.storage = storage
        self._holder = holder
        self._clock = clock
        self._lock = threading.Lock()
        self._mine = LeaseRecord("", 0, 0.0, b"")  # what was written last
        self._began = clock.boottime()
        """When the last write that went well was begun."""
        self._valid_until = self._began
        self._lost = ""
        self.trouble = ""
        """Why it can't be renewed, or by one that stands by not be asked for or taken over."""
        self.in_doubt = False
        """True while it has run out, and delivery waits for its renewal."""
        self._logged_at: dict[str, float] = {}
        self._must_stop: Callable[[], bool] = lambda: False

    @property
    def is_lost(self) -> bool:
        """True once it is another's, or was given back."""
        return bool(self._lost)

    @property
    def has_run_out(self) -> bool:
        """True where it was ours, and was not renewed in time."""
        return bool(self._mine.holder) and self._clock.boottime() >= self._valid_until

    @property
    def token(self) -> bytes:
        """The stored tokens, as JSON."""
        return self._mine.token

    @property
    def requests(self) -> bytes:
        """The requests of snapshots beside the lease, as of the last write."""
        return self._mine.request

    def leave_request(self, request: SnapshotRequest) -> None:
        """Writes a request beside the lease, for the holder, whose next write finds it.

        Raises CheckpointError.
        """
        for _ in range(_WRITES):
            there = self.storage.get()
            if there is None:
                continue
            text = with_request(there.request, request)
            new = msgspec.structs.replace(there, counter=there.counter + 1, request=text)
            if self.storage.replace(new, there):
                return
        told = "it is written faster than it can be read"
        raise CheckpointError(told, "checkpoint", self.storage.name, answered=True)

    def peek(self) -> LeaseRecord:
        """Returns what is stored, also where another has the lease. Raises CheckpointError."""
        return self.storage.get() or LeaseRecord("", 0, 0.0, b"")

    # Standing by

    def stand_by(self, must_stop: Callable[[], bool]) -> bool:
        """Wait until the lease is ours; False where the watch is to end first.

        Raises CheckpointError where the very first look fails, or the very first write for a reason
        that only the user can mend.
        """
        self._must_stop = must_stop
        there, said, first, refused = self.storage.get(), False, True, False
        seen, watched, at = there, 0.0, self._clock.boottime()
        while not must_stop():
            takes = self._is_free(there, watched)
            try:
                if takes and self._take(there):
                    return True
                takes = False
                if there is not None and not said:
                    said, who = True, there.holder.rpartition(":")[0]
                    logger.info(f"Standing by: {who} has the lease on {self.storage.name}")
                first = False
                self._wait(self._timing.look_seconds)
                there = self.storage.get()
            except CheckpointError as error:
                if first and isinstance(error.__cause__, StreamError):
                    raise
                self._log_trouble(str(error))
                # Nor may its holder have got through: it is given the whole time anew.
                refused, seen, watched = takes, None, 0.0
                self._wait(self._timing.look_seconds)
                continue
            now = self._clock.boottime()
            if seen is not None and there is not None and seen.counter == there.counter:
                # A pause of our own says nothing of its holder.
                watched += min(now - at, 2 * self._timing.look_seconds)
            else:
                refused = refused and seen is None  # else it is another's: there is nothing to take
                watched = 0.0
            if not refused:
                self.trouble = ""
            seen, at = there, now
        return False

    def _log_trouble(self, trouble: str) -> None:
        """Log why it can't stand by, seldom: a refusal may last, with an answer in between."""
        self.trouble, now = trouble, self._clock.boottime()
        if now - self._logged_at.get(trouble, -math.inf) > self._timing.log_again_seconds:
            self._logged_at[trouble] = now
            logger.warning(f"{trouble}; standing by, trying again")

    def _is_free(self, there: LeaseRecord | None, watched: float) -> bool:
        if there is None or there.holder in ("", self._holder):
            return True
        return watched >= there.seconds + self._timing.margin_seconds

    def _take(self, there: LeaseRecord | None) -> bool:
        began = self._clock.boottime()
        mine = self._next(there or LeaseRecord("", 0, 0.0, b""))
        if not self.storage.replace(mine, there):
            return False
        if there is not None and there.holder not in ("", self._holder):
            who = there.holder.rpartition(":")[0]
            logger.info(f"Taking over from {who}: no sign of life for {there.seconds:g} s")
        self._have(mine, began)
        return True

    def _wait(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        while not self._must_stop() and self._clock.monotonic() < until:
            self._clock.sleep(self._timing.poll_seconds)

    # Holding it

    def renew(self) -> float:
        """Write where that is due; returns the seconds until the next call (0: it is lost)."""
        left = self._began + self._timing.renew_seconds - self._clock.boottime()
        if left > 0:
            return left
        try:
            self.write()
        except CheckpointError:
            return self._timing.again_seconds  # `raise_unless_held` and the saves say so
        except LeaseLostError:
            return 0.0
        return self._timing.renew_seconds

    def write(self, token: bytes | None = None) -> None:
        """Renew the lease, and store a token. Raises CheckpointError, LeaseLostError."""
        with self._lock:
            self._raise_if_lost()
            began, seen, tries = self._clock.boottime(), self._mine, 1
            stored = seen.token if token is None else token
            try:
                while not self.storage.replace(mine := self._next(seen, stored), seen):
                    # An answer of ours may have been lost on its way, or a command has written a
                    # request beside the lease.
                    seen = self._own(self.storage.get() if tries < _WRITES else None)
                    began, tries = self._clock.boottime(), tries + 1
            except CheckpointError as error:
                self.trouble = str(error)
                if error.answered:
                    self._bridge(began)
                raise
            self._have(mine, began)

    def _next(self, seen: LeaseRecord, token: bytes | None = None) -> LeaseRecord:
        stored = seen.token if token is None else token
        return LeaseRecord(self._holder, seen.counter + 1, LEASE_SECONDS, stored, seen.request)

    def _have(self, mine: LeaseRecord, began: float) -> None:
        self._mine, self._began, self.trouble = mine, began, ""
        self._valid_until = began + LEASE_SECONDS

    def _own(self, there: LeaseRecord | None) -> LeaseRecord:
        """Returns what the table holds, if it is ours. Raises LeaseLostError."""
        if there is not None and there.holder == self._holder:
            return there
        who = there.holder.rpartition(":")[0] if there is not None else ""
        self._lost = f"{who} has it now" if who else "somebody has removed it"
        self._valid_until = self._clock.boottime()
        self._raise_if_lost()
        raise AssertionError

    def _bridge(self, began: float) -> None:
        """Extends the lease while the table itself answers with errors."""
        try:
            there = self.storage.get()
        except CheckpointError:
            there = self._mine
        self._own(there)
        if began < self._valid_until:
            self._valid_until = max(self._valid_until, began + LEASE_SECONDS)

    def _raise_if_lost(self) -> None:
        if self._lost:
            raise LeaseLostError(
                f"the lease on {self.storage.name} is lost: {self._lost}; this watch delivers and "
                "saves nothing more (start it again to have it stand by)"
            )

    def raise_unless_held(self) -> None:
        """Waits until the lease is held, before each delivery. Raises LeaseLostError."""
        if self._clock.boottime() < self._valid_until:
            return
        while self._clock.boottime() >= self._valid_until:
            try:
                self.write()
            except CheckpointError as error:
                if not self.in_doubt:
                    self.in_doubt = True
                    logger.error(f"{error}; the lease has expired: delivery waits")
                if self._must_stop():
                    text = f"the lease on {self.storage.name} expired, and its store doesn't answer"
                    raise LeaseLostError(f"{text}: the rest is left to the next watch") from error
                self._wait(self._timing.again_seconds)
        if self.in_doubt:
            self.in_doubt = False
            logger.info("The lease is renewed: delivery continues")

    def wait_for_write(self) -> None:
        """Before a fork: let a write that goes on come to its end, if that is soon."""
        if self._lock.acquire(timeout=self._timing.fork_seconds):
            self._lock.release()

    def release(self) -> None:
        """Returns the lease, so that no standby waits. Raises CheckpointError, LeaseLostError."""
        with self._lock:
            mine = msgspec.structs.replace(self._mine, holder="", counter=self._mine.counter + 1)
            if self._mine.holder and not self._lost:
                self.storage.replace(mine, self._mine)
                self._lost = "it was given back"


class Renewer:
    """A thread that renews a lease: a handler may take longer than it lasts."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="renews the lease", daemon=True)
        # A fork copies locks as they stand.
        process_start.before_fork(lease.wait_for_write)
        self._thread.start()

    def _run(self) -> None:
        while seconds := self._lease.renew():
            if self._end.wait(seconds):
                return

    def close(self) -> None:
        """Stop renewing."""
        self._end.set()
        self._thread.join(timeout=5.0)


class LeasedStore(Store):
    """Tokens beside a lease. `renewing` has it renewed as long as it is held."""

    def __init__(self, lease: Lease, renewing: Callable[[Lease], Renewer] = Renewer) -> None:
        self._lease = lease
        self._renewing = renewing
        self._renewer: Renewer | None = None

    @property
    def name(self) -> str:
        """Its URL, or its class."""
        return self._lease.storage.name

    def peek(self) -> list[Token]:
        """See `Store`. Raises UsageError where the table can't be used."""
        self._lease.storage.make()
        return self.read()

    def read(self) -> list[Token]:
        """Returns the stored positions, with or without the lease. Raises CheckpointError."""
        return self._decoded(self._lease.peek().token)

    def read_requests(self) -> bytes:
        """Returns the requests of snapshots, with or without the lease. Raises CheckpointError."""
        return self._lease.peek().request

    def stand_by(self, must_stop: Callable[[], bool]) -> bool:
        """See `Store`."""
        if not self._lease.stand_by(must_stop):
            return False
        self._renewer = self._renewing(self._lease)
        return True

    @property
    def snapshot_requests(self) -> bytes:
        """See `Store`."""
        return self._lease.requests

    def leave_request(self, request: SnapshotRequest) -> None:
        """See `Store`; with or without the lease. Raises CheckpointError."""
        self._lease.leave_request(request)

    def load(self) -> list[Token]:
        """Returns the tokens that the lease was taken over with."""
        return self._decoded(self._lease.token)

    def _decoded(self, token: bytes) -> list[Token]:
        remedy = "delete the item to start anew, or choose another name"
        return from_checkpoint(token, self.name, remedy) if token else []

    @property
    def raise_unless_held(self) -> Callable[[], object]:
        """See `Store`."""
        return self._lease.raise_unless_held

    @property
    def in_doubt(self) -> bool:
        """See `Store`."""
        return self._lease.in_doubt or self._lease.has_run_out

    @property
    def is_lost(self) -> bool:
        """See `Store`."""
        return self._lease.is_lost

    @property
    def trouble(self) -> str:
        """See `Store`."""
        return self._lease.trouble

    def save(self, tokens: Sequence[Token]) -> None:
        """Store them, if the lease is still ours. Raises UsageError, LeaseLostError."""
        self._lease.write(encode_all(tokens))

    def close(self) -> None:
        """Give the lease back, so that one that stands by need not wait."""
        if self._renewer is not None:
            with closing(self._renewer):
                self._renewer = None
            try:
                self._lease.release()
            except WatcherError as error:
                logger.debug(f"The lease was not given back: {error}")
        self._lease.storage.close()
