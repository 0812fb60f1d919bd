from __future__ import annotations

from watcher.aws.counters import Counters, SharedCounters


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
