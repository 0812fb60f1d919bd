"""Spark's source in the simulation: Spark is played, its offset log and its sink are in memory."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from tests.simulation.client import SimulatedClient
from tests.simulation.program import LIMITED_RUNS, Program
from tests.simulation.scheduler import Killed, Life, Scheduler
from tests.simulation.universe import TABLE, Universe
from watcher.aws.arns import is_stream
from watcher.aws.model import AfterSequence, AtSequence
from watcher.aws.retry import retry_at_start
from watcher.pull.ranges import RangeReader
from watcher.records.wire import WireRecord
from watcher.spark import offsets
from watcher.spark.buffered_shard import BufferedShard, ReaderEvent
from watcher.spark.offsets import ShardOffset
from watcher.spark.options import SourceOptions
from watcher.spark.planner import Planner
from watcher.spark.read_ahead import ReadAhead
from watcher.spark.stream_reader import StreamReader
from watcher.spark.tasks import range_reader

_READ_SECONDS = 10.0
_EXECUTORS = 2
_AGAIN_SHARE = 0.1
_wire_record = msgspec.json.Decoder(WireRecord)
_SCHEMA = StructType().add("shard_id", "string").add("record", "string")
Batch = dict[str, list[str]]  # what a micro-batch has brought: shard → sequence numbers


def _shards(text: str) -> dict[str, ShardOffset]:
    offset = offsets.from_json(json.loads(text))
    return {} if offset is None else offset.shards


def merged(tasks: Iterable[Batch]) -> Batch:
    rows: Batch = {}
    for task in tasks:
        for shard_id, numbers in task.items():
            rows.setdefault(shard_id, []).extend(numbers)
    return rows


class SteppedReads(ReadAhead):
    """Reads as the threads in Spark's driver do: many shards side by side."""

    def __init__(
        self,
        arn: str,
        life: Life,
        scheduler: Scheduler,
        client: Callable[..., Any],
        behind_seconds: float,
    ) -> None:
        super().__init__(arn, life, behind_seconds=behind_seconds)
        self._life = life
        self._scheduler = scheduler
        self._delay = 0.0
        self._client: SimulatedClient = client(self._add_delay, _READ_SECONDS)
        self._news = False
        self._planned = float("inf")

    def _add_delay(self, seconds: float) -> None:
        self._delay += seconds

    def wake(self) -> None:
        """The next read comes when the next shard's turn has."""
        due = self._scheduler.now + max(0.0, self.seconds_until_due())
        if due < self._planned:
            self._planned = due
            self._scheduler.after(due - self._scheduler.now, self._read_due)

    def _read_due(self) -> None:
        self._planned = float("inf")
        if self._life.killed:
            return
        if (shard := self.next()) is not None:
            self._delay = 0.0
            try:
                read = shard.read(self._client)
            except BaseException as error:
                self.failure = self.failure or error
                self._news = True
                return
            self._scheduler.after(self._delay, lambda: self._take(shard, read))
        if self.seconds_until_due() != float("inf"):
            self.wake()

    def _take(self, shard: BufferedShard, events: list[ReaderEvent]) -> None:
        if not self._life.killed:
            self.take(shard, events)
            self._news = True
            self.wake()

    def wait(self, seconds: float, least: float = 0.0) -> None:
        end = self._scheduler.now + seconds
        self._news = False
        while not self._news and self._scheduler.step(end):
            self._life.check()
        self._life.check()


class Log(NamedTuple):
    """What Spark's checkpoint holds, and the sink."""

    offsets: list[str]
    """The end of each micro-batch, as Spark stores it: written before anything is read."""
    committed: list[int]
    sink: dict[int, Batch]


class Query(Program):
    """A streaming query; with `follow` it is triggered for ever, else by `availableNow`."""

    def __init__(self, universe: Universe) -> None:
        super().__init__(universe)
        self._log = Log([], [], {})

    def _live(self, life: Life) -> None:
        limited = self._judge.runs[-1].number < LIMITED_RUNS
        scenario = self._scenario
        options = SourceOptions(
            stream=TABLE if scenario.of_table else self._universe.table.streams[0].arn,
            of_table=scenario.of_table,
            start=self._start(),
            max_records=scenario.limit,
            fail_on_data_loss=scenario.fail_on_data_loss and limited,
            wire_records=True,
        )
        reader = StreamReader(
            options,
            _SCHEMA,
            _EXECUTORS,
            planner=lambda options: self._planner(options, life),
            reader=lambda options, arn: self._range_reader(options, arn, life),
        )
        log = self._log
        if len(log.offsets) > len(log.committed):
            self._do(reader, len(log.offsets) - 1, life)
        if not scenario.follow:
            reader.prepareForTriggerAvailableNow()
            if not log.offsets:  # what it listed is where it ends: it begins at the next listing
                self._judge.begin(self._universe.start_time)
        limit: ReadLimit = reader.getDefaultReadLimit()
        assert isinstance(limit, ReadMaxRows if scenario.limit else ReadAllAvailable)
        while not self._stopping:
            start = log.offsets[-1] if log.offsets else json.dumps(reader.initialOffset())
            end = json.dumps(reader.latestOffset(json.loads(start), limit))
            life.sleep(0.005)
            if end != start:
                self._write_offset(end)
                self._do(reader, len(log.offsets) - 1, life)
            elif not scenario.follow:
                return

    def _write_offset(self, end: str) -> None:
        self._log.offsets.append(end)
        self._scheduler.tell("Spark", f"plans batch {len(self._log.offsets) - 1}")
        self._judge.keeps_start()
        self._judge.knows(_shards(end))

    def _do(self, reader: StreamReader, batch: int, life: Life) -> None:
        """Read a micro-batch, put it into the sink, commit it: a crash may come between any two."""
        if batch > 1 and self._rng.random() < _AGAIN_SHARE:
            self._read_again(reader, batch - 1, life)
        tasks, keys = self._read(reader, batch - 1, batch, life)
        self._put(batch, tasks, keys)
        self._pause(life)
        if batch >= len(self._log.committed):
            self._log.committed.append(batch)
            self._scheduler.tell("Spark", f"commits batch {batch}")

    def _read_again(self, reader: StreamReader, batch: int, life: Life) -> None:
        """A range that begins where the driver holds nothing any more: no part is taken for it.

        Spark itself asks for one micro-batch at a time; shards that have left the offset by the
        next one are not in the range.
        """
        rows = merged(self._read(reader, batch - 1, batch + 1, life)[0])
        began = _shards(self._log.offsets[batch - 1])
        still = _shards(self._log.offsets[batch + 1])
        # Where a range begins at a time, the first record is known to the second only.
        numbered = {
            each
            for each, of in began.items()
            if isinstance(of.position, AtSequence | AfterSequence)
        }
        mine = numbered & still.keys()
        before = {each: old for each, old in self._log.sink[batch].items() if each in mine}
        now = {each: rows.get(each, [])[: len(old)] for each, old in before.items()}
        self._judge.replayed(batch, before, now)

    def _read(
        self, reader: StreamReader, after: int, upto: int, life: Life
    ) -> tuple[list[Batch], dict[str, str]]:
        """What lies between the ends of two micro-batches, by tasks, and the records' keys."""
        log = self._log
        start = json.loads(log.offsets[after]) if after >= 0 else reader.initialOffset()
        partitions = reader.partitions(start, json.loads(log.offsets[upto]))
        self._pause(life)
        tasks: list[Batch] = []
        keys: dict[str, str] = {}
        for partition in partitions:
            rows: Batch = {}
            tasks.append(rows)
            for table in reader.read(pickle.loads(pickle.dumps(partition))):
                for row in table.to_pylist():
                    record = _wire_record.decode(row["record"])
                    number = record.dynamodb.SequenceNumber
                    rows.setdefault(row["shard_id"], []).append(number)
                    self._judge.stood(row["shard_id"])  # a task at work is not silent
                    keys[number] = msgspec.json.decode(record.dynamodb.Keys)["pk"]["S"]
            self._pause(life)
        return tasks, keys

    def _put(self, batch: int, tasks: list[Batch], keys: dict[str, str]) -> None:
        rows = merged(tasks)
        count = sum(map(len, rows.values()))
        self._scheduler.tell("the sink", f"takes batch {batch}: {count} records")
        if batch in self._log.sink:
            self._judge.replayed(batch, self._log.sink[batch], rows)
            return
        self._log.sink[batch] = rows
        if self._scenario.limit and count > self._scenario.limit:
            self._judge.complain("limit", f"batch {batch} has {count} records")
        self._judge.together(tasks)
        for shard_id, numbers in rows.items():
            for number in numbers:
                if self._scheduler.trace is not None:
                    self._scheduler.tell("the sink", f"takes {number} of {shard_id}")
                self._judge.delivered(shard_id, number, keys[number])

    def _pause(self, life: Life) -> None:
        slow = self._slow()
        life.sleep(self._rng.choice((0.0, 0.002, 0.05, 0.3)) + slow)

    def _planner(self, options: SourceOptions, life: Life) -> Planner:
        client = self._client(life)
        arn = options.stream
        if not is_stream(arn):
            arn = retry_at_start(lambda: client.latest_stream(arn), life)
        ahead = SteppedReads(
            arn, life, self._scheduler, self._universe.client, self._scenario.behind_seconds
        )
        return Planner(options, arn, client, ahead, clock=life)

    def _range_reader(self, options: SourceOptions, arn: str, life: Life) -> RangeReader:
        if self._life is None:
            raise Killed
        return range_reader(options, arn, self._client(life), life)

    def _end(self) -> None:
        self._kill()  # Spark interrupts the query's thread wherever it is

    def _clean_up(self) -> None:
        """It has neither processes nor files."""
