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

import msgspec

from watcher import process_start
from watcher.aws.lease_storage import LeaseObject, LeaseRecord, LeaseTable
from watcher.clock import CLOCK, Clock
from watcher.errors import CheckpointError, LeaseLostError, StreamError, WatcherError
from watcher.stores.protocol import Store
from watcher.streams.checkpoint_format import Token, encode_all, from_checkpoint

logger = logging.getLogger("watcher")

LEASE_SECONDS = 6.0
"""The time after which a standby takes over from a watch that was killed; several renewals fit."""
# The delay between renewals: two more tries fit into a lease.
_RENEW_SECONDS = 2.0
# The delay after a failed write.
_AGAIN_SECONDS = 0.5
# The delay between a standby's reads of the lease.
_LOOK_SECONDS = 1.0
# The time for which a standby waits beyond a lease's end: clocks run at different speeds (a
# twentieth is a lot), and a handler may still have a record.
_MARGIN_SECONDS = 0.5
# The delay between checks whether the watch stops.
_POLL_SECONDS = 0.1
# The delay before a lasting error is logged again.
_LOG_AGAIN_SECONDS = 300.0
# The longest that a fork waits for a write, whose lock the child would inherit locked.
_FORK_SECONDS = 2.0
# The longest wait, at the end, for a renewal that is under way.
_RENEWER_END_SECONDS = 5.0
# The attempts at a write while others write.
_WRITES = 5
_NOTHING = LeaseRecord("", 0, 0.0, b"")


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


class Lease(Store):
    """A store of tokens beside one watch's claim to the lease.

    With `renews`, a thread keeps it renewed while it is held: a handler may take longer than it
    lasts.
    """

    def __init__(
        self,
        storage: LeaseTable | LeaseObject,
        holder: str,
        clock: Clock = CLOCK,
        *,
        renews: bool = False,
    ) -> None:
        self._storage = storage
        self._holder = holder
        self._clock = clock
        self._renews = renews
        self._renewer: threading.Thread | None = None
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._written = _NOTHING
        """The record of the last successful write."""
        self._written_at = clock.boottime()
        """The start time of that write."""
        self._valid_until = self._written_at
        self._lost_reason = ""
        self._trouble = ""
        """Why it can't be renewed; for a standby, why it can't be read or taken over."""
        self._is_waiting = False
        """True while it has expired, and delivery waits for its renewal."""
        self._logged_at: dict[str, float] = {}
        self._must_stop: Callable[[], bool] = lambda: False

    @property
    def name(self) -> str:
        """Its URL."""
        return self._storage.name

    @property
    def is_lost(self) -> bool:
        """True once another watch has it, or it was released."""
        return bool(self._lost_reason)

    @property
    def in_doubt(self) -> bool:
        """True if this watch had it, and did not renew it in time, also while nothing comes."""
        has_expired = bool(self._written.holder) and self._clock.boottime() >= self._valid_until
        return self._is_waiting or has_expired

    @property
    def trouble(self) -> str:
        """See `Store`."""
        return self._trouble

    # The tokens

    def peek(self) -> list[Token]:
        """See `Store`. Raises UsageError where the table can't be used."""
        self._storage.prepare()
        return self.read()

    def read(self) -> list[Token]:
        """Returns the stored positions, with or without the lease. Raises CheckpointError."""
        return self._decoded((self._storage.get() or _NOTHING).token)

    def load(self) -> list[Token]:
        """Returns the tokens that were stored when the lease was taken."""
        return self._decoded(self._written.token)

    def _decoded(self, token: bytes) -> list[Token]:
        remedy = "delete the item to start again, or choose another name"
        return from_checkpoint(token, self.name, remedy) if token else []

    def save(self, tokens: Sequence[Token]) -> None:
        """See `Store`. Raises UsageError, LeaseLostError."""
        self.write(encode_all(tokens))

    # Standing by

    def stand_by(self, must_stop: Callable[[], bool]) -> bool:
        """Waits for the lease; returns True with it, False where the watch has to stop first.

        Raises CheckpointError where the first read fails, or the first write for a reason that only
        the user can fix.
        """
        self._must_stop = must_stop
        if not self._take_over():
            return False
        if self._renews:
            # A fork copies locks as they stand.
            process_start.before_fork(self._wait_for_write)
            self._renewer = threading.Thread(target=self._keep, name="lease", daemon=True)
            self._renewer.start()
        return True

    def _keep(self) -> None:
        """Renews it until its end, in a thread."""
        process_start.leave_signals_to_main()
        while (seconds := self.renew()) and not self._end.wait(seconds):
            pass

    def _take_over(self) -> bool:
        """Waits until the lease is free, and takes it; False where the watch has to stop first."""
        must_stop = self._must_stop
        observed = _Observation(self._storage.get(), self._clock.boottime())
        is_first, is_logged, was_refused = True, False, False
        while not must_stop():
            is_taking = self._is_free(observed)
            try:
                if is_taking and self._take(observed.record):
                    if observed.record is None and is_logged:
                        text = "were removed: this watch begins without them"
                        logger.warning(f"The positions in {self._storage.name} {text}")
                    return True
                is_taking = False
                if observed.record is not None and not is_logged:
                    is_logged, process = True, observed.record.process
                    logger.info(f"Standing by: {process} has the lease on {self._storage.name}")
                is_first = False
                self._wait(_LOOK_SECONDS)
                record = self._storage.get()
            except CheckpointError as error:
                if is_first and isinstance(error.__cause__, StreamError):
                    raise
                self._log_trouble(str(error))
                observed.interrupt()
                was_refused = is_taking
                self._wait(_LOOK_SECONDS)
                continue
            longest = 2 * _LOOK_SECONDS
            # After another watch's write there is nothing to take, and so no trouble.
            was_refused &= observed.update(record, self._clock.boottime(), longest)
            if not was_refused:
                self._trouble = ""
        return False

    def _log_trouble(self, trouble: str) -> None:
        """Logs why it can't stand by; again only after minutes, also with answers in between."""
        self._trouble, now = trouble, self._clock.boottime()
        if now - self._logged_at.get(trouble, -math.inf) > _LOG_AGAIN_SECONDS:
            self._logged_at[trouble] = now
            logger.warning(f"{trouble}; standing by, trying again")

    def _is_free(self, observed: _Observation) -> bool:
        record = observed.record
        if record is None or record.holder in ("", self._holder):
            return True
        return observed.unchanged_seconds >= record.seconds + _MARGIN_SECONDS

    def _take(self, stored: LeaseRecord | None) -> bool:
        """Takes the lease if `stored` is still stored; returns False if it is not."""
        began = self._clock.boottime()
        record = self._renewed(stored or _NOTHING)
        if not self._storage.replace(record, stored):
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
            self._clock.sleep(_POLL_SECONDS)

    # Holding it

    def renew(self) -> float:
        """Renews it if that is due; returns the seconds until the next call (0: it is lost)."""
        due_in = self._written_at + _RENEW_SECONDS - self._clock.boottime()
        if due_in > 0:
            return due_in
        try:
            self.write()
        except CheckpointError:
            return _AGAIN_SECONDS  # `raise_unless_held` and the saves report it
        except LeaseLostError:
            return 0.0
        return _RENEW_SECONDS

    def write(self, token: bytes | None = None) -> None:
        """Renews it, with a new token if one is given. Raises CheckpointError, LeaseLostError."""
        with self._lock:
            if self._lost_reason:
                raise self._lost_error()
            began, seen, tries = self._clock.boottime(), self._written, 1
            token = seen.token if token is None else token
            try:
                while not self._storage.replace(record := self._renewed(seen, token), seen):
                    # The answer to an earlier write of ours may have been lost.
                    seen = self._confirm_ours(self._storage.get() if tries < _WRITES else None)
                    began, tries = self._clock.boottime(), tries + 1
            except CheckpointError as error:
                self._trouble = str(error)
                if error.answered:
                    self._extend(began)
                raise
            self._on_written(record, began)

    def _renewed(self, stored: LeaseRecord, token: bytes | None = None) -> LeaseRecord:
        """Returns the record that replaces the stored one."""
        token = stored.token if token is None else token
        return LeaseRecord(self._holder, stored.counter + 1, LEASE_SECONDS, token)

    def _on_written(self, record: LeaseRecord, began: float) -> None:
        self._written, self._written_at, self._trouble = record, began, ""
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
            stored = self._storage.get()
        except CheckpointError:
            stored = self._written
        self._confirm_ours(stored)
        if began < self._valid_until:
            self._valid_until = max(self._valid_until, began + LEASE_SECONDS)

    def _lost_error(self) -> LeaseLostError:
        return LeaseLostError(
            f"the lease on {self._storage.name} is lost: {self._lost_reason}; this watch delivers "
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
                if not self._is_waiting:
                    self._is_waiting = True
                    logger.error(f"{error}; the lease has expired: delivery waits")
                if self._must_stop():
                    text = (
                        f"the lease on {self._storage.name} expired, and its store doesn't answer"
                    )
                    raise LeaseLostError(f"{text}: the rest is left to the next watch") from error
                self._wait(_AGAIN_SECONDS)
        if self._is_waiting:
            self._is_waiting = False
            logger.info("The lease is renewed: delivery continues")

    def _wait_for_write(self) -> None:
        """Waits a moment for the end of a write, before a fork."""
        if self._lock.acquire(timeout=_FORK_SECONDS):
            self._lock.release()

    def close(self) -> None:
        """Releases it, so that no standby waits."""
        self._end.set()
        try:
            with self._lock:
                written = self._written
                if written.holder and not self._lost_reason:
                    free = msgspec.structs.replace(written, holder="", counter=written.counter + 1)
                    self._storage.replace(free, written)
                    self._lost_reason = "it was released"
        except WatcherError as error:
            logger.debug(f"The lease was not released: {error}")
        if self._renewer is not None:
            self._renewer.join(_RENEWER_END_SECONDS)
        self._storage.close()
