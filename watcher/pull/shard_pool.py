"""Reads the shards of one stream in this process: a reader each, their calls side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future
from functools import partial

import msgspec

from watcher.aws.model import Latest, Listing, Position, Service
from watcher.clock import Clock
from watcher.pull import executor
from watcher.pull.call_pool import CallPool
from watcher.pull.timing import TIMING, Timing
from watcher.streams.coordinator import Coordinator, ShardEnd
from watcher.streams.lineage import ShardStatus, TrackedShard
from watcher.streams.losses import Losses
from watcher.streams.messages import Message, Page, PageFilter
from watcher.streams.read_rate import AdaptiveRateLimit
from watcher.streams.shard_reader import ShardReader
from watcher.streams.timing import TIMING as CORE_TIMING


class PullOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the reading, the same for each of several streams."""

    poll_max_seconds: float = 1.0
    """The longest delay of an idle shard."""
    stream_count: int = 1
    """The number of streams that are pulled together."""
    on_stale: str = "trim-horizon"
    """The policy for a token older than retention; see `Losses`."""
    up_to_now: bool = False
    """True to end where all is read that was there at the beginning; see `end_detector`."""
    page_filter: PageFilter | None = None
    """Returns the places of the records that match; the others may be left out."""
    snapshot_limit: float | None = None
    """The most read units a second for a table's items."""
    timing: Timing = TIMING


DEFAULTS = PullOptions()


class PooledShard(msgspec.Struct, eq=False):
    """A shard that is being read, and when its next read is due; times are monotonic seconds."""

    tracked: TrackedShard
    reader: ShardReader
    client: int
    """The place of the service that reads it, of those that the pool has."""
    due_at: float = 0.0
    """The time of its next read while no caller waits."""
    soonest_at: float = 0.0
    """The earliest time of its next read while a caller waits."""
    allowed_at: float = -math.inf
    """The service throttles reads before this; see `read_rate`."""
    busy_until: float = 0.0
    """More records are likely until then."""
    read: Future[list[Message]] | None = None
    """The read that is under way, or has just ended."""
    started_at: float = 0.0
    """The time at which that read was started."""
    is_refused: bool = False
    """True while the service lists it, and does not let it be read."""
    is_held: bool = False
    """True while records of it wait to be taken: it is not read meanwhile."""
    has_ended: bool = False
    """True once its reader has reached the end; the pool keeps it until `finish`."""

    @property
    def has_position(self) -> bool:
        """True once "latest" is a moment, for a shard that starts there."""
        return not isinstance(self.reader.position, Latest)

    @property
    def may_have_more(self) -> bool:
        """True if another read may find something at once."""
        return self.reader.may_have_more and not self.is_refused

    @property
    def is_free(self) -> bool:
        """True if it may be read: no record of it waits or is still to come."""
        return not (self.is_held or self.has_ended or self.read)

    @property
    def awaits_rate_limit(self) -> bool:
        """True if another read may find something, and the service allows it only later."""
        return self.allowed_at > -math.inf and self.is_free and self.may_have_more


class ShardPool:
    """The readers of one stream's shards: refreshes, starts their reads, collects what they bring.

    An executor of the core for one process, in threads where `calls` has some. Which of the due
    shards are read, and when their records are given out, is up to its user: `MergedReader` merges
    them, `BacklogReader` gives out page by page.

    The constructor makes the first listing. `clients` makes services for one call at a time each,
    for so many shards; without it, `service` makes all calls. Raises StreamError.
    """

    def __init__(
        self,
        arn: str,
        start: Position,
        resumed: Sequence[TrackedShard] | None = None,
        *,
        service: Service,
        losses: Losses,
        calls: CallPool,
        clock: Clock,
        options: PullOptions = DEFAULTS,
        clients: Callable[[int], Sequence[Service]] | None = None,
    ) -> None:
        self.shards: dict[str, PooledShard] = {}
        """The shards that are being read, by their ids."""
        self.reading: dict[str, PooledShard] = {}
        """The shards of these whose read is under way."""
        self.listing_service = service
        """Makes the coordinator's requests; a `BackgroundService` keeps no read waiting."""
        self.coordinator = Coordinator(
            arn, start, resumed, losses=losses, in_use=self.shards, clock=clock
        )
        self.coordinator.schedule.stream_count = options.stream_count
        self._calls = calls
        self._clock = clock
        self._options = options
        self._timing = options.timing
        self._poll_idle_at = 0.0
        self._opened = 0
        executor.start(self.coordinator, service, clock)
        self._clients = [service] if clients is None else clients(len(self.listing.shards))

    @property
    def listing(self) -> Listing:
        """The last listing of the stream."""
        return self.coordinator.listing

    @property
    def has_caught_up(self) -> bool:
        """True if all shards are finished, or left open with all read up to now."""
        return not self.shards and self.coordinator.poll_exhausted()

    def refresh(self) -> list[PooledShard]:
        """Makes the coordinator's requests, and opens readers for the shards whose turn has come.

        Returns these shards. Raises DeniedError, DataLossError.
        """
        coordinator = self.coordinator
        listing = coordinator.listing
        executor.refresh(coordinator, self.listing_service)
        if coordinator.listing is not listing:
            for shard in self.shards.values():
                shard.reader.closed = coordinator.is_closed(shard.tracked.id)
        opened = []
        for tracked in coordinator.to_start():
            self._opened += 1
            client = self._opened % len(self._clients)
            reader = self._new_reader(tracked, tracked.position)
            shard = self.shards[tracked.id] = PooledShard(tracked, reader, client)
            opened.append(shard)
        return opened

    def _new_reader(
        self, tracked: TrackedShard, position: Position, rate: AdaptiveRateLimit | None = None
    ) -> ShardReader:
        options, coordinator = self._options, self.coordinator
        return ShardReader(
            coordinator.arn,
            tracked.id,
            position,
            closed=coordinator.is_closed(tracked.id),
            catch_up_after=coordinator.written_at if options.up_to_now else None,
            page_filter=options.page_filter,
            poll_max=options.poll_max_seconds,
            latest=coordinator.began_at,
            clock=self._clock,
            rate=rate,
        )

    def free(self) -> list[PooledShard]:
        """Returns the shards that may be read now, whether due or not."""
        now = self._clock.monotonic()
        return [each for each in self.shards.values() if each.is_free and each.allowed_at <= now]

    def start_reads(self, shards: Sequence[PooledShard], *, inline: int = 0) -> None:
        """Starts a read of each of these; up to `inline` of them are made in this thread."""
        attempts = [
            partial(executor.read, shard.reader, self._clients[shard.client]) for shard in shards
        ]
        reads = self._calls.start(attempts, inline)
        for shard, read in zip(shards, reads, strict=True):
            shard.read, shard.started_at = read, self._clock.monotonic()
            self.reading[shard.tracked.id] = shard

    def collect(
        self,
        shards: Iterable[PooledShard],
        seconds: float,
        return_when: str = futures.ALL_COMPLETED,
    ) -> Iterator[tuple[PooledShard, list[Page]]]:
        """Yields those of the shards whose reads end within so many seconds, with their pages.

        Raises StreamError, DataLossError.
        """
        awaited = {shard.read: shard for shard in shards if shard.read is not None}
        done = futures.wait(awaited, seconds, return_when=return_when).done if awaited else set()
        for read, shard in awaited.items():
            if read in done:
                shard.read = None
                del self.reading[shard.tracked.id]
                yield shard, self._on_messages(shard, read.result())

    def _on_messages(self, shard: PooledShard, messages: list[Message]) -> list[Page]:
        pages: list[Page] = []
        for message in messages:
            match self.coordinator.on_message(shard.tracked, message):
                case Page() as page:
                    pages.append(page)
                    shard.is_refused = False
                case ShardEnd.READ_AGAIN:
                    # Not where the tracked shard stands: its pages may still wait to be taken.
                    before = shard.reader
                    shard.reader = self._new_reader(
                        shard.tracked, before.position, before.reads.rate
                    )
                    shard.reader.delay = CORE_TIMING.read_again_seconds
                    shard.is_refused = True
                case ShardEnd():
                    shard.has_ended = True
        if pages:
            shard.busy_until = self._clock.monotonic() + self._timing.busy_seconds
            self._poll_idle_shards()
        self._schedule(shard)
        return pages

    def _schedule(self, shard: PooledShard) -> None:
        """Sets when the shard is to be read next."""
        now = self._clock.monotonic()
        delay = shard.reader.delay
        least = delay if shard.is_refused else shard.reader.least_delay
        is_idle = now >= shard.busy_until
        crowd = len(self.shards) * self._timing.delay_per_shard_seconds if is_idle else 0.0
        if delay >= 1:
            delay = max(delay, crowd)
        shard.due_at = now + delay
        shard.soonest_at = now + min(max(least, crowd), delay)
        allowed_in = shard.reader.reads.delay()
        shard.allowed_at = now + allowed_in if allowed_in > 0 else -math.inf

    def _poll_idle_shards(self) -> None:
        """Where one shard has records, the others may soon have some."""
        now = self._clock.monotonic()
        if now < self._poll_idle_at:
            return
        self._poll_idle_at = now + self._timing.poll_idle_again_seconds
        for shard in self.shards.values():
            if shard.read is None and shard.reader.poll_more_often():
                shard.due_at = shard.soonest_at = now

    def forget_reads(self) -> None:
        """Drops the reads under way, whose thread has to end."""
        for shard in self.reading.values():
            shard.read = None
        self.reading.clear()

    def finish(self, shard: PooledShard) -> None:
        """Drops a shard that has ended once all of it is given out: its children's turn comes."""
        del self.shards[shard.tracked.id]
        if shard.tracked.status is not ShardStatus.LEFT_OPEN:  # none come of one left open
            self.coordinator.finish(shard.tracked)
