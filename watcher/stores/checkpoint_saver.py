"""When the checkpoint is saved: soon after something was delivered, seldom while all is idle."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from watcher.clock import CLOCK, Clock
from watcher.errors import UsageError, WatcherError
from watcher.observability.heartbeat import Heartbeat, Phase
from watcher.stores.protocol import Store
from watcher.stores.timing import SaveTiming
from watcher.streams.checkpoint_format import Token

logger = logging.getLogger("watcher")


class CheckpointSaver:
    """Saves where the streams stand into the store, if there is one, when that is due."""

    def __init__(
        self,
        *,
        store: Store | None,
        tokens: Callable[[], Sequence[Token]],
        has_pending: Callable[[], bool] = lambda: False,
        delivered: Callable[[], int] = lambda: 0,
        heartbeat: Heartbeat | None = None,
        clock: Clock = CLOCK,
        timing: SaveTiming | None = None,
    ) -> None:
        """`tokens` tells where the streams stand.

        While it `has_pending`, delivered records hold a position back: it moves without a further
        one. `delivered` counts the records.
        """
        self.error: UsageError | None = None
        """Why the last save has failed; it is tried again like one that is due."""
        self._store = store
        self._tokens = tokens
        self._has_pending = has_pending
        self._delivered = delivered
        self._heartbeat = heartbeat or Heartbeat(clock=clock)
        self._clock = clock
        self._timing = timing or SaveTiming()
        self._has_saved = self._is_dirty = False
        self._saved_at = clock.monotonic()
        self._took = 0.0
        """How long the last save has taken: delivery gets as much time as saving at least."""
        self._saved_records = 0
        """How many records were delivered as the last save began."""
        self._allowed = self._timing.saved_up_seconds
        """How long saves beside those of each second were allowed to take, after the last one."""

    def save_first(self) -> None:
        """Save where one more stream begins, before anything of it is delivered.

        Else a watch of many that is killed as it begins could not tell which it has begun. That the
        first ones can't be saved is raised now, not after a thousand records. Raises UsageError.
        """
        if self._has_saved:
            self._is_dirty = True
            if self._clock.monotonic() >= self._saved_at + self._took:
                self.save_now()
        elif self._store is not None:
            self._has_saved = True
            self._write(self._store)

    def mark_dirty(self) -> None:
        """Note that there is something to save."""
        self._is_dirty = True

    def save_if_due(self) -> None:
        """Save about once a second, a fast backlog sooner, and seldom while all is idle."""
        timing, store = self._timing, self._store
        age = self._clock.monotonic() - self._saved_at
        due = max(timing.save_seconds if self._is_dirty else timing.idle_seconds, self._took)
        if self._is_dirty and self._delivered() - self._saved_records >= timing.save_records:
            due = 0.0 if self._allowance(age) >= self._took else due
        if store is not None and store.is_lost:  # which the save raises
            due = 0.0
        elif store is not None and store.trouble and self.error is None:  # which the save logs
            due = max(timing.save_seconds, self._took)
        if age >= due:
            self.save_now()

    def _allowance(self, age: float) -> float:
        """How long a save of many records may take by now."""
        timing = self._timing
        return min(timing.saved_up_seconds, self._allowed + timing.save_share * age)

    def save_before_waiting(self) -> None:
        """Save what is unsaved before something takes its time: it must not grow old meanwhile."""
        age = self._clock.monotonic() - self._saved_at
        if self._is_dirty and age > max(self._timing.waiting_seconds, self._took):
            self.save_now()

    def save_last(self) -> None:
        """Save what is unsaved at the end of the watch."""
        if self._is_dirty:
            self.save_now()

    def raise_error(self) -> None:
        """Raise WatcherError where the last save has failed."""
        if self.error is not None:
            raise WatcherError(f"{self.error}; the positions of this run are not saved")

    def save_now(self) -> None:
        """Save; a full disk is logged, and no reason to stop the watch."""
        self._is_dirty = False
        allowed = self._allowance(self._clock.monotonic() - self._saved_at)
        began = self._saved_at = self._clock.monotonic()
        self._saved_records = self._delivered()
        if self._store is None:
            return
        try:
            self._write(self._store)
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
            self._took = self._saved_at - began
            self._allowed = max(0.0, allowed - self._took)

    def _write(self, store: Store) -> None:
        with self._heartbeat.during(Phase.SAVING):
            tokens = self._tokens()
            self._is_dirty |= self._has_pending()
            store.save(tokens)
