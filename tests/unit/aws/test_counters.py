from __future__ import annotations

import multiprocessing
import os
import signal

import pytest

from watcher.aws.counters import Counters, SharedCounters


def work(board: SharedCounters, place: int) -> None:
    counters = board.at(place)
    counters.call("GetRecords")
    counters.call("GetRecords", 2)
    counters.throttle()
    counters.read(5)
    counters.reach_tip(7.0)
    counters.read(3)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_what_a_killed_process_has_counted_stays(method: str) -> None:
    board = SharedCounters(2)
    counters = board.new()
    process = multiprocessing.get_context(method).Process(  # type: ignore[attr-defined]
        target=work, args=(board, counters.slot)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert {name: count for name, count in counters.calls.items() if count} == {"GetRecords": 3}
    assert (counters.throttles, counters.records_read, counters.tip) == (1, 8, (7.0, 5))


def test_the_successor_of_a_process_goes_on_from_what_was_delivered() -> None:
    counters = Counters()
    counters.read(5)
    counters.reach_tip(7.0)
    counters.read(3)
    counters.hand_on(6)
    assert (counters.records_read, counters.tip) == (6, (7.0, 5))
    counters.hand_on(4)  # not all of what had been read when nothing more was there
    assert (counters.records_read, counters.tip) == (4, None)


def test_tallies_are_added_up() -> None:
    sum_, other = Counters(), SharedCounters(1).new()
    for counters in (sum_, other):
        counters.call("DescribeStream")
        counters.throttle()
        counters.read(10)
    sum_.add([other, other])
    assert (sum_.calls["DescribeStream"], sum_.throttles, sum_.records_read) == (3, 3, 10)


def test_a_place_on_the_board_is_clean_again_when_it_is_free() -> None:
    board = SharedCounters(1)
    first = board.new()
    first.read(7)
    assert board.at(first.slot).records_read == 7
    board.free(first)
    second = board.new()
    assert (second.slot, second.records_read) == (first.slot, 0)


def test_a_full_board_has_tallies_that_only_this_process_sees() -> None:
    board = SharedCounters(1)
    board.new()
    counters = board.new()
    counters.read(7)
    assert (counters.slot, counters.records_read, board.at(None).records_read) == (None, 7, 0)
    board.free(counters)
