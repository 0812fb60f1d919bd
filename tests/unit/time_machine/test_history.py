"""What happened to an item: from a stream, an archive, a file, and one after another."""

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.simulator import Simulator
from tests.support.hand_clock import HandClock
from watcher import History, Stream, StreamError, UsageError, history
from watcher.aws.client import StreamsClient
from watcher.aws.config import AwsConfig
from watcher.aws.tables import TablesClient
from watcher.time_machine.history import item_history
from watcher.time_machine.item_keys import ItemKey
from watcher.time_machine.sources import Sources, StreamSource

KEY = {"pk": "a"}


@pytest.fixture(autouse=True)
def aws(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in simulator.environment.items():
        monkeypatch.setenv(name, value)


def a_life(simulator: Simulator) -> None:
    simulator.put({"pk": {"S": "a"}, "v": {"N": "1"}})
    simulator.write("b", 50)
    simulator.put({"pk": {"S": "a"}, "v": {"N": "2"}})
    simulator.split()
    simulator.remove("a")
    simulator.rotate("all")
    simulator.put({"pk": {"S": "a"}, "data": {"B": "AAE="}})
    simulator.advance(60)  # no child of a shard can be late any more


def found_in(simulator: Simulator, *files: Path) -> History:
    """The same as `history`, on a clock that does not keep us waiting."""
    connection = AwsConfig(region="us-east-1", endpoint_url=simulator.endpoint)
    table = StreamSource(
        simulator.stream_arn, StreamsClient(connection), TablesClient(connection), clock=HandClock()
    )
    return item_history(Sources([*map(str, files)], table), ItemKey(KEY), None)


def lines(simulator: Simulator, path: Path, count: int) -> Path:
    """The first records as --print-json writes them."""
    records = list(iter(Stream("orders", "trim_horizon").__next__, None))
    path.write_bytes(b"".join(bytes(record.raw) + b"\n" for record in records[:count]))
    return path


def test_a_life_across_shards_and_how_it_is_now(simulator: Simulator) -> None:
    a_life(simulator)
    found = history("orders", key=KEY)
    assert [record.event_name for record in found] == ["INSERT", "MODIFY", "REMOVE", "INSERT"]
    assert [record.changes.get("v") for record in found][1] == (1, 2)
    assert found.now == {"pk": "a", "data": b"\x00\x01"}
    assert found.gaps == []


def test_a_file_and_then_the_stream_give_each_change_once(
    simulator: Simulator, tmp_path: Path
) -> None:
    a_life(simulator)
    file = lines(simulator, tmp_path / "records.jsonl", 52)
    simulator.trim(51)
    found = found_in(simulator, file)
    assert [record.event_name for record in found] == ["INSERT", "MODIFY", "REMOVE", "INSERT"]
    alone = history(str(file), key=KEY)
    assert [record.event_name for record in alone] == ["INSERT", "MODIFY"]
    assert alone.asked_at is None


def test_a_gap_between_a_file_and_the_stream_is_said(
    simulator: Simulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    simulator.write("a", 1)
    file = lines(simulator, tmp_path / "records.jsonl", 1)
    simulator.advance(30 * 3600)
    simulator.write("a", 1)
    with caplog.at_level(logging.WARNING):
        found = found_in(simulator, file)
    assert len(found) == 2
    assert len(found.gaps) == 1
    assert "GAP: nothing is known of" in caplog.text


@pytest.mark.parametrize("images", ["plain", "wire"])
def test_an_archive_in_any_order_of_its_files(
    simulator: Simulator, tmp_path: Path, images: str
) -> None:
    day = tmp_path / "lake" / "date=2026-11-21"
    day.mkdir(parents=True)
    a_life(simulator)
    records = list(iter(Stream("orders", "trim_horizon").__next__, None))
    for number, record in enumerate(reversed(records)):
        row = archived(json.loads(bytes(record.raw)), record.shard_id, wire=images == "wire")
        parquet.write_table(pa.Table.from_pylist([row]), day / f"part-{number:05}.parquet")
    found = found_in(simulator, day.parent)
    assert [record.event_name for record in found] == ["INSERT", "MODIFY", "REMOVE", "INSERT"]
    assert [record.changes.get("v") for record in found][1] == (1, 2)


def archived(record: dict[str, Any], shard_id: str, *, wire: bool) -> dict[str, Any]:
    change = record["dynamodb"]

    def image(name: str) -> str | None:
        if name not in change:
            return None
        return json.dumps(change[name] if wire else plain(change[name]))

    return {
        "event_id": record["eventID"],
        "event_name": record["eventName"],
        "approximate_creation_time": datetime(2026, 11, 21, 8, tzinfo=UTC),
        "keys": image("Keys"),
        "new_image": image("NewImage"),
        "old_image": image("OldImage"),
        "sequence_number": change["SequenceNumber"],
        "stream_view_type": change["StreamViewType"],
        "shard_id": shard_id,
    }


def plain(item: dict[str, dict[str, str]]) -> dict[str, Any]:
    return {
        name: int(text) if kind == "N" else text
        for name, value in item.items()
        for kind, text in value.items()
    }


def test_a_role_that_may_not_read_the_table_still_gets_the_changes(
    simulator: Simulator, caplog: pytest.LogCaptureFixture
) -> None:
    simulator.write("a", 2)
    denied = {"auth_error": "AccessDeniedException", "auth_operations": ("GetItem",)}
    with simulator.faulty(**denied), caplog.at_level(logging.WARNING):
        found = found_in(simulator)
    assert len(found) == 2
    assert found.asked_at is None
    assert "the role needs dynamodb:GetItem on" in caplog.text


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ([], "give the item's whole key"),
        (["pk"], "key pk: give NAME=VALUE"),
        (["pk=a", "pk=b"], "key pk: give it once"),
        (["id=a"], "key id: no such key attribute; the table has pk"),
    ],
)
def test_what_can_t_be_an_item_s_key(key: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        history("orders", key=key)
    assert message in str(caught.value)


def test_a_stream_comes_last_and_a_start_has_passed() -> None:
    with pytest.raises(UsageError, match="give it last"):
        history("orders", "orders", key=KEY)
    with pytest.raises(UsageError, match="in the future"):
        history("orders", key=KEY, start="2099-01-01")
    with pytest.raises(StreamError):
        history("no-such-table", key=KEY)
