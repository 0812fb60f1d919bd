"""A table's export, and incremental ones after it, as what an archive's changes begin with."""

import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from time import time as now

import boto3
import pytest

from tests.ledger.ledger import Ledger, by_key
from tests.support import exports
from tests.support.exports import Item
from tests.support.program import told
from tests.unit.time_machine.test_archives import archive
from watcher.aws.config import AwsConfig
from watcher.aws.tables import Description
from watcher.errors import StreamError, UsageError
from watcher.records.record import native_item
from watcher.time_machine.as_of import ItemsAsOf, items_as_of
from watcher.time_machine.exports import Export, full_export, joined_exports
from watcher.time_machine.item_keys import ItemKey
from watcher.time_machine.sources import Sources

pytest.importorskip("pyarrow")

HERE = AwsConfig()


def moment(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


class Exported:
    """A ledger with an archive, and exports made in the middle of its writes."""

    def __init__(self, ledger: Ledger, folder: Path) -> None:
        self.ledger = ledger
        ledger.write(100)
        self.began = ledger.second
        ledger.write(203)
        self.full_time, at_full = ledger.clock.time(), dict(ledger.now)
        self.full = exports.full(folder, list(at_full.values()), self.full_time)
        ledger.write(151)
        self.next_time, self.at_next = ledger.clock.time(), dict(ledger.now)
        self.next = exports.incremental(
            folder, at_full, self.at_next, self.full_time, self.next_time
        )
        ledger.write(152)
        self.ended = ledger.second - 1
        ledger.settle()
        self.lake = str(archive(ledger, folder / "lake"))

    def at(self, second: float, place: Path | None = None, key: str | None = None) -> ItemsAsOf:
        one = None if key is None else ItemKey({"pk": key})
        baseline = Export(str(place or self.full), HERE)
        lake = Sources([self.lake], None, strict=True)
        return items_as_of(lake, moment(second), one, baseline=baseline)


def test_any_second_of_an_archive_is_as_the_ledger_has_it(tmp_path: Path, ledger: Ledger) -> None:
    made = Exported(ledger, tmp_path)
    seconds = [int(made.full_time), int(made.full_time) - 1, int(made.next_time)]
    seconds += ledger.random.sample(range(made.began, made.ended), 4)
    for second in seconds:
        expected = ledger.at(second)
        assert by_key(made.at(second)) == expected
        key = ledger.any_key()
        assert by_key(made.at(second, key=key)) == {
            name: item for name, item in expected.items() if name == key
        }


def test_a_stream_goes_on_from_an_export_without_a_scan(tmp_path: Path, ledger: Ledger) -> None:
    made = Exported(ledger, tmp_path)
    ledger.write(40)
    second = ledger.second
    ledger.settle()
    baseline = Export(str(made.full), HERE)
    found = items_as_of(ledger.sources(), moment(second), baseline=baseline)
    assert by_key(found) == ledger.at(second)
    assert found.key_names == ("pk",)


def test_the_command_takes_an_archive_and_an_export(tmp_path: Path, ledger: Ledger) -> None:
    made = Exported(ledger, tmp_path)
    second = made.full_time + 3
    words = ["as-of", made.lake, moment(second).isoformat(), "--baseline", str(made.full)]
    said = told(0, *words, "--dynamodb-json")
    found = [native_item(line.encode()) for line in said.out]
    assert by_key(found) == ledger.at(int(second))
    assert f"{len(found)} items" in said.said
    assert (
        "or give an export of the table with --baseline" in told(2, "as-of", made.lake, "1h").said
    )
    assert "in the future" in told(2, *words[:2], "2999-01-01T00:00Z", *words[3:]).said


@pytest.mark.usefixtures("bucket")
def test_an_export_is_read_in_s3(breaks: list[str], tmp_path: Path) -> None:
    exports.full(tmp_path, [{"pk": {"S": str(number)}} for number in range(5)], 1e9)
    client = boto3.client("s3", region_name="us-east-1")
    client.create_bucket(Bucket="exports")
    for path in tmp_path.rglob("*.*"):
        client.put_object(
            Bucket="exports", Key=f"a/{path.relative_to(tmp_path)}", Body=path.read_bytes()
        )
    place = "s3://exports/a/AWSDynamoDB/full"
    breaks += ["timed out"] * 2
    export = Export(place, HERE)
    assert {native_item(line.Item)["pk"] for line in export.lines()} == set("01234")
    breaks += ["timed out"]
    with pytest.raises(UsageError, match=r"can't read .*/data/full0.json.gz: it broke off"):
        list(export.lines())
    for wrong in (place + "x", "s3://nowhere/x", "s3:"):
        with pytest.raises(UsageError, match=wrong):
            Export(wrong, HERE)


@pytest.mark.parametrize(
    ("summary", "message"),
    [
        ({"outputFormat": "ION"}, "is in ION: export the table in DynamoDB JSON"),
        ({"exportTime": None}, "does not say of which time it is"),
        ({"exportTime": "then"}, "is not a table's export: Invalid RFC3339"),
        ({"tableArn": 5}, "is not a table's export: Expected `str`"),
    ],
)
def test_what_is_no_export(summary: Item, message: str, tmp_path: Path) -> None:
    place = exports.full(tmp_path, [], 1e9)
    path = place / "manifest-summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | summary))
    with pytest.raises(UsageError, match=message):
        Export(str(place), HERE)


def test_an_export_that_is_not_whole(tmp_path: Path) -> None:
    place = exports.full(tmp_path, [{"pk": {"S": str(n)}} for n in range(9)], 1e9)
    data = place / "data" / "full1.json.gz"
    whole = data.read_bytes()
    data.write_bytes(whole[:-9])
    with pytest.raises(UsageError, match=r"can't read .*full1.json.gz: Compressed file ended"):
        list(Export(str(place), HERE).lines())
    data.write_bytes((place / "data" / "full2.json.gz").read_bytes() + whole)
    with pytest.raises(UsageError, match=r"is incomplete: 6 lines, of 3 by manifest-files.json"):
        list(Export(str(place), HERE).lines())
    data.unlink()
    with pytest.raises(UsageError, match=r"lacks its file .*full1.json.gz"):
        list(Export(str(place), HERE).lines())
    (place / "manifest-files.json").unlink()
    with pytest.raises(UsageError, match=r"it has no manifest-files.json: give its folder"):
        Export(str(place), HERE)
    with pytest.raises(UsageError, match=r"it has no manifest-summary.json: give its folder"):
        Export(str(tmp_path), HERE)


def test_an_incremental_export_is_no_baseline(tmp_path: Path) -> None:
    place = exports.incremental(tmp_path, {}, {}, 1e9 + 10, 1e9 + 20)
    with pytest.raises(UsageError, match="it is incremental: give a full one"):
        full_export(str(place), HERE)


def test_exports_are_joined_where_their_periods_are(tmp_path: Path) -> None:
    day, end = 86_400.0, now() - 60
    times = [end - 3 * day, end - 2 * day, end - day, end]
    full = str(exports.full(tmp_path, [], times[0]))
    first, second, third = (
        str(exports.incremental(tmp_path, {}, {}, *span)) for span in pairwise(times)
    )
    other = str(exports.full(tmp_path / "other", [], end, tableArn=exports.ARN + "2"))

    def joined(*places: str) -> list[str]:
        made = moment(times[0] - day)
        keys = [{"AttributeName": "pk", "KeyType": "HASH"}]
        table = Description(keys, [], 0, made, exports.ARN)
        return [each.location for each in joined_exports(places, HERE, table)]

    assert joined(third, full, second, first) == [full, first, second, third]
    for places, text in {
        (full, first, third): "are in no export: give that one, too",
        (full, first): "its end is before the stream's 24 hours",
        (first, second, third): "give one full export, and incremental ones",
        (other,): "it belongs to ",
    }.items():
        with pytest.raises(UsageError, match=text):
            joined(*places)


def test_what_can_only_be_guessed_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ledger: Ledger
) -> None:
    start = ledger.clock.time()
    ledger.clock.sleep(5)
    made = Exported(ledger, tmp_path)
    early = exports.full(tmp_path / "early", [{"pk": {"S": "a"}}], start - 100)
    with pytest.raises(UsageError, match=r"is before what .*lake holds, which begins"):
        made.at(made.began, early)
    other = exports.full(tmp_path / "other", [{"id": {"S": "a"}}], made.full_time)
    with pytest.raises(UsageError, match="it belongs to another table: its items have no pk"):
        made.at(made.began, other)
    assert "if the table was changed" not in caplog.text
    made.at(ledger.second)
    assert "if the table was changed between then and" in caplog.text
    arn = "arn:aws:dynamodb:us-east-1:1:table/b"
    strange = exports.full(tmp_path / "strange", [], made.full_time, tableArn=arn)
    with pytest.raises(UsageError, match=r"it belongs to .*table/b, not to .*orders"):
        items_as_of(ledger.sources(), moment(made.ended), baseline=Export(str(strange), HERE))


@pytest.mark.parametrize(("which", "late"), [("old", -1), ("new", 1)])
def test_images_that_are_needed_and_are_not_there(which: str, late: int, tmp_path: Path) -> None:
    with (tmp_path / "changes.jsonl").open("w") as file:
        for number, time in enumerate((1, 1e9 + late)):
            change = {
                "Keys": {"pk": {"S": "a"}},
                "SequenceNumber": str(10**20 + number),
                "ApproximateCreationDateTime": time,
                "StreamViewType": "KEYS_ONLY",
            }
            file.write(json.dumps({"eventName": "MODIFY", "dynamodb": change}) + "\n")
    sources = Sources([file.name], None, strict=True)
    place = exports.full(tmp_path, [], 1e9 - 8 * min(late, 0))
    with pytest.raises(StreamError, match=f"a MODIFY has no {which} image"):
        items_as_of(sources, moment(1e9 + 5 * late), baseline=Export(str(place), HERE))
