"""What happened to an item: from a stream, an archive, a file, and one after another."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.simulator import Simulator
from tests.support.hand_clock import HandClock
from tests.unit.time_machine.test_archives import row_of
from watcher import History, Stream, StreamError, UsageError, history
from watcher.aws.client import StreamsClient
from watcher.aws.config import AwsConfig
from watcher.aws.tables import TablesClient
from watcher.time_machine.history import item_history
from watcher.time_machine.item_keys import ItemKey
from watcher.time_machine.sources import Sources, StreamSource

KEY = {"pk": "a"}


pytestmark = pytest.mark.usefixtures("simulator")


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


def plain(item: dict[str, dict[str, str]]) -> dict[str, Any]:
    return {
        name: int(text) if kind == "N" else text
        for name, value in item.items()
        for kind, text in value.items()
    }


@pytest.mark.parametrize("form", [plain, dict])
def test_an_archive_in_any_order_of_its_files(
    simulator: Simulator, tmp_path: Path, form: Callable[[Any], Any]
) -> None:
    day = tmp_path / "lake" / "date=2026-11-21"
    day.mkdir(parents=True)
    a_life(simulator)
    records = list(iter(Stream("orders", "trim_horizon").__next__, None))
    for number, record in enumerate(reversed(records)):
        row = pa.Table.from_pylist([row_of(record, form)])
        parquet.write_table(row, day / f"part-{number:05}.parquet")
    found = found_in(simulator, day.parent)
    assert [record.event_name for record in found] == ["INSERT", "MODIFY", "REMOVE", "INSERT"]
    assert [record.changes.get("v") for record in found][1] == (1, 2)


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


def test_a_stream_comes_last_and_a_start_has_passed() -> None:
    with pytest.raises(UsageError, match="give it last"):
        history("orders", "orders", key=KEY)
    with pytest.raises(UsageError, match="in the future"):
        history("orders", key=KEY, start="2099-01-01")
    with pytest.raises(StreamError):
        history("no-such-table", key=KEY)
