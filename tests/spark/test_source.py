"""`format("dynamodb_streams")` on a real Spark, against the simulator."""

import json
import re
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from tests.simulator import Simulator, judge
from tests.spark.conftest import PATIENCE, options
from tests.spark.played import PlayedQuery, PlayedStream
from tests.support.hand_clock import HandClock
from watcher.spark.stream_reader import StreamReader

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_query_left")]

TTL = {"type": "Service", "principal_id": "dynamodb.amazonaws.com"}


def stream(spark: Any, sim: Simulator, **more: Any) -> Any:
    given = options(sim, startingPosition="trim_horizon") | more
    return spark.readStream.format("dynamodb_streams").options(**given).load()


def batch(spark: Any, sim: Simulator, **more: Any) -> Any:
    return spark.read.format("dynamodb_streams").options(**options(sim, **more)).load()


def in_memory(frame: Any, name: str, place: Path, **trigger: Any) -> Any:
    writer = frame.writeStream.format("memory").queryName(name)
    writer = writer.option("checkpointLocation", str(place))
    return (writer.trigger(**trigger) if trigger else writer).start()


def test_a_running_query_follows_splits_and_rotations(
    spark: Any, sim: Simulator, tmp_path: Path
) -> None:
    sim.bulk(1000, keys=20)
    query = in_memory(stream(spark, sim), "running", tmp_path)
    for _ in range(2):
        sim.split()
        sim.bulk(300, keys=20, remove_every=7)
        sim.rotate()
        sim.bulk(300, keys=20)
    written = sim.records
    rows: list[Any] = []
    deadline = time.monotonic() + PATIENCE
    while len(rows) < len(written) and time.monotonic() < deadline:
        time.sleep(0.1)  # a question costs as much as a micro-batch
        rows = spark.sql("select sequence_number, keys, new_image from running").collect()

    # The memory sink keeps the order of batches, and of partitions in them.
    assert judge(written, [row.sequence_number for row in rows]) == ([], [], [], [])
    source = query.lastProgress["sources"][0]
    report = json.loads(source["latestOffset"])
    assert report["shards_open"] >= 2
    assert {"lag_seconds", "shards_finished"} <= report.keys()


def once(spark: Any, sim: Simulator, checkpoint: Path, **options: Any) -> Any:
    """Run one query to the end of what is there."""
    writer = stream(spark, sim, **options).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE)
    return query


@pytest.mark.proof
def test_a_micro_batch_that_is_done_again_says_what_is_gone_by_then(
    spark: Any, sim: Simulator, tmp_path: Path
) -> None:
    """After a crash before its commit executors read the range anew."""
    sim.bulk(200, keys=10)
    sim.advance(2)
    once(spark, sim, tmp_path)
    sim.bulk(200, keys=10)
    sim.advance(2)
    once(spark, sim, tmp_path)
    last = max((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (tmp_path / "commits" / f".{last.name}.crc").unlink()
    sim.trim(350)

    text = r"DATA LOSS: shard shardId-\S+ from sequence number \d+: .*failOnDataLoss=false"
    with pytest.raises(PySparkException, match=text):
        once(spark, sim, tmp_path)
    assert once(spark, sim, tmp_path, failOnDataLoss="false").exception() is None


def test_a_batch_has_every_column_as_it_was_written(spark: Any, sim: Simulator) -> None:
    number = sim.put({"pk": {"S": "a"}, "qty": {"N": "1.50"}, "tags": {"SS": ["x", "y"]}})
    sim.modify("a", {"qty": {"N": "2"}})
    sim.remove("a", ttl=True)

    frame = batch(spark, sim, changedAttributes=True)
    first, second, third = frame.orderBy("sequence_number").collect()

    assert first.event_name == "INSERT"
    assert first.sequence_number == number
    assert (first.keys, first.new_image) == ('{"pk":"a"}', '{"pk":"a","qty":1.50,"tags":["x","y"]}')
    assert first.old_image is None
    assert first.changed_attributes == ["pk", "qty", "tags"]
    assert first.aws_region == "us-east-1"
    assert first.stream_view_type == "NEW_AND_OLD_IMAGES"
    assert first.user_identity is None
    assert first.size_bytes > 0
    assert first.shard_id.startswith("shardId-")
    assert abs(first.approximate_creation_time.timestamp() - sim.now) < 120
    assert second.changed_attributes == ["qty"]
    assert third.event_name == "REMOVE"
    assert third.user_identity.asDict() == TTL


def test_a_batch_reads_everything_or_between_two_positions(spark: Any, sim: Simulator) -> None:
    sim.advance(-7200)
    sim.bulk(50, keys=5)
    sim.split()
    sim.advance(3600)
    sim.bulk(30, keys=5)
    sim.advance(3600)
    sim.bulk(20, keys=5)
    written = [each.sequence_number for each in sim.records]

    def numbers(**more: Any) -> list[str]:
        rows = batch(spark, sim, **more).select("sequence_number").collect()
        return sorted((row[0] for row in rows), key=int)

    assert numbers() == written
    assert numbers(startingPosition="90m") == written[50:]
    assert numbers(endingPosition="90m") == written[:50]
    assert numbers(startingPosition="90m", endingPosition="30m") == written[50:80]
    then, later = (datetime.fromtimestamp(sim.now - ago, UTC) for ago in (5400, 1800))
    between = {"startingPosition": then.isoformat(), "endingPosition": later.isoformat()}
    assert numbers(**between) == written[50:80]


def test_once_the_stop_file_is_there_no_batch_begins(tmp_path: Path) -> None:
    clock, file = HandClock(), tmp_path / "stop"
    played = PlayedStream(clock)
    played.write("a", range(20))
    query = PlayedQuery(played, clock, stopFile=str(file), columns="keys")
    schema = StructType().add("keys", "string")
    reader = StreamReader(query.options, schema, 2, planner=lambda options: query.planner)
    start = reader.latestOffset({}, ReadAllAvailable())
    end = reader.latestOffset(start, ReadAllAvailable())
    file.touch()

    assert start != end
    assert reader.latestOffset(start, ReadAllAvailable()) is start


@pytest.mark.proof
def test_images_are_typed_as_the_docs_have_it(spark: Any, sim: Simulator) -> None:
    page = (Path(__file__).parents[2] / "docs/spark.md").read_text()
    section = page.partition("### Typed images")[2].partition("\n### ")[0]
    (text,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    made: dict[str, Any] = {}
    exec(text, made)
    digits = "12345678901234567890.123456789012345678"
    sim.put({"pk": {"S": "a"}, "qty": {"N": digits}, "at": {"M": {"city": {"S": "Bonn"}}}})
    sim.put({"pk": {"S": "b"}, "qty": {"S": "many"}})
    changes = batch(spark, sim).orderBy("sequence_number")

    fit, unfit = (row.image for row in made["typed"](changes).collect())
    assert (fit.qty, fit["at"].city, fit._corrupt_record) == (Decimal(digits), "Bonn", None)
    assert (unfit.pk, unfit.qty, unfit._corrupt_record) == ("b", None, '{"pk":"b","qty":"many"}')
    with pytest.raises(Exception, match="MALFORMED_RECORD"):
        made["strictly_typed"](changes).collect()
    (row, _) = made["typed_as"](changes, '{"pk":"a","at":{"city":""}}').collect()
    assert (row.image.pk, row.image["at"].city) == ("a", "Bonn")
