"""The shared queue: no lock, no torn message, and a bounded memory."""

import contextlib
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.times import NOON
from tests.support.wire import shard_key
from watcher.aws.credentials import Keys
from watcher.aws.model import ShardKey
from watcher.runtime.protocol import (
    Command,
    CommandReader,
    CommandWriter,
    FromWorker,
    MessageQueue,
    MessageWriter,
    NewCredentials,
    ShardClosed,
    frame,
)
from watcher.streams.messages import IteratorGranted, Message, Page, ReaderEnded

fork = multiprocessing.get_context("fork")


@pytest.fixture
def queue() -> Iterator[MessageQueue]:
    made = MessageQueue()
    yield made
    made.close()


def page(number: int, size: int = 10) -> Page:
    return Page(0, 1, str(number), bytes([number % 251]) * size)


def received(queue: MessageQueue, count: int) -> list[tuple[ShardKey | str, FromWorker | None]]:
    got: list[tuple[ShardKey | str, FromWorker | None]] = []
    end = time.monotonic() + 60
    while len(got) < count and time.monotonic() < end:
        if (one := queue.receive(1.0)) is not None:
            got.append(one)
    return got


def test_messages_come_out_in_order_and_whole(queue: MessageQueue) -> None:
    writer = queue.writer("a")
    sent: list[Message] = [IteratorGranted(NOON), page(1, 60_000), page(2, 0), ReaderEnded(True)]
    for message in sent:
        writer.send(shard_key("a"), message)
    writer.close()
    got = received(queue, 5)
    assert [name for name, _ in got] == [*[shard_key("a")] * 4, "a"]
    assert [message for _, message in got] == [*sent, None]
    assert queue.receive(0) is None


def test_a_writer_stopped_in_mid_message_stalls_nobody(queue: MessageQueue) -> None:
    stopped, other = queue.writer("stopped"), queue.writer("other")
    os.write(stopped.fileno(), b"".join(frame(shard_key("a"), page(0, 1_000_000)))[:500])
    for number in range(100):
        other.send(shard_key("other"), page(number))
    assert [name for name, _ in received(queue, 100)] == [shard_key("other")] * 100
    stopped.close()
    assert received(queue, 1) == [("stopped", None)]
    other.close()


def test_a_worker_that_is_held_waits_and_the_others_go_on(queue: MessageQueue) -> None:
    writers = {name: queue.writer(name) for name in "ab"}
    for _ in range(2):
        for name, writer in writers.items():
            writer.send(shard_key(name), page(1))
    assert [queue.receive(0, {"a"}) for _ in range(3)] == [(shard_key("b"), page(1))] * 2 + [None]
    assert [queue.receive(0) for _ in range(3)] == [(shard_key("a"), page(1))] * 2 + [None]


def test_what_a_writer_has_sent_or_its_end_is_seen_before_it_is_received(
    queue: MessageQueue,
) -> None:
    writer = queue.writer("a")
    queue.writer("b").close()
    assert not queue.has_unread("a")
    writer.send(shard_key("a"), page(1))
    assert queue.has_unread("a") and queue.has_unread("b")
    assert len(received(queue, 2)) == 2
    assert not queue.has_unread("a") and not queue.has_unread("b"), "b is gone"


def test_a_full_pipe_stops_its_writer(queue: MessageQueue) -> None:
    writer = queue.writer("a")
    sent = 0

    def write() -> None:
        nonlocal sent
        with contextlib.suppress(BrokenPipeError):
            while True:
                writer.send(shard_key("a"), page(sent, 100_000))
                sent += 1

    thread = threading.Thread(target=write)
    thread.start()
    before = -1
    while sent != before:  # until it stands still
        before = sent
        time.sleep(0.1)
    assert sent * 100_000 <= 2 * 1024 * 1024
    queue.close()
    thread.join()
    writer.close()


def test_a_wake_never_blocks_nor_fails_even_after_the_end() -> None:
    queue = MessageQueue()
    for _ in range(100_000):
        queue.wake()
    assert queue.receive(0) is None
    queue.close()
    queue.wake()


def test_a_forked_child_keeps_nothing_of_the_queue(queue: MessageQueue) -> None:
    writer = queue.writer("a")
    ready = fork.Event()
    child = fork.Process(target=lambda: ready.set() or time.sleep(600))  # type: ignore[func-returns-value]
    child.start()
    assert ready.wait(60)
    queue.close()
    with pytest.raises(BrokenPipeError):  # though the child lives
        writer.send(shard_key("a"), ReaderEnded(True))
    writer.close()
    child.kill()
    child.join()


def test_a_forked_child_that_comes_back_to_the_queue_ends(queue: MessageQueue) -> None:
    child = os.fork()
    if child == 0:
        queue.receive(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


KILLS = 500
BODY = 150_000


def _write_for_ever(writer: MessageWriter, name: str, first: int) -> None:
    number = first
    with contextlib.suppress(BrokenPipeError):
        while True:
            writer.send(shard_key(name), page(number, BODY))
            number += 1


@pytest.mark.proof
def test_five_hundred_writers_killed_under_full_load(queue: MessageQueue) -> None:
    """No hang, no torn message, nothing skipped or repeated, no stall of the others."""
    chance = random.Random(4)
    names = [f"shard-{number}" for number in range(4)]
    following = dict.fromkeys(names, 0)
    heard = time.monotonic()
    processes: dict[str, multiprocessing.process.BaseProcess] = {}
    # Turns, not seconds: on a machine that is full, a writer may not run for seconds.
    passed_over = dict.fromkeys(names, 0)
    longest_stall = 0

    def start(name: str) -> None:
        writer = queue.writer(name)
        processes[name] = fork.Process(target=_write_for_ever, args=(writer, name, following[name]))
        processes[name].start()
        writer.close()

    def is_enough() -> bool:
        return kills >= KILLS and min(following.values()) > 100

    for name in names:
        start(name)
    kills = 0
    kill_due = time.monotonic()
    while not is_enough() or processes:
        holding = [name for name in processes if queue.has_unread(name)]
        got = queue.receive(5.0)
        now = time.monotonic()
        assert now - heard < 30.0, "all stand still"
        if got is None:
            continue
        heard = now
        name = got[0].shard_id if isinstance(got[0], ShardKey) else got[0]
        message = got[1]
        passed_over = {each: passed_over[each] + 1 if each in holding else 0 for each in names}
        longest_stall = max(longest_stall, passed_over[name])
        passed_over[name] = 0
        if message is None:
            processes.pop(name).join()
            if not is_enough():
                start(name)
        else:
            assert isinstance(message, Page)
            assert int(message.last_sequence_number) == following[name]
            assert message.body == bytes([following[name] % 251]) * BODY
            following[name] += 1
        if now >= kill_due and processes:
            victim = processes[chance.choice(sorted(processes))]
            assert victim.pid is not None
            with contextlib.suppress(ProcessLookupError):  # just reaped
                os.kill(victim.pid, signal.SIGKILL)
                kills += 1
            kill_due = now + chance.uniform(0.0, 0.012)
    assert longest_stall < 100


def test_commands_come_in_their_order_also_a_long_one() -> None:
    """AWS promises no length of session tokens."""
    long = NewCredentials(Keys("key", "secret", "t" * 20_000))
    given: list[Command] = [ShardClosed("a", "s"), long, ShardClosed("b", "s")]
    reading, writing = multiprocessing.Pipe(duplex=False)
    with reading, writing:
        writer = CommandWriter(writing)
        for each in given:
            writer.send(each)
        assert CommandReader(reading).receive(1.0) == given
