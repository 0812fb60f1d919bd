"""Reads ranges of shards on an executor, each from its start to the end that is known."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_worker
from watcher.aws.credentials import handed_credentials
from watcher.aws.model import AfterSequence, Service
from watcher.clock import CLOCK, Clock
from watcher.errors import StreamError, StreamGoneError, TransientError
from watcher.pull import executor
from watcher.records.wire import WireRecord
from watcher.spark.offsets import Range
from watcher.spark.options import REMEDY, SourceOptions
from watcher.spark.timing import TIMING, Timing
from watcher.streams.lineage import TrackedShard
from watcher.streams.losses import Losses
from watcher.streams.messages import Finished, Loss, Message, Notice, Page, Retrying
from watcher.streams.persistent_errors import PersistentErrors
from watcher.streams.rate_limit import AdaptiveRateLimit
from watcher.streams.shard_reader import ShardReader
from watcher.streams.timing import TIMING as CORE_TIMING

logger = logging.getLogger("watcher")

# Some seconds after the reading has begun, rather than at a moment by the service's clock.
_WHENEVER = datetime.max.replace(tzinfo=UTC)


class RangeReader:
    """Reads ranges of a stream's shards.

    Raises DataLossError where some records are gone (or warns), TransientError after minutes of
    trouble, StreamError. `rates` are those that the shards' readers have learnt, and keep.
    """

    def __init__(
        self,
        options: SourceOptions,
        arn: str,
        service: Service,
        clock: Clock = CLOCK,
        *,
        rates: dict[str, AdaptiveRateLimit] | None = None,
        timing: Timing = TIMING,
    ) -> None:
        self._arn = arn
        self._service = service
        self._clock = clock
        self._rates = {} if rates is None else rates
        self._timing = timing
        self._losses = Losses(is_error=options.fail_on_data_loss, remedy=REMEDY, clock=clock)
        self._losses.start(arn, None)

    @classmethod
    def connected(cls, options: SourceOptions, arn: str) -> RangeReader:
        """Returns a reader over the real service."""
        return cls(options, arn, _service(options.connection, arn), rates=_rates(arn))

    def read(self, between: Range) -> Iterator[Page]:
        """Yields the records of a range, page by page."""
        last: str | None = None
        for page in self._pages(between):
            part = page if between.upto is None else page.upto(between.upto)
            if part is not None:
                yield part
                last = part.last_sequence_number
            if between.upto and int(page.last_sequence_number) >= int(between.upto):
                break
        if between.upto and last != between.upto:
            end = f"it ended at sequence number {last}" if last else "nothing is left of it"
            self._losses.report(str(between), end)

    def _pages(self, between: Range) -> Iterator[Page]:
        shard = TrackedShard(between.shard_id, None, between.start)
        task = between
        # A position that is no record's may turn into the trim horizon without an error.
        if not isinstance(between.start, AfterSequence):
            task = _up_to_now(between)
        rate = self._rates.setdefault(between.shard_id, AdaptiveRateLimit(self._clock))
        reader = self._reader(shard, task, rate)
        notices = set[str]()
        # A stream's driver has read before; a batch begins here.
        refusals = PersistentErrors(self._clock, has_worked=between.catch_up_after is None)
        trouble_since: float | None = None
        self._clock.sleep(rate.pause())  # the range before this may be of the same shard
        while not reader.finished:
            messages = executor.read(reader, self._service)
            for message in messages:
                match message:
                    case Page():
                        shard.on_records()
                        shard.position = AfterSequence(message.last_sequence_number)
                        yield message
                    case Loss():
                        self._lost(message, between)
                        shard.position, task = reader.position, _up_to_now(between)
                        reader = self._reader(shard, task, rate)
                    case Notice(text) if text not in notices:
                        notices.add(text)
                        logger.warning(f"{between}: {text}")
                    case Finished(closed=False, proven=False) if not (
                        task.closed or self._is_listed_open(shard)
                    ):
                        task = msgspec.structs.replace(task, closed=True)
                        reader = self._reader(shard, task, rate)
                    case Finished(gone=Loss() as loss) if self._is_listed_open(shard):
                        shard.refusals += 1
                        messages = [Retrying(loss.reason, shard.refusals)]
                        reader = self._reader(shard, task, rate)
                        reader.pause = CORE_TIMING.read_again_seconds
                    case Finished(gone=Loss() as loss):
                        self._lost(loss, between)
            trouble_since = self._in_trouble(messages, trouble_since, between, refusals)
            self._clock.sleep(reader.pause)

    def _reader(self, shard: TrackedShard, task: Range, rate: AdaptiveRateLimit) -> ShardReader:
        return ShardReader(
            self._arn,
            shard.id,
            shard.position,
            closed=task.closed,
            catch_up_after=task.catch_up_after,
            end=task.end,
            make_page=_DecodedPage.part,
            clock=self._clock,
            rate=rate,
        )

    def _lost(self, loss: Loss, between: Range) -> None:
        self._losses.report(f"{between} from {loss.since} to what is left", loss.reason)

    def _is_listed_open(self, shard: TrackedShard) -> bool:
        """True where the service lists a shard as open that it refuses: nothing is gone yet."""
        try:
            return self._service.list_shards(self._arn).is_open(shard.id)
        except StreamGoneError:
            return False
        except (TransientError, StreamError):
            return True

    def _in_trouble(
        self,
        messages: list[Message],
        since: float | None,
        between: Range,
        refusals: PersistentErrors,
    ) -> float | None:
        """Returns since when the service has answered nothing but errors; None where it works."""
        troubles = [message for message in messages if isinstance(message, Retrying)]
        if not troubles:
            refusals.on_answer()
            return None
        refusals.on_error(between.shard_id, troubles[-1])
        if troubles[-1].is_worth_logging:
            logger.warning(f"{between}: {troubles[-1].line}")
        now = self._clock.monotonic()
        if since is not None and now > since + self._timing.give_up_seconds:
            raise TransientError(f"{between} can't be read: {troubles[-1].text}")
        return since if since is not None else now


class _DecodedPage(Page, frozen=True):
    """A page that stays in this process, with its decoded records."""

    wires: list[WireRecord] = []  # noqa: RUF012 (msgspec copies it)

    @classmethod
    def part(cls, body: bytes, records: Sequence[WireRecord], first: int, last: int) -> Page:
        """Returns the part `first:last` of a page's records."""
        wires = list(records[first:last])
        return cls(first, last, wires[-1].dynamodb.SequenceNumber, body, wires=wires)

    def records(self) -> list[WireRecord]:
        """Returns its records, their images undecoded."""
        return self.wires


def _up_to_now(between: Range) -> Range:
    """Returns a range that ends even if its last record is gone: an idle shard goes on for ever."""
    if between.upto is None:
        return between
    return msgspec.structs.replace(between, closed=False, catch_up_after=_WHENEVER)


@lru_cache(maxsize=8)
def _service(connection: AwsConfig, arn: str) -> Service:
    """Returns one client for a worker's life: making one takes longer than reading a page."""
    return for_worker(connection, arn, handed_credentials(connection, arn))


@lru_cache(maxsize=8)
def _rates(arn: str) -> dict[str, AdaptiveRateLimit]:
    """Returns each shard's rate limit, as earlier tasks have learnt it in this worker."""
    return {}
