"""Failure policies as text, and where dead letters go."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.wire import record
from watcher.delivery.batches import Batches
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.handler import Handler
from watcher.errors import HandlerError, UsageError
from watcher.options import WatchOptions
from watcher.records.record import Record


def failing(on_error: str) -> Dispatcher:
    def fail(record: Record) -> None:
        raise ValueError("no \udce9")  # half a character

    return Dispatcher([Handler("o0", fail)], FailurePolicy.parse(on_error))


@pytest.mark.parametrize(
    "text",
    [
        *("", "Log", "log:1", "stop:1", "retry:", "retry:-1", "retry:x", "retry:1.5", "retry:5x"),
        *("dead-letter:", "retry,stop", "retry:5,", "retry:5,panic", "retry:5,dead-letter:"),
        *("stop,retry:5", "retry:5,retry:5", "dead-letter", "log,stop"),
    ],
)
def test_an_unknown_policy_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"retry:N"):
        FailurePolicy.parse(text)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("log", FailurePolicy()),
        ("retry", FailurePolicy("log", math.inf)),
        ("retry:3", FailurePolicy("log", 3)),
        ("retry:1.5h", FailurePolicy("log", math.inf, 5400.0)),
        ("retry:15m,stop", FailurePolicy("stop", math.inf, 900.0)),
        ("retry:5,log", FailurePolicy("log", 5)),
        (
            "retry:5,dead-letter:s3://dead/of,orders",
            FailurePolicy("dead-letter", 5, dead_letters="s3://dead/of,orders"),
        ),
        ("dead-letter:a,b", FailurePolicy("dead-letter", dead_letters="a,b")),
    ],
)
def test_tries_come_first_and_what_is_done_then_behind_them(
    text: str, policy: FailurePolicy
) -> None:
    assert FailurePolicy.parse(text) == policy
    assert FailurePolicy.parse(text).is_endless == (text == "retry")


def test_nothing_is_lost_by_default_where_there_is_a_checkpoint() -> None:
    assert WatchOptions(checkpoint="state.json").failure_policy.is_endless
    for without in (WatchOptions(), WatchOptions(checkpoint="state.json", on_error="log")):
        policy = without.failure_policy
        assert (policy.then, policy.retries) == ("log", 0)
    letters: list[object] = []
    assert WatchOptions(on_error=letters.append).failure_policy.then == "dead-letter"
    with pytest.raises(UsageError, match="on_error"):
        WatchOptions(on_error=5)  # type: ignore[arg-type]


class Unprintable(Exception):
    """Says nothing of itself."""

    def __str__(self) -> str:
        raise RuntimeError("not even this")

    __repr__ = __str__


@pytest.mark.parametrize("policy", ["log", "retry:1", "dead-letter:{}"])
def test_an_error_that_cant_be_printed_is_a_failure_like_any(
    policy: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(record: Record) -> None:
        raise Unprintable

    def fail_all(records: Sequence[Record]) -> int:
        raise Unprintable

    batch = Batches("batch", fail_all)
    on_error = FailurePolicy.parse(policy.format(tmp_path / "dead"))
    made = Dispatcher([Handler("o0", fail, lambda: fail(record(1))), batch], on_error)
    made.deliver(record(1))
    made.drain()
    made.close()
    assert made.failures == 3
    assert "Unprintable: (no text: its __str__ raises RuntimeError)" in caplog.text


def test_a_dead_letter_holds_the_wire_json_and_the_error(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    made = failing(f"dead-letter:{path}")
    made.deliver(record(1))
    made.deliver(record(2))  # and each is there before the next record
    letters = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [letter["record"] for letter in letters] == [
        json.loads(bytes(record(number).raw)) for number in (1, 2)
    ]
    assert letters[0]["handler"] == "o0" and letters[0]["error"] == "ValueError: no \\udce9"
    assert letters[0]["shard_id"] == "shard-0" and letters[0]["failed_at"]
    made.close()


def test_a_dead_letter_file_that_cannot_be_opened_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't write"):
        failing(f"dead-letter:{tmp_path}/none/dead")


def test_a_dead_letter_that_cannot_be_written_stops_before_the_record() -> None:
    made = failing("dead-letter:/dev/full")
    with pytest.raises(HandlerError, match="No space left on device; stopped before it"):
        made.deliver(record(1))
    made.close()
