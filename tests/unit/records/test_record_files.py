"""Files of records, as they lie about: by this program, the CLI, an SDK, a Lambda event."""

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


def at(time: object, number: int = 0) -> dict[str, object]:
    """A record with a time as somebody else writes it."""
    change = wire(number)["dynamodb"]
    assert isinstance(change, dict)
    return {**wire(number), "dynamodb": {**change, "ApproximateCreationDateTime": time}}


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        (SECONDS, SECONDS),
        (1.7e9, SECONDS),
        (SECONDS * 1000 + 125, SECONDS + 0.125),
        (SECONDS * 1_000_000 + 125_000, SECONDS + 0.125),
        (SECONDS * 10**9 + 125_000_000, SECONDS + 0.125),
        ("2023-11-14T22:13:20.125Z", SECONDS + 0.125),  # the SDK for JavaScript
        ("2023-11-14T23:13:20+01:00", SECONDS),  # the CLI, version 2
        ("2023-11-14 22:13:20+00:00", SECONDS),  # Python's str()
    ],
)
def test_a_time_is_known_in_every_form(time: object, seconds: float) -> None:
    (record,) = read(json.dumps(at(time)).encode())
    assert record.created_at is not None
    assert record.created_at.timestamp() == seconds
    # A handler, a Lambda function say, gets it as the service writes it.
    assert json.loads(bytes(record.raw))["dynamodb"]["ApproximateCreationDateTime"] == seconds


def test_an_item_that_holds_such_a_time_keeps_it() -> None:
    made = at(SECONDS * 1000)
    texts = ['{"ApproximateCreationDateTime": 1700000000000}', "ApproximateCreationDateTime"]
    image = {"pk": {"S": texts[0]}, texts[1]: {"N": "1700000000000"}, "set": {"SS": texts}}
    change = made["dynamodb"]
    assert isinstance(change, dict)
    # The image comes before the time, as it does in AWS's own order.
    made["dynamodb"] = {"NewImage": image, **change} | {"NewImage": image}
    (record,) = read(json.dumps(made).encode())
    assert record["dynamodb"]["NewImage"] == image
    assert record.wire.dynamodb.ApproximateCreationDateTime == SECONDS


@pytest.mark.parametrize("time", ['"yesterday"', '"0001-01-01T00:00"', "1e999", "1-2", "{}"])
def test_a_time_that_is_none_makes_its_line_unreadable(time: str) -> None:
    lines = RecordLines(BytesIO(json.dumps(at("T")).replace('"T"', time).encode()))
    assert list(lines) == []
    assert lines.unreadable == 1


def as_lines(records: list[dict[str, object]]) -> str:
    return "".join(json.dumps(each) + "\n" for each in records)


def as_event(records: list[dict[str, object]]) -> str:
    return json.dumps({"Records": [{**each, "eventSourceARN": ARN} for each in records]})


def as_page(records: list[dict[str, object]]) -> str:
    return json.dumps({"Records": records, "NextShardIterator": "AAA"}, indent=4) + "\n"


Form = Callable[[list[dict[str, object]]], str]
FORMS: list[Form] = [
    *(as_lines, as_event, as_page, json.dumps),
    lambda records: as_page(records[:1]) + as_page([]) + as_page(records[1:]),
    lambda records: "".join(json.dumps(each, indent=2) + "\n" for each in records),  # jq
    lambda records: as_page(records).replace("\n", "\r\n"),  # on Windows
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", [b"", BOM])
def test_records_are_found_in_every_form(form: Form, before: bytes) -> None:
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


def test_what_can_not_be_read_takes_nothing_else_with_it(caplog: pytest.LogCaptureFixture) -> None:
    cut = as_page([wire(1)])[:200].rpartition("\n")[0] + "\n"
    page = json.dumps({"Records": [wire(3), {"no": "record"}, 7, wire(4)]}, indent=1)
    lines = RecordLines(BytesIO(("{\n" + as_lines([wire(0)]) + cut + page).encode()))
    assert numbers(list(lines)) == [0, 3, 4]
    assert lines.unreadable == 4
    told = [record.getMessage().partition(" is ")[0] for record in caplog.records]
    last = 3 + cut.count("\n")
    assert told == ["line 1", "line 3", f"line {last}", f"line {last}"]


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
