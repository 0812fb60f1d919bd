"""When the checkpoint is saved: soon after something was delivered, and never more than that."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from watcher.clock import CLOCK, Clock
from watcher.errors import UsageError, WatcherError
from watcher.observability.heartbeat import Heartbeat, Phase
from watcher.streams.token import Token

logger = logging.getLogger("watcher")

_SAVE_SECONDS = 1.0
_TICK_SECONDS = 0.2
# So old a stored token may get while all is idle.
_SAVE_IDLE_SECONDS = 300.0


class Store(Protocol):
    """Where a watch's tokens are kept, one for each stream.

    `load` and `save` raise UsageError where that can't be.
    """

    @property
    def name(self) -> str:
        """What to call it in a sentence."""

    def peek(self) -> list[Token]:
        """What is stored while it may be another watch's turn, to be asked before `stand_by`."""
        return []

    def stand_by(self, is_ending: Callable[[], bool]) -> bool:
        """Wait until it is this watch's turn to deliver; False where the watch is to end first."""
        return True

    @property
    def check(self) -> Callable[[], object] | None:
        """To be called before each delivery: raises LeaseLostError where it is another's turn now.

        None where that can't be.
        """
        return None

    @property
    def in_doubt(self) -> bool:
        """Whether delivery waits as nobody knows just now whose turn it is."""
        return False

    @property
    def is_lost(self) -> bool:
        """Whether it is another's turn by now: the next save raises that."""
        return False

    @property
    def trouble(self) -> str:
        """Why it can't be used just now, as far as that is known without a save."""
        return ""

    def load(self) -> list[Token]:
        """The stored ones; none where nothing was stored yet."""

    def save(self, tokens: Sequence[Token]) -> None:
        """Put them in the place of the stored ones."""


class CheckpointSaver:
    """Saves what `tokens` says into the store, if there is one, when it is due."""

    def __init__(
        self,
        store: Store | None,
        tokens: Callable[[], Sequence[Token]],
        clock: Clock = CLOCK,
        pulse: Heartbeat | None = None,
    ) -> None:
        self.error: UsageError | None = None
        """Why the last save has failed; it is tried again like one that is due."""
        self._store = store
        self._tokens = tokens
        self._clock = clock
        self._pulse = pulse or Heartbeat(clock=clock)
        self._has_begun = self._unsaved = False
        self._saved_at = clock.monotonic()
        self._took = 0.0
        """How long the last save has taken: delivery gets as much time as saving at least."""

    def save_first(self) -> None:
        """There are positions of one stream more: saved before anything of it is delivered.

        Else a watch of many that is killed as it begins could not tell which it has begun. That the
        first ones can't be is said now, not after the first thousand records. Raises UsageError.
        """
        if self._has_begun:
            self._unsaved = True
            if self._clock.monotonic() >= self._saved_at + self._took:
                self._save()
        elif self._store is not None:
            self._has_begun = True
            with self._pulse.during(Phase.SAVING):
                self._store.save(self._tokens())

    def mark_dirty(self) -> None:
        """There is something to save."""
        self._unsaved = True

    def save_if_due(self) -> None:
        """Save about once a second, and seldom while all is idle."""
        age = self._clock.monotonic() - self._saved_at
        due = max(_SAVE_SECONDS if self._unsaved else _SAVE_IDLE_SECONDS, self._took)
        is_lost = self._store is not None and self._store.is_lost  # which the save raises
        is_unsaid = self._store is not None and self.error is None and self._store.trouble
        if is_lost or age >= (max(_SAVE_SECONDS, self._took) if is_unsaid else due):
            self._save()

    def save_before_waiting(self) -> None:
        """What was delivered must not grow old unsaved while something takes its time."""
        age = self._clock.monotonic() - self._saved_at
        if self._unsaved and age > max(_TICK_SECONDS, self._took):
            self._save()

    def save_last(self) -> None:
        """Save the last positions."""
        if self._unsaved:
            self._save()

    def raise_error(self) -> None:
        """Raise WatcherError where the last save has failed."""
        if self.error is not None:
            raise WatcherError(f"{self.error}; the positions of this run are not saved")

    def _save(self) -> None:
        """A full disk is no reason to stop the watch."""
        self._unsaved = False
        began = self._saved_at = self._clock.monotonic()
        if self._store is None:
            return
        try:
            with self._pulse.during(Phase.SAVING):
                self._store.save(self._tokens())
            if self.error is not None:
                logger.info("The positions are saved again")
            self.error = None
        except UsageError as error:
            if self.error is None:
                logger.error(f"{error}; the watch goes on, its positions are not saved")
            self.error = error
            self._unsaved = True
        finally:
            self._saved_at = self._clock.monotonic()
            self._took = self._saved_at - began
