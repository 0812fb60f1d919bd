"""`--lambda` through the real command line: batches, failures, and what a checkpoint may pass."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import Simulator
from tests.support.program import run

# Notes each event; fails on a batch with an item of POISON.
APP = """
import json
import boto3
from pathlib import Path

client = boto3.client("dynamodb")

def handler(event, context):
    poison = Path("poison").read_text().split() if Path("poison").exists() else []
    with open("calls.jsonl", "a") as file:
        print(json.dumps([context.aws_request_id, event]), file=file)
    for record in event["Records"]:
        if record["dynamodb"]["Keys"]["pk"]["S"] in poison:
            raise ValueError("poison")

"""
# Ends the program within the batch that k3 begins.
ENDING = """
import os
import signal
import app

def handler(event, context):
    if event["Records"][0]["dynamodb"]["Keys"]["pk"]["S"] == "k3":
        os.kill(os.getpid(), signal.SIGTERM)
    app.handler(event, context)
"""
ALL = ("orders", "--from", "trim-horizon")


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(table="orders") as simulator:
        for number in range(8):
            simulator.put({"pk": {"S": f"k{number}"}, "data": {"B": "AAE="}})
        yield simulator


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def events(place: Path) -> list[dict[str, Any]]:
    file = place / "calls.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line)[1] for line in lines if line.endswith("\n")]


def keys(place: Path) -> list[str]:
    """The items of each call, as in `k0 k1`."""
    return [
        " ".join(record["dynamodb"]["Keys"]["pk"]["S"] for record in event["Records"])
        for event in events(place)
    ]


def test_a_function_gets_lambdas_events_batch_by_batch(sim: Simulator, place: Path) -> None:
    options = ["--lambda", "app.handler", "--batch-size", "3", "--no-follow"]
    program = run(sim.stream_arn, *ALL[1:], *options, env=sim.environment, cwd=place)
    assert program.status == 0, program.err
    assert keys(place) == ["k0 k1 k2", "k3 k4 k5", "k6 k7"]
    record = events(place)[0]["Records"][0]
    assert record["eventSourceARN"] == sim.stream_arn
    assert record["eventSource"] == "aws:dynamodb"
    assert isinstance(record["dynamodb"]["ApproximateCreationDateTime"], int | float)
    assert record["dynamodb"]["NewImage"]["data"] == {"B": "AAE="}
    assert program.out == []  # no other handler was chosen


def test_the_batch_in_hand_is_the_last_one(sim: Simulator, place: Path) -> None:
    """Of those that a page holds, and the program is told to end as the second has begun."""
    (place / "ending.py").write_text(ENDING)
    options = ["--lambda", "ending.handler", "--batch-size", "3", "--checkpoint", "state.json"]
    ended = run(*ALL, *options, env=sim.environment, cwd=place)
    assert ended.status == 0
    assert keys(place) == ["k0 k1 k2", "k3 k4 k5"]
    assert any(line.startswith("Stopping: 2 records left unread") for line in ended.err)
    rest = ["--lambda", "app.handler", "--checkpoint", "state.json", "--no-follow"]
    assert run(*ALL, *rest, env=sim.environment, cwd=place).status == 0
    assert keys(place) == ["k0 k1 k2", "k3 k4 k5", "k6 k7"]
