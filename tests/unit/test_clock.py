"""Time that one process has measured, for another one of the same machine."""

from __future__ import annotations

import pickle

import pytest

from tests.support.hand_clock import HandClock
from watcher.clock import MachineTime


def test_another_process_counts_the_seconds_that_both_clocks_show() -> None:
    clock = HandClock()
    began = pickle.loads(pickle.dumps(MachineTime.now(clock)))
    if not began.machine:
        pytest.skip("this system has no name for its start")
    clock.sleep(1.5)
    assert began.seconds_ago(clock) == 1.5
    clock.slept = 3600.0
    assert began.seconds_ago(clock) == 1.5
    clock.slept = -60.0  # somebody has set it
    assert began.seconds_ago(clock) == 0.0


def test_another_machine_counts_none() -> None:
    clock = HandClock()
    for machine in ("", "another"):
        began = MachineTime.now(clock)._replace(machine=machine)
        clock.sleep(1.5)
        assert began.seconds_ago(clock) == 0.0
