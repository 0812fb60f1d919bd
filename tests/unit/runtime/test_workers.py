"""The workers: who reads which shards, when they are started again, and what their ends mean."""

from __future__ import annotations

import os
from collections.abc import Iterator
from multiprocessing.connection import Connection as Connection_
from typing import Any

import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import PlayedProcess
from tests.support.wire import shard_key
from watcher.aws.counters import Counters, SharedCounters
from watcher.aws.model import ShardKey, TrimHorizon
from watcher.errors import ResourceError
from watcher.runtime.protocol import (
    CredentialsRefused,
    MessageQueue,
    MessageWriter,
    ReadShard,
    ShardAssignment,
    ShardClosed,
)
from watcher.runtime.workers import Workers
from watcher.streams.messages import Message, ReaderCrashed, ReaderEnded, ReadFailed

TOO_MANY = OSError(24, "Too many open files")


class Played:
    """Workers whose processes are started in name only."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.queue = MessageQueue()
        self.workers = Workers(
            self.queue, self._start, self.clock, processes=3, counters=SharedCounters(8)
        )
        self.processes: list[PlayedProcess] = []
        self.writers: dict[str, MessageWriter] = {}
        self.refuse: OSError | None = None

    def _start(self, name: str, work: Any, writer: MessageWriter, counters: Any) -> Any:
        if self.refuse:
            raise self.refuse
        self.processes.append(PlayedProcess())
        # As a process has it: its own copy of the pipe's end.
        self.writers[name] = MessageWriter(Connection_(os.dup(writer.fileno()), readable=False))
        return self.processes[-1]

    def start(self, *names: str) -> None:
        for name in names:
            work = ShardAssignment("", name, TrimHorizon(), None, 1.0)
            self.workers.start(work, Counters())

    def die(self, *names: str) -> None:
        """The process of these shards dies; the first of them is its name."""
        self.writers.pop(names[0]).close()
        for name in names:
            assert self.receive() == (shard_key(name), None)
            self.workers.on_ended(shard_key(name), restart=True)

    def receive(self) -> tuple[ShardKey, Message | None] | None:
        return self.workers.receive(1.0)

    def read_by(self) -> list[list[str]]:
        """What each process was told to read."""
        return [
            [each.assignment.shard_id for each in process.commands if isinstance(each, ReadShard)]
            for process in self.processes
        ]

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()
        self.queue.close()


@pytest.fixture
def played() -> Iterator[Played]:
    made = Played()
    yield made
    made.close()


def test_a_process_that_has_done_its_work_ends_and_gets_no_more(played: Played) -> None:
    played.start(*"abc")
    played.writers["a"].send(shard_key("a"), ReaderEnded(True))
    assert played.receive() == (shard_key("a"), ReaderEnded(True))
    assert played.processes[0].ended == "dismissed"
    played.start("d", "e")
    assert played.read_by() == [["a"], ["b", "e"], ["c"], ["d"]]
    assert played.receive() == (shard_key("a"), None)
    played.workers.on_ended(shard_key("a"), restart=False)
    assert shard_key("a") not in played.workers


def test_a_reader_that_failed_is_due_again_its_neighbours_read_on(played: Played) -> None:
    played.start(*"abcd")
    played.writers["a"].send(shard_key("a"), ReaderCrashed("no", fatal=False))
    assert played.receive() == (shard_key("a"), ReaderCrashed("no", fatal=False))
    assert played.receive() == (shard_key("a"), None)
    played.workers.on_ended(shard_key("a"), restart=True)
    played.clock.sleep(1)
    assert played.workers.to_restart() == [shard_key("a")] and not played.processes[0].ended


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
        played.workers.on_page(shard_key("a"))
    played.die("a")
    played.clock.sleep(0.11)
    assert played.workers.to_restart() == [shard_key("a")]


def test_stopping_asks_the_living_and_forgets_the_dead(played: Played) -> None:
    played.start("a")
    played.die("a")
    played.start("b")
    played.workers.stop()
    assert len(played.workers) == 1 and played.processes[1].ended == "terminated"
    played.workers.kill()
    assert played.processes[1].ended == "killed"


def test_where_no_further_process_can_be_started_shards_share_them_and_it_is_said_once(
    played: Played, caplog: pytest.LogCaptureFixture
) -> None:
    played.start("a", "b")
    played.refuse = TOO_MANY
    played.start("c", "d", "e")
    assert caplog.messages == [
        "No more than 2 processes can be started: Too many open files; shards share them"
    ]
    assert played.read_by() == [["a", "c", "e"], ["b", "d"]]
    played.clock.sleep(61)
    played.refuse = None
    played.start("f")
    assert played.read_by()[2] == ["f"]


def test_where_none_could_ever_be_started_that_is_an_error(played: Played) -> None:
    played.refuse = ConnectionResetError(104, "the fork server has ended")
    played.start("a")  # later, by another server
    played.refuse = TOO_MANY
    with pytest.raises(ResourceError, match=r"can't start a worker: Too many.*ulimit -n") as caught:
        played.start("a")
    assert caught.value.exit_status == 3


def test_a_shard_that_its_process_does_not_listen_to_is_due_later(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.start("a")
    played.refuse = TOO_MANY

    def full(command: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(played.processes[0], "send", full)
    played.start("c")
    played.clock.sleep(1)
    assert played.workers.to_restart() == [shard_key("c")]


def test_the_process_of_a_shard_that_closes_is_told_so_and_no_other(played: Played) -> None:
    played.start("a", "b")
    played.workers.on_shard_closed(shard_key("b"))
    assert [process.commands[1:] for process in played.processes] == [[], [ShardClosed("", "b")]]


def test_credentials_that_a_worker_was_refused_are_told_to_what_renews_them(played: Played) -> None:
    played.start("a", "b")
    played.writers["a"].send(ShardKey("", ""), CredentialsRefused("key 1"))
    assert played.receive() is None
    assert [process.refused for process in played.processes] == [["key 1"]] * 2


def test_a_full_shard_holds_its_worker_once_more_of_it_comes_not_the_others_before(
    played: Played,
) -> None:
    """With few processes, one slow handler's page kept all others of its worker from starting."""
    played.start(*"abcd")  # a and d share a process
    for name, failures in (("d", 1), ("a", 2), ("d", 3)):
        played.writers["a"].send(shard_key(name), ReadFailed("no", failures))
    full, said = {shard_key("a"), shard_key("b")}, list[object]()
    for now_full in (full, full, full, {shard_key("b")}, {shard_key("b")}):
        said.append(played.workers.receive(0.1, now_full))
    assert said == [
        *((shard_key("d"), ReadFailed("no", 1)), None, None),
        *((shard_key("a"), ReadFailed("no", 2)), (shard_key("d"), ReadFailed("no", 3))),
    ]
