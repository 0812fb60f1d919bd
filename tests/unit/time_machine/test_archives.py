"""An archive in Parquet, as `archive` writes it, before the stream."""

import json
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.ledger.ledger import Ledger, by_key
from tests.support.pulled import Pulled
from watcher.errors import DataLossError, UsageError
from watcher.records.record import Record
from watcher.time_machine.archives import Archive
from watcher.time_machine.as_of import items_as_of
from watcher.time_machine.sources import Sources

pytest.importorskip("pyarrow")


def archive(ledger: Ledger, folder: Path, layout: str = "date=2026-11-21") -> Path:
    """What the stream holds now, a file for every ten changes, in images of DynamoDB's JSON."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    stream = ledger.sources().stream
    assert stream is not None
    reading = Pulled(stream.service, stream.arn, "trim_horizon", clock=ledger.clock)
    records = list(iter(reading.__next__, None))
    for first in range(0, len(records), 10):
        rows = [row_of(each) for each in records[first : first + 10]]
        name = f"part-{len(records) - first:05}.parquet"  # in no order
        day = folder / layout.format(batch=first // 20)
        day.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.Table.from_pylist(rows), day / name)
    for each in folder.glob("batch=*"):
        (each / "_SUCCESS").touch()
    return folder


def row_of(record: Record, form: Callable[[Any], Any] = dict) -> dict[str, Any]:
    wire = json.loads(bytes(record.raw))
    change = wire["dynamodb"]
    images = {"keys": "Keys", "new_image": "NewImage", "old_image": "OldImage"}
    texts = {column: change.get(name) for column, name in images.items()}
    return {
        "event_id": wire.get("eventID"),
        "event_name": wire["eventName"],
        "approximate_creation_time": record.created_at,
        **{column: value and json.dumps(form(value)) for column, value in texts.items()},
        "sequence_number": change["SequenceNumber"],
        "size_bytes": change.get("SizeBytes"),
        "stream_view_type": change.get("StreamViewType"),
        "user_identity": {"type": None, "principal_id": None},
        "shard_id": record.shard_id,
    }


def both(ledger: Ledger, folder: Path) -> Sources:
    return Sources([str(folder)], ledger.sources().stream, strict=True)


@pytest.mark.parametrize("layout", ["date=2026-11-21", "batch={batch}/date=2026-11-21"])
def test_a_second_before_the_stream_s_retention(
    tmp_path: Path, layout: str, ledger: Ledger
) -> None:
    ledger.write(100)
    second = ledger.second
    ledger.write(100)
    ledger.clock.sleep(12 * 3600)
    lake = archive(ledger, tmp_path / "lake", layout)
    ledger.clock.sleep(10 * 3600)
    ledger.write(100)
    at = datetime.fromtimestamp(second, UTC)
    # Both still hold it: what they share counts once.
    assert by_key(items_as_of(both(ledger, lake), at)) == ledger.at(second)
    ledger.clock.sleep(3 * 3600)
    with pytest.raises(DataLossError, match="nothing is known of"):
        items_as_of(both(ledger, lake), at)
    with pytest.raises(UsageError, match="is before what orders holds"):
        items_as_of(ledger.sources(), at)


def test_memory_holds_few_of_a_file_s_large_images(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    row = {"event_name": "INSERT", "approximate_creation_time": datetime.now(UTC)}
    rows = (
        {
            **row,
            "keys": f'{{"pk":{{"N":"{number}"}}}}',
            "new_image": f'{{"pk":{{"N":"{number}"}},"body":{{"S":"{number:0200000}"}}}}',
            "sequence_number": str(number),
        }
        for number in range(200)
    )
    parquet.write_table(pa.Table.from_pylist([*rows]), tmp_path / "part-0.parquet")
    tracemalloc.start()
    try:
        assert sum(1 for _ in Archive(tmp_path).records()) == 200
        assert tracemalloc.get_traced_memory()[1] < 25_000_000
    finally:
        tracemalloc.stop()


def test_a_batch_counts_once_it_is_whole_and_one_that_is_gone_is_missed(
    tmp_path: Path, ledger: Ledger
) -> None:
    ledger.write(60)
    lake = archive(ledger, tmp_path / "lake", "batch={batch}/date=2026-11-21")
    whole = [each.sequence_number for each in Archive(lake).records()]
    (lake / "batch=2" / "_SUCCESS").unlink()
    assert [each.sequence_number for each in Archive(lake).records()] == whole[:40]
    (lake / "batch=1").rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is incomplete: batch=1 is missing"):
        Archive(lake)
