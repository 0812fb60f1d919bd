"""`verify --engine spark`: the same answer as on one machine, while the table is written."""

import csv
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from deltalake import DeltaTable, write_deltalake

from tests.integration.conftest import fresh_dynamodb_local
from tests.integration.test_verify_local import Orders, beside, key
from tests.ledger.ledger import an_item
from tests.spark.conftest import Done, Run
from tests.support.dynamodb_local import DynamoDBLocal

__all__ = ["fresh_dynamodb_local"]  # a fixture

pytestmark = pytest.mark.spark

SPARK = ("--engine", "spark")
PAGE = (Path(__file__).parents[2] / "docs" / "verify.md").read_text()


class Shop(NamedTuple):
    """A table and its copy, both of sixty items, beside sixty that a writer writes."""

    orders: Orders
    command: Run
    endpoint: str

    def run(self, *words: str) -> Done:
        # Spark's Pythons have the environment that its JVM was started with.
        return self.command(*words, "--endpoint-url", self.endpoint, "--region", "us-east-1")

    def verify(self, *words: str, is_written: bool = False) -> tuple[int, list[Any], Done]:
        """The answer with Spark, and its differences, which are those on one machine."""
        here = self.run("verify", "orders", *words, "-o", "json")
        there = self.run("verify", "orders", *words, "-o", "json", *SPARK)
        assert there.status == here.status, there.err
        answers = json.loads(here.out), json.loads(there.out)
        found, wanted = ({**each, "at": ""} for each in answers)
        if is_written:  # the number of items may be another by now
            wanted["items"] = found["items"]
        assert found == wanted
        return there.status, found["differences"], there


@pytest.fixture
def shop(
    command: Run,
    fresh_dynamodb_local: DynamoDBLocal,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Shop:
    monkeypatch.chdir(tmp_path)
    orders, chance = Orders(fresh_dynamodb_local), random.Random(8)
    for number in range(60):
        item = {**key(f"still-{number}"), **an_item(chance), "total": {"N": str(number)}}
        for table in ("orders", "orders-copy"):
            orders.apply(table, f"still-{number}", item)
    for _ in range(100):
        orders.write()
    return Shop(orders, command, fresh_dynamodb_local.endpoint_url)


def test_a_mirror_with_errors_of_several_kinds(shop: Shop) -> None:
    shop.orders.apply("orders", "still-1", {**key("still-1"), "total": {"N": "77"}})
    shop.orders.apply("orders", "still-2", None)
    assert shop.run("mirror", "orders", "--to", "mirror/orders", "--once").status == 0
    table = DeltaTable("mirror/orders")
    table.update(updates={"total": "1"}, predicate="PK = 'still-1'")
    table.update(updates={"total": "6.5"}, predicate="PK = 'still-6'")
    table.delete("PK = 'still-7'")
    rows = table.to_pyarrow_table()
    keys = rows["PK"].to_pylist()
    for number, name in ((9, "still-2"), (8, "still-8"), (8, "nobody")):
        row = rows.slice(keys.index(f"still-{number}"), 1)
        at = rows.schema.get_field_index("PK")
        row = row.set_column(at, rows.schema.field("PK"), [[name]])
        write_deltalake(table, row, mode="append")
    # The page's command, on this Spark.
    words = " ".join(("verify", "orders", "--with", "./mirror/orders", *SPARK))
    assert f"$ python -m watcher {words} --master " in PAGE
    with beside(shop.orders.write):
        status, found, _ = shop.verify("--with", "./mirror/orders", is_written=True)
    causes = {each["key"]["PK"]["S"]: each["cause"] for each in found}
    assert (status, causes) == (
        1,
        {
            "nobody": "orphan",
            "still-1": "missing",
            "still-2": "unexplained",
            "still-6": "unexplained",
            "still-7": "missing",
            "still-8": "repeated",
        },
    )


def test_another_table_and_its_repair(shop: Shop) -> None:
    with beside(shop.orders.write):
        shop.orders.apply("orders-copy", "still-5", {**key("still-5"), "total": {"N": "6"}})
        shop.orders.apply("orders-copy", "by-hand", key("by-hand"))
        words = ("--with", "orders-copy", "--read-limit", "500", "--ignore", "a")
        done = shop.run("verify", "orders", *words, *SPARK, "--repair", "plan.jsonl")
    assert (done.status, "Plan to repair 2 items" in done.err) == (1, True)
    assert {line.split("=")[1].split(",")[0] for line in done.out.splitlines()[1:]} == {
        "by-hand",
        "still-5",
    }
    while shop.orders.late:
        shop.orders.copy()
    assert shop.run("undo", "--apply", "plan.jsonl").status == 0
    assert shop.run("verify", "orders", "--with", "orders-copy").status == 0


def test_files_with_columns_and_a_sample(shop: Shop, tmp_path: Path) -> None:
    items = shop.orders.client.scan(TableName="orders")["Items"]
    (tmp_path / "copy").mkdir()
    for part in range(3):
        with open(f"copy/part-{part}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["name", "SK", *(["total"] if part else [])])
            for item in items[part::3]:
                row = [item["PK"]["S"], "é", item.get("total", {"N": ""})["N"]]
                writer.writerow(row[: 3 if part else 2])
    words = ("--with", "./copy", "--map", "PK=name")
    status, found, done = shop.verify(*words)
    lacking = {item["PK"]["S"] for item in items[::3] if "total" in item}
    assert status == 1 and {each["key"]["PK"]["S"] for each in found} == lacking
    assert "Not compared, as the copy has no such columns: " in done.err
    _, of_sample, _ = shop.verify(*words, "--sample", "40%")
    assert 0 < len(of_sample) < len(found) and [each for each in of_sample if each in found]
    wrong = Path("copy/part-3.csv")
    wrong.write_text("SK,total\né,1\n")
    done = shop.run("verify", "orders", *words, *SPARK)
    assert done.status == 2
    assert done.err.splitlines()[-1] == (
        "error: --with: copy has an item without the key attribute PK: where it has another name "
        "there, --map PK=COLUMN"
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--with", "orders-copy", "--every", "1h"], "spark compares once: leave out --every"),
        (["--log", "x.txt"], "spark compares copies: leave it out with --log"),
    ],
)
def test_what_spark_does_not_do_is_one_line(command: Run, words: list[str], text: str) -> None:
    done = command("verify", "orders", *words, *SPARK)
    assert (done.status, len(done.err.splitlines())) == (2, 1)
    assert text in done.err
