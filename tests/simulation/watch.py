"""The processes' engine in the simulation: run after run of the manager on one checkpoint."""

from __future__ import annotations

import errno
import math
from collections.abc import Sequence
from typing import Any

from tests.simulation import probes
from tests.simulation.handler_pool import SimulatedHandlerPool
from tests.simulation.items import SimulatedItems
from tests.simulation.processes import PipeSelector, SimulatedWorker
from tests.simulation.program import LIMITED_RUNS, Program
from tests.simulation.scheduler import Killed, Life, VirtualClock
from tests.simulation.slow_listings import SlowLister, SlowRegion
from tests.simulation.store import Disk, MemoryStore
from tests.simulation.universe import TABLE, Universe
from watcher.aws.counters import SharedCounters
from watcher.aws.model import Service, ShardKey
from watcher.aws.retry import retry_at_start
from watcher.build import build_manager
from watcher.delivery.batches import Batches
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.handler import Handler
from watcher.options import WatchOptions
from watcher.pull.table_snapshot import SHARD_ID
from watcher.records.page import RecordPage
from watcher.records.record import Record
from watcher.runtime.loop import Manager
from watcher.runtime.protocol import MessageQueue, MessageWriter, ReadShard, ShardAssignment
from watcher.runtime.watched_stream import WatchedStream
from watcher.runtime.watched_streams import WatchedStreams
from watcher.runtime.worker import AssignedShard, pages_of
from watcher.runtime.workers import Workers

_READ_SECONDS = 10.0
PLACES = 256
LONGEST_PAUSE = 61.0


class HandlerFailed(Exception):
    """What the failing handler raises."""


class Watch(Program):
    """`watch()` with a checkpoint and one handler."""

    def __init__(self, universe: Universe) -> None:
        super().__init__(universe)
        self._disk = Disk()
        self._manager: Manager | None = None
        self._processes: list[SimulatedWorker] = []
        self._refuses_processes = False
        self._failures_to_come: dict[tuple[str, str], int] = {}
        self._pool: SimulatedHandlerPool | None = None
        self._to_hang = 0.0  # how long the next record's handler does
        self._hung: dict[ShardKey, float] = {}  # since when
        self._to_fail = 0.0  # how long the next record's handler does
        self._failing: dict[ShardKey, tuple[float, float]] = {}  # since when, until when

    def _live(self, life: Life) -> None:
        self._manager = self._new_manager(life)
        self._manager.run()

    def _end(self) -> None:
        if self._manager is None:  # nobody handles the signal yet
            self._kill()
            return
        self._scheduler.tell("the program", "gets SIGTERM")
        self._manager.stop()
        self._scheduler.pipes_changed = True

    def _clean_up(self) -> None:
        if self._manager is not None:
            self._manager.workers.queue.close()
            if (dead_letters := self._manager.dispatcher.given_up.dead_letters) is not None:
                dead_letters.close()
        self._manager = None
        if self._pool is not None:
            self._pool.end()
            self._pool = None
        for process in self._processes:
            process.kill()
        self._processes.clear()

    def _new_manager(self, life: Life) -> Manager:
        scenario = self._scenario
        client = self._client(life)
        arn = self._universe.table.streams[0].arn
        if scenario.of_table:
            arn = retry_at_start(lambda: client.latest_stream(TABLE), life)
        limited = self._judge.runs[-1].number < LIMITED_RUNS
        settings = WatchOptions(
            start=self._start(),
            follow=scenario.follow,
            max_records=scenario.max_records if limited else None,
            fail_on_data_loss=scenario.fail_on_data_loss and limited,
            poll_max=scenario.poll_max,
            filters=self._filters,
            on_error=scenario.on_error,
            snapshot=scenario.snapshot,
        )
        queue = MessageQueue(PipeSelector(self._scheduler, life))  # type: ignore[arg-type]

        def answered() -> None:
            queue.wake()
            self._scheduler.pipes_changed = True

        def service(universe: Universe) -> Service:
            if scenario.slow_listings:
                return SlowLister(universe, life, answered)
            return self._client_of(universe, life)

        followed = [
            WatchedStream(
                arn,
                settings,
                service=service(self._universe),
                first_service=client,
                of_table=scenario.of_table,
                items=self._items(life),
                clock=life,
            )
        ]

        def join(arn: str) -> WatchedStream:
            each = self._universe.of(arn)
            first = self._client_of(each, life)
            made = service(each)
            return WatchedStream(arn, settings, service=made, first_service=first, clock=life)

        discoveries = []
        if scenario.slow_tags:  # its other streams come later
            discoveries = [SlowRegion(self._universe, life).discovery(join)]
        else:
            followed += [join(each.table.streams[0].arn) for each in self._universe.others]
        if scenario.concurrency > 1:
            self._pool = SimulatedHandlerPool(self._scheduler, life, scenario.concurrency)
        return build_manager(
            settings,
            streams=WatchedStreams(followed, discoveries, clock=life),
            handlers=[self._handler(life)],
            workers=Workers(
                queue,
                self._start_process,
                life,
                processes=scenario.processes,
                counters=SharedCounters(PLACES),
            ),
            store=MemoryStore(
                self._disk,
                life,
                self._scheduler,
                lambda arn: self._universe.of(arn).judge,
                self._kill,
            ),
            displays=[probes.Probes(self._universe, life, self._hung, self._failing)],
            clock=life,
            pool=self._pool,
            late_seconds=probes.LATE_SECONDS,
        )

    def _start_process(
        self, name: str, work: ShardAssignment, writer: MessageWriter, board: SharedCounters
    ) -> Any:
        if self._life is None:
            raise Killed
        self._life.check()
        if self._refuses_processes:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

        def reading(process: SimulatedWorker, order: ReadShard) -> AssignedShard:
            client = self._universe.of(order.assignment.arn).client(process.wait, _READ_SECONDS)
            client.counters = counters = board.at(order.slot)
            clock = VirtualClock(self._scheduler)
            make = pages_of(self._wanted)
            return AssignedShard(order.assignment, client, counters, clock, make)

        process = SimulatedWorker(
            self._scheduler, f"of {name}", writer.fileno(), self._scenario.pipe_bytes, reading
        )
        self._processes = [each for each in self._processes if each.is_alive]
        self._processes.append(process)
        return process

    def _items(self, life: Life) -> SimulatedItems:
        rng, universe = self._rng, self._universe
        seconds = self._scenario.habits.get("latency", 0.01)

        def fails() -> bool:
            return not universe.is_calm and rng.random() < self._scenario.faults.get(
                "error_rate", 0
            )

        page = 1 + self._scenario.seed % 4
        return SimulatedItems(universe.table, page, lambda: life.sleep(seconds), fails)

    # Its observer

    def _handler(self, life: Life) -> Handler:
        if not self._scenario.batch:
            made = Handler("recorder", self._handle)
            made.handle_page = self._handle_page if self._scenario.together else None
            return made
        size, window = self._scenario.batch, self._scenario.window
        return Batches("recorder", self._handle_batch, size, window, clock=life)

    def _handle(self, record: Record) -> None:
        self._take([record])

    def _handle_page(self, page: RecordPage) -> bool:
        may_fail = self._scenario.failing and not self._universe.is_calm
        if not may_fail:
            self._take([*page])
        return not may_fail

    def _handle_batch(self, records: Sequence[Record]) -> int:
        self._take(records)
        return len(records)

    def _take(self, records: Sequence[Record]) -> None:
        life = self._life
        if life is None:
            raise Killed
        life.check()
        if slow := self._slow():
            life.sleep(slow)
        if self._to_hang:
            self._hang(records[0].shard_key, life)
        self._fail_for_long(records[0])
        self._fail_perhaps(records)
        if self._universe.of(records[0].stream).judge.has_failed(records[0].sequence_number):
            self._universe.trouble_lasts(0.0)  # what waited for it begins now
        for record in records:
            number, key = record.sequence_number, str(record.key["pk"])
            if self._scheduler.trace is not None:
                self._scheduler.tell("the handler", f"takes {number} of {record.shard_id}")
            if record.event_name == "SNAPSHOT":
                self._item(record)
            else:
                self._universe.of(record.stream).judge.delivered(record.shard_id, number, key)

    def _item(self, record: Record) -> None:
        assert record.new is not None
        told = self._universe.of(record.stream).judge.told
        told.item(str(record.key["pk"]), int(record.new["v"]))

    def _fail_perhaps(self, records: Sequence[Record]) -> None:
        which = records[0].stream, records[0].sequence_number
        if self._universe.is_calm:
            return
        if which not in self._failures_to_come:
            fails = self._rng.random() < self._scenario.failing
            self._failures_to_come[which] = self._rng.randint(1, 9) if fails else 0
        if self._failures_to_come[which] <= 0:
            return
        self._failures_to_come[which] -= 1
        self._fail(records[0])

    def _fail(self, record: Record) -> None:
        policy = FailurePolicy.parse(self._scenario.on_error)
        judge, number = self._universe.of(record.stream).judge, record.sequence_number
        failures = judge.runs[-1].failures
        failures[int(number)] += 1
        self._scheduler.tell("the handler", f"fails on {number}")
        enough = failures[int(number)] > policy.retries
        if enough and policy.then != "stop" and not self._scenario.batch:
            if record.event_name == "SNAPSHOT":
                self._item(record)
            else:
                judge.failed(record.shard_id, number)
        raise HandlerFailed("no")

    def _hang(self, shard_key: ShardKey, life: Life) -> None:
        """It is broken off where the watch is told to end."""
        self._scheduler.tell("the handler", f"hangs on a record of {shard_key.shard_id}")
        began = self._hung[shard_key] = self._scheduler.now
        until, self._to_hang = began + self._to_hang, 0.0
        try:
            while self._scheduler.now < until and not self._stopping:
                life.sleep(1.0)
        finally:
            del self._hung[shard_key]
            self._universe.trouble_lasts(0.0)
            for judge in self._judges:
                judge.stood(shard_key.shard_id)
                if self._pool is None:
                    judge.runs[-1].blocked += self._scheduler.now - began

    def _a_handler_hangs(self) -> bool:
        self._to_hang = self._rng.choice((20.0, 70.0, 200.0))
        return True

    def _fail_for_long(self, record: Record) -> None:
        shard_key, now = record.shard_key, self._scheduler.now
        if self._to_fail and record.event_name != "SNAPSHOT":
            self._failing[shard_key] = now, now + self._to_fail
            self._to_fail = 0.0
            self._failures_to_come[record.stream, record.sequence_number] = 0  # that is enough
            # The try after it may come so much later.
            seconds = self._failing[shard_key][1] - now + LONGEST_PAUSE
            self._universe.trouble_lasts(seconds)
            self._scheduler.after(seconds, lambda: self._end_failing(shard_key))
        if shard_key in self._failing and now < self._failing[shard_key][1]:
            self._scheduler.tell("the handler", f"fails on {record.sequence_number}, for long")
            self._judge.checked["handlers that fail for long"] += 1
            raise HandlerFailed("no database")

    def _end_failing(self, shard_key: ShardKey) -> None:
        _, until = self._failing.get(shard_key, (0.0, math.inf))
        if until > self._scheduler.now:  # it has begun once more
            return
        del self._failing[shard_key]
        for judge in self._judges:
            judge.stood(shard_key.shard_id)

    def _a_handler_fails(self) -> bool:
        if self._scenario.on_error != "retry":
            return False
        self._to_fail = self._rng.choice((20.0, 100.0, 400.0))
        return True

    @property
    def _hangs(self) -> bool:
        return bool(self._hung or self._failing)

    def _stands(self, shard_id: str) -> bool:
        """Its own shard and those below it, or all where one after the other is handled.

        An item's handler keeps all of its table; with a limit it may have the last record.
        """
        if self._scenario.max_records:
            return True
        items = [shard_key for shard_key in self._hung if shard_key.shard_id == SHARD_ID]
        if any(self._universe.of(each.stream).judge.shard(shard_id) for each in items):
            return True
        hung = {shard_key.shard_id for shard_key in (*self._hung, *self._failing)}
        above: str | None = shard_id
        while above is not None and above not in hung:
            found = [shard for judge in self._judges if (shard := judge.shard(above))]
            above = found[0].parent if found else None
        return above is not None or self._pool is None

    # What happens to its processes, and to its disk

    def _alive(self) -> SimulatedWorker | None:
        alive = [each for each in self._processes if each.is_alive]
        return self._rng.choice(alive) if alive else None

    def _kill_a_process(self) -> bool:
        if process := self._alive():
            self._scheduler.tell(process.name, "is killed")
            process.kill()
        return process is not None

    def _tear_a_message(self) -> bool:
        if process := self._alive():
            process.tear(self._rng.choice((1, 7, 9, 300, 5000)))
        return process is not None

    def _stop_a_process(self) -> bool:
        if process := self._alive():
            seconds = self._rng.uniform(0.2, 15)
            self._scheduler.tell(process.name, "is stopped")
            process.stop()
            self._universe.trouble_lasts(seconds)
            self._scheduler.after(seconds, process.go_on)
        return process is not None

    def _kill_at_a_save(self) -> bool:
        self._disk.kill_at_save = self._rng.choice(("before", "after"))
        return True

    def _disk_full(self) -> bool:
        seconds = self._rng.uniform(0.5, 8)
        self._disk.is_full = True
        self._universe.trouble_lasts(seconds)

        def free() -> None:
            self._disk.is_full = False

        self._scheduler.after(seconds, free)
        return True

    def _no_more_processes(self) -> bool:
        seconds = self._rng.uniform(0.5, 8)
        self._refuses_processes = True
        self._universe.trouble_lasts(seconds)

        def allow() -> None:
            self._refuses_processes = False

        self._scheduler.after(seconds, allow)
        return True
