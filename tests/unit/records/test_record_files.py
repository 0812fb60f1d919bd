"""Files of records, as they lie about: by this program, or events of a Lambda function."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from tests.support.wire import FIRST, created, wire
from watcher.cli import main
from watcher.errors import DataLossError
from watcher.records.record import Record
from watcher.records.record_files import RecordLines
from watcher.time_machine.sources import Sources

BOM = b"\xef\xbb\xbf"
SECONDS = created(0)
ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2026-01-01T00:00:00.000"


def read(content: bytes) -> list[Record]:
    """The records of a file that is read to its end."""
    lines = RecordLines(BytesIO(content))
    found = list(lines)
    assert lines.unreadable == 0
    return found


def numbers(records: list[Record]) -> list[int]:
    return [int(each.sequence_number) - FIRST for each in records]


def as_lines(records: list[dict[str, object]]) -> str:
    return "".join(json.dumps(each) + "\n" for each in records)


def as_event(records: list[dict[str, object]]) -> str:
    return json.dumps({"Records": [{**each, "eventSourceARN": ARN} for each in records]})


FORMS = [as_lines, as_event]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", [b"", BOM])
def test_records_are_found_in_every_form(
    form: Callable[[list[dict[str, object]]], str], before: bytes
) -> None:
    odd: dict[str, object] = {"Records": {"S": "an attribute"}}
    records = [wire(number) for number in range(3)]
    change = records[1]["dynamodb"]
    assert isinstance(change, dict)
    change["NewImage"] |= odd
    found = read(before + form(records).encode())
    assert numbers(found) == [0, 1, 2]
    assert found[1]["dynamodb"]["NewImage"] == change["NewImage"]


def test_a_lambda_event_tells_the_stream() -> None:
    assert {each.table for each in read(as_event([wire(1), wire(2)]).encode())} == {"orders"}


def test_what_can_not_be_read_takes_nothing_else_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    event = json.dumps({"Records": [wire(3), {"no": "record"}, 7, wire(4)]})
    lines = RecordLines(BytesIO(("{\n" + as_lines([wire(0)]) + event).encode()))
    assert numbers(list(lines)) == [0, 3, 4]
    assert lines.unreadable == 3
    told = [record.getMessage().partition(" is ")[0] for record in caplog.records]
    assert told == ["line 1", "line 3", "line 3"]


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """A file of two records and two lines that are none."""
    path = tmp_path / "half.jsonl"
    path.write_text(as_lines([wire(1)]) + "{cut\n" + as_lines([wire(2)]) + "cut}\n")
    return path


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("count", "Counted 2 changes; 2 lines of {half} could not be read"),
        ("history --key pk=a", "2 lines of {half} could not be read"),
        ("report --to {half}.html", "Wrote {half}.html: 2 changes; 2 lines of {half} could not"),
        ("replay --print-json", "Done: 2 replayed, 0 failed, 2 unreadable"),
    ],
)
def test_a_command_that_left_a_line_out_ends_with_1_and_says_so(
    half: Path, command: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *options = command.format(half=half).split()
    assert main([name, str(half), *options]) == 1
    assert said.format(half=half) in capsys.readouterr().err.splitlines()[-1]
    half.write_bytes(BOM + as_lines([wire(1), wire(2)]).encode())
    assert main([name, str(half), *options]) == 0
    assert "could not be read" not in capsys.readouterr().err


def test_where_all_changes_are_needed_such_a_file_is_refused(half: Path) -> None:
    sources = Sources([str(half)], None, strict=True)
    sources.open(None)
    with pytest.raises(DataLossError, match=f"^2 lines of {re.escape(str(half))} could not be"):
        list(sources.records())
