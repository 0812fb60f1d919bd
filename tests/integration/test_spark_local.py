"""The Spark jobs on Amazon's DynamoDB Local, with real rotations."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow.dataset

from tests.spark.conftest import PATIENCE, WHOLE
from tests.spark.conftest import command as command
from tests.spark.conftest import spark as spark
from tests.support.dynamodb_local import SCRIPT, DynamoDBLocal
from tests.support.eventually import eventually
from tests.support.program import run
from watcher.aws.config import AwsConfig

pytestmark = [pytest.mark.spark, pytest.mark.timeout(WHOLE)]

ROOT = SCRIPT.parents[1]


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def nothing_left(spark: Any) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()
    while STARTED:
        with STARTED.pop() as process:
            process.kill()


def here(server: DynamoDBLocal) -> AwsConfig:
    return AwsConfig("us-east-1", None, server.endpoint_url)


def write(server: DynamoDBLocal, table: str, first: int, count: int, *, items: int = 7) -> None:
    """Puts with a version and binary data, and some deletes."""
    client = server.client()
    for number in range(first, first + count):
        key = {"PK": {"S": f"k{number % items}"}, "SK": {"S": "s"}}
        if number % 11 == 10:
            client.delete_item(TableName=table, Key=key)
        else:
            data = {"v": {"N": str(number)}, "raw": {"B": bytes([number % 256])}}
            client.put_item(TableName=table, Item={**key, **data})


def items(server: DynamoDBLocal, table: str) -> dict[str, Any]:
    pages = server.client().get_paginator("scan").paginate(TableName=table)
    return {json.dumps(i["PK"]) + json.dumps(i["SK"]): i for page in pages for i in page["Items"]}


def play(endpoint: str, archived: str, copied: str, place: str) -> None:
    """Jobs that go on until they are killed; in a process of its own."""
    from watcher.spark import session
    from watcher.spark.jobs import archive, replicate

    def ended(job: Future[Any]) -> None:
        print(job.exception() or job.result(), file=sys.stderr, flush=True)
        os._exit(1)

    spark = session.start(master="local[2]")
    given: Any = {"connection": AwsConfig("us-east-1", None, endpoint), "spark": spark}
    pool = ThreadPoolExecutor()
    for stream, to in (archived, "lake"), ("renewed", "table"):
        job = pool.submit(archive, stream, to=f"{place}/{to}", every="500ms", **given)
        job.add_done_callback(ended)
    replicate(copied, to="copy", create=True, checkpoint=f"{place}/copy", every="200ms", **given)


def start(server: DynamoDBLocal, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, __file__, server.endpoint_url, *arguments],
        cwd=ROOT,
        env={**os.environ, **server.environment, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    STARTED.append(process)
    return process


def wait_for(job: subprocess.Popen[str], condition: Any) -> None:
    def told() -> str:
        job.kill()
        return f"ended, or not in {PATIENCE:.0f} s: {job.communicate()[1]}"

    def holds() -> bool:
        assert job.poll() is None, told()
        return bool(condition())

    eventually(holds, told=told, seconds=PATIENCE)


def enable_again(server: DynamoDBLocal, table: str) -> None:
    """The table gets another stream."""
    update = server.client().update_table
    update(TableName=table, StreamSpecification={"StreamEnabled": False})
    view = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    update(TableName=table, StreamSpecification=view)


def numbers(lake: Path) -> list[str]:
    data = pyarrow.dataset.dataset(lake, format="parquet", partitioning="hive")
    found: list[str] = data.to_table(columns=["sequence_number"])["sequence_number"].to_pylist()
    return found


@pytest.mark.proof
@pytest.mark.timeout(2 * WHOLE)
def test_jobs_killed_with_sigkill_go_on_exactly(
    fresh_dynamodb_local: DynamoDBLocal, spark: Any, tmp_path: Path
) -> None:
    """An archive, one of a table over its next streams, and a replica as it copies and applies.

    They share a Spark, which takes as long to start as they to work.
    """
    from watcher.spark.jobs import archive, replicate

    server = fresh_dynamodb_local
    lake, table, copy = tmp_path / "lake", tmp_path / "table", tmp_path / "copy"
    shop, users = server.create_table("shop"), server.create_table("users")
    server.create_table("renewed")
    write(server, "shop", 0, 40)
    write(server, "renewed", 0, 50)
    server.rollover()
    write(server, "shop", 40, 30)
    write(server, "users", 0, 300, items=200)
    job = start(server, shop, users, str(tmp_path))
    wait_for(job, lambda: (copy / "changes/offsets/0").exists())
    write(server, "users", 300, 50, items=200)
    wait_for(job, lambda: any(table.glob("batch=*/date=*/*.parquet")) and len(numbers(table)) == 50)
    server.rollover()
    write(server, "renewed", 50, 25)
    enable_again(server, "renewed")
    write(server, "renewed", 75, 25)
    wait_for(job, lambda: len(numbers(table)) == 100)
    wait_for(job, lambda: list(copy.glob("changes/offsets/1")))
    wait_for(job, lambda: list(tmp_path.glob("lake.checkpoint/commits/1")))
    server.rollover()
    write(server, "shop", 70, 30)
    write(server, "renewed", 100, 20)
    job.send_signal(signal.SIGKILL)
    job.communicate()
    server.rollover()
    write(server, "shop", 100, 20)
    write(server, "users", 350, 80, items=200)
    enable_again(server, "renewed")
    write(server, "renewed", 120, 30)

    given: Any = {"once": True, "connection": here(server), "spark": spark}
    totals = archive(shop, to=str(lake), **given)
    archive("renewed", to=str(table), **given)
    replicate(users, to="copy", checkpoint=str(copy), **given)

    found = numbers(lake)
    assert totals.records > 0
    assert len(found) == len(set(found)) == len(printed(server, shop))
    streams = server.client("dynamodbstreams").list_streams(TableName="renewed")["Streams"]
    written = [each for row in streams for each in printed(server, row["StreamArn"])]
    expected = [each["dynamodb"]["SequenceNumber"] for each in written]
    assert len(streams) == 3 and len(expected) == 150
    assert sorted(numbers(table)) == sorted(expected)
    assert items(server, "copy") == items(server, "users")


def printed(server: DynamoDBLocal, arn: str) -> list[dict[str, Any]]:
    """What the watch prints of the same stream."""
    words = ("--no-follow", "--print-json", "--from", "trim-horizon")
    watch = run(arn, *words, env=server.environment)
    assert watch.status == 0, watch.err
    return [json.loads(line) for line in watch.out]


def test_a_batch_read_equals_what_the_watch_prints(
    fresh_dynamodb_local: DynamoDBLocal, spark: Any
) -> None:
    server = fresh_dynamodb_local
    arn = server.create_table("shop")
    write(server, "shop", 0, 30)
    server.rollover()
    write(server, "shop", 30, 30)
    lines = printed(server, arn)
    options = {"stream": arn, "endpointUrl": server.endpoint_url, "region": "us-east-1"}

    frame = spark.read.format("dynamodb_streams").options(imageFormat="dynamodb-json", **options)
    rows = frame.load().collect()

    by_number = {line["dynamodb"]["SequenceNumber"]: line for line in lines}
    assert {row.sequence_number for row in rows} == by_number.keys()
    assert len(rows) == len(lines)
    for row in rows:
        line = by_number[row.sequence_number]
        assert row.event_id == line["eventID"]
        assert row.event_name == line["eventName"]
        for image, name in ((row.new_image, "NewImage"), (row.old_image, "OldImage")):
            assert (json.loads(image) if image else None) == line["dynamodb"].get(name)


if __name__ == "__main__":
    play(*sys.argv[1:])
