"""`format("dynamodb_streams")` on a real Spark, against the simulator."""

import json
import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from tests.simulator import Simulator, judge
from tests.spark.conftest import PATIENCE, options
from tests.spark.played import InTurn, PlayedStream, number
from tests.support.hand_clock import HandClock
from tests.support.play import ARN
from watcher.errors import DataLossError
from watcher.spark.columns import ddl
from watcher.spark.options import parse
from watcher.spark.planner import Planner
from watcher.spark.source import DynamoDBStreams
from watcher.spark.stream_reader import StreamReader
from watcher.spark.tasks import range_reader

pytestmark = pytest.mark.spark

TTL = {"type": "Service", "principal_id": "dynamodb.amazonaws.com"}


@pytest.fixture(autouse=True)
def no_query_left(spark: Any) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


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


def test_available_now_ends_while_changes_go_on(spark: Any, sim: Simulator, tmp_path: Path) -> None:
    sim.bulk(500, keys=10)
    stopped = threading.Event()

    def write() -> None:
        while not stopped.wait(0.05):
            sim.bulk(5, keys=10)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        query = in_memory(
            stream(spark, sim, maxRecordsPerTrigger=300), "now", tmp_path, availableNow=True
        )
        assert query.awaitTermination(PATIENCE)
    finally:
        stopped.set()
        writer.join()
    numbers = [row[0] for row in spark.sql("select sequence_number from now").collect()]
    written = [each.sequence_number for each in sim.records]

    assert judge(sim.records, numbers)[1:] == ([], [], [])
    assert set(written[:500]) <= set(numbers)
    assert len(numbers) < len(written)
    assert max(each["numInputRows"] for each in query.recentProgress) <= 300


@pytest.mark.proof
def test_two_queries_on_one_stream_are_each_exact_though_they_throttle_each_other(
    spark: Any, sim: Simulator, tmp_path: Path
) -> None:
    sim.bulk(600, keys=20)
    sim.set_faults(shard_reads_per_second=5.0)
    queries = [
        in_memory(stream(spark, sim, maxRecordsPerTrigger=250), name, tmp_path / name)
        for name in ("one", "other")
    ]
    sim.split()
    sim.bulk(300, keys=20)
    sim.rotate()
    sim.bulk(100, keys=20)
    written = sim.records
    for query in queries:
        rows: list[Any] = []
        deadline = time.monotonic() + PATIENCE
        while len(rows) < len(written) and time.monotonic() < deadline:
            time.sleep(0.2)
            rows = spark.sql(f"select sequence_number from {query.name}").collect()
        assert judge(written, [row[0] for row in rows]) == ([], [], [], [])
        assert query.isActive


def once(spark: Any, sim: Simulator, checkpoint: Path, **options: Any) -> Any:
    """Run one query to the end of what is there."""
    writer = stream(spark, sim, **options).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE)
    return query


def test_data_loss_ends_the_query_with_shard_and_range(
    spark: Any, sim: Simulator, tmp_path: Path
) -> None:
    sim.bulk(200, keys=10)
    sim.advance(2)
    once(spark, sim, tmp_path, maxRecordsPerTrigger=1000)
    sim.bulk(200, keys=10)
    sim.trim(300)

    with pytest.raises(PySparkException, match=r"DATA LOSS: shard shardId-\S+ from sequence"):
        once(spark, sim, tmp_path, maxRecordsPerTrigger=1000)


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


@pytest.mark.proof
def test_the_progress_says_how_old_the_oldest_unread_change_is(
    spark: Any, sim: Simulator, tmp_path: Path
) -> None:
    sim.advance(-7200)
    sim.bulk(60, keys=1)  # in one shard, so in one answer
    sim.rotate("all")
    sim.advance(7200)
    frame = stream(spark, sim, maxRecordsPerTrigger=25)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE)

    reports = [each["sources"][0]["latestOffset"] for each in query.recentProgress]
    told = [json.loads(each) for each in reports if each]
    assert max(each["lag_seconds"] for each in told) == pytest.approx(7200, abs=600)
    assert told[-1]["lag_seconds"] == 0, "all is read, also as long as no more comes"
    assert max(each["shards_finished"] for each in told) >= 1
    assert {each["data_losses"] for each in told} == {0}


def test_a_batch_has_every_column_as_it_was_written(spark: Any, sim: Simulator) -> None:
    number = sim.put({"pk": {"S": "a"}, "qty": {"N": "1.50"}, "tags": {"SS": ["x", "y"]}})
    sim.modify("a", {"qty": {"N": "2"}})
    sim.remove("a", ttl=True)

    frame = batch(spark, sim, changedAttributes=True)
    first, second, third = frame.orderBy("sequence_number").collect()

    assert first.event_name == "INSERT"
    assert first.sequence_number == number
    assert (first.keys, first.new_image) == (
        '{"pk":"a"}',
        '{"pk":"a","qty":1.50,"tags":["x","y"]}',
    )
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


@pytest.mark.proof
def test_a_shard_that_vanishes_under_a_batch_is_named(sim: Simulator) -> None:
    sim.bulk(50, keys=5)
    closed = sim.open_shards[0]
    sim.rotate(closed)

    def read(**more: Any) -> int:
        source = DynamoDBStreams({name.lower(): str(v) for name, v in options(sim, **more).items()})
        reader: Any = source.reader(cast(StructType, StructType.fromDDL(source.schema())))
        partitions = reader.partitions()
        if closed in {each.id for each in sim.shards if not each.is_gone}:
            sim.drop_shard(closed)
        return sum(batch.num_rows for each in partitions for batch in reader.read(each))

    with pytest.raises(DataLossError, match=f"shard {closed} from its trim horizon: "):
        read()
    assert read(failOnDataLoss="false") < 50


def test_once_the_stop_file_is_there_no_batch_begins(tmp_path: Path) -> None:
    clock, file = HandClock(), tmp_path / "stop"
    played = PlayedStream(clock)
    played.write("a", range(20))
    given = {"stream": ARN, "startingPosition": "trim_horizon", "stopFile": str(file)}
    schema = cast(StructType, StructType.fromDDL(ddl(parse(given, streaming=True))))

    def planner(options: Any) -> Planner:
        driver = InTurn(played, clock)
        return Planner(options, ARN, played, driver, clock=clock)

    reader = StreamReader(parse(given, streaming=True), schema, 2, planner=planner)
    start = reader.latestOffset({}, ReadAllAvailable())
    end = reader.latestOffset(start, ReadAllAvailable())
    file.touch()

    assert start != end
    assert reader.latestOffset(start, ReadAllAvailable()) is start


def test_a_micro_batch_that_is_done_again_has_the_same_rows() -> None:
    clock = HandClock()
    played = PlayedStream(clock)
    played.write("a", range(10))
    played.write("b", range(10, 20), parent="a")
    read_options = parse({"stream": ARN, "startingPosition": "trim_horizon"}, streaming=True)
    schema = cast(StructType, StructType.fromDDL(ddl(read_options)))

    def started() -> StreamReader:
        driver = InTurn(played, clock)
        return StreamReader(
            read_options,
            schema,
            2,
            planner=lambda options: Planner(options, ARN, played, driver, clock=clock),
            reader=lambda options, arn: range_reader(options, arn, played, clock),
        )

    def rows(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
        batches = [b for each in reader.partitions(start, end) for b in reader.read(each)]
        return [number for b in batches for number in b.column("sequence_number").to_pylist()]

    reader = started()
    offset = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    delivered: list[str] = []
    assert rows(reader, reader.initialOffset(), offset) == []
    while len(delivered) < 20:
        end = reader.latestOffset(offset, ReadAllAvailable())
        delivered += (brought := rows(reader, offset, end))
        assert rows(started(), offset, end) == brought
        offset = end

    assert delivered == [number(each) for each in range(20)]


@pytest.mark.proof
def test_images_as_variant(spark: Any, sim: Simulator) -> None:
    sim.put(
        {
            "pk": {"S": "a"},
            "qty": {"N": "12345678901234567890123456789012345678"},
            "tags": {"SS": ["x", "y"]},
            "at": {"M": {"city": {"S": "Bonn"}, "zip": {"N": "53111"}}},
        }
    )
    variant = batch(spark, sim).selectExpr(
        "parse_json(new_image):at.city::string city", "parse_json(new_image):qty::decimal(38,0) q"
    )

    qty = Decimal("12345678901234567890123456789012345678")
    assert variant.collect()[0].asDict() == {"city": "Bonn", "q": qty}


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


@pytest.mark.proof
def test_the_wire_form_is_there_for_who_wants_it(spark: Any, sim: Simulator) -> None:
    sim.put({"pk": {"S": "a"}, "qty": {"N": "1.50"}})

    row = batch(spark, sim, imageFormat="dynamodb-json").collect()[0]

    assert row.new_image == '{"pk":{"S":"a"},"qty":{"N":"1.50"}}'


def test_an_unknown_option_is_refused(spark: Any, sim: Simulator) -> None:
    with pytest.raises(PySparkException, match="did you mean startingPosition"):
        batch(spark, sim, startingPositon="latest")
