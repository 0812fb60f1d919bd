"""Reads the shards of one stream in this process: one reader each, their calls side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future
from functools import partial

import msgspec

from watcher.aws.model import Latest, Listing, Position, Service
from watcher.aws.retry import first_listing
from watcher.call_pool import CallPool
from watcher.clock import Clock
from watcher.errors import StreamError
from watcher.formatting.text import counted
from watcher.streams import checkpoint_format
from watcher.streams.checkpoint_format import Token
from watcher.streams.coordinator import Coordinator, ReadAgain, ShardEnd
from watcher.streams.lineage import ShardStatus, TrackedShard
from watcher.streams.losses import Losses
from watcher.streams.messages import (
    DecodedPage,
    Message,
    Page,
    PageFilter,
    ReadFailed,
    make_page,
)
from watcher.streams.read_rate import AdaptiveRateLimit
from watcher.streams.shard_reader import ShardReader
from watcher.streams.timing import TIMING

_BUSY_SECONDS = 60.0
"""The time for which a shard that had records is polled before the idle ones."""
_DELAY_PER_SHARD_SECONDS = 0.001
"""The delay that each idle shard adds: one process can't poll thousands every second."""


class PullOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the reading."""

    poll_max_seconds: float = 1.0
    """The longest delay of an idle shard."""
    stream_count: int = 1
    """The number of streams that are read side by side, as for a watch's `--tail`."""
    on_stale: str = "trim-horizon"
    """The policy for a token older than retention; see `Losses`."""
    up_to_now: bool = False
    """True to end once all records that existed at the start are read; see `end_detector`."""
    page_filter: PageFilter | None = None
    """Returns the indexes of the matching records; the others may be left out."""
    read_limit: float | None = None
    """The largest number of read units a second for a table's items."""


DEFAULTS = PullOptions()


class PooledShard(msgspec.Struct, eq=False):
    """A shard that is being read, and the times of its next read, in monotonic seconds."""

    tracked: TrackedShard
    reader: ShardReader
    due_at: float = 0.0
    """The time of its next read while no caller waits."""
    soonest_at: float = 0.0
    """The earliest time of its next read while a caller waits."""
    allowed_at: float = -math.inf
    """The time before which the service throttles its reads; see `read_rate`."""
    busy_until: float = 0.0
    """The time until which more records are likely."""
    read: Future[list[Message]] | None = None
    """The read that is under way, or has just ended."""
    started_at: float = 0.0
    """The start time of that read."""
    is_refused: bool = False
    """True while the service lists the shard, but refuses its reads."""
    is_held: bool = False
    """True while records of it are buffered: it is not read meanwhile."""
    has_ended: bool = False
    """True once its reader has reached the end; the pool keeps it until `finish`."""

    @property
    def has_position(self) -> bool:
        """False for a shard that starts at "latest" before that moment is known."""
        return not isinstance(self.reader.position, Latest)

    @property
    def may_have_more(self) -> bool:
        """True if another read may return records at once."""
        return self.reader.may_have_more and not self.is_refused

    @property
    def is_free(self) -> bool:
        """True if it may be read: no record of it is buffered, and no read is under way."""
        return not (self.is_held or self.has_ended or self.read)

    @property
    def awaits_rate_limit(self) -> bool:
        """True if another read may return records, but the service allows it only later."""
        return self.allowed_at > -math.inf and self.is_free and self.may_have_more


class ShardPool:
    """The readers of one stream's shards: makes their calls and collects their pages.

    An engine of the core for one process, in threads where `calls` has some. Its user decides
    which due shards are read, and when their records are given out: `MergedShards` merges them,
    `BacklogReader` yields page by page.

    The constructor makes the first listing. Raises StreamError.
    """

    def __init__(
        self,
        arn: str,
        start: Position | Token,
        resumed: Sequence[TrackedShard] | None = None,
        *,
        service: Service,
        losses: Losses,
        calls: CallPool,
        clock: Clock,
        options: PullOptions = DEFAULTS,
    ) -> None:
        self.shards: dict[str, PooledShard] = {}
        """The shards that are being read, by their ids."""
        self.reading: dict[str, PooledShard] = {}
        """The shards whose read is under way."""
        self.listing_service = service
        """Makes the coordinator's requests; a `Lister` delays no read."""
        self._has_read = False  # since it was last asked for the end
        token = start if isinstance(start, Token) else None
        self.coordinator = Coordinator(
            arn,
            Latest() if isinstance(start, Token) else start,
            resumed if token is None else checkpoint_format.resume(token, clock.now()),
            since=None if token is None else token.stream_since,
            losses=losses,
            in_use=self.shards,
            clock=clock,
        )
        self.coordinator.schedule.stream_count = options.stream_count
        self._calls = calls
        self._clock = clock
        self._options = options
        listing = first_listing(service, arn)
        self.restarts_snapshot = losses.restarts_snapshot(options.on_stale, "token", token, listing)
        """True if a table's items have to come again: the token is too old."""
        self.coordinator.start(listing)
        self._service = service

    @property
    def listing(self) -> Listing:
        """The last listing of the stream."""
        return self.coordinator.listing

    def confirm_caught_up(self) -> bool:
        """True if all shards are finished, or left open with all read up to now.

        Requests a listing where only that can tell. Raises StreamError where nothing more can be
        read.
        """
        has_read, self._has_read = self._has_read, False
        if self.coordinator.seconds_refused(is_reading=has_read) >= TIMING.hopeless_seconds:
            rest = f"unread: the rest of {counted(len(self.shards), 'shard')}"
            raise StreamError(f"nothing more could be read: {self.coordinator.last_error}; {rest}")
        return not self.shards and self.coordinator.confirm_exhausted()

    def refresh(self) -> list[PooledShard]:
        """Makes the coordinator's requests, and opens readers for the shards that may start.

        Raises DeniedError, DataLossError.
        """
        coordinator = self.coordinator
        listing = coordinator.listing
        coordinator.refresh(self.listing_service)
        if coordinator.listing is not listing:
            for shard in self.shards.values():
                shard.reader.closed = coordinator.is_closed(shard.tracked.id)
        opened = []
        for tracked in coordinator.take_ready():
            reader = self._new_reader(tracked, tracked.position)
            shard = self.shards[tracked.id] = PooledShard(tracked, reader)
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
            bounded_at=coordinator.written_at if options.up_to_now else None,
            page_filter=options.page_filter,
            # With a filter most records are dropped, and few of a page are decoded again.
            make_page=make_page if options.page_filter else DecodedPage.part,
            poll_max=options.poll_max_seconds,
            latest=coordinator.began_at,
            created=tracked.created if position == tracked.position else None,
            clock=self._clock,
            rate=rate,
        )

    def free(self) -> list[PooledShard]:
        """Returns the shards that may be read now, due or not."""
        now = self._clock.monotonic()
        return [each for each in self.shards.values() if each.is_free and each.allowed_at <= now]

    def start_reads(self, shards: Sequence[PooledShard], *, inline: int = 0) -> None:
        """Starts a read of each of these shards; up to `inline` of them in this thread."""
        attempts = [partial(shard.reader.attempt, self._service) for shard in shards]
        for shard, read in zip(shards, self._calls.start(attempts, inline), strict=True):
            shard.read, shard.started_at = read, self._clock.monotonic()
            self.reading[shard.tracked.id] = shard

    def collect(
        self,
        shards: Iterable[PooledShard],
        seconds: float,
        return_when: str = futures.ALL_COMPLETED,
    ) -> Iterator[tuple[PooledShard, list[Page]]]:
        """Yields the shards whose reads end within `seconds`, with their pages.

        Raises StreamError, DataLossError.
        """
        awaited = [(shard, shard.read) for shard in shards if shard.read is not None]
        reads = {read for _, read in awaited}
        done = futures.wait(reads, seconds, return_when=return_when).done if reads else set()
        for shard, read in awaited:
            if read in done:
                shard.read = None
                del self.reading[shard.tracked.id]
                yield shard, self._on_messages(shard, read.result())

    def _on_messages(self, shard: PooledShard, messages: list[Message]) -> list[Page]:
        pages: list[Page] = []
        self._has_read |= not any(isinstance(each, ReadFailed) for each in messages)
        for message in messages:
            match self.coordinator.on_message(shard.tracked, message):
                case Page() as page:
                    pages.append(page)
                    shard.is_refused = False
                case ReadAgain(seconds):
                    # Not from the tracked position: earlier pages may not be taken yet.
                    before = shard.reader
                    shard.reader = self._new_reader(
                        shard.tracked, before.position, before.reads.rate
                    )
                    shard.reader.delay = seconds
                    shard.is_refused = True
                case ShardEnd():
                    shard.has_ended = True
        if pages:
            shard.busy_until = self._clock.monotonic() + _BUSY_SECONDS
        self._schedule(shard)
        return pages

    def _schedule(self, shard: PooledShard) -> None:
        """Sets the times of the shard's next read."""
        now = self._clock.monotonic()
        delay = shard.reader.delay
        least = delay if shard.is_refused else shard.reader.least_delay
        is_idle = now >= shard.busy_until
        crowd = len(self.shards) * _DELAY_PER_SHARD_SECONDS if is_idle else 0.0
        if delay >= 1:
            delay = max(delay, crowd)
        shard.due_at = now + delay
        shard.soonest_at = now + min(max(least, crowd), delay)
        allowed_in = shard.reader.reads.rate.delay()
        shard.allowed_at = now + allowed_in if allowed_in > 0 else -math.inf

    def forget_reads(self) -> None:
        """Drops the reads under way; their threads end by themselves."""
        for shard in self.reading.values():
            shard.read = None
        self.reading.clear()

    def finish(self, shard: PooledShard) -> None:
        """Drops an ended shard whose records are all given out, so that its children start."""
        del self.shards[shard.tracked.id]
        if shard.tracked.status is not ShardStatus.LEFT_OPEN:  # a shard left open has no children
            self.coordinator.finish(shard.tracked)
