"""Failure policies as text, and where dead letters go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.wire import record
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.handler import Handler
from watcher.errors import HandlerError, UsageError
from watcher.records.record import Record


def failing(on_error: str) -> Dispatcher:
    def fail(record: Record) -> None:
        raise ValueError("no")

    return Dispatcher([Handler("o0", fail)], FailurePolicy.parse(on_error))


@pytest.mark.parametrize(
    "text", ["", "Log", "log:1", "stop:1", "retry", "retry:", "retry:-1", "retry:x", "dead-letter:"]
)
def test_an_unknown_policy_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"retry:N"):
        FailurePolicy.parse(text)


def test_a_dead_letter_holds_the_wire_json_and_the_error(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    made = failing(f"dead-letter:{path}")
    made.deliver(record(1))
    made.deliver(record(2))
    made.close()
    letters = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [letter["record"] for letter in letters] == [
        json.loads(bytes(record(number).raw)) for number in (1, 2)
    ]
    assert letters[0]["observer"] == "o0" and letters[0]["error"] == "ValueError: no"
    assert letters[0]["shard_id"] == "shard-0" and letters[0]["failed_at"]


def test_a_dead_letter_is_on_its_way_before_the_next_record(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    made = failing(f"dead-letter:{path}")
    made.deliver(record(1))
    assert path.read_bytes().endswith(b"\n")
    made.close()


def test_a_line_that_a_kill_cut_off_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    path.write_bytes(b'{"whole": 1}\n{"cut": ')
    made = failing(f"dead-letter:{path}")
    made.deliver(record(1))
    made.close()
    lines = path.read_bytes().splitlines()
    assert lines[:2] == [b'{"whole": 1}', b'{"cut": ']
    assert json.loads(lines[2])["observer"] == "o0"


def test_a_dead_letter_file_that_cannot_be_opened_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't write"):
        failing(f"dead-letter:{tmp_path}/none/dead")


def test_a_dead_letter_that_cannot_be_written_stops_before_the_record() -> None:
    made = failing("dead-letter:/dev/full")
    with pytest.raises(HandlerError, match="No space left on device; stopped before it"):
        made.deliver(record(1))
    made.close()
