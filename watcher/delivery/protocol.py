"""The interface of delivery for the loop: submit, deliver, drain, close."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence, Set
from typing import NamedTuple

from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.progress import Progress
from watcher.observability.heartbeat import Heartbeat
from watcher.streams.lineage import TrackedShard
from watcher.streams.messages import Page, ReaderEnded

EndOfReading = tuple[ShardKey, ReaderEnded | None]
"""A shard, and the `ReaderEnded` message of its reader; None: nothing reads it any more."""


class HandlerStep(NamedTuple):
    """A handler's current work for a shard, in its own thread; times are monotonic seconds."""

    shard: ShardKey
    since: float
    retried_at: float
    """The time of the last retry of a failed record, or of the wait for it; 0: no retry."""


class Delivery(ABC):
    """Hands each shard's records to the handlers in order, and moves its position behind them.

    The loop submits what the workers have read, but nothing more of a shard that is `full`, so
    that a slow handler delays no other shard's end. All methods belong to the loop's thread.
    """

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        progress: Progress,
        heartbeat: Heartbeat,
        clock: Clock = CLOCK,
    ) -> None:
        self._dispatcher = dispatcher
        self._progress = progress
        self._heartbeat = heartbeat
        self._clock = clock

    @property
    @abstractmethod
    def full(self) -> Set[ShardKey]:
        """The shards that take no more for now: the waiting records are bounded.

        Where there are none, the loop may wait for messages; else delivery has work.
        """

    @property
    def is_complete(self) -> bool:
        """True once the requested number of records is delivered (`--max-records`, for one)."""
        return self._progress.is_complete

    @abstractmethod
    def submit(
        self, shard_key: ShardKey, shard: TrackedShard, page: Page, *, then_drain: bool = False
    ) -> None:
        """Accepts a page of a shard; `deliver` delivers it.

        With `then_drain`, handlers process their open batches of this shard behind the page.
        """

    @abstractmethod
    def submit_end(self, shard_key: ShardKey, message: ReaderEnded | None) -> None:
        """Accepts the end of a shard's reading; `deliver` returns it behind its last record."""

    @abstractmethod
    def deliver(self) -> Sequence[EndOfReading]:
        """Delivers for a fraction of a second; returns the ends whose records all are delivered.

        Raises as `Dispatcher.deliver`; the position then stands before the failed record.
        """

    @abstractmethod
    def move_positions(self) -> None:
        """Moves the positions behind the delivered records. Raises as `Dispatcher.flush`."""

    @abstractmethod
    def reserve(self, items: ShardKey) -> bool:
        """Holds back a table's changes for a page of its items; True once no handler is at work."""

    def release(self) -> None:
        """Lets changes go on, unless items are still being delivered."""
        return  # only the current page holds anything back

    @abstractmethod
    def is_delivering(self, shard_key: ShardKey) -> bool:
        """True while records of a shard (or items of a table) wait, or a handler has one."""

    @abstractmethod
    def has_changes_beside(self, items: ShardKey | None) -> bool:
        """True while records other than these items wait for delivery."""

    def steps(self) -> Sequence[HandlerStep]:
        """Returns the current work of handlers that run in their own threads."""
        return ()

    @abstractmethod
    def drain(self) -> None:
        """Starts no more records, and waits for those in hand while the stop timeout lasts.

        Raises as `Dispatcher.deliver` and `Dispatcher.flush`.
        """

    def close(self) -> None:
        """Closes the handlers, also at the end of a watch that failed.

        Raises as `Dispatcher.close`.
        """
        self._dispatcher.close()
