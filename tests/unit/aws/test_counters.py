from __future__ import annotations

import multiprocessing
import os
import signal

import pytest

from watcher.aws.counters import Counters, SharedCounters


def work(shared_counters: SharedCounters, place: int) -> None:
    counters = shared_counters.at(place)
    counters.call("GetRecords")
    counters.call("GetRecords", 2)
    counters.throttle()
    counters.read(5)
    counters.reach_tip(7.0)
    counters.read(3)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_what_a_killed_process_has_counted_stays(method: str) -> None:
    shared_counters = SharedCounters(2)
    counters = shared_counters.new()
    process = multiprocessing.get_context(method).Process(  # type: ignore[attr-defined]
        target=work, args=(shared_counters, counters.slot)
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


def test_a_full_board_has_tallies_that_only_this_process_sees() -> None:
    shared_counters = SharedCounters(1)
    shared_counters.new()
    counters = shared_counters.new()
    counters.read(7)
    assert (counters.slot, counters.records_read, shared_counters.at(None).records_read) == (
        None,
        7,
        0,
    )
    shared_counters.free(counters)
