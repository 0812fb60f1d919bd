"""A stream that a test plays, and a query over it: no threads, no sockets, a clock that stands."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pyspark.sql.types import StructType

from tests.support.hand_clock import HandClock
from tests.support.play import ARN, PlayedService
from tests.support.wire import FIRST, created, wire
from watcher.aws.model import (
    AfterSequence,
    AtSequence,
    AtTime,
    Latest,
    Listing,
    Position,
    Service,
    Shard,
)
from watcher.errors import (
    ShardNotFoundError,
    StreamGoneError,
    TimestampRefusedError,
    TransientError,
    TrimmedDataError,
)
from watcher.pull.ranges import Range
from watcher.spark import offsets
from watcher.spark.batch_reader import BatchReader
from watcher.spark.micro_batch import LIMITS, SourceLimits
from watcher.spark.offsets import Offset
from watcher.spark.options import SourceOptions, parse
from watcher.spark.planner import Planner
from watcher.spark.read_ahead import ReadAhead
from watcher.spark.tasks import range_reader
from watcher.streams.messages import Page

EXPIRED = "AWS refused the credentials (ExpiredTokenException)"


def number(last: int) -> str:
    return str(FIRST + last)


class PlayedStream(PlayedService):
    """Shards, and the numbers of the records in them; a test changes it as it likes."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.records_of: dict[str, list[int]] = {}
        self.parents: dict[str, str] = {}
        self.closed: set[str] = set()
        self.looks_open: set[str] = set()  # closed, and listed as if they were not
        self.refused: set[str] = set()  # listed as they are, and answered as if they were not there
        self.trimmed = -1  # up to this record nothing is left
        self.tip: int | None = None
        """The first record near the end, by its time; None where no time is known here."""
        self.knows_times = False  # each record's own time is known
        self.read_errors: list[Exception] = []
        self.empty_pages = 0  # so many come of a closed shard before each page with records
        self.failing: set[str] = set()  # shards whose reads are answered with an error
        self.page_size = 10
        self.record_size = 0
        self.reads: list[str] = []
        self.asked_ahead = 0
        self._is_gone = False
        self._asked = Counter[str]()

    def write(self, shard_id: str, records: Iterable[int], parent: str | None = None) -> None:
        self.records_of.setdefault(shard_id, []).extend(records)
        if parent is not None:
            self.parents[shard_id] = parent
            self.closed.add(parent)

    def delete(self) -> None:
        self._is_gone = True
        self.refused |= self.records_of.keys()

    def list_shards(self, arn: str) -> Listing:
        if self._is_gone:
            raise StreamGoneError(f"no stream {arn}")
        return super().list_shards(arn)

    def shown(self) -> list[Shard]:
        closed = self.closed - self.looks_open
        return [
            Shard(name, self.parents.get(name), "1", "9" if name in closed else None)
            for name in self.records_of
            if name not in self.hidden
        ]

    def get_iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        if shard_id not in self.records_of or shard_id in self.refused:
            raise ShardNotFoundError("no such shard")
        first = self.trimmed + 1
        match position:
            case Latest():
                first = max(self.records_of[shard_id], default=-1) + 1
            case AtSequence(text):
                first = int(text) - FIRST
            case AfterSequence(text):
                first = int(text) - FIRST + 1
            case AtTime(time) if self.knows_times:
                late = [n for n in self.records_of[shard_id] if created(n) >= time.timestamp()]
                first = min(late, default=max(self.records_of[shard_id], default=-1) + 1)
            case AtTime():
                if self.tip is None:
                    raise TimestampRefusedError("no AT_TIMESTAMP")
                first = self.tip
        if first <= self.trimmed:
            raise TrimmedDataError("trimmed")
        return f"{shard_id} {first}", self.now

    def prefetch_records(self, iterator: str) -> None:
        """It can't be asked ahead."""
        self.asked_ahead += 1

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        if self.read_errors:
            raise self.read_errors.pop(0)
        shard_id, first = iterator.split()
        if shard_id in self.failing:
            raise TransientError("a failure of the service")
        if shard_id in self.refused:
            raise ShardNotFoundError("no such shard")
        self.reads.append(shard_id)
        self._asked[iterator] += 1
        if shard_id in self.closed and self._asked[iterator] <= self.empty_pages:
            return json.dumps({"Records": [], "NextShardIterator": iterator}).encode()
        left = [each for each in self.records_of[shard_id] if each >= int(first)]
        page = left[: limit or self.page_size]
        answer: dict[str, object] = {"Records": [wire(n, size=self.record_size) for n in page]}
        if len(left) > len(page) or shard_id not in self.closed:
            answer["NextShardIterator"] = f"{shard_id} {page[-1] + 1 if page else first}"
        return json.dumps(answer).encode()


def step(ahead: ReadAhead, service: Service) -> bool:
    """Reads a due shard; False if there is none."""
    shard = ahead.next()
    if shard is not None:
        ahead.take(shard, shard.read(service))
    return shard is not None


class InTurn(ReadAhead):
    """Reads a step at a time, whenever the planner waits."""

    def __init__(self, stream: PlayedStream, clock: HandClock, **more: Any) -> None:
        super().__init__(ARN, clock, **more)
        self._stream, self._hand_clock = stream, clock

    def wait(self, seconds: float, least: float = 0.0) -> None:
        if not step(self, self._stream):
            self._hand_clock.sleep(min(seconds, self.seconds_until_due()))


def numbers(pages: Iterable[Page]) -> list[int]:
    records = [record for page in pages for record in page.records()]
    return [int(record.dynamodb.SequenceNumber) - FIRST for record in records]


class PlayedQuery:
    """What Spark does with the source, one micro-batch after the other."""

    limits: SourceLimits = LIMITS

    def __init__(self, stream: PlayedStream, clock: HandClock, **more: str) -> None:
        given = {"stream": ARN, "startingPosition": "trim_horizon", **more}
        self.options = parse(given, streaming=True)
        self.stream = stream
        self.clock = clock
        self.delivered: list[int] = []
        self.sizes: list[int] = []
        self.batches: list[tuple[Offset, Offset]] = []
        self.start()
        self.offset = self.planner.initial_offset()

    def start(self) -> None:
        """As after a restart: all that is known is the offset."""
        self.ahead = InTurn(self.stream, self.clock, limits=self.limits)
        self.planner = Planner(self.options, ARN, self.stream, self.ahead, clock=self.clock)

    def poll(self) -> bool:
        """One `latestOffset`, and the micro-batch where there is one."""
        end = self.planner.latest(self.offset, self.options.max_records)
        if end is self.offset:
            return False
        before = len(self.delivered)
        for each in self.planner.ranges(self.offset, end):
            held = each.pages
            pages = self.read(each.between) if held is None else [page.page() for page in held]
            self.delivered += numbers(pages)
        self.sizes.append(len(self.delivered) - before)
        self.batches.append((self.offset, end))
        stored = offsets.from_json(offsets.to_json(end))
        assert stored is not None
        self.offset = stored
        return True

    def read(self, between: Range) -> list[Page]:
        """As an executor does."""
        return list(range_reader(self.options, ARN, self.stream, self.clock).read(between))

    def run(self, seconds: float) -> None:
        """So much time passes."""
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            self.poll()


def played_batch(stream: PlayedStream, clock: HandClock, **more: str) -> BatchReader:
    """A batch read of the stream, of sequence numbers only."""
    options = parse({"stream": ARN, "columns": "sequence_number", **more}, streaming=False)

    def planner(options: SourceOptions) -> Planner:
        ahead = InTurn(stream, clock, end=options.end)
        return Planner(options, ARN, stream, ahead, clock=clock)

    return BatchReader(
        options,
        StructType().add("sequence_number", "string"),
        planner=planner,
        reader=lambda options, arn: range_reader(options, arn, stream, clock),
    )
