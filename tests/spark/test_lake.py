"""`mirror --engine spark`: real Delta and Iceberg tables, by the real command line."""

from __future__ import annotations

import base64
import json
import random
import sys
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from deltalake import DeltaTable

from tests.integration.conftest import fresh_dynamodb_local
from tests.simulator import Simulator
from tests.spark.conftest import PATIENCE, missing
from tests.support import exports
from tests.support.dynamodb_local import DynamoDBLocal, MissingPart
from tests.support.eventually import eventually
from tests.support.lakes import Lake
from tests.unit.mirror.test_values import CASES
from watcher.aws.config import AwsConfig
from watcher.cli import main
from watcher.errors import UsageError
from watcher.mirror.versions import COPIED
from watcher.records.plain_json import plain_json
from watcher.spark.merge import merge_into

__all__ = ["fresh_dynamodb_local"]  # a fixture

pytestmark = pytest.mark.spark


def a_lake(kind: str, folder: Path, s3: str = "") -> Lake:
    try:
        return Lake(kind, folder, s3)
    except MissingPart as part:
        missing(str(part))
        raise


def item(key: str, total: str, **more: Any) -> dict[str, Any]:
    return {"pk": {"S": key}, "total": {"N": total}, **more}


def totals(lake: Lake) -> dict[str, Decimal]:
    return {row["pk"]: row["total"] for row in lake.rows()}


def test_a_delta_table_is_kept_equal_by_spark_s_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = a_lake("delta", tmp_path)
    with Simulator(table="orders", shards=2) as sim:
        for name, value in sim.environment.items():
            monkeypatch.setenv(name, value)
        typed = {f"c{number}": case for number, case in enumerate(CASES)}
        odd = {name: value for name, (_, value, _) in typed.items()}
        columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in typed.items())
        for number in range(4):
            sim.put(item(f"k{number}", f"{number}.5", **odd))
        with lake.mirror(sim.environment, "--every", "1s", "--columns", columns) as job:
            job.wait_for_status("Merging the changes")
            sim.put(item("k1", "10", city={"S": "Bern"}))
            sim.put(item("k9", "1"))
            sim.put(item("k9", "9.25", **odd))
            for key in ("k0", "k2"):
                sim.remove(key)
            sim.put(item("k2", "20"))
            last = {"k1": 10, "k2": 20, "k3": Decimal("3.5"), "k9": Decimal("9.25")}
            job.wait_for(lambda: totals(lake) == last)  # each shard by itself
            assert job.end() == 0
        rows = {row["pk"]: row for row in lake.rows()}
        assert rows["k1"]["city"] == "Bern"
        assert rows["k3"]["_sequence_number"] == COPIED
        assert len(rows["k9"]["_sequence_number"]) == 40
        for key in ("k3", "k9"):  # one was copied, one merged
            for name, (kind, wanted, found) in typed.items():
                rest = json.loads(rows[key]["_rescued_data"]).get(name)
                assert (rows[key][name] is None) is (found is None) is (rest == wanted)
                assert kind == "timestamp" or rows[key][name] == found
        assert main(["verify", "orders", "--with", lake.target]) == 0
        assert "4 items, 0 differ" in capsys.readouterr().out
        assert main(["mirror", "orders", "--to", lake.target, "--no-follow"]) == 2
        assert "is of --engine spark" in capsys.readouterr().err


def test_a_place_that_this_spark_can_not_write_is_refused(spark: Any, sim: Simulator) -> None:
    connection = AwsConfig("us-east-1", None, sim.endpoint)
    with pytest.raises(UsageError, match="to: s3a://lake/orders: this Spark has no s3a://; give"):
        merge_into(spark, sim.stream_arn, "s3a://lake/orders", connection=connection)


class Shop:
    """A table that is written to at random by a thread, and all that was written."""

    def __init__(self, sim: Simulator, seed: int) -> None:
        self.sim = sim
        self.now: dict[str, str] = {}
        self.past: dict[str, list[tuple[str, str | None, float]]] = defaultdict(list)
        self._random = random.Random(seed)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def change(self) -> None:
        """Put, change or remove an item; every fourth time the same one."""
        chance = self._random.random()
        key = "hot" if chance < 0.25 else f"k{self._random.randrange(60)}"
        if key in self.now and self._random.random() < 0.3:
            self._note(key, None, self.sim.remove(key))
            del self.now[key]
            return
        total = str(self._random.randrange(10_000))
        name = f"a{self._random.randrange(12)}"  # attributes that come one after the other
        more = {name: {"S": total}} if self._random.random() < 0.1 else {}
        self._note(key, total, self.sim.put(item(key, total, **more)))
        self.now[key] = total

    def _note(self, key: str, total: str | None, number: str) -> None:
        self.past[key].append((number.zfill(40), total, time.time()))

    def _write(self) -> None:
        while not self._is_over.is_set():
            for _ in range(20):
                self.change()
            if self._random.random() < 0.05:
                self.sim.rotate("all")
            elif self._random.random() < 0.05 and len(self.sim.open_shards) < 6:
                self.sim.split()
            time.sleep(0.2)

    def __enter__(self) -> Shop:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()


def current(lake: Lake) -> dict[str, str]:
    rows = [row for row in lake.rows() if row.get("_valid_to") is None]
    found = {row["pk"]: str(int(Decimal(row["total"]))) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_killed_at_any_moment_it_holds_each_version_once(kind: str, tmp_path: Path) -> None:
    """Without a history it is killed in S3: test_lake_s3.py."""
    lake = a_lake(kind, tmp_path)
    with Simulator(table="orders", shards=2) as sim:
        with Shop(sim, 7) as shop:
            time.sleep(4)  # the copy has items whose changes are before it
            for seconds in (2.0, 0.2):
                # A batch that a kill has cut is repeated first; the table is written in the next.
                has_begun = lake.has_begun(2)
                with lake.mirror(sim.environment, "--every", "1s", "--history") as job:
                    job.wait_for(has_begun)
                    time.sleep(seconds)
                    job.kill()
        lake.run(sim.environment, "--history")
    assert current(lake) == shop.now
    versions: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(lake.rows(), key=lambda row: row["_sequence_number"]):
        versions[row["pk"]].append(row)
    for key, past in shop.past.items():
        each = [row for row in versions[key] if row["_sequence_number"] != COPIED]
        numbers = [row["_sequence_number"] for row in each]
        made = [number for number, total, _ in past if total is not None]
        assert numbers == made[len(made) - len(numbers) :], "lost or doubled"
        since = {number for number, _, at in past if at > lake.begun() + 5}
        assert since & {*made} <= {*numbers}, "lost"
        ends = [str(row.get("_valid_to")) for row in versions[key]]
        begins = [str(row.get("_valid_from")) for row in versions[key]]
        assert all(end <= begin for end, begin in zip(ends, begins[1:], strict=False)), key


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_others_rewrite_its_files_while_it_merges(kind: str, tmp_path: Path) -> None:
    """Delta's OPTIMIZE, Iceberg's rewrite_data_files: a conflict is retried, nothing lost."""
    lake = a_lake(kind, tmp_path)
    with Simulator(table="orders", shards=2) as sim:
        with Shop(sim, 9) as shop, lake.mirror(sim.environment, "--every", "1s") as job:
            job.wait_for(lake.has_begun(3))
            assert int(lake.output("tests.support.lakes", "rewrite", *lake.words)) > 0
            job.wait_for(lake.has_begun(2))
            assert job.end() == 0, job.said()
        lake.run(sim.environment)
    assert current(lake) == shop.now


numbers = json.JSONDecoder(parse_float=Decimal).decode
EXACT = {
    "n": {"N": "12345678901234567890123456789012345678"},
    "small": {"N": "0.00000000000000000012345678901234567891"},
    "sets": {"M": {"ns": {"NS": ["1.50", "2"]}, "bs": {"BS": ["AP8="]}, "no": {"NULL": True}}},
    "text": {"L": [{"S": 'a"\u00e9\U0001f600'}, {"BOOL": False}, {"M": {}}, {"L": []}]},
}


@pytest.mark.proof
@pytest.mark.parametrize(
    ("kind", "form"), [("delta", "json"), ("delta", "variant"), ("iceberg", "variant")]
)
def test_one_column_has_the_whole_item(
    kind: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, options = a_lake(kind, tmp_path), ["--item", form, "--history"]
    with Simulator(table="orders", shards=2) as sim:
        for key in ("a", "b", "c"):
            sim.put(item(key, "1.5", **EXACT))
        lake.run(sim.environment, *options)
        sim.put(item("a", "1.50", city={"S": "Bern"}))
        sim.remove("b")
        lake.run(sim.environment, *options)
        lake.run(sim.environment, *options, "--recopy")
        now = lake.rows_in_spark()
        assert len(now) == 4, "the copy has found no other versions"
        if kind == "delta":
            for name, value in sim.environment.items():
                monkeypatch.setenv(name, value)
            assert main(["verify", "orders", "--with", lake.target]) == 0
    found = {}
    for row in now:
        assert {*row} <= {"pk", "item", "_sequence_number", "_valid_from", "_valid_to"}
        if "_valid_to" not in row:
            is_text = form == "json"
            found[row["pk"]] = numbers(row["item"]) if is_text else row["item"]
    exact = numbers(plain_json([json.dumps(item("c", "1.5", **EXACT)).encode()])[0] or "")
    assert found == {"a": {"pk": "a", "total": Decimal("1.5"), "city": "Bern"}, "c": exact}


@pytest.mark.proof
@pytest.mark.parametrize("more", [[], ["connect"]], ids=["classic", "connect"])
def test_the_page_s_own_session_merges(more: list[str], tmp_path: Path) -> None:
    lake = a_lake("delta", tmp_path)

    def change() -> None:
        eventually(lambda: lake.batches("commits"), seconds=PATIENCE)
        for number in (1, 4):
            sim.put(item(f"k{number}", f"{number}.25", city={"S": "Bern"}))
        sim.remove("k0")
        (tmp_path / "changed").touch()

    with Simulator(table="orders", shards=2) as sim, ThreadPoolExecutor(1) as pool:
        for number in range(3):
            sim.put(item(f"k{number}", f"{number}.5"))
        changing = pool.submit(change)
        words = ("tests.spark.lake_page", *lake.words, *more, "orders", str(tmp_path))
        out = lake.output(*words, **sim.environment, PYSPARK_PYTHON=sys.executable)
        changing.result()
    totals = {"k1": "1.25", "k2": "2.5", "k4": "4.25"}
    found = [line for line in out.splitlines() if line.startswith("k")]  # Spark writes there, too
    assert found == [f"{key} {total:0<20}" for key, total in totals.items()]


def put(server: DynamoDBLocal, sort: str, total: int, *, name: bytes = b"\x00\xff") -> None:
    values = {":total": {"N": str(total)}}
    server.client().update_item(
        TableName="orders",
        Key={"id": {"B": name}, "n": {"N": sort}},
        UpdateExpression="SET a = :total",
        ExpressionAttributeValues=values,
    )


def keys_in(server: DynamoDBLocal) -> dict[tuple[bytes, Decimal], int]:
    items = server.client().scan(TableName="orders")["Items"]
    return {(each["id"]["B"], Decimal(each["n"]["N"])): int(each["a"]["N"]) for each in items}


def keys_of(lake: Lake) -> dict[tuple[bytes, Decimal], int]:
    rows = lake.rows()
    found = {}
    for row in rows:
        name = row["id"] if isinstance(row["id"], bytes) else base64.b64decode(row["id"])
        found[name, Decimal(row["n"])] = int(Decimal(row["a"]))
    assert len(found) == len(rows)
    return found


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_keys_are_those_of_the_table_or_an_error(
    kind: str, tmp_path: Path, fresh_dynamodb_local: DynamoDBLocal
) -> None:
    lake, server = a_lake(kind, tmp_path), fresh_dynamodb_local
    server.client().create_table(
        TableName="orders",
        KeySchema=[
            {"AttributeName": "id", "KeyType": "HASH"},
            {"AttributeName": "n", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": "n", "AttributeType": "N"},
            {"AttributeName": "id", "AttributeType": "B"},
        ],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    long = "12345678901234567890.123456789012345678"
    for sort in ("1.5", "2", "7", "8", long):
        put(server, sort, 1)
    lake.run(server.environment)
    assert keys_of(lake) == keys_in(server)
    for sort, total in (("1.5", 2), ("2.0", 3), ("2", 4), ("-0.5", 5), ("9", 6), (long, 7)):
        put(server, sort, total)
        put(server, sort, total, name=b"a")
    for sort in ("7", "8", "9"):
        key = {"id": {"B": b"\x00\xff"}, "n": {"N": sort}}
        server.client().delete_item(TableName="orders", Key=key)
    put(server, "8", 9)
    lake.run(server.environment)
    assert keys_of(lake) == keys_in(server)
    server.client().delete_item(
        TableName="orders", Key={"id": {"B": b"\x00\xff"}, "n": {"N": "8.0"}}
    )
    put(server, "7.00", 10)
    lake.run(server.environment)
    assert keys_of(lake) == keys_in(server)
    put(server, "9" * 38, 1)
    with lake.mirror(server.environment, "--no-follow") as job:
        assert job.process.wait(PATIENCE) == 2
        assert "give --columns 'n string'" in job.said()


def assert_a_recopy_makes_it_equal(
    lake: Lake, shop: Shop, options: list[str], versions: set[str]
) -> None:
    """And so do changes after it; these versions stay."""
    assert "compared: " in lake.run(shop.sim.environment, "--recopy", *options)
    assert current(lake) == shop.now
    for _ in range(50):
        shop.change()
    lake.run(shop.sim.environment, *options)
    assert current(lake) == shop.now
    assert versions <= {row["_sequence_number"] for row in lake.rows()}


PARTS = {"delta": "pk", "iceberg": "bucket(4, pk)"}


def assert_is_as_created(lake: Lake) -> None:
    """With its partitions and its property."""
    if lake.kind == "delta":
        described = DeltaTable(lake.target).metadata()
        assert described.partition_columns == ["pk"]
        assert described.configuration["shop.team"] == "orders"
    else:
        files = lake.folder.glob("shop/orders/metadata/*.metadata.json")
        newest = json.loads(max(files, key=lambda each: each.stat().st_mtime).read_text())
        assert newest["properties"]["shop.team"] == "orders"
        assert newest["partition-specs"][-1]["fields"][0]["transform"] == "bucket[4]"


@pytest.mark.proof
@pytest.mark.parametrize(("kind", "history"), [("delta", False), ("iceberg", True)])
def test_from_an_export_and_after_a_loss_it_is_equal(
    kind: str, history: bool, tmp_path: Path
) -> None:
    lake, options = a_lake(kind, tmp_path), ["--history"] if history else []
    options += ["--partition-by", PARTS[kind], "--property", "shop.team=orders"]
    with Simulator(table="orders", shards=2) as sim:
        shop = Shop(sim, 8)
        for _ in range(200):
            shop.change()
        items = [item(key, total) for key, total in shop.now.items()]
        before, since = {each["pk"]["S"]: each for each in items}, sim.now
        places = [exports.full(tmp_path / "exports", items, since)]
        for _ in range(50):
            shop.change()
        after = {key: item(key, total) for key, total in shop.now.items()}
        places += [exports.incremental(tmp_path / "exports", before, after, since, sim.now)]
        for _ in range(50):
            shop.change()
        baselines = [f"--baseline={place}" for place in places]
        lake.run(sim.environment, *baselines, *options)
        assert current(lake) == shop.now, "the changes since the export are in it"
        for _ in range(100):
            shop.change()
        numbers = {row["_sequence_number"] for row in lake.rows()}
        sim.trim()
        with lake.mirror(sim.environment, "--no-follow", *options) as job:
            assert job.process.wait(PATIENCE) == 1, job.said()
        assert_a_recopy_makes_it_equal(lake, shop, options, numbers if history else set())
    assert_is_as_created(lake)


@pytest.mark.proof
def test_of_a_stream_enabled_again_a_recopy_makes_it_equal(tmp_path: Path) -> None:
    lake, options = a_lake("delta", tmp_path), ["--history"]
    with Simulator(table="orders", shards=2) as sim:
        shop = Shop(sim, 10)
        for _ in range(100):
            shop.change()
        with lake.mirror(sim.environment, "--every", "1s", *options) as job:
            job.wait_for(lake.has_begun(1))
            sim.enable_new_stream()
            for _ in range(50):
                shop.change()
            assert job.process.wait(PATIENCE) == 3
            assert "give --recopy, which" in job.said()
        numbers = {row["_sequence_number"] for row in lake.rows()}
        with lake.mirror(sim.environment, "--no-follow", *options) as job:
            assert job.process.wait(PATIENCE) == 2
            assert "give --recopy" in job.said()
        assert_a_recopy_makes_it_equal(lake, shop, options, numbers)
