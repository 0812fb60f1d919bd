"""The protocol between the loop and the delivery to handlers: submit, poll, drain, close."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from watcher.aws.model import ShardKey
from watcher.records.wire import WireRecord
from watcher.streams.lineage import TrackedShard
from watcher.streams.messages import Finished, Page

EndOfReading = tuple[ShardKey, Finished | None]
"""A shard, and how its reading ended: with its end, or (None) as nobody reads it any more."""


class HandlerStep(NamedTuple):
    """A handler's work for a shard, in its own thread; times are monotonic seconds."""

    shard: ShardKey
    since: float
    retried_at: float
    """When it last tried the same again, or waited to; 0: it does not."""


class Delivery(Protocol):
    """Hands each shard's records to the handlers in order, and moves its position behind them.

    The loop submits what the workers have read, as long as there is room, and polls. All methods
    belong to the loop's thread.
    """

    @property
    def has_room(self) -> bool:
        """True while the loop may receive more: what waits here is bounded."""

    @property
    def is_complete(self) -> bool:
        """True once as many records were delivered as were asked for."""

    @property
    def undelivered(self) -> int:
        """The number of records that were submitted and have not reached the handlers."""

    def limit_to(self, count: int, is_within: Callable[[ShardKey, WireRecord], bool]) -> None:
        """Deliver no more than so many records, and only those that pass this test."""

    def submit(
        self, shard_key: ShardKey, shard: TrackedShard, page: Page, *, then_drain: bool = False
    ) -> None:
        """Take a page of a shard in; `poll` delivers it.

        With `then_drain`, nothing of it may wait in a handler's batch afterwards.
        """

    def submit_end(self, shard_key: ShardKey, message: Finished | None) -> None:
        """Take in how a shard's reading ended; `poll` gives it back behind the shard's records."""

    def poll(self) -> Sequence[EndOfReading]:
        """Deliver for a fraction of a second; returns the ends whose records all were delivered.

        Raises as `Dispatcher.deliver`; the position is then before the record that failed.
        """

    def move_positions(self) -> None:
        """Move the positions behind what was delivered by now. Raises as `Dispatcher.flush`."""

    def reserve(self, items: ShardKey) -> bool:
        """Hold changes back for a page of a table's items; True once nothing is at work."""

    def release(self) -> None:
        """Let changes go on, unless items are still being delivered."""

    def is_delivering(self, shard_key: ShardKey) -> bool:
        """True while records of a shard (or items of a table) wait here, or are in hand."""

    def has_changes_beside(self, items: ShardKey | None) -> bool:
        """True while records wait here that are not among these items."""

    def steps(self) -> Sequence[HandlerStep]:
        """The work of handlers in their own threads, beside the loop."""

    def drain(self) -> None:
        """Begin nothing more, and let what is in hand end, as long as there is time.

        Raises as `Dispatcher.deliver`, `Dispatcher.flush`.
        """

    def close(self) -> None:
        """Close the handlers, at the end of a watch that may have failed.

        Raises as `Dispatcher.close`.
        """
