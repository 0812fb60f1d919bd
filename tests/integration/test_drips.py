"""Listings that are slow, large, or never end: delivery, and its end, do not wait for them.

A call that hangs or drips is given up here after ten minutes, and so is a listing without an end:
what waited for one would not come within a test's patience, however busy the machine is.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.simulator import Simulator
from tests.support.eventually import eventually
from tests.support.program import Program

pytestmark = pytest.mark.proof
SHARDS = 2

ROOT = Path(__file__).parents[2]
NEVER_ENDING = 1000
_PATIENT = """
from watcher.aws import deadline, listings

deadline.READ_SECONDS = deadline.LOOP_READ_SECONDS = 200
deadline.SLOW_FROM_SECONDS = 1
listings.MOST_PAGES, listings.MOST_SECONDS = 10**9, 600
"""


@pytest.fixture
def patient(tmp_path: Path) -> dict[str, str]:
    """An environment in which programs wait for calls as above."""
    (tmp_path / "sitecustomize.py").write_text(_PATIENT)
    return {"PYTHONPATH": f"{tmp_path}:{ROOT}"}


def test_a_listing_that_drips_holds_up_neither_delivery_nor_sigterm(
    sim: Simulator, patient: dict[str, str]
) -> None:
    with Program("orders", "--print-json", env=sim.environment | patient) as program:
        program.wait_for_status("Watching")
        sim.fail_next("DescribeStream", "drip", times=NEVER_ENDING)
        described = sim.calls["DescribeStream"]
        eventually(lambda: sim.calls["DescribeStream"] > described)
        for count in range(1, 11):
            sim.write("a")
            program.wait_for_lines(count)
        assert program.end() == 0


def test_a_first_listing_without_an_end_ends_at_once_with_sigterm(
    sim: Simulator, patient: dict[str, str]
) -> None:
    sim.set_faults(endless_listing=True)
    # The timeout is for observers.
    options = ("--stop-timeout", "600")
    with Program("orders", *options, env=sim.environment | patient) as program:
        eventually(lambda: sim.calls["DescribeStream"] > 5)
        assert program.end(signal.SIGTERM) == 0


def test_a_read_that_drips_is_given_up_said_and_made_again(sim: Simulator, tmp_path: Path) -> None:
    # What the reader waits for is botocore's to set: a read times out after 10 s without a byte.
    (tmp_path / "sitecustomize.py").write_text(
        "from watcher.aws import deadline\ndeadline.READ_SECONDS = 1\n"
    )
    env = {**sim.environment, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    with Program("orders", "--print-json", "-v", env=env) as program:
        program.wait_for_status("Watching")
        sim.fail_next("GetRecords", "drip", times=2)
        sim.bulk(10)
        program.wait_for_status("GetRecords: no whole answer within 3 s")
        program.wait_for_lines(10)
        program.end()


@pytest.mark.parametrize("words", [("count", "orders"), ("streams",)], ids=" ".join)
def test_a_read_that_drips_does_not_hold_up_ctrl_c_of_a_command_that_reads_to_an_end(
    sim: Simulator, patient: dict[str, str], words: tuple[str, ...]
) -> None:
    sim.fail_next("GetRecords", "drip", times=NEVER_ENDING)
    with Program(*words, env=sim.environment | patient) as program:
        eventually(lambda: sim.calls["GetRecords"] > 1)
        assert program.end(signal.SIGINT) == 130
