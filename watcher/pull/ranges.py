"""Reads ranges of shards, each from its start to a known end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect, for_worker
from watcher.aws.model import AfterSequence, AtSequence, Position, Service, ShardKey, TrimHorizon
from watcher.clock import CLOCK, Clock
from watcher.errors import DataLossError, ServiceError, StreamError, TransientError, UsageError
from watcher.records.record import Record
from watcher.streams.coordinator import Coordinator, Meaning, ReadAgain, ShardEnd
from watcher.streams.lineage import ShardStatus, TrackedShard
from watcher.streams.losses import Losses
from watcher.streams.messages import (
    DecodedPage,
    Loss,
    Message,
    Page,
    ReaderEnded,
    ReadFailed,
    position_text,
)
from watcher.streams.read_rate import AdaptiveRateLimit
from watcher.streams.shard_reader import ShardReader

_GIVE_UP_SECONDS = 300.0
"""The time without progress after which a range fails with its cause; Spark retries it."""

# As `bounded_at`: ends some seconds after the start of the read, not at a service's time.
_SECONDS_AFTER_START = datetime.max.replace(tzinfo=UTC)


class Range(msgspec.Struct, frozen=True):
    """A range of one shard's records, from `start` to its end, for one read.

    `upto` is the sequence number of the last record; without it a `closed` shard is read to its
    end. `end` is the latest creation time, if any. `since` is the time from which an executor was
    to read a range that starts at no sequence number: records that left retention later are a loss.
    `topmost` is the topmost of the shards above this one in the same micro-batch, if there is any.
    `known` is False where only a message names the range: nothing here has read the shard before,
    and the records may not exist.
    """

    shard_id: str
    start: Position
    upto: str | None = None
    closed: bool = True
    end: datetime | None = None
    since: datetime | None = None
    topmost: str | None = None
    known: bool = True

    @property
    def starts_at_number(self) -> bool:
        """True where the service itself reports that the records from its start are gone."""
        return isinstance(self.start, AtSequence | AfterSequence)

    def __str__(self) -> str:
        end = f"sequence number {self.upto}" if self.upto else "its end"
        return f"shard {self.shard_id} from {position_text(self.start)} to {end}"


def read_range(
    stream: str,
    shard_id: str,
    *,
    first: str,
    last: str,
    region: str | None = None,
    profile: str | None = None,
    endpoint_url: str | None = None,
) -> Iterator[Record]:
    """Yields one shard's records from sequence number `first` to `last`, both included.

    `stream` is a stream or a table, as for `watch()`. Raises DataLossError where the stream no
    longer holds all of the range (it keeps 24 hours), StreamError where it can't be read.
    """
    for name, number in (("first", first), ("last", last)):
        if not (number.isascii() and number.isdigit()):
            raise UsageError("give a sequence number", name, repr(number))
    if int(first) > int(last):
        raise UsageError(f"it is before the beginning, {first}", "last", last)
    between = Range(shard_id, AtSequence(first), last, closed=False, known=False)
    return _records(stream, between, AwsConfig.here(region, profile, endpoint_url), first)


def _records(stream: str, between: Range, connection: AwsConfig, first: str) -> Iterator[Record]:
    begun = False
    try:
        _, arn = connect(stream, connection)
        losses = Losses(is_error=True, clock=CLOCK)
        reader = RangeReader(arn, for_worker(connection, arn), losses)
        for page in reader.read(between):
            for record in page.opened(ShardKey(arn, between.shard_id)):
                if not begun and int(record.sequence_number) != int(first):
                    raise DataLossError(f"{between}: it begins at {record.sequence_number}")
                begun = True
                yield record
    except ServiceError as error:
        raise StreamError(str(error)) from error


class RangeReader:
    """Reads ranges of a stream's shards.

    Reading raises DataLossError where records are gone (or warns, as `losses` says), TransientError
    after minutes without progress, StreamError. `rates` are the shards' learned rate limits, which
    it updates.
    """

    def __init__(
        self,
        arn: str,
        service: Service,
        losses: Losses,
        clock: Clock = CLOCK,
        *,
        rates: dict[str, AdaptiveRateLimit] | None = None,
    ) -> None:
        self._arn = arn
        self._service = service
        self._clock = clock
        self._rates = {} if rates is None else rates
        self._losses = losses
        losses.start(arn, None)

    def read(self, between: Range) -> Iterator[Page]:
        """Yields the records of a range, page by page."""
        last: str | None = None
        shard = TrackedShard(
            between.shard_id, None, between.start, ShardStatus.RUNNING, since=between.since
        )
        for page in self._pages(between, shard):
            part = page if between.upto is None else page.upto(between.upto)
            if part is not None:
                yield part
                last = part.last_sequence_number
            if between.upto and int(page.last_sequence_number) >= int(between.upto):
                break
        if between.upto and last != between.upto and not shard.past_end:
            end = f"it ended at sequence number {last}" if last else "nothing is left of it"
            self._losses.report(str(between), end)

    def _pages(self, between: Range, shard: TrackedShard) -> Iterator[Page]:
        """Yields a range's pages, and those that follow it."""
        coordinator = self._coordinator(shard, between)
        rate = self._rates.setdefault(shard.id, AdaptiveRateLimit(self._clock))
        reader = self._reader(coordinator, shard, between, rate)
        failing_since, has_ended = math.inf, False
        self._clock.sleep(rate.delay())  # the previous range may belong to the same shard
        while True:
            has_failed = False
            coordinator.refresh(self._service)
            for message in reader.attempt(self._service):
                has_failed |= isinstance(message, ReadFailed)
                if isinstance(message, ReaderEnded) and message.anew is not None:
                    self._losses.on_loss(shard, message.anew)
                    return
                match self._meaning(coordinator, shard, message):
                    case Page() as page:
                        shard.move_behind(page.last_sequence_number)
                        yield page
                    case ReadAgain(seconds):
                        has_failed = True
                        reader = self._reader(coordinator, shard, between, rate)
                        reader.delay = seconds
                    case ShardEnd():
                        if between.upto is None or has_ended:
                            return
                        has_ended = True  # one odd answer is no end before the last number
                        reader = self._reader(coordinator, shard, between, rate)
                if isinstance(message, Loss):  # the range's last record may be gone too
                    reader = self._reader(coordinator, shard, between, rate)
            failing_since = min(failing_since, self._clock.monotonic()) if has_failed else math.inf
            fails_since = min(failing_since, coordinator.schedule.failing_since)
            if self._clock.monotonic() > fails_since + _GIVE_UP_SECONDS:
                raise TransientError(f"{between} can't be read: {coordinator.last_error}")
            self._clock.sleep(reader.delay)

    def _meaning(self, coordinator: Coordinator, shard: TrackedShard, message: Message) -> Meaning:
        meaning = coordinator.on_message(shard, message)
        if isinstance(meaning, ReadAgain) and not meaning.seconds:
            # A listing alone decides what this end means: to find it again takes seconds.
            coordinator.refresh(self._service)
            meaning = coordinator.on_message(shard, message)
        return meaning

    def _coordinator(self, shard: TrackedShard, between: Range) -> Coordinator:
        """Returns a coordinator for this shard alone, which lists only in doubt."""
        return Coordinator(
            self._arn,
            TrimHorizon(),
            [shard],
            losses=self._losses,
            in_use={shard.id},
            clock=self._clock,
            has_worked=between.known,  # Spark's driver has read before
            lists_in_doubt=True,
        )

    def _reader(
        self, coordinator: Coordinator, shard: TrackedShard, between: Range, rate: AdaptiveRateLimit
    ) -> ShardReader:
        # At a position without a number, the whole range may be gone without an error; and the read
        # of an idle shard would never end.
        is_numbered = isinstance(shard.position, AtSequence | AfterSequence)
        may_be_gone = between.upto is not None and not (is_numbered and between.known)
        return ShardReader(
            self._arn,
            shard.id,
            shard.position,
            closed=coordinator.is_closed(shard.id) or (between.closed and not may_be_gone),
            bounded_at=_SECONDS_AFTER_START if may_be_gone else None,
            end=between.end,
            make_page=DecodedPage.part,
            clock=self._clock,
            rate=rate,
        )
