"""Handlers in processes of their own: order, once, failures, and processes that are killed."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.gate import SECONDS, ThreadsClock
from tests.support.play import ARN, Memory, Play, page
from tests.support.wire import FIRST
from watcher.aws.model import AfterSequence, ShardKey
from watcher.delivery import handler_modules
from watcher.delivery.batches import Batches, BatchSettings
from watcher.delivery.concurrent import PinnedHandlerPool
from watcher.delivery.handler import Handler
from watcher.delivery.handler_modules import described
from watcher.delivery.handler_process import Answer
from watcher.delivery.handler_workers import HandlerWorkers, WorkersError
from watcher.delivery.reloading import Reloading
from watcher.delivery.timing import HANDLER_WORKER_TIMING
from watcher.errors import LeaseLostError, UsageError
from watcher.records.page import RecordPage
from watcher.records.record import Record
from watcher.records.redaction import redaction
from watcher.streams.messages import Page


def number_of(record: Record) -> int:
    return int(record.sequence_number) - FIRST


def note(file: Path, text: object) -> None:
    """Add a line, which several processes may do at once."""
    with file.open("a") as out:
        out.write(f"{text}\n")


def noted(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def act(folder: Path, name: str, record: Record) -> None:
    """A handler: does what a file tells it to, once, and then notes the record."""
    number = number_of(record)
    deed = folder / f"{name}-{number}"
    if deed.exists():
        told = deed.read_text()
        deed.unlink()
        if told == "raise":
            raise ConnectionError("no database")
        os.kill(os.getpid(), signal.SIGKILL)
    note(folder / name, number)


def handlers(folder: Path, *names: str) -> list[Handler]:
    return [Handler(name, partial(act, folder, name)) for name in names]


class Watched:
    """A watch whose handlers run in workers, until all records are processed."""

    def __init__(self, made: Sequence[Handler], size: int, **settings: Any) -> None:
        self.workers = HandlerWorkers(made, size)
        pool = PinnedHandlerPool(self.workers)
        self.play = Play(made[0], pool=pool, clock=ThreadsClock(), **settings)

    def run(
        self,
        shards: Mapping[str, Sequence[Page]],
        until: Callable[[], bool],
        then: Sequence[Any] = (),
    ) -> None:
        for shard in shards:
            self.play.service.add(shard)
        pages = [(shard, each) for shard, several in shards.items() for each in several]
        with closing_workers(self.workers):
            self.play.follow(itertools.chain([1.0], pages, self._waiting(until), then))

    def _waiting(self, until: Callable[[], bool]) -> Iterator[float]:
        end = time.monotonic() + SECONDS
        while not until():
            assert time.monotonic() < end
            yield 0.1


def closing_workers(workers: HandlerWorkers) -> Any:
    class _Ending:
        close = workers.end

    return closing(_Ending)


def pages(first: int, count: int, size: int) -> list[Page]:
    return [page(*range(at, at + size)) for at in range(first, first + count * size, size)]


@pytest.mark.parametrize(("policy", "seed"), [("retry", 1), ("log", 2)])
def test_each_handler_gets_each_record_once_in_order_though_it_fails_and_processes_die(
    policy: str, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    shards = {"a": pages(1, 3, 15), "b": pages(101, 3, 15), "c": pages(201, 2, 10)}
    numbers = {
        shard: list(range(first, first + sum(page.count for page in each)))
        for (shard, each), first in zip(shards.items(), (1, 101, 201), strict=True)
    }
    names = ("first", "second")
    every = [(name, number) for name in names for each in numbers.values() for number in each]
    failing = rng.sample(every, 10)
    for name, number in failing:
        (tmp_path / f"{name}-{number}").write_text(rng.choice(["raise", "kill"]))
    watched = Watched(handlers(tmp_path, *names), 2, on_error=policy)
    play = watched.play
    watched.run(shards, lambda: play.totals.records == sum(map(len, numbers.values())))
    for name in names:
        for each in numbers.values():
            got = [int(line) for line in noted(tmp_path / name) if int(line) in each]
            skipped = [] if policy == "retry" else [n for other, n in failing if other == name]
            assert got == [number for number in each if number not in skipped]
    assert play.totals.failures == (0 if policy == "retry" else len(failing))
    for shard, each in numbers.items():
        assert play.store.position(shard) == AfterSequence(str(FIRST + each[-1]))


def test_a_shard_stays_with_one_process_and_several_shards_have_several(tmp_path: Path) -> None:
    watched = Watched([Handler("pid", partial(note_pid, tmp_path))], 2)
    shards = {"a": pages(1, 2, 5), "b": pages(101, 2, 5)}
    watched.run(shards, lambda: watched.play.totals.records == 20)
    found = [set(noted(tmp_path / name)) for name in "ab"]
    assert [len(each) for each in found] == [1, 1]
    assert found[0] != found[1] and str(os.getpid()) not in found[0] | found[1]


def note_pid(folder: Path, record: Record) -> None:
    note(folder / record.shard_id, os.getpid())


def test_a_limit_is_kept_and_filtered_records_count(tmp_path: Path) -> None:
    made = handlers(tmp_path, "seen")
    watched = Watched(
        made,
        2,
        max_records=4,
        filters='{"dynamodb":{"NewImage":{"n":{"N":[{"numeric":[">",3]}]}}}}',
    )
    watched.run({"a": [page(1, 2, 3, 4, 5), page(6, 7, 8, 9)]}, lambda: False)
    assert noted(tmp_path / "seen") == ["4", "5", "6", "7"]
    assert (watched.play.totals.records, watched.play.totals.filtered) == (4, 3)


def be_slow(record: Record) -> None:
    time.sleep(0.004)


def test_a_page_that_reaches_the_limit_may_take_several_turns() -> None:
    watched = Watched([Handler("slow", be_slow)], 1, max_records=30)
    watched.run({"a": [page(*range(1, 41))]}, lambda: False)
    assert watched.play.totals.records == 30


class Leased(Memory):
    """A store whose lease gets lost."""

    lost = False

    @property
    def raise_unless_held(self) -> Callable[[], object]:
        return self._check

    def _check(self) -> None:
        if self.lost:
            raise LeaseLostError("another watch has it")


def test_a_lost_lease_ends_the_delivery_before_the_next_part(tmp_path: Path) -> None:
    store = Leased()
    watched = Watched(handlers(tmp_path, "seen"), 1, store=store)
    totals = watched.play.totals

    def second_page_comes() -> bool:
        if totals.records == 2:
            store.lost = True
        return store.lost

    with pytest.raises(LeaseLostError):
        watched.run({"a": [page(1, 2)]}, second_page_comes, then=[("a", page(3, 4)), 1.0])
    assert noted(tmp_path / "seen") == ["1", "2"]


class BufferedNotes:
    """A handler that writes with `flush` only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: list[int] = []

    def handle(self, record: Record) -> None:
        act(self._folder, "acted", record)
        self._kept.append(number_of(record))

    def flush(self) -> None:
        for number in self._kept:
            note(self._folder / "flushed", number)
        self._kept.clear()


def test_what_a_killed_process_had_in_buffers_is_handled_again(tmp_path: Path) -> None:
    (tmp_path / "acted-5").write_text("kill")
    notes = BufferedNotes(tmp_path)
    watched = Watched([Handler("notes", notes.handle, flush=notes.flush)], 1, on_error="log")
    watched.run({"a": [page(*range(1, 9))]}, lambda: watched.play.totals.records == 8)
    assert noted(tmp_path / "flushed") == ["1", "2", "3", "4", "6", "7", "8"]
    assert watched.play.totals.failures == 1


def take(folder: Path, records: Sequence[Record]) -> int:
    numbers = [number_of(each) for each in records]
    if not (folder / "batches").exists():
        note(folder / "batches", "first")
        return 1
    note(folder / "batches", "-".join(map(str, numbers)))
    return len(numbers)


def test_batches_are_kept_in_the_manager_and_their_calls_made_in_a_worker(tmp_path: Path) -> None:
    batches = Batches("batch", partial(take, tmp_path), BatchSettings(size=3))
    watched = Watched([batches], 1)
    watched.run({"a": [page(1, 2, 3, 4)]}, lambda: noted(tmp_path / "batches")[-1:] == ["4"])
    assert noted(tmp_path / "batches") == ["first", "2-3", "4"]


# Without a watch


def record_page(*numbers: int, rules: str | None = None) -> RecordPage:
    made = page(*numbers)
    hidden = None if rules is None else redaction(rules)
    return RecordPage(made.body, ShardKey(ARN, "a"), range(made.start, made.stop), hidden)


def last_answer(workers: HandlerWorkers, page: RecordPage, upto: int, **more: Any) -> Answer:
    """The answer for the first `upto` records: on a slow machine a part may have only one."""
    answer = workers.deliver(page, 0, upto, **more)
    while answer.failed is None and answer.done < upto:
        answer = workers.deliver(page, answer.done, upto, **more)
    return answer


@pytest.fixture
def started() -> Iterator[Callable[..., HandlerWorkers]]:
    made: list[HandlerWorkers] = []

    def start(*arguments: Any, **more: Any) -> HandlerWorkers:
        made.append(HandlerWorkers(*arguments, **more))
        return made[-1]

    yield start
    for each in made:
        each.end()


def say(record: Record) -> None:
    print("handled", record.new["n"] if record.new else None, record.key)


async def say_later(record: Record) -> None:
    await asyncio.sleep(0)
    say(record)


@pytest.mark.parametrize("handle", [say, say_later])
def test_what_handlers_print_comes_out_here_and_redaction_works_there(
    handle: Callable[[Record], object],
    started: Callable[..., HandlerWorkers],
    capsys: pytest.CaptureFixture[str],
) -> None:
    rules = redaction("n")
    workers = started([Handler("say", handle)], 1, rules)
    answer = last_answer(workers, record_page(1, 2), 2)
    assert (answer.done, answer.number) == (2, str(FIRST + 2)) and answer.kinds["MODIFY"]
    assert capsys.readouterr().out == "handled *** {'pk': 'a'}\n" * 2
    assert rules is not None and not rules.unused


def wait_for(file: Path, record: Record) -> None:
    note(file, number_of(record))
    while number_of(record) == 2 and not file.with_name("go on").exists():
        time.sleep(0.001)


def test_a_slow_record_is_named_and_a_part_ends_behind_it(
    started: Callable[..., HandlerWorkers], tmp_path: Path
) -> None:
    workers, waits = started([Handler("wait", partial(wait_for, tmp_path / "seen"))], 1), []

    def on_wait(index: int) -> None:
        waits.append(index)
        (tmp_path / "go on").touch()

    made = record_page(1, 2, 3)
    first = last_answer(workers, made, 1).done
    assert first == 1 and workers.deliver(made, 1, 3, on_wait=on_wait).done == 2
    assert set(waits) == {1}
    assert workers.deliver(made, 2, 3).done == 3


def test_a_slow_flush_is_no_record_in_hand(started: Callable[..., HandlerWorkers]) -> None:
    slow = Handler("slow", nothing, flush=partial(time.sleep, 0.25))
    waits: list[int] = []
    assert started([slow], 1).deliver(record_page(1), 0, 1, on_wait=waits.append).done == 1
    assert waits == []


def test_an_overdue_record_is_broken_off_and_the_process_goes_on(
    started: Callable[..., HandlerWorkers], tmp_path: Path
) -> None:
    workers = started([Handler("wait", partial(wait_for, tmp_path / "seen"))], 1)

    def on_wait(index: int) -> None:
        if index:
            workers.interrupt()

    answer = last_answer(workers, record_page(1, 2), 2, on_wait=on_wait)
    assert answer.is_interrupted and answer.done == 1
    assert workers.deliver(record_page(3), 0, 1).done == 1


def end_itself_and_a_program(file: Path, record: Record) -> None:
    for name in ("TERM", "HUP"):
        os.kill(os.getpid(), signal.Signals[f"SIG{name}"])
        note(file, subprocess.run(["sh", "-c", f"kill -{name} $$"]).returncode)


def test_a_signal_ends_a_handlers_program_not_the_handler_unless_it_was_ignored_before(
    started: Callable[..., HandlerWorkers], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fork server that an earlier test has started knows nothing of what is ignored here.
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        workers = started(
            [Handler("ends", partial(end_itself_and_a_program, tmp_path / "status"))], 1
        )
        assert workers.deliver(record_page(1), 0, 1).failed is None
    finally:
        signal.signal(signal.SIGHUP, before)
    assert noted(tmp_path / "status") == [str(-signal.SIGTERM), "0"]


def test_with_a_lease_no_record_starts_long_after_its_check(
    started: Callable[..., HandlerWorkers], tmp_path: Path
) -> None:
    """The process is stopped before it has the request, and continues after the lease's time."""
    workers = started([Handler("pid", partial(note_pid, tmp_path))], 1)
    assert workers.deliver(record_page(1), 0, 1).done == 1
    (pid,) = map(int, noted(tmp_path / "a"))
    os.kill(pid, signal.SIGSTOP)
    late = threading.Timer(2 * HANDLER_WORKER_TIMING.fence_seconds, os.kill, (pid, signal.SIGCONT))
    late.start()
    later = workers.deliver(record_page(2), 0, 1, is_fenced=True)
    late.join()
    assert later.done == 0
    while not workers.deliver(record_page(2), 0, 1, is_fenced=True).done:
        pass  # it took long, too
    assert len(noted(tmp_path / "a")) == 2


def close_with(file: Path) -> None:
    note(file, "closed")
    raise ValueError("it was in use")


def nothing(record: Record) -> None:
    pass


def test_handlers_are_closed_in_each_process(
    started: Callable[..., HandlerWorkers], tmp_path: Path
) -> None:
    close = partial(close_with, tmp_path / "closed")
    workers = started([Handler("closing", nothing, close)], 3)
    for shard in "ab":
        made = page(1)
        workers.deliver(RecordPage(made.body, ShardKey(ARN, shard), range(1)), 0, 1)
    with pytest.raises(Exception, match="it was in use") as error:
        workers.handlers[0].close()
    assert type(error.value).__name__ == "ValueError"
    assert noted(tmp_path / "closed") == ["closed"] * 2


def end_process(*arguments: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_that_end_again_and_again_without_a_record_end_the_watch(
    started: Callable[..., HandlerWorkers],
) -> None:
    workers = started([Handler("ends", nothing, begin=end_process)], 1)
    assert [workers.deliver(record_page(1), 0, 1).done for _ in range(2)] == [0, 0]
    with pytest.raises(WorkersError, match="the last was killed by SIGKILL"):
        workers.deliver(record_page(1), 0, 1)


def test_a_call_that_a_dead_process_has_not_begun_is_made_in_the_next_one(
    started: Callable[..., HandlerWorkers], tmp_path: Path
) -> None:
    workers = started([Handler("pid", partial(note_pid, tmp_path))], 1)
    for record in record_page(1, 2):
        workers.handlers[0].handle(record)
        os.kill(int(noted(tmp_path / record.shard_id)[-1]), signal.SIGKILL)
    assert len(set(noted(tmp_path / "a"))) == 2


def test_workers_that_end_again_and_again_before_a_call_end_the_watch(
    started: Callable[..., HandlerWorkers],
) -> None:
    (record,) = record_page(1)
    workers = started([Handler("ends", nothing, begin=end_process)], 1)
    with pytest.raises(WorkersError, match="the last was killed by SIGKILL"):
        workers.handlers[0].handle(record)


MINE = """
import os
loaded_by = os.getpid()
def handle(record):
    assert loaded_by == os.getpid()
    print("mine")
if os.path.exists(__file__ + ".ends"):
    os._exit(3)
"""


def test_a_module_is_loaded_in_each_process(
    started: Callable[..., HandlerWorkers], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    workers = started([handler_modules.load(described(tmp_path / "mine.py"))], 2)
    assert workers.deliver(record_page(1), 0, 1).failed is None
    assert capsys.readouterr().out == "mine\n"
    (tmp_path / "mine.py.ends").touch()
    made = page(1)
    with pytest.raises(WorkersError, match="ended with exit status 3 while it loaded"):
        workers.deliver(RecordPage(made.body, ShardKey(ARN, "b"), range(1)), 0, 1)


def test_handlers_that_need_this_process_are_refused(tmp_path: Path) -> None:
    found = handler_modules.find()
    (tmp_path / "mine.py").write_text(MINE)
    path = tmp_path / "mine.py"
    reloading = Reloading(partial(handler_modules.load, described(path)), path)
    for handler, reason in (
        (handler_modules.load(found["print_summary"]), "--print-summary writes standard output"),
        (reloading, "--reload"),
    ):
        with pytest.raises(UsageError, match=f"{reason}.*leave out --handlers-in workers"):
            HandlerWorkers([handler], 1)


def test_beside_threads_a_function_has_to_be_importable(
    started: Callable[..., HandlerWorkers],
) -> None:
    end = threading.Event()
    beside = threading.Thread(target=end.wait)
    beside.start()
    try:
        with pytest.raises(UsageError, match="local can't be sent to another process"):
            started([Handler("local", lambda record: None)], 1)
        assert started([Handler("nothing", nothing)], 1).deliver(record_page(1), 0, 1).done == 1
    finally:
        end.set()
        beside.join()
