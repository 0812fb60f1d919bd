"""A table's items as the first micro-batch, then its changes, as docs/spark.md has it."""

import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructField, StructType

from tests.integration.conftest import fresh_dynamodb_local
from tests.simulator import Simulator
from tests.spark.conftest import PATIENCE
from tests.support.dynamodb_local import DynamoDBLocal
from watcher.errors import UsageError
from watcher.records.record import Record
from watcher.spark import compat, offsets
from watcher.spark.columns import columns
from watcher.spark.offsets import Snapshot
from watcher.spark.options import parse
from watcher.spark.snapshot import SnapshotRows, partitions

__all__ = ["fresh_dynamodb_local"]  # a fixture

pytestmark = [
    pytest.mark.proof,
    pytest.mark.spark,
    pytest.mark.skipif(not compat.HAS_ADMISSION_CONTROL, reason="needs Spark 4.2"),
]

ITEMS = 60


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """What the page's examples define."""
    whole = (Path(__file__).parents[2] / "docs/spark.md").read_text()
    section = whole.partition("### Existing items first")[2].partition("\n### ")[0]
    names: dict[str, Any] = {"__name__": __name__}
    for text in re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
        exec(text, names)
    return names


def put(client: Any, number: int, version: int = 1) -> None:
    key = {"PK": {"S": f"k{number}"}, "SK": {"S": "s"}}
    client.put_item(TableName="shop", Item={**key, "version": {"N": str(version)}})


class Shop:
    """A query over a table on DynamoDB Local, started as often as one likes."""

    def __init__(self, spark: Any, arn: str, endpoint: str, place: Path, page: dict[str, Any]):
        self.spark = spark
        self._given = {"stream": arn, "endpointUrl": endpoint, "region": "us-east-1"}
        self._page = page
        self.place = place

    def run(self, before: Callable[[int], None] = lambda number: None) -> list[Any]:
        """Runs the query up to now; returns the rows of all its runs."""

        def write(rows: Any, number: int) -> None:
            rows.write.mode("overwrite").parquet(f"{self.place}/rows/batch={number}")
            before(number)

        reader = self.spark.readStream.format("dynamodb_streams").options(**self._given)
        writer = self._page["items_then_changes"](reader).writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", f"{self.place}/checkpoint")
        assert writer.trigger(availableNow=True).start().awaitTermination(PATIENCE)
        return list(self.spark.read.parquet(f"{self.place}/rows").collect())


def test_the_items_come_first_and_then_each_change_once(
    spark: Any, fresh_dynamodb_local: DynamoDBLocal, tmp_path: Path, page: dict[str, Any]
) -> None:
    server = fresh_dynamodb_local
    arn, client = server.create_table("shop"), server.client()
    for number in range(ITEMS):
        put(client, number)
    # DynamoDB Local stamps whole minutes: what is to be before "now" has to be clearly so.
    server.dilate_time(2)
    shop = Shop(spark, arn, server.endpoint_url, tmp_path, page)

    def crash(number: int) -> None:
        put(client, 0, version=2)  # made after the scan
        raise OSError("the sink has failed")

    with pytest.raises(PySparkException, match="the sink has failed"):
        shop.run(crash)
    shop.run()
    for number in range(ITEMS, ITEMS + 10):
        put(client, number)
    client.delete_item(TableName="shop", Key={"PK": {"S": "k1"}, "SK": {"S": "s"}})
    found = shop.run()

    kinds = Counter(row.event_name for row in found)
    assert kinds == {"SNAPSHOT": ITEMS, "MODIFY": 1, "INSERT": 10, "REMOVE": 1}
    items = [row for row in found if row.event_name == "SNAPSHOT"]
    assert {json.loads(row["keys"])["PK"] for row in items} == {f"k{n}" for n in range(ITEMS)}
    assert {row.batch for row in items} == {0} and {row.sequence_number for row in items} == {None}
    numbers = [row.sequence_number for row in found if row.sequence_number]
    assert len(numbers) == len(set(numbers)) == 12
    stored = json.loads((tmp_path / "checkpoint/offsets/0").read_text().splitlines()[-1])
    offset = offsets.from_json(stored)
    assert offset is not None and offset.snapshot is not None and offset.snapshot.parts == 4


def test_a_snapshot_is_its_own_beginning() -> None:
    with pytest.raises(UsageError, match="snapshot and startingPosition can't be combined"):
        parse(
            {"stream": "orders", "snapshot": "true", "startingPosition": "latest"}, streaming=True
        )


@pytest.mark.parametrize("redact", [None, "v=mask"])
def test_items_as_wire_records_have_numbers_of_their_own_in_every_part(redact: str | None) -> None:
    given = {"stream": "orders", "snapshot": "true", "wireRecords": "true"}
    given |= {
        "columns": "event_source_arn,shard_id,record",
        **({"redact": redact} if redact else {}),
    }
    with Simulator.spawn(table="orders") as sim:
        sim.bulk(50, keys=20)
        given |= {"endpointUrl": sim.endpoint, "region": "us-east-1"}
        options = parse(given, streaming=True)
        schema = StructType([StructField(name, StringType()) for name in columns(options)])
        of = Snapshot(3, datetime(2026, 11, 24, tzinfo=UTC))
        rows = [
            row
            for partition in partitions(sim.stream_arn, options.connection, of)
            for batch in SnapshotRows(options, schema).read(partition)
            for row in batch.to_pylist()
        ]
        last = {each.key: each.version for each in sim.records}
        arn = sim.stream_arn

    records = [Record.from_json(row["record"].encode(), row["shard_id"], arn) for row in rows]
    assert {record.event_name for record in records} == {"SNAPSHOT"}
    found = {str(record.key["pk"]): record.new and record.new["v"] for record in records}
    assert found == (dict.fromkeys(last, "***") if redact else last)
    assert len({record.sequence_number for record in records}) == len(records) == len(last)
    assert {row["event_source_arn"] for row in rows} == {arn}
