"""What a stream holds: all of it, read in one process by a few threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial

import msgspec

from watcher.aws.model import (
    AfterSequence,
    AtTime,
    Latest,
    Listing,
    Position,
    Service,
    ShardKey,
    TrimHorizon,
)
from watcher.clock import CLOCK, Clock
from watcher.pull import executor
from watcher.pull.calls import CallPool
from watcher.records import page as pages
from watcher.records.record import Record
from watcher.streams.coordinator import AGAIN_SECONDS, Coordinator, ShardEnd
from watcher.streams.lineage import ShardStatus, TrackedShard
from watcher.streams.losses import Losses, held_since
from watcher.streams.messages import (
    Chosen,
    Message,
    Page,
)
from watcher.streams.shard_reader import ShardReader

# So many shards are read at a time, each over a connection of its own.
_LANES = 8


class _Pending(msgspec.Struct):
    """A shard that is being read."""

    tracked: TrackedShard
    reader: ShardReader
    lane: int
    due: float = 0.0


class BacklogReader:
    """A stream's records, from `start` (None: its trim horizon) up to now, and later on up to then.

    The changes of one item come in their order. `lanes` makes clients for one thread each; memory
    holds a page for each. What is not `chosen` may be left out. With `strict`, records that were
    gone before they could be read raise DataLossError; else they are said as a warning, and stand
    in `losses`. `asking` is the service for what must not keep the reading waiting. Raises
    StreamError.
    """

    def __init__(
        self,
        arn: str,
        service: Service,
        start: datetime | None = None,
        *,
        lanes: Callable[[int], Sequence[Service]] | None = None,
        strict: bool = False,
        chosen: Chosen | None = None,
        clock: Clock = CLOCK,
        asking: Service | None = None,
    ) -> None:
        self._arn = arn
        self._service = service
        self._asking = asking or service
        self._chosen = chosen
        self._clock = clock
        self._losses = Losses(is_error=strict, clock=clock)
        self.losses = self._losses.lines
        self._pending: dict[str, _Pending] = {}
        self._in_call: dict[Future[list[Message]], _Pending] = {}
        self._turn = 0
        position = TrimHorizon() if start is None else AtTime(start.astimezone(UTC))
        self._coordinator = self._new_coordinator(position)
        executor.begin(self._coordinator, service, clock)
        count = max(1, min(_LANES, len(self.listing.shards)))
        self._lanes = [service] if lanes is None else lanes(count)

    @property
    def listing(self) -> Listing:
        """What the service last said of the stream, and its time then."""
        return self._coordinator.listing

    @property
    def since(self) -> datetime:
        """From when on it holds every change: a day ago, by the service, or since it is enabled."""
        return held_since(self.listing, self._coordinator.now)

    def say_if_begins_late(self) -> None:
        """Whether it holds nothing yet of the time that it is to begin at."""
        self._losses.say_if_begins_late(self.listing)

    @property
    def has_ended(self) -> bool:
        """Whether the stream gets no more records."""
        return self._coordinator.has_ended

    def read(self) -> Iterator[Record]:
        """All records up to now (or up to the end, if the stream has ended)."""
        calls = CallPool()
        try:
            while True:
                self._attend()
                self._begin_reads(calls)
                is_idle = not self._in_call
                for shard, messages in self._answered():
                    for message in messages:
                        yield from self._on_message(shard, message)
                    shard.due = self._clock.monotonic() + shard.reader.pause
                if not self._pending and self._coordinator.is_settled():
                    return self._coordinator.log_left()
                if is_idle:
                    self._clock.sleep(self._rest())
        finally:
            self._in_call.clear()
            calls.close(wait=False)

    def read_on(self) -> Iterator[Record]:
        """All records that have come since, up to now."""
        lineage = self._coordinator.lineage.shards.values()
        resumed = [
            msgspec.structs.replace(
                shard,
                status=ShardStatus.FINISHED
                if shard.status is ShardStatus.FINISHED
                else ShardStatus.WAITING,
            )
            for shard in lineage
        ]
        self._coordinator = self._new_coordinator(Latest(), resumed)
        executor.begin(self._coordinator, self._service, self._clock)
        return self.read()

    def _new_coordinator(
        self, start: Position, resumed: Sequence[TrackedShard] | None = None
    ) -> Coordinator:
        return Coordinator(
            self._arn,
            start,
            resumed,
            losses=self._losses,
            in_use=self._pending,
            clock=self._clock,
        )

    def _attend(self) -> None:
        executor.refresh(self._coordinator, self._asking)
        for shard in self._pending.values():
            shard.reader.closed = shard.reader.closed or self._coordinator.is_closed(
                shard.tracked.id
            )
        for tracked in self._coordinator.to_start():
            self._turn += 1
            lane = self._turn % len(self._lanes)
            self._pending[tracked.id] = _Pending(tracked, self._reader(tracked), lane)

    def _reader(self, tracked: TrackedShard) -> ShardReader:
        return ShardReader(
            self._arn,
            tracked.id,
            tracked.position,
            closed=self._coordinator.is_closed(tracked.id),
            until=self._coordinator.written_at,
            chosen=self._chosen,
            latest=self._coordinator.began_at,
            clock=self._clock,
        )

    def _begin_reads(self, calls: CallPool) -> None:
        """One shard a lane that is free, those first that have waited longest."""
        now = self._clock.monotonic()
        chosen: dict[int, _Pending] = {}
        for shard in sorted(self._free(), key=lambda shard: shard.due):
            if shard.due <= now:
                chosen.setdefault(shard.lane, shard)
        # With one lane, nothing goes on beside its reads.
        few = 1 if len(self._lanes) == 1 else 0
        attempts = [
            partial(executor.read, shard.reader, self._lanes[shard.lane])
            for shard in chosen.values()
        ]
        answers = calls.start(attempts, few)
        self._in_call.update(zip(answers, chosen.values(), strict=True))

    def _answered(self) -> Iterator[tuple[_Pending, list[Message]]]:
        """What the reads bring that have an answer; one that has none keeps no other waiting."""
        if self._in_call:
            first = futures.FIRST_COMPLETED
            for answer in futures.wait(self._in_call, self._rest(), return_when=first).done:
                yield self._in_call.pop(answer), answer.result()

    def _rest(self) -> float:
        """Seconds until a shard is due; a listing may be due sooner."""
        now = self._clock.monotonic()
        due = min((shard.due for shard in self._free()), default=now + 0.1)
        return min(max(due - now, 0.01), 0.1)

    def _free(self) -> list[_Pending]:
        """The shards whose lane is."""
        busy = {shard.lane for shard in self._in_call.values()}
        return [shard for shard in self._pending.values() if shard.lane not in busy]

    def _on_message(self, shard: _Pending, message: Message) -> Iterator[Record]:
        tracked = shard.tracked
        match self._coordinator.on_message(tracked, message):
            case Page(first, last, number, body):
                yield from pages.records(body, ShardKey(self._arn, tracked.id), first, last)
                tracked.position = AfterSequence(number)
            case ShardEnd.READ_AGAIN:
                shard.reader = self._reader(tracked)
                shard.reader.pause = AGAIN_SECONDS
            case ShardEnd.CLOSED:
                del self._pending[tracked.id]
                self._coordinator.finish(tracked)
            case ShardEnd.CAUGHT_UP:
                del self._pending[tracked.id]
