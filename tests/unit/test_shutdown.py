"""A run that is told to stop: its three states, its deadline, and what a signal may interrupt."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from tests.support.hand_clock import HandClock
from watcher.shutdown import Overdue, Shutdown, in_charge


def test_the_time_of_a_run_begins_with_the_request_and_half_of_it_is_for_work_in_hand() -> None:
    clock = HandClock()
    made = Shutdown(5.0, clock=clock)
    assert not made.requested and made.has_time_for_more
    clock.sleep(60)
    assert made.seconds_left == 5.0
    made.request()
    clock.sleep(2.4)
    assert made.requested and made.has_time_for_more
    made.request()  # the first one counts
    clock.sleep(0.2)
    assert made.seconds_left > 0 and not made.has_time_for_more
    clock.sleep(2.5)
    assert made.seconds_left <= 0
    without_limit = Shutdown(clock=clock)
    without_limit.request()
    clock.sleep(1e6)
    assert without_limit.seconds_left > 0 and without_limit.has_time_for_more


def test_it_asks_whoever_else_may_stop_it() -> None:
    asked: list[bool] = [False, True]
    made = Shutdown(stop_requested=lambda: asked.pop(0))
    assert not made.must_stop() and not made.requested
    assert made.must_stop() and made.must_stop() and made.requested


def test_only_what_allows_it_is_interrupted() -> None:
    made = Shutdown(1.0)
    made.interrupt()
    with made.may_interrupt():
        with made.may_interrupt(False):
            made.interrupt()
        with pytest.raises(Overdue):
            made.interrupt()
    with made.writing_line(), pytest.raises(Overdue):
        made.interrupt()
    made.interrupt()


def test_other_threads_change_nothing_of_that() -> None:
    made = Shutdown(1.0)

    def elsewhere() -> None:
        with made.may_interrupt(), made.writing_line():
            entered.set()
            assert left.wait(60)

    entered, left = threading.Event(), threading.Event()
    thread = threading.Thread(target=elsewhere)
    thread.start()
    assert entered.wait(60)
    made.interrupt()
    left.set()
    thread.join()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_requests_it_and_what_takes_too_long_is_interrupted(number: int) -> None:
    made = Shutdown(0.05)
    before = signal.getsignal(number)
    with made.handle_signals(made.request):
        assert in_charge() is made
        os.kill(os.getpid(), number)
        assert made.requested and made.signal == number
        with made.may_interrupt(), pytest.raises(Overdue):
            time.sleep(30.0)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("calls_host", [True, False])
def test_a_hosts_own_handler_is_called_at_the_end_where_it_may_be(calls_host: bool) -> None:
    made, called = Shutdown(60.0), list[int]()
    before = signal.signal(signal.SIGTERM, lambda number, frame: called.append(number))
    try:
        with made.handle_signals(made.request, calls_host=calls_host):
            os.kill(os.getpid(), signal.SIGTERM)
            assert made.requested and not called
        assert called == [signal.SIGTERM] * calls_host
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_question_to_the_service_is_interrupted_sooner() -> None:
    made = Shutdown(60.0)
    with made.handle_signals(made.request), made.asking_service(), pytest.raises(Overdue):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30.0)
    assert made.seconds_left > 30
