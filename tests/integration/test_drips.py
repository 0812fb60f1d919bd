"""Listings that are slow, large, or never end: delivery, and its end, do not wait for them."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulator import RemoteSimulator, Simulator
from tests.support import hanging_parents
from tests.support.program import Program, run

NEVER_ENDING = 1000


@pytest.fixture
def sim() -> Iterator[RemoteSimulator]:
    with Simulator.spawn(table="orders", shards=2, seed=11) as simulator:
        yield simulator


def test_a_listing_that_drips_holds_up_neither_delivery_nor_sigterm(sim: RemoteSimulator) -> None:
    with Program("orders", "--print-json", env=sim.environment) as program:
        program.wait_for_status("Watching")
        sim.fail_next("DescribeStream", "drip", times=NEVER_ENDING)
        described = sim.calls["DescribeStream"]
        sim.wait_for(lambda: sim.calls["DescribeStream"] > described, 40)
        for count in range(1, 11):
            began = time.monotonic()
            sim.write("a")
            program.wait_for_lines(count)
            assert time.monotonic() - began < 8  # the loop's own time-out for a call is 9 s
        began = time.monotonic()
        assert program.end() == 0
        assert time.monotonic() - began < 8


def test_of_several_one_that_drips_as_it_begins_is_said_and_keeps_no_other(
    sim: RemoteSimulator, tmp_path: Path
) -> None:
    sim.add_table("users")
    sim.fail_next("DescribeStream", "drip", times=1)  # that of the first
    (tmp_path / "sitecustomize.py").write_text(
        "from watcher.aws import timing\ntiming.CALLS = timing.CallTiming(slow_from_seconds=1)\n"
    )
    env = {**sim.environment, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    with Program("orders", "users", "--print-json", env=env) as program:
        program.wait_for_status("Starting watcher for shard", 20)  # not after 30 s
        program.wait_for_status("DescribeStream of orders: no answer yet, for 1 s", 20)
        assert program.end() == 0


def test_a_listing_without_an_end_keeps_neither_children_nor_sigterm(sim: RemoteSimulator) -> None:
    with Program("orders", "--print-json", env=sim.environment) as program:
        program.wait_for_status("Watching")
        sim.set_faults(endless_listing=True)
        described = sim.calls["DescribeStream"]
        sim.wait_for(lambda: sim.calls["DescribeStream"] > described + 2, 40)
        for count in range(1, 4):
            began = time.monotonic()
            sim.rotate("all")
            sim.write("a")
            program.wait_for_lines(count)
            assert time.monotonic() - began < 20  # the listing goes on for minutes
        began = time.monotonic()
        assert program.end() == 0
        assert time.monotonic() - began < 20


def test_a_first_listing_without_an_end_ends_at_once_with_sigterm(sim: RemoteSimulator) -> None:
    sim.set_faults(endless_listing=True)
    with Program("orders", "--stop-timeout", "60", env=sim.environment) as program:
        sim.wait_for(lambda: sim.calls["DescribeStream"] > 5, 40)
        began = time.monotonic()
        assert program.end(signal.SIGTERM) == 0
        assert time.monotonic() - began < 20  # half a second; a minute is for observers


def test_many_shards_of_many_generations_cost_few_listings() -> None:
    with Simulator.spawn(table="orders", shards=40, seed=3) as many:
        for _ in range(5):
            many.bulk(80, keys=80)
            many.rotate("all")
        many.bulk(80, keys=80)
        many.set_faults(describes_per_second=5.0)
        options = ("--from", "trim-horizon", "--no-follow", "--print-json")
        program = run("orders", *options, env=many.environment)
        assert len(program.out) == 480
        assert many.calls["DescribeStream"] <= 15  # three pages each time
        assert "rate-limit" not in many.injected


def test_a_first_listing_that_drips_ends_with_sigterm(sim: RemoteSimulator) -> None:
    sim.fail_next("DescribeStream", "drip", times=NEVER_ENDING)
    with Program("orders", "--stop-timeout", "1", env=sim.environment) as program:
        sim.wait_for(lambda: sim.calls["DescribeStream"] > 0, 40)
        began = time.monotonic()
        assert program.end(signal.SIGTERM) == 0
        assert time.monotonic() - began < 8  # the call would be given up after 9 s


def test_a_read_that_drips_is_given_up_said_and_made_again(
    sim: RemoteSimulator, tmp_path: Path
) -> None:
    # What the reader waits for is botocore's to set: a read times out after 10 s without a byte.
    (tmp_path / "sitecustomize.py").write_text(
        "from watcher.aws import timing\ntiming.CALLS = timing.CallTiming(read_seconds=1)\n"
    )
    env = {**sim.environment, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    with Program("orders", "--print-json", "-v", env=env) as program:
        program.wait_for_status("Watching")
        sim.fail_next("GetRecords", "drip", times=2)
        sim.bulk(10)
        began = time.monotonic()
        program.wait_for_status("GetRecords: no whole answer within 3 s")
        assert time.monotonic() - began < 20, "the first time; with AWS's 10 s that is after 30"
        program.wait_for_lines(10, 40)
        program.end()


@pytest.mark.parametrize("words", [("count", "orders"), ("streams",)], ids=" ".join)
def test_a_read_that_drips_does_not_hold_up_ctrl_c_of_a_command_that_reads_to_an_end(
    sim: RemoteSimulator, words: tuple[str, ...]
) -> None:
    sim.fail_next("GetRecords", "drip", times=NEVER_ENDING)
    with Program(*words, env=sim.environment) as program:
        sim.wait_for(lambda: sim.calls["GetRecords"] > 1, 40)
        began = time.monotonic()
        assert program.end(signal.SIGINT) == 130
        assert time.monotonic() - began < 20  # the read would be given up after 30 s


def test_hidden_parents_that_hang_keep_no_other_child_and_no_other_shard() -> None:
    with Simulator(table="orders", shards=hanging_parents.SHARDS) as sim:
        expected = hanging_parents.hang(sim)
        options = ("--from", "trim-horizon", "--print-json")
        with Program("orders", *options, env=sim.environment) as program:
            program.wait_for_status("Starting watcher")
            program.wait_for_lines(len(expected), hanging_parents.SECONDS)
            assert program.end() == 0
        assert len(program.out) == len(expected)
