"""Decides when to save the checkpoint: soon after a delivery, seldom in an idle watch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from watcher.clock import CLOCK, Clock
from watcher.errors import UsageError, WatcherError
from watcher.observability.heartbeat import Heartbeat, Phase
from watcher.stores.protocol import Store
from watcher.streams.checkpoint_format import Token

logger = logging.getLogger("watcher")

# The delay between saves: a kill repeats what was delivered since the last one.
_SAVE_SECONDS = 1.0
# The age of unsaved positions at which they are saved before a long wait.
_WAITING_SECONDS = 0.2
# The longest save that counts as slow: in a longer one the process stood, or the machine slept.
_SLOW_SECONDS = 10.0
# The longest time between saves: a checkpoint's age tells which records may be lost.
_IDLE_SECONDS = 300.0


class CheckpointSaver:
    """Saves the streams' tokens into the store, if there is one, when that is due.

    `tokens` returns them. While it `has_pending` records, which handlers hold back, the positions
    may move without a further record.
    """

    def __init__(
        self,
        *,
        store: Store | None,
        tokens: Callable[[], Sequence[Token]],
        has_pending: Callable[[], bool] = lambda: False,
        heartbeat: Heartbeat | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self.error: UsageError | None = None
        """The error of the last save, if it failed; the next save is then due as usual."""
        self.store = store
        self._tokens = tokens
        self._has_pending = has_pending
        self._heartbeat = heartbeat or Heartbeat(clock=clock)
        self._clock = clock
        self._has_saved = self._is_dirty = False
        self._saved_at = clock.monotonic()
        self._duration = 0.0
        """The seconds of the last save; delivery gets at least as many before the next."""

    def save_first(self) -> None:
        """Saves the start of a stream, before any of its records is delivered.

        After a kill, the next watch thus knows which streams have started. The first save of a
        watch raises its UsageError at once, not after the first thousand records.
        """
        if self._has_saved:
            self._is_dirty = True
            if self._clock.monotonic() >= self._saved_at + self._duration:
                self.save_now()
        elif self.store is not None:
            self._has_saved = True
            self._write(self.store)

    def mark_dirty(self) -> None:
        """Notes that there is something to save."""
        self._is_dirty = True

    def save_if_due(self) -> None:
        """Saves once a second, and seldom in an idle watch."""
        store = self.store
        age = self._clock.monotonic() - self._saved_at
        due = max(_SAVE_SECONDS if self._is_dirty else _IDLE_SECONDS, self._duration)
        if store is not None and store.is_lost:  # the save raises that
            due = 0.0
        elif store is not None and store.trouble and self.error is None:  # the save logs that
            due = max(_SAVE_SECONDS, self._duration)
        if age >= due:
            self.save_now()

    def save_before_waiting(self) -> None:
        """Saves unsaved positions before a call that may take long."""
        age = self._clock.monotonic() - self._saved_at
        if self._is_dirty and age > max(_WAITING_SECONDS, self._duration):
            self.save_now()

    def save_last(self) -> None:
        """Saves unsaved positions at the end of the watch."""
        if self._is_dirty:
            self.save_now()

    def raise_error(self) -> None:
        """Raises WatcherError if the last save failed."""
        if self.error is not None:
            raise WatcherError(f"{self.error}; the positions of this run are not saved")

    def save_now(self) -> None:
        """Saves; logs an error such as a full disk, which does not end the watch."""
        self._is_dirty = False
        self._saved_at = began = self._clock.monotonic()
        if self.store is None:
            return
        try:
            self._write(self.store)
            if self.error is not None:
                logger.info("The positions are saved again")
            self.error = None
        except UsageError as error:
            if self.error is None:
                logger.error(f"{error}; the watch continues, but its positions are not saved")
            self.error = error
            self._is_dirty = True
        finally:
            self._saved_at = self._clock.monotonic()
            took = self._saved_at - began
            self._duration = took if took <= _SLOW_SECONDS else 0.0

    def _write(self, store: Store) -> None:
        with self._heartbeat.during(Phase.SAVING):
            tokens = self._tokens()
            self._is_dirty |= self._has_pending()
            if tokens or store.is_lost:  # before any stream there are no positions to keep
                store.save(tokens)
