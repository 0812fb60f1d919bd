"""The shards' processes: when they are started again, and what their ends mean."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hand_clock import HandClock
from tests.play import PlayedProcess
from tests.wire import origin
from watcher.engine.shared_queue import Queue, Writer
from watcher.engine.worker import Work
from watcher.engine.workers import Workers
from watcher.errors import WatcherError
from watcher.service.connection import Connection
from watcher.service.model import TrimHorizon
from watcher.service.tally import Tally


class Played:
    """Workers whose processes are started in name only."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.queue = Queue()
        self.workers = Workers(self.queue, self._start, self.clock)
        self.processes: list[PlayedProcess] = []
        self.exitcode = -9
        self.refuse = False

    def _start(self, work: Work, writer: Writer, tally: Tally) -> PlayedProcess:
        if self.refuse:
            raise OSError(11, "Resource temporarily unavailable")
        self.processes.append(PlayedProcess(self.exitcode))
        return self.processes[-1]

    def start(self, name: str) -> None:
        work = Work(Connection(), "", name, TrimHorizon(), None, 1.0)
        self.workers.start(work, Tally())

    def die(self, name: str) -> str:
        received = self.queue.receive(1.0)
        assert received == (origin(name), None)
        return self.workers.ended(origin(name), for_good=False)


@pytest.fixture
def played() -> Iterator[Played]:
    made = Played()
    yield made
    made.queue.close()


def test_a_shard_has_a_process_until_its_end(played: Played) -> None:
    played.start("a")
    assert origin("a") in played.workers and len(played.workers) == 1
    assert played.workers.ended(origin("a"), for_good=True) == "signal 9"
    assert origin("a") not in played.workers and not played.workers


def test_a_process_that_died_is_due_again_the_later_the_more_often_it_did(played: Played) -> None:
    pauses = []
    for _ in range(4):
        played.start("a")
        played.die("a")
        pause = 0.0
        while not played.workers.to_restart():
            played.clock.sleep(0.1)
            pause += 0.1
        pauses.append(round(pause, 1))
    assert pauses == [0.1, 0.2, 0.4, 0.8]


@pytest.mark.parametrize("lives", ["long", "with records"])
def test_a_life_well_lived_makes_up_for_earlier_deaths(played: Played, lives: str) -> None:
    for _ in range(5):
        played.start("a")
        played.die("a")
        played.clock.sleep(20)
    played.start("a")
    if lives == "long":
        played.clock.sleep(61)
    else:
        played.workers.delivers(origin("a"))
    played.die("a")
    played.clock.sleep(0.11)
    assert played.workers.to_restart() == [origin("a")]


def test_one_that_cannot_be_started_is_due_again_and_leaves_no_pipe(
    played: Played, caplog: pytest.LogCaptureFixture
) -> None:
    played.refuse = True
    played.start("a")
    assert caplog.messages == [
        "Can't start a process for shard a: Resource temporarily unavailable"
    ]
    assert played.queue.receive(0.0) is None
    played.clock.sleep(1)
    assert played.workers.to_restart() == [origin("a")]


def test_all_reading_is_told_once(played: Played) -> None:
    played.start("a")
    played.start("b")
    assert not played.workers.reads(origin("a"))
    assert played.workers.reads(origin("b"))
    assert not played.workers.reads(origin("b"))


def test_processes_that_all_fail_as_they_start_are_an_error(played: Played) -> None:
    played.exitcode = 1
    for _ in range(2):
        played.start("a")
        assert played.die("a") == "exit status 1"
    played.start("a")
    with pytest.raises(WatcherError, match="under `if __name__"):
        played.die("a")


def test_stopping_asks_the_living_and_forgets_the_dead(played: Played) -> None:
    played.start("a")
    played.die("a")
    played.start("b")
    played.workers.stop()
    assert len(played.workers) == 1 and played.processes[1].ended == "terminated"
    played.workers.end()
    assert played.processes[1].ended == "killed"
