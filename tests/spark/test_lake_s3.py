"""docs/lake.md's jobs in S3, as moto has it: a mirror in Delta and in Iceberg, and an archive."""

from __future__ import annotations

import io
import json
import logging
import re
import shlex
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow.parquet
from deltalake import DeltaTable

from tests.simulator import Simulator
from tests.spark.conftest import PATIENCE
from tests.spark.test_lake import Shop, a_lake
from tests.support.lakes import ROOT, Lake
from tests.support.moto_server import moto_server
from tests.support.pages import PAGES, of_kind

pytestmark = [pytest.mark.spark, pytest.mark.proof]

KEYS = {"AWS_ACCESS_KEY_ID": "here", "AWS_SECRET_ACCESS_KEY": "here", "AWS_REGION": "us-east-1"}


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client, of a service that has the bucket `lake`."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(logging.getLogger("werkzeug"), "disabled", True)
    with moto_server() as endpoint:
        client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
        client.create_bucket(Bucket="lake")
        yield client
        client.close()


def names(s3: Any, prefix: str = "") -> list[str]:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="lake", Prefix=prefix)
    return [each["Key"] for page in pages for each in page.get("Contents", [])]


def of_the_page(pattern: str, lake: Lake) -> list[str]:
    """The words of the command that has this, with the jars of its packages."""
    text = "\n".join(of_kind("sh", PAGES["lake.md"])).replace("\\\n", " ")
    (command,) = [each for each in text.splitlines() if re.search(rf"watcher {pattern}", each)]
    words = shlex.split(command.replace("--conf ", "--conf="))[3:]
    at = words.index("--packages")
    _, packages = words[at], words.pop(at + 1)
    fetched = (ROOT / "scripts" / "jars").read_text()
    assert all(each in fetched for each in packages.split(",")), packages
    return [*words[:at], *words[at + 1 :], *lake.session]


def rows(lake: Lake, s3: Any, words: list[str]) -> dict[str, str]:
    if lake.kind == "delta":
        place = {"aws_endpoint": s3.meta.endpoint_url, "aws_allow_http": "true"}
        table = DeltaTable("s3://lake/orders", storage_options=place)
        found = table.to_pyarrow_table().to_pylist()
    else:
        asked = ("tests.support.lakes", "rows", *words)
        out = lake.output(*asked, given=f"{lake.target}\n", **KEYS)
        found = [json.loads(line, parse_float=Decimal) for line in out.splitlines() if line]
    assert len({row["pk"] for row in found}) == len(found)
    return {row["pk"]: str(int(Decimal(row["total"]))) for row in found}


@pytest.mark.parametrize(
    ("kind", "command", "commits"),
    [
        ("delta", "mirror .*--to s3a", r"orders/_delta_log/\d+\.json"),
        ("iceberg", "mirror .*S3FileIO", r"tables/shop/orders/metadata/.*metadata\.json"),
    ],
)
def test_a_mirror_in_s3_that_is_killed_is_equal(
    kind: str, command: str, commits: str, tmp_path: Path, s3: Any
) -> None:
    lake = a_lake(kind, tmp_path, s3.meta.endpoint_url)
    words = of_the_page(command, lake)

    def made() -> int:
        return sum(re.fullmatch(commits, name) is not None for name in names(s3))

    with Simulator(table="orders", shards=2) as sim:
        place = {**sim.environment, "AWS_ENDPOINT_URL_S3": s3.meta.endpoint_url}
        with Shop(sim, 11) as shop:
            time.sleep(2)
            with lake.job(place, *words, "--every", "1s") as job:
                job.wait_for_status("Merging the changes")
                before = made()
                job.wait_for(lambda: made() > before)
                time.sleep(1)  # of the next batch
                job.kill()
        with lake.job(place, *words, "--no-follow") as job:
            assert job.process.wait(PATIENCE) == 0, job.said()
    assert rows(lake, s3, words) == shop.now


def test_readers_of_an_archive_in_s3_see_whole_files_only_also_after_a_kill(
    tmp_path: Path, s3: Any
) -> None:
    lake = a_lake("delta", tmp_path, s3.meta.endpoint_url)
    words = [*of_the_page("archive .*--to s3a", lake), "--max-records-per-trigger", "500"]

    def found() -> list[str]:
        """What a reader of `changes/batch=*/date=*/*.parquet` finds: it reads each file."""
        pattern = r"changes/batch=\d+/date=[\d-]+/[^/]*\.parquet"
        numbers = list[str]()
        for name in names(s3, "changes/"):
            if re.fullmatch(pattern, name):
                body = s3.get_object(Bucket="lake", Key=name)["Body"].read()
                table = pyarrow.parquet.read_table(io.BytesIO(body))
                numbers += table["sequence_number"].to_pylist()
        assert len({*numbers}) == len(numbers), "a row twice"
        return numbers

    with Simulator(table="orders", shards=2) as sim:
        place = {**sim.environment, "AWS_ENDPOINT_URL_S3": s3.meta.endpoint_url}
        sim.bulk(2000, keys=20)
        sim.advance(60)
        for batch in (1, 2):  # cut off in the second batch, and in the third
            folder = f"changes/batch={batch:09}/"

            def is_in_it(folder: str = folder) -> bool:
                there = names(s3, folder)
                return any("/_temporary/" in name for name in there) and len(there) > 1

            with lake.job(place, *words, "--every", "100ms") as job:
                job.wait_for(is_in_it)
                job.kill()
            assert f"{folder}_SUCCESS" not in names(s3), "it was to be killed in a batch"
            found()
        with lake.job(place, *words, "--no-follow") as job:
            while job.process.poll() is None:
                found()
                time.sleep(1)
            assert job.process.returncode == 0, job.said()
        assert sorted(found()) == sorted(each.sequence_number for each in sim.records)
