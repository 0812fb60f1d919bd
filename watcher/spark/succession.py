"""Moves a query of a table from a stream that has ended to the table's next stream."""

from __future__ import annotations

import logging
import math
from typing import Final

from watcher.aws.model import Service
from watcher.clock import Clock
from watcher.errors import StreamGoneError
from watcher.pull.stream_successor import SUCCESSOR_WAIT_SECONDS, StreamEnd, SuccessorSearch
from watcher.streams.coordinator import Coordinator
from watcher.streams.losses import Losses

logger = logging.getLogger("watcher")

NAME_THE_NEW: Final = "name that, with another checkpoint"
"""What to do about a stream that another has replaced."""


class StreamSuccession:
    """A query's stream, with its predecessor and its successor."""

    def __init__(self, arn: str, *, of_table: bool, losses: Losses, clock: Clock) -> None:
        self.end: StreamEnd | None = None
        """The end of the stream, once all of it is delivered."""
        self.successor: str | None = None
        """The ARN of the table's next stream, once the query has moved on to it."""
        self.follows = False
        """True if the query has moved on to this stream from another one."""
        self._arn = arn
        self._losses = losses
        self._search = SuccessorSearch(of_table=of_table, clock=clock)
        self._newest: str | None = None
        """The table's newest stream, where a checkpoint is of an older one."""

    def take_over(self, former: StreamSuccession) -> None:
        """Replaces another stream of the table, in the same query."""
        self.follows = former.successor == self._arn
        self._newest = None if self.follows or former._arn == self._arn else former._arn
        self._losses.lines = former._losses.lines

    def find_end(self, coordinator: Coordinator, service: Service, *, stops: bool) -> None:
        """Searches, once, for the next stream of the table; all of this one is delivered.

        A query waits without a limit for the stream that follows a disabled one, unless it `stops`
        by itself (`availableNow`).
        """
        search = self._search
        search.wait_seconds = math.inf
        if stops or (coordinator.is_gone and not search.of_table):
            search.wait_seconds = 0.0
        elif coordinator.is_gone:
            search.wait_seconds = SUCCESSOR_WAIT_SECONDS
        self.end = search.search(service, coordinator)
        if self.end is not None and self.end.newer and stops:
            logger.warning(str(self.error(coordinator)))

    def error(self, coordinator: Coordinator) -> StreamGoneError:
        """Returns the error of a query that can't move on."""
        newer = self.end and self.end.newer
        if newer is None:
            return StreamGoneError(f"no stream {self._arn}: it was deleted")
        return StreamGoneError(
            f"stream {self._arn} is {coordinator.ended_how}, and all of it is read; its table has "
            f"a new one, {newer}: {NAME_THE_NEW}"
        )

    def move_on(self, successor: str) -> str:
        """Returns the ARN of the table's next stream; warns of the gap before it the first time."""
        if self.successor is None:
            self.successor = successor
            why = "the first one was disabled, or deleted"  # nobody may have made changes then
            self._losses.report_gap(self._arn, successor, why, may_raise=False)
        return self.successor

    def move_beyond_lost(self, error: StreamGoneError) -> str:
        """Returns the table's newest stream, for a checkpoint whose own stream is gone.

        Raises the error where there is none, and DataLossError.
        """
        if self._newest is None:
            raise error
        self._losses.report(f"stream {self._arn}, from the checkpoint on", "it is gone")
        return self.move_on(self._newest)
