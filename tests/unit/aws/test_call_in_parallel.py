"""Calls at once: what each has raised, and no thread left behind."""

from __future__ import annotations

import threading

import pytest

from tests.simulator import Simulator
from watcher.aws.client import call_in_parallel
from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_loop
from watcher.aws.counters import Counters
from watcher.errors import ShardNotFoundError, TransientError


def test_calls_run_at_once_and_leave_no_thread() -> None:
    together = threading.Barrier(10, timeout=60)
    before = set(threading.enumerate())
    answers = call_in_parallel(dict.fromkeys(range(10), together.wait))
    assert answers == dict.fromkeys(range(10))
    assert set(threading.enumerate()) <= before, "another test's may be about to end"


def test_what_each_has_raised_is_told() -> None:
    error = TransientError("500")

    def fail() -> None:
        raise error

    assert call_in_parallel({"a": fail, "b": lambda: None}) == {"a": error, "b": None}
    assert call_in_parallel({"a": fail}) == {"a": error}
    assert call_in_parallel({}) == {}


def test_what_is_no_error_of_the_service_gets_out() -> None:
    with pytest.raises(ZeroDivisionError):
        call_in_parallel({number: lambda: 1 // 0 for number in range(2)})


def test_many_shards_are_probed_in_a_few_round_trips(simulator: Simulator) -> None:
    simulator.set_faults(latency=0.03)
    there = simulator.shards[0].id
    gone = [f"shardId-{number:020d}-00000000" for number in range(50)]
    connection = AwsConfig("us-east-1", endpoint_url=simulator.endpoint)
    service = for_loop(connection, simulator.stream_arn, Counters())
    answers = service.probe(simulator.stream_arn, [there, *gone])
    assert answers.pop(there) is None
    assert all(isinstance(error, ShardNotFoundError) for error in answers.values())
    assert list(answers) == gone
