"""One line per change, whose form is a contract."""

import json

import pytest

from handlers import print_summary
from watcher.formatting import style
from watcher.records.record import Record

SERVICE = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}


def printed(capsys: pytest.CaptureFixture[str], kind: str, **more: object) -> str:
    style.set_up(color="never", utc=True)
    change = {
        "Keys": {"SK": {"S": "item"}, "PK": {"S": "test"}},
        "ApproximateCreationDateTime": 1653658557,
        "SequenceNumber": "1",
    }
    wire = {"eventName": kind, "dynamodb": change, **more}
    print_summary.handle(Record.from_json(json.dumps(wire).encode()))
    style.set_up()
    return capsys.readouterr().out


def test_a_change_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    line = "[2022-05-27T13:35:57+00:00] - INSERT - PK=test, SK=item\n"
    assert printed(capsys, "INSERT") == line


def test_a_removal_by_time_to_live_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    line = "[2022-05-27T13:35:57+00:00] - REMOVE - PK=test, SK=item"
    assert printed(capsys, "REMOVE") == line + "\n"
    assert printed(capsys, "REMOVE", userIdentity=SERVICE) == line + " (expired by TTL)\n"
