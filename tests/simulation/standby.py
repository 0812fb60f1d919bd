"""Two or three watches of one checkpoint: killed, paused, cut off, and a table that fails."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, TypeVar

from tests.simulation.ledger import Complaint
from tests.simulation.processes import PipeSelector, SimulatedWorker
from tests.simulation.run import Outcome
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Killed, Scheduler, Stalled, Trace, VirtualClock
from tests.simulation.together import Seat, SeatedLife, Turns
from tests.simulation.universe import Universe
from watcher.aws.counters import SharedCounters
from watcher.aws.lease_storage import LeaseRecord
from watcher.aws.model import TrimHorizon
from watcher.build import build_manager
from watcher.delivery.handler import Handler
from watcher.errors import CheckpointError, LeaseLostError, WatcherError
from watcher.options import WatchOptions
from watcher.records.record import Record
from watcher.runtime.loop import Manager
from watcher.runtime.protocol import MessageQueue, MessageWriter, ReadShard, ShardAssignment
from watcher.runtime.watched_stream import WatchedStream
from watcher.runtime.watched_streams import WatchedStreams
from watcher.runtime.worker import AssignedShard
from watcher.runtime.workers import Workers
from watcher.stores.lease import Lease
from watcher.streams.checkpoint_format import all_from_json

T = TypeVar("T")

WITHIN_SECONDS = 10.0
_LOST_SECONDS = 2.0
_READ_SECONDS = 3.0
_TROUBLE = 60.0
_MOST_SECONDS = 300.0
_EVENTS = {"kill": 4, "stop": 2, "pause": 5, "cut": 3, "outage": 2, "split": 3, "rotate": 3}


class Item:
    """The table's item, and what is wrong with the table for everybody."""

    name = "dynamodb://positions/orders"

    def __init__(self, judge: StandbyJudge) -> None:
        self.there: LeaseRecord | None = None
        self.fails_until = 0.0
        self._judge = judge

    def replace(self, record: LeaseRecord, seen: LeaseRecord | None) -> bool:
        now = self.there and (self.there.holder, self.there.counter)
        if now != (seen and (seen.holder, seen.counter)):
            return False
        before, self.there = self.there, record
        self._judge.written(before, record)
        return True


class StandbyJudge:
    """Who may deliver, and what has to have been delivered."""

    def __init__(self, universe: Universe) -> None:
        self.complaints: list[Complaint] = []
        self.checked: Counter[str] = Counter()
        self.holder = ""
        self._universe = universe
        self._delivered: set[int] = set()
        self._newest: dict[str, int] = {}
        self._saved: dict[str, int] = {}

    def complain(self, text: str) -> None:
        self._universe.scheduler.tell("the judge", text)
        text = f"at {self._universe.scheduler.now:.2f}: {text}"
        self.complaints.append(Complaint("standby", text))

    def written(self, before: LeaseRecord | None, now: LeaseRecord) -> None:
        if now.holder != self.holder:
            self.checked["takeovers"] += bool(self.holder and now.holder)
            self._universe.scheduler.tell("the table", f"is {now.holder or 'nobody'}'s now")
            self.holder = now.holder
            self._newest.clear()
            self._saved = self._positions(now.token)
        if before is not None and now.token != before.token:
            self.checked["saves"] += 1
            for shard_id, number in self._positions(now.token).items():
                shard = self._universe.judge.shard(shard_id)
                numbers = [] if shard is None else shard.numbers
                if any(each <= number and each not in self._delivered for each in numbers):
                    self.complain(f"{number} of {shard_id} saved, and not all up to it delivered")

    @staticmethod
    def _positions(token: bytes) -> dict[str, int]:
        rows = [row for each in all_from_json(token) for row in each.shards] if token else []
        return {
            row.shard_id: int(row.sequence_number)
            for row in rows
            if row.iterator_type == "after_sequence" and row.sequence_number
        }

    def delivered(self, holder: str, record: Record) -> None:
        self.checked["records delivered"] += 1
        number, key = int(record.sequence_number), str(record.key["pk"])
        if holder != self.holder:
            self.complain(f"{holder} delivers {number}, and the lease is {self.holder}'s")
        if number <= self._saved.get(record.shard_id, -1):
            self.complain(f"{number} was saved as delivered, and comes again")
        if number <= self._newest.get(key, -1):
            self.complain(f"{number} of {key} comes after {self._newest[key]}")
        self._newest[key] = number
        self._delivered.add(number)

    def missing(self) -> int:
        shards = self._universe.judge.shards()
        return len({number for shard in shards for number in shard.numbers} - self._delivered)


class Shared:
    """One program's way to the item."""

    name = Item.name

    def __init__(self, item: Item, program: Standby, life: SeatedLife) -> None:
        self._item = item
        self._program = program
        self._life = life
        self._rng = program.rng
        self.is_asked = False  # whether an answer is waited for

    def prepare(self) -> None:
        """It is there."""

    def close(self) -> None:
        """It has no connection."""

    def get(self) -> LeaseRecord | None:
        return self._asked(lambda: self._item.there)

    def replace(self, record: LeaseRecord, seen: LeaseRecord | None) -> bool:
        return self._asked(lambda: self._item.replace(record, seen))

    def _asked(self, ask: Callable[[], T]) -> T:
        self.is_asked = True
        try:
            return self._answered(ask)
        finally:
            self.is_asked = False

    def _answered(self, ask: Callable[[], T]) -> T:
        self._wait(self._rng.uniform(0.002, 0.1))
        seat = self._program.seat
        if seat.now < self._program.cut_until:
            if self._rng.random() < 0.3:  # it arrives, in the end
                seat.after(self._rng.uniform(0.1, 9.0), ask)
            self._wait(_LOST_SECONDS)
            raise CheckpointError("no answer")
        if seat.now < self._item.fails_until:
            raise CheckpointError("InternalServerError", answered=True)
        answer = ask()
        if self._rng.random() < self._program.lost_rate:
            self._wait(_LOST_SECONDS)
            raise CheckpointError("no answer")
        self._wait(self._rng.uniform(0.002, 0.1))
        return answer

    def _wait(self, seconds: float) -> None:
        self._life.check()
        if threading.current_thread() is self._program.seat.thread:
            self._life.sleep(seconds)


class SeatedLease(Lease):
    """A lease that is renewed beside its watch, as by its thread."""

    def __init__(self, shared: Any, holder: str, life: SeatedLife, seat: Seat) -> None:
        super().__init__(shared, holder, life)
        self._is_closed = False
        self._seen, self._life, self._seat = shared, life, seat

    def stand_by(self, must_stop: Callable[[], bool]) -> bool:
        is_held = super().stand_by(must_stop)
        if is_held:
            self._beat()
        return is_held

    def _beat(self) -> None:
        """As the thread does, which waits while another write goes on."""
        if self._is_closed or self._life.killed:
            return
        seconds = 0.05
        if not self._seat.is_paused and not self._seen.is_asked:
            seconds = self.renew()
        if seconds:
            self._seat.after(max(seconds, 0.05), self._beat)

    def close(self) -> None:
        self._is_closed = True
        super().close()


class Standby:
    """One program: run after run of a watch on the shared checkpoint."""

    def __init__(self, game: Game, name: str) -> None:
        self.name = name
        self.rng = random.Random(f"{game.seed} {name}")
        self.cut_until = 0.0
        self.lost_rate = self.rng.choice((0.0, 0.0, 0.05))
        self.life: SeatedLife | None = None
        self._skew = self.rng.uniform(-3600, 3600)
        self._rate = self.rng.uniform(0.98, 1.02)
        self._game = game
        self._runs = 0
        self._manager: Manager | None = None
        self._processes: list[SimulatedWorker] = []
        self.seat = game.turns.add(name, self._main)

    def _main(self, seat: Seat) -> None:
        seat.run_until(seat.now + self.rng.uniform(0, 5))
        while not self._game.is_over:
            self._runs += 1
            life = self.life = SeatedLife(seat, self._skew, self._rate)
            try:
                self._run(life, f"{self.name}:{self._runs}:x")
            except (Killed, LeaseLostError, CheckpointError) as error:
                seat.tell(self.name, f"has ended: {error!r}")
            except WatcherError as error:
                if "are not saved" not in str(error):  # the table failed as it ended
                    self._game.judge.complain(f"{self.name} has ended: {error!r}")
            self.life = self._manager = None
            for process in self._processes:
                process.kill()
            self._processes.clear()
            seat.run_until(seat.now + self.rng.uniform(0.1, 4))

    def _run(self, life: SeatedLife, holder: str) -> None:
        universe = self._game.universe
        client = universe.client(life.sleep)
        arn = universe.table.streams[0].arn
        settings = WatchOptions(start=TrimHorizon(), poll_max=0.5)
        followed = WatchedStream(arn, settings, service=client, clock=life)
        shared = Shared(self._game.item, self, life)
        store = SeatedLease(shared, holder, life, self.seat)
        queue = MessageQueue(PipeSelector(self.seat, life))  # type: ignore[arg-type]

        def take(record: Record) -> None:
            life.check()
            self._game.judge.delivered(holder, record)
            if self.rng.random() < 0.02:
                life.sleep(self.rng.uniform(0, 1))

        def start(
            name: str, work: ShardAssignment, writer: MessageWriter, board: SharedCounters
        ) -> Any:
            life.check()

            def reading(process: SimulatedWorker, order: ReadShard) -> AssignedShard:
                client = universe.client(process.wait, _READ_SECONDS)
                client.counters = counters = board.at(order.slot)
                return AssignedShard(
                    order.assignment, client, counters, VirtualClock(universe.scheduler)
                )

            process = SimulatedWorker(
                universe.scheduler, f"{self.name} {name}", writer.fileno(), 4096, reading
            )
            self._processes.append(process)
            return process

        self._manager = build_manager(
            settings,
            streams=WatchedStreams([followed], clock=life),
            handlers=[Handler("recorder", take)],
            workers=Workers(queue, start, life, processes=2, counters=SharedCounters(64)),
            store=store,
            clock=life,
        )
        try:
            with closing(store):
                self._manager.run()
        finally:
            queue.close()

    # What happens to it

    def kill(self) -> None:
        if self.life is not None:
            self.life.killed = True
            self.seat.paused_until = 0.0
            self.seat.resume()

    def stop(self) -> None:
        if self._manager is not None and self.life is not None and not self.life.killed:
            self._manager.stop()
            self.seat.pipes_changed = True

    def pause(self, seconds: float) -> None:
        self.seat.paused_until = self.seat.now + seconds


class Game:
    """A seed: the programs, the table, and what goes wrong."""

    def __init__(
        self, seed: int, trace: Trace | None = None, events: Sequence[str] | None = None
    ) -> None:
        rng = random.Random(f"standby {seed}")
        self.seed = seed
        self.is_over = False
        self.injected: Counter[str] = Counter()
        scenario = Scenario(
            seed, "processes", shards=rng.choice((1, 2, 3)), before=rng.choice((0, 20))
        )
        scenario.writes, scenario.trouble, scenario.burst = _TROUBLE, _TROUBLE, 6
        scenario.habits = {"latency": 0.01, "max_records": rng.choice((3, 40))}
        self.scheduler = Scheduler(seed, trace)
        self.universe = Universe(scenario, trace, self.scheduler)
        self.judge = StandbyJudge(self.universe)
        self.item = Item(self.judge)
        self.turns = Turns(self.scheduler)
        self.programs = [Standby(self, f"p{number}") for number in range(rng.choice((2, 2, 3)))]
        self._rng = rng
        names, weights = list(_EVENTS), list(_EVENTS.values())
        drawn = rng.choices(names, weights, k=rng.choice((2, 5, 9)))
        for name in drawn if events is None else events:
            self.scheduler.after(rng.uniform(3, _TROUBLE), lambda name=name: self._happen(name))  # type: ignore[misc]

    def play(self) -> None:
        random.seed(self.seed)  # the reader's jitter
        self.universe.begin(lambda name: False)
        try:
            self.turns.run(self._is_done)
        except Stalled as error:
            self.judge.complain(f"stalled: {error}")
        self.is_over = True
        for program in self.programs:
            if program.life is not None:
                program.life.killed = True
        self.turns.end()
        for crash in self.turns.errors:
            self.judge.complain(f"crash: {crash!r}")
        if missing := self.judge.missing():
            self.judge.complain(f"{missing} records were lost")

    def _is_done(self) -> bool:
        now = self.scheduler.now
        if self.judge.complaints or now > _MOST_SECONDS:
            return True
        return now > _TROUBLE + 20 and not self.judge.missing()

    def _happen(self, name: str) -> None:
        now, rng, item = self.scheduler.now, self._rng, self.item
        self.injected[name] += 1
        self.scheduler.tell("the world", name)
        # What befalls the one that delivers is of more interest.
        holder = [each for each in self.programs if self.judge.holder.startswith(each.name)]
        program = rng.choice((*self.programs, *holder, *holder))
        match name:
            case "split":
                self.universe._split()
            case "rotate":
                self.universe._rotate()
            case "outage":
                item.fails_until = now + rng.uniform(3, 30)
            case "cut":
                program.cut_until = now + rng.uniform(1, 20)
            case "pause":
                program.pause(rng.choice((rng.uniform(0.1, 5), rng.uniform(5, 30))))
            case "stop":
                program.stop()
            case "kill":
                self._expect_a_takeover(program)
                program.kill()

    def _expect_a_takeover(self, killed: Standby) -> None:
        """If somebody stands by who can: within 10 s."""
        holder, now = self.judge.holder, self.scheduler.now
        if not holder.startswith(f"{killed.name}:") or killed.life is None:
            return
        able = [
            each
            for each in self.programs
            if each is not killed and each.life and not each.seat.is_paused and not each.lost_rate
        ]
        before = sum(self.injected.values())

        def look() -> None:
            others = sum(self.injected.values()) != before or now < self.item.fails_until
            if others or any(now < each.cut_until for each in self.programs):
                return
            self.judge.checked["takeovers in time"] += 1
            if self.judge.holder == holder:
                self.judge.complain(f"nobody has taken over from {holder} within 10 s")

        if any(each._manager is not None for each in able):
            self.scheduler.after(WITHIN_SECONDS, look)


def play_standby(seed: int, trace: Trace | None, events: Sequence[str] | None) -> Outcome:
    """One seed; with `events`, these happen, and no others."""
    began = time.process_time()
    logging.getLogger("watcher").setLevel(logging.CRITICAL)
    game = Game(seed, trace, events)
    game.play()
    judge, cpu = game.judge, time.process_time() - began
    return Outcome(
        seed, "standby", judge.complaints, game.injected, judge.checked, game.scheduler.now, cpu
    )
