"""The lease on a shared checkpoint: one watch delivers, others of the same name stand by.

No two machines' clocks are compared. The holder may deliver for `LEASE_SECONDS` after the *start*
of its last write, by its own clock. A standby takes over once it has *seen* the same write for
longer than that, by its own clock. The former holder's late writes fail: each write names the one
that it replaces.
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
from watcher.streams.checkpoint_format import Token, encode_all, from_checkpoint

logger = logging.getLogger("watcher")

# The attempts at a write while others write.
_WRITES = 5
_NOTHING = LeaseRecord("", 0, 0.0, b"")


class LeaseStorage(Protocol):
    """Stores the lease and the tokens as one record: `LeaseTable`, `LeaseObject`.

    All methods raise CheckpointError.
    """

    @property
    def name(self) -> str:
        """Its name in messages."""

    def prepare(self) -> None:
        """Creates its table, or checks its bucket. Raises UsageError for an unsuitable one."""

    def get(self) -> LeaseRecord | None:
        """Returns the stored record; None without one."""

    def replace(self, record: LeaseRecord, seen: LeaseRecord | None) -> bool:
        """Stores the record if `seen` is still stored (None: nothing is); False if it is not."""

    def close(self) -> None:
        """Closes its connections."""


def own_name() -> str:
    """Returns a name for this watch as a holder: its host, its process, and a random part."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


class _Observation:
    """A standby's view of the lease: the last record read, and how long it has not changed."""

    def __init__(self, record: LeaseRecord | None, now: float) -> None:
        self.record = record
        self.unchanged_seconds = 0.0
        self._is_interrupted = False
        self._at = now

    def update(self, record: LeaseRecord | None, now: float, longest: float) -> bool:
        """Takes in a read; returns False where the holder, or another watch, has written.

        A gap between two reads counts up to `longest` seconds: a pause of this process says nothing
        about the holder.
        """
        before, self.record = self.record, record
        was_interrupted, self._is_interrupted = self._is_interrupted, False
        is_same = before is not None and record is not None and before.counter == record.counter
        if is_same and not was_interrupted:
            self.unchanged_seconds += min(now - self._at, longest)
        else:
            self.unchanged_seconds = 0.0
        self._at = now
        return is_same or was_interrupted

    def interrupt(self) -> None:
        """Starts again after a failed call: the holder's calls may have failed too."""
        self.unchanged_seconds, self._is_interrupted = 0.0, True


class Lease:
    """One watch's claim to the lease. A thread that renews it may call its methods too."""

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
        self._written = _NOTHING
        """The record of the last successful write."""
        self._written_at = clock.boottime()
        """The start time of that write."""
        self._valid_until = self._written_at
        self._lost_reason = ""
        self.trouble = ""
        """Why it can't be renewed; for a standby, why it can't be read or taken over."""
        self.in_doubt = False
        """True while it has expired, and delivery waits for its renewal."""
        self._logged_at: dict[str, float] = {}
        self._must_stop: Callable[[], bool] = lambda: False

    @property
    def is_lost(self) -> bool:
        """True once another watch has it, or it was released."""
        return bool(self._lost_reason)

    @property
    def has_expired(self) -> bool:
        """True if this watch had it, and did not renew it in time."""
        return bool(self._written.holder) and self._clock.boottime() >= self._valid_until

    @property
    def token(self) -> bytes:
        """The stored tokens, as JSON."""
        return self._written.token

    def peek(self) -> LeaseRecord:
        """Returns the stored record, also while another watch has the lease.

        Raises CheckpointError.
        """
        return self.storage.get() or _NOTHING

    # Standing by

    def stand_by(self, must_stop: Callable[[], bool]) -> bool:
        """Waits for the lease; returns True with it, False where the watch has to stop first.

        Raises CheckpointError where the first read fails, or the first write for a reason that only
        the user can fix.
        """
        self._must_stop = must_stop
        observed = _Observation(self.storage.get(), self._clock.boottime())
        is_first, is_logged, was_refused = True, False, False
        while not must_stop():
            is_taking = self._is_free(observed)
            try:
                if is_taking and self._take(observed.record):
                    if observed.record is None and is_logged:
                        text = "were removed: this watch begins without them"
                        logger.warning(f"The positions in {self.storage.name} {text}")
                    return True
                is_taking = False
                if observed.record is not None and not is_logged:
                    is_logged, process = True, observed.record.process
                    logger.info(f"Standing by: {process} has the lease on {self.storage.name}")
                is_first = False
                self._wait(self._timing.look_seconds)
                record = self.storage.get()
            except CheckpointError as error:
                if is_first and isinstance(error.__cause__, StreamError):
                    raise
                self._log_trouble(str(error))
                observed.interrupt()
                was_refused = is_taking
                self._wait(self._timing.look_seconds)
                continue
            longest = 2 * self._timing.look_seconds
            # After another watch's write there is nothing to take, and so no trouble.
            was_refused &= observed.update(record, self._clock.boottime(), longest)
            if not was_refused:
                self.trouble = ""
        return False

    def _log_trouble(self, trouble: str) -> None:
        """Logs why it can't stand by; again only after minutes, also with answers in between."""
        self.trouble, now = trouble, self._clock.boottime()
        if now - self._logged_at.get(trouble, -math.inf) > self._timing.log_again_seconds:
            self._logged_at[trouble] = now
            logger.warning(f"{trouble}; standing by, trying again")

    def _is_free(self, observed: _Observation) -> bool:
        record = observed.record
        if record is None or record.holder in ("", self._holder):
            return True
        return observed.unchanged_seconds >= record.seconds + self._timing.margin_seconds

    def _take(self, stored: LeaseRecord | None) -> bool:
        """Takes the lease if `stored` is still stored; returns False if it is not."""
        began = self._clock.boottime()
        record = self._renewed(stored or _NOTHING)
        if not self.storage.replace(record, stored):
            return False
        if stored is not None and stored.holder not in ("", self._holder):
            logger.info(
                f"Taking over from {stored.process}: no sign of life for {stored.seconds:g} s"
            )
        self._on_written(record, began)
        return True

    def _wait(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        while not self._must_stop() and self._clock.monotonic() < until:
            self._clock.sleep(self._timing.poll_seconds)

    # Holding it

    def renew(self) -> float:
        """Renews it if that is due; returns the seconds until the next call (0: it is lost)."""
        due_in = self._written_at + self._timing.renew_seconds - self._clock.boottime()
        if due_in > 0:
            return due_in
        try:
            self.write()
        except CheckpointError:
            return self._timing.again_seconds  # `raise_unless_held` and the saves report it
        except LeaseLostError:
            return 0.0
        return self._timing.renew_seconds

    def write(self, token: bytes | None = None) -> None:
        """Renews it, with a new token if one is given. Raises CheckpointError, LeaseLostError."""
        with self._lock:
            if self._lost_reason:
                raise self._lost_error()
            began, seen, tries = self._clock.boottime(), self._written, 1
            token = seen.token if token is None else token
            try:
                while not self.storage.replace(record := self._renewed(seen, token), seen):
                    # The answer to an earlier write of ours may have been lost.
                    seen = self._confirm_ours(self.storage.get() if tries < _WRITES else None)
                    began, tries = self._clock.boottime(), tries + 1
            except CheckpointError as error:
                self.trouble = str(error)
                if error.answered:
                    self._extend(began)
                raise
            self._on_written(record, began)

    def _renewed(self, stored: LeaseRecord, token: bytes | None = None) -> LeaseRecord:
        """Returns the record that replaces the stored one."""
        token = stored.token if token is None else token
        return LeaseRecord(self._holder, stored.counter + 1, LEASE_SECONDS, token)

    def _on_written(self, record: LeaseRecord, began: float) -> None:
        self._written, self._written_at, self.trouble = record, began, ""
        self._valid_until = began + LEASE_SECONDS

    def _confirm_ours(self, stored: LeaseRecord | None) -> LeaseRecord:
        """Returns the stored record if this watch wrote it. Raises LeaseLostError."""
        if stored is not None and stored.holder == self._holder:
            return stored
        process = "" if stored is None else stored.process
        self._lost_reason = f"{process} has it now" if process else "somebody has removed it"
        self._valid_until = self._clock.boottime()
        raise self._lost_error()

    def _extend(self, began: float) -> None:
        """Extends the lease while its store answers with errors, to every other watch too."""
        try:
            stored = self.storage.get()
        except CheckpointError:
            stored = self._written
        self._confirm_ours(stored)
        if began < self._valid_until:
            self._valid_until = max(self._valid_until, began + LEASE_SECONDS)

    def _lost_error(self) -> LeaseLostError:
        return LeaseLostError(
            f"the lease on {self.storage.name} is lost: {self._lost_reason}; this watch delivers "
            "and saves nothing more (start it again to have it stand by)"
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
        """Waits a moment for the end of a write, before a fork."""
        if self._lock.acquire(timeout=self._timing.fork_seconds):
            self._lock.release()

    def release(self) -> None:
        """Releases it, so that no standby waits. Raises CheckpointError, LeaseLostError."""
        with self._lock:
            written = self._written
            if written.holder and not self._lost_reason:
                free = msgspec.structs.replace(written, holder="", counter=written.counter + 1)
                self.storage.replace(free, written)
                self._lost_reason = "it was released"


class Renewer:
    """A thread that renews a lease: a handler may take longer than the lease lasts."""

    def __init__(self, lease: Lease, timing: LeaseTiming | None = None) -> None:
        self._lease = lease
        self._timing = timing or LeaseTiming()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="renews the lease", daemon=True)
        # A fork copies locks as they stand.
        process_start.before_fork(lease.wait_for_write)
        self._thread.start()

    def _run(self) -> None:
        process_start.leave_signals_to_main()
        while seconds := self._lease.renew():
            if self._end.wait(seconds):
                return

    def close(self) -> None:
        """Stops renewing; waits a moment for a write that is under way."""
        self._end.set()
        self._thread.join(self._timing.renewer_end_seconds)


class LeasedStore(Store):
    """Tokens beside a lease, which `start_renewer` keeps renewed while it is held."""

    def __init__(self, lease: Lease, start_renewer: Callable[[Lease], Renewer] = Renewer) -> None:
        self._lease = lease
        self._start_renewer = start_renewer
        self._renewer: Renewer | None = None

    @property
    def name(self) -> str:
        """Its URL."""
        return self._lease.storage.name

    def peek(self) -> list[Token]:
        """See `Store`. Raises UsageError where the table can't be used."""
        self._lease.storage.prepare()
        return self.read()

    def read(self) -> list[Token]:
        """Returns the stored positions, with or without the lease. Raises CheckpointError."""
        return self._decoded(self._lease.peek().token)

    def stand_by(self, must_stop: Callable[[], bool]) -> bool:
        """See `Store`."""
        if not self._lease.stand_by(must_stop):
            return False
        self._renewer = self._start_renewer(self._lease)
        return True

    def load(self) -> list[Token]:
        """Returns the tokens that were stored when the lease was taken."""
        return self._decoded(self._lease.token)

    def _decoded(self, token: bytes) -> list[Token]:
        remedy = "delete the item to start again, or choose another name"
        return from_checkpoint(token, self.name, remedy) if token else []

    @property
    def raise_unless_held(self) -> Callable[[], object]:
        """See `Store`."""
        return self._lease.raise_unless_held

    @property
    def in_doubt(self) -> bool:
        """See `Store`."""
        return self._lease.in_doubt or self._lease.has_expired

    @property
    def is_lost(self) -> bool:
        """See `Store`."""
        return self._lease.is_lost

    @property
    def trouble(self) -> str:
        """See `Store`."""
        return self._lease.trouble

    def save(self, tokens: Sequence[Token]) -> None:
        """See `Store`. Raises UsageError, LeaseLostError."""
        self._lease.write(encode_all(tokens))

    def close(self) -> None:
        """Releases the lease, so that no standby waits."""
        if self._renewer is not None:
            with closing(self._renewer):
                self._renewer = None
            try:
                self._lease.release()
            except WatcherError as error:
                logger.debug(f"The lease was not released: {error}")
        self._lease.storage.close()
