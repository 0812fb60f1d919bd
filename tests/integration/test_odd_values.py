"""What JavaScript and emulators leave in items comes through, on the command line and in Stream."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.simulator import Simulator
from tests.support import program
from watcher import Stream

HALF = "\ud83d"
"""Half of an emoji, as JavaScript's `slice` leaves it."""
LARGE = "1" + "0" * 40
"""DynamoDB Local's answer for 1E40; boto3 refuses it."""


def change(key: str, **attributes: object) -> dict[str, object]:
    keys = {"pk": {"S": key}}
    return {"eventName": "INSERT", "dynamodb": {"Keys": keys, "NewImage": {**keys, **attributes}}}


@pytest.fixture
def odd() -> Iterator[Simulator]:
    with Simulator() as sim:
        sim.write("before")
        sim.append(change("odd", half={"S": HALF}, large={"N": LARGE}))
        sim.write("after")
        yield sim


def watched(sim: Simulator, *options: str) -> list[str]:
    arguments = [sim.stream_arn, "--from", "trim-horizon", "--no-follow", *options]
    return program.run(*arguments, env=sim.environment).out


def test_the_watch_shows_them_and_what_comes_after(odd: Simulator) -> None:
    text = "\n".join(watched(odd))
    assert r"\ue03d" in text and LARGE in text and "'after'" in text


def test_print_json_gives_the_bytes_as_they_came(odd: Simulator) -> None:
    _, line, after = watched(odd, "--print-json")
    assert json.loads(line)["dynamodb"]["NewImage"]["half"] == {"S": HALF}
    assert r"\ud83d" in line and "after" in after


def test_stream_gives_native_values(odd: Simulator) -> None:
    stream = Stream(odd.stream_arn, "trim_horizon", endpoint_url=odd.endpoint, region="us-east-1")
    records = list(iter(stream.__next__, None))
    assert len(records) == 3
    new = records[1].new or {}
    assert new["half"] == "\ue03d" and str(new["large"]) == LARGE
