"""The processes' engine in the simulation: run after run of the manager on one checkpoint."""

from __future__ import annotations

import errno
import logging
import traceback
from collections.abc import Sequence
from typing import Any
from unittest import mock

from tests.simulation import interim
from tests.simulation.client import SimulatedClient
from tests.simulation.processes import PipeSelector, ShardProcess
from tests.simulation.scheduler import Killed, Life, Stalled
from tests.simulation.store import Disk, MemoryStore
from tests.simulation.universe import TABLE, Universe
from watcher.delivery import batches as batching
from watcher.delivery.batches import Batches
from watcher.delivery.dispatcher import Dispatcher, OnError
from watcher.delivery.observer import Observer
from watcher.engine.manager import Manager, Settings
from watcher.engine.worker import Work
from watcher.errors import WatcherError
from watcher.record.record import Record
from watcher.service.connect import patiently
from watcher.service.connection import Connection
from watcher.service.model import AtTime, Latest, Position, TrimHorizon
from datetime import UTC, datetime

_MOST_RUNS = 60
_LIMITED_RUNS = 3
_WITHIN_SECONDS = 90.0
_LOOK_SECONDS = 1.0
_CONNECTION = Connection(None, None, None)


class ObserverFailed(Exception):
    """What the failing observer raises."""


class Ear(logging.Handler):
    """Hears what the program says."""

    def __init__(self, universe: Universe) -> None:
        super().__init__()
        self._universe = universe
        self.life: Life | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self.life is None or self.life.killed:
            return
        text = record.getMessage()
        self._universe.scheduler.tell("the program", f"says: {text}")
        self._universe.judge.says(text, warning=record.levelno >= logging.WARNING)


class Watch:
    """Starts the program, does to it what the seed says, and starts it again."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._scheduler = universe.scheduler
        self._scenario = universe.scenario
        self._judge = universe.judge
        self._rng = universe.rng
        self._disk = Disk()
        self._ear = Ear(universe)
        self._life: Life | None = None
        self._manager: Manager | None = None
        self._processes: list[ShardProcess] = []
        self._refuses_processes = False
        self._stopping = False
        self._over = False

    def play(self) -> None:
        """All runs, to the last record."""
        logger = logging.getLogger("watcher")
        logger.addHandler(self._ear)
        try:
            self._universe.begin(self._happen)
            self._scheduler.after(_LOOK_SECONDS, self._look)
            for _ in range(_MOST_RUNS):
                self._run()
                if self._over or self._judge.complaints:
                    break
                self._scheduler.run_until(self._scheduler.now + self._rng.uniform(0.05, 3.0))
            else:
                self._judge.complain("late", f"{_MOST_RUNS} runs, and not done")
            if not self._judge.complaints:
                self._judge.check_all_delivered()
                self._judge.check_losses()
        finally:
            logger.removeHandler(self._ear)

    # One run

    def _run(self) -> None:
        life = self._life = self._ear.life = Life(self._scheduler)
        run = self._judge.run_begins()
        was_calm = self._universe.is_calm
        self._stopping = False
        self._scheduler.tell("the program", f"begins run {run.number}")
        how = "killed"
        try:
            with interim.patched(life, self._rng):
                self._manager = self._new_manager(life)
                self._manager.run()
            how = "stopped" if self._stopping else "done"
        except Killed:
            pass
        except Stalled as error:
            self._judge.complain("stalled", str(error))
        except WatcherError as error:
            how = f"{type(error).__name__}: {error}"
            self._judge.says(str(error), warning=True)
        except BaseException:
            how = "crash"
            self._judge.complain("crash", traceback.format_exc())
        self._manager = self._life = None
        for process in self._processes:
            process.kill()
        self._processes.clear()
        self._judge.run_ends(how)
        self._scheduler.tell("the program", f"has ended: {how}")
        self._check_end(how, was_calm)

    def _check_end(self, how: str, was_calm: bool) -> None:
        if how == "killed" or self._over:
            return
        if how == "done" and was_calm and self._judge.runs[-1].number >= _LIMITED_RUNS:
            self._over = True  # up to the moment when it began, nothing may be missing
        elif how == "done" and self._scenario.follow and self._scenario.max_records is None:
            if all(stream.disabled for stream in self._universe.table.streams):
                self._over = True
            else:
                self._judge.complain("ended", "it has ended, though the stream goes on")
        elif was_calm and how not in ("done", "stopped") and "DATA LOSS" not in how:
            self._judge.complain("ended", f"it has ended in calm weather: {how}")

    def _new_manager(self, life: Life) -> Manager:
        scenario = self._scenario
        run = self._judge.runs[-1]
        streams = self._client(life)
        arn = self._universe.table.streams[0].arn
        if scenario.of_table:
            arn = patiently(lambda: streams.latest_stream(TABLE))
        limited = run.number < _LIMITED_RUNS
        settings = Settings(
            start=self._start(),
            follow=scenario.follow,
            max_records=scenario.max_records if limited else None,
            fail_on_data_loss=scenario.fail_on_data_loss and limited,
            idle_pause=scenario.idle_pause,
            wanted=self._wanted if scenario.filtered else None,
        )
        dispatcher = Dispatcher([self._observer()], OnError.parse(scenario.on_error))
        store = MemoryStore(self._disk, life, self._scheduler, self._judge, self._kill)
        manager: Any = Manager(
            streams,  # type: ignore[arg-type]
            _CONNECTION,
            arn,
            dispatcher,
            settings,
            store,  # type: ignore[arg-type]
            scenario.of_table,
        )
        manager._queue._selector = selector = PipeSelector(self._scheduler, life)
        selector.register(manager._queue._wake_reader, 1, None)
        manager._new_process = lambda shard: self._start_process(
            manager._queue,
            manager._figures,
            Work(
                connection=_CONNECTION,
                arn=manager._arn,
                shard_id=shard.id,
                position=shard.position,
                until=manager._until,
                idle_pause=scenario.idle_pause,
            ),
        )
        patch = mock.patch("watcher.engine.manager.for_loop", lambda *_: self._client(life))
        patch.start()
        patch2 = mock.patch("watcher.engine.manager.for_worker", lambda *_: None)
        patch2.start()
        return manager

    def _client(self, life: Life) -> SimulatedClient:
        run = self._judge.runs[-1]

        def wait(seconds: float) -> None:
            began = self._scheduler.now
            life.sleep(seconds)
            run.blocked += self._scheduler.now - began

        return self._universe.client(wait)

    def _start(self) -> Position:
        match self._scenario.start:
            case "latest":
                return Latest()
            case "at_time":
                return AtTime(datetime.fromtimestamp(self._universe.start_time, UTC))
        return TrimHorizon()

    @staticmethod
    def _wanted(record: Record) -> bool:
        return bool(record.key["pk"] != "k0")

    # Its processes

    def _start_process(self, queue: Any, figures: Any, work: Work) -> ShardProcess:
        assert self._life is not None
        self._life.check()
        if self._refuses_processes:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        writer = queue.writer(work.shard_id)
        pipe_bytes = self._scenario.pipe_bytes
        fd = writer._connection.fileno()
        process = ShardProcess(self._scheduler, f"of {work.shard_id}", fd, pipe_bytes)
        writer.close()
        client = self._universe.client(process.wait, 10.0)
        process.begin(interim.steps(work, figures.tally(work.shard_id), client))
        self._processes = [each for each in self._processes if each.is_alive]
        self._processes.append(process)
        return process

    # Its observer

    def _observer(self) -> Observer:
        if not self._scenario.batch:
            return Observer("recorder", self._handle)
        how = batching.Settings(
            size=self._scenario.batch, window=self._scenario.window, retries=-1
        )
        batches = Batches(self._handle_batch, how)
        return Observer("recorder", batches.add, batches=batches)

    def _handle(self, record: Record) -> None:
        self._take([record])

    def _handle_batch(self, records: Sequence[Record]) -> int:
        self._take(records)
        return len(records)

    def _take(self, records: Sequence[Record]) -> None:
        life, scenario = self._life, self._scenario
        if life is None:
            raise Killed
        life.check()
        if scenario.slow and self._rng.random() < scenario.slow_share:
            life.sleep(scenario.slow)
        if not self._universe.is_calm and self._rng.random() < scenario.failing:
            self._fail(records)
        for record in records:
            number, key = record.sequence_number, str(record.key["pk"])
            if self._scheduler.trace is not None:
                self._scheduler.tell("the observer", f"takes {number} of {record.shard_id}")
            self._judge.delivered(record.shard_id, number, key)

    def _fail(self, records: Sequence[Record]) -> None:
        policy, _, retries = self._scenario.on_error.partition(":")
        run, number = self._judge.runs[-1], int(records[0].sequence_number)
        run.failures[number] += 1
        self._scheduler.tell("the observer", f"fails on {records[0].sequence_number}")
        enough = run.failures[number] > (int(retries) if policy == "retry" else 0)
        if enough and policy != "stop" and not self._scenario.batch:
            self._judge.failed(records[0].shard_id, records[0].sequence_number)
        raise ObserverFailed("no")

    # What happens to it

    def _look(self) -> None:
        """Every second: is it done? Has it been too long?"""
        universe, judge, now = self._universe, self._judge, self._scheduler.now
        self._scheduler.after(_LOOK_SECONDS, self._look)
        if self._life is None or self._over:
            return
        judge.check_silence()
        if not universe.is_calm:
            return
        if now > max(universe.troubled_until, self._scenario.writes) + _WITHIN_SECONDS:
            judge.check_all_delivered("late")
            if not judge.complaints:
                judge.complain("late", "all is delivered, but it does not end")
            self._over = True
            self._life.killed = True
        elif self._scenario.follow and not judge.missing():
            self._over = True
            self._stop()

    def _happen(self, name: str) -> bool:
        if self._life is None or self._universe.is_calm:
            return False
        done = bool(getattr(self, "_" + name.replace(" ", "_"))())
        return done

    def _alive(self) -> ShardProcess | None:
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

    def _kill(self) -> None:
        assert self._life is not None
        self._scheduler.tell("the program", "is killed")
        self._life.killed = True

    def _kill_the_program(self) -> bool:
        self._kill()
        return True

    def _kill_at_a_save(self) -> bool:
        self._disk.kill_at_save = self._rng.choice(("before", "after"))
        return True

    def _stop(self) -> None:
        if self._manager is not None:
            self._scheduler.tell("the program", "gets SIGTERM")
            self._stopping = True
            self._manager.stop()
            self._scheduler.pipes_changed = True

    def _end_the_program(self) -> bool:
        self._stop()
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
