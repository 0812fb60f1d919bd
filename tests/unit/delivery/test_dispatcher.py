"""Records to observers, and what becomes of a failure."""

import asyncio
import errno
import functools
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.hand_clock import HandClock
from tests.support.wire import FIRST, record
from watcher.delivery.batches import Batches
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.handler import Handler
from watcher.errors import HandlerError, LeaseLostError
from watcher.records.record import Record

Handle = Callable[[Record], object]


class Seen:
    """A handler that remembers, and fails the given number of times on each record."""

    def __init__(self, failures: int = 0) -> None:
        self.numbers: list[int] = []
        self.calls = 0
        self.closed = 0
        self._failures = failures

    def handle(self, record: Record) -> None:
        self.calls += 1
        if self.calls <= self._failures:
            raise ValueError(f"call {self.calls}")
        self.numbers.append(int(record.sequence_number) - FIRST)

    def close(self) -> None:
        self.closed += 1

    def observer(self, name: str = "seen") -> Handler:
        return Handler(name, self.handle, self.close)


def fail(record: Record) -> None:
    raise ValueError("no")


def dispatcher(
    *handles: Handle, on_error: str = "log", clock: HandClock | None = None
) -> Dispatcher:
    observers = [Handler(f"o{n}", handle) for n, handle in enumerate(handles)]
    return Dispatcher(observers, FailurePolicy.parse(on_error), clock=clock or HandClock())


def test_log_names_observer_and_record_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen()
    made = dispatcher(fail, seen.handle)
    made.deliver(record(7))
    assert seen.numbers == [7] and made.failures == 1
    which = f"record {record(7).sequence_number} of shard-0 (pk=a)"
    where = f"tests/unit/delivery/test_dispatcher.py:{fail.__code__.co_firstlineno + 1}"
    assert caplog.messages == [f"handler o0 failed on {which}: ValueError: no at {where}"]
    assert caplog.records[0].exc_info is None
    caplog.set_level(logging.DEBUG, "watcher")
    made.deliver(record(8))
    assert caplog.records[-1].exc_info, "with -v its traceback"


def test_the_same_error_again_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    made = dispatcher(fail, lambda record: [][1], clock=clock)
    for number in range(313):
        made.deliver(record(number))
    assert len(caplog.messages) == 2
    clock.sleep(11)
    made.tick()
    made.tick()
    said = caplog.messages[2:]
    assert [text.partition(" (")[0] for text in said] == [
        f"handler {name}: same error \N{MULTIPLICATION SIGN}312" for name in ("o0", "o1")
    ]
    made.deliver(record(400))
    made.close()
    assert [text.partition(" (")[0][-2:] for text in caplog.messages[4:]] == [
        "\N{MULTIPLICATION SIGN}1"
    ] * 2
    assert made.failures == 2 * 314


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("policy", ["log", "retry:1"])
def test_an_observer_that_exits_or_is_cancelled_has_failed(
    error: type[BaseException], policy: str
) -> None:
    def leave(record: Record) -> None:
        raise error

    seen = Seen()
    made = dispatcher(leave, seen.handle, on_error=policy)
    made.deliver(record(1))
    assert made.failures == 1 and seen.numbers == [1]


def test_what_a_handler_has_changed_before_it_raised_is_seen_by_nobody() -> None:
    seen: list[tuple[str, str, bool]] = []

    def note(name: str, record: Record) -> None:
        image = record["dynamodb"]["NewImage"]
        seen.append((name, record["eventName"], "pk" in image and "Keys" in record["dynamodb"]))

    def spoil(record: Record) -> None:
        note("spoils", record)
        record["eventName"] = "SPOILT"
        del record["dynamodb"]["NewImage"]["pk"], record["dynamodb"]["Keys"]
        if len(seen) < 3:
            raise ValueError("halfway")

    made = dispatcher(spoil, on_error="retry:5")
    made.deliver(record(1))
    assert seen == [("spoils", "MODIFY", True)] * 3, "each try gets the record as it came"
    seen.clear()
    made = dispatcher(spoil, functools.partial(note, "next"), on_error="log")
    made.deliver(record(2))
    assert seen == [("spoils", "MODIFY", True), ("next", "MODIFY", True)]


def test_the_end_of_the_watch_takes_no_retry_from_a_record_that_nothing_holds_back() -> None:
    seen = Seen(failures=2)
    made = dispatcher(seen.handle, on_error="retry:2")
    made.shutdown.request()
    made.deliver(record(1))
    assert seen.numbers == [1] and made.failures == 0


def test_a_batch_that_waits_is_not_begun_when_time_is_short() -> None:
    clock = HandClock()
    made = Dispatcher([Batches("batch", len)], FailurePolicy(), clock=clock)
    made.deliver(record(1))
    made.shutdown.request()
    clock.sleep(made.shutdown.timeout)
    made.drain()
    assert made.pending_count == 1


def test_stop_lets_the_others_have_the_record_first() -> None:
    seen = Seen()
    made = dispatcher(fail, seen.handle, on_error="stop")
    with pytest.raises(HandlerError, match="stopped before it"):
        made.deliver(record(1))
    assert seen.numbers == [1]


def test_close_is_called_for_each_whatever_becomes_of_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken() -> None:
        raise ValueError("no")

    seen = Seen()
    made = Dispatcher([Handler("broken", fail, broken), seen.observer()], FailurePolicy())
    made.close()
    assert seen.closed == 1 and made.failures == 1
    assert caplog.messages == ["handler broken failed to close: ValueError: no"]


def test_a_broken_pipe_of_an_observers_own_is_a_failure() -> None:
    def write(record: Record) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    made = dispatcher(write)
    made.deliver(record(1))
    assert made.failures == 1


def test_a_child_that_an_observer_forks_does_not_deliver(tmp_path: Path) -> None:
    path = tmp_path / "delivered"

    def note(record: Record) -> None:
        with open(path, "a") as file:
            file.write(f"{record.sequence_number[-1]} {os.getpid()}\n")

    def fork(record: Record) -> None:
        if record.sequence_number.endswith("0") and os.fork():
            os.wait()  # the child comes back into the dispatcher

    made = dispatcher(fork, note)
    for number in range(3):
        made.deliver(record(number))
    assert path.read_text().split() == [
        word for number in range(3) for word in (str(number), str(os.getpid()))
    ]


def test_where_a_lease_is_lost_nothing_more_is_delivered_nor_tried_again_nor_settled() -> None:
    seen, calls = Seen(), 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise LeaseLostError("another's turn")

    batches = Batches("batch", lambda records: pytest.fail("too late"))
    observers = [seen.observer(), batches]
    made = Dispatcher(observers, FailurePolicy.parse("log"), clock=HandClock(), check=check)
    assert not made.takes_pages, "each record is to be asked for"
    made.deliver(record(1))
    made.deliver(record(2))
    with pytest.raises(LeaseLostError):
        made.deliver(record(3))
    with pytest.raises(LeaseLostError):
        made.tick()
    with pytest.raises(LeaseLostError):
        made.drain()
    made.close()
    assert seen.numbers == [1, 2]
    assert seen.closed == 1
    assert batches.waiting().popitem()[1] == 2
