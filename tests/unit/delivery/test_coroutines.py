"""`async def` observers: one loop for all of them, with whatever becomes of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.support.wire import FIRST, record
from watcher.delivery.coroutines import Coroutines
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.handler import Handler
from watcher.records.record import Record
from watcher.shutdown import Overdue

Handle = Callable[[Record], Coroutine[Any, Any, None]]


def deliver(handle: Handle, *numbers: int) -> Dispatcher:
    made = Dispatcher([Handler("o", handle)], FailurePolicy())
    for number in numbers:
        made.deliver(record(number))
    made.close()
    return made


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    """None of the test's own; another test's may still be about to end."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.mark.usefixtures("no_thread_is_left")
def test_each_is_awaited_before_the_next_and_the_loop_lives_on() -> None:
    said: list[object] = []
    loops = set()

    async def handle(record: Record) -> None:
        loops.add(asyncio.get_running_loop())
        said.append(int(record.sequence_number) - FIRST)
        await asyncio.sleep(0)
        said.append("done")

    assert deliver(handle, 1, 2).failures == 0
    assert said == [1, "done", 2, "done"]
    (loop,) = loops
    assert loop.is_closed()


@pytest.mark.usefixtures("no_thread_is_left")
def test_a_watch_in_a_running_loop_has_its_own() -> None:
    seen: list[Record] = []

    async def handle(record: Record) -> None:
        await asyncio.sleep(0)
        seen.append(record)

    async def run() -> None:
        deliver(handle, 1, 2)

    asyncio.run(run())
    assert len(seen) == 2


def test_a_close_may_be_async_and_ends_what_the_observer_has_begun() -> None:
    ended: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    async def for_ever() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("task")

    async def handle(record: Record) -> None:
        tasks.append(asyncio.create_task(for_ever()))
        await asyncio.sleep(0)

    async def close() -> None:
        ended.append("close")

    made = Dispatcher([Handler("o", handle, close)], FailurePolicy())
    made.deliver(record(1))
    made.close()
    assert ended == ["close", "task"]


@pytest.mark.usefixtures("no_thread_is_left")
def test_one_at_work_in_another_thread_is_cancelled_for_want_of_time() -> None:
    made, raised, at_work = Coroutines(aside=True), list[BaseException](), threading.Event()

    async def handle() -> None:
        at_work.set()
        await asyncio.sleep(3600)

    def run() -> None:
        try:
            made.finish(handle())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert at_work.wait(60)
    made.cancel()
    thread.join(60)
    made.close()
    assert [type(each) for each in raised] == [Overdue]
