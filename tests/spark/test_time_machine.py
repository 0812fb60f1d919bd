"""As-of and history on Spark, row by row as the plain ones have them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.ledger.ledger import Ledger, by_key, native
from tests.spark.conftest import Run
from tests.support import exports
from tests.unit.time_machine.test_exports import HERE, Exported, moment
from watcher.errors import UsageError, WatcherError
from watcher.time_machine.exports import Baseline
from watcher.time_machine.history import item_history
from watcher.time_machine.item_keys import ItemKey
from watcher.time_machine.sources import Sources

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    with Ledger(21) as ledger:
        yield Exported(ledger, tmp_path_factory.mktemp("past"))


def archives_as_of(spark: Any, made: Exported, second: float, *places: Path, **more: Any) -> Any:
    from watcher.spark.time_machine import ArchivesAsOf

    baseline = Baseline([str(place) for place in places or (made.full,)], HERE)
    return ArchivesAsOf(spark, [made.lake], moment(second), baseline, **more)


def test_any_second_is_as_the_plain_one_and_the_ledger_have_it(spark: Any, made: Exported) -> None:
    ledger = made.ledger
    for second in (made.began + 9, int(made.full_time)):
        found = archives_as_of(spark, made, second)
        assert found.key_names == ("pk",)
        rows = [row.item for row in found.rows(wire=True).collect()]
        assert found.exact
        plain = [bytes(image).decode() for image in made.at(second).images()]
        assert sorted(map(json.loads, rows), key=str) == sorted(map(json.loads, plain), key=str)
        assert by_key(native(json.loads(row)) for row in rows) == ledger.at(second)


def test_incremental_exports_a_key_and_a_filter(spark: Any, made: Exported) -> None:
    second = int(made.next_time) + 8
    expected = made.ledger.at(second)
    found = archives_as_of(spark, made, second, made.full, made.next)
    rows = [json.loads(row.item) for row in found.rows(wire=True).collect()]
    assert by_key(map(native, rows)) == expected
    name = next(iter(expected))
    key = ItemKey({"pk": name})
    (row,) = archives_as_of(spark, made, second, made.full, made.next, key=key).rows().collect()
    assert json.loads(row.keys) == {"pk": name} and json.loads(row.item)["pk"] == name
    pattern = json.dumps({"dynamodb": {"NewImage": {"pk": {"S": [name]}}}})
    (filtered,) = archives_as_of(spark, made, second, filters=[pattern]).rows().collect()
    assert filtered == row


def test_a_life_is_as_the_plain_one_has_it(spark: Any, made: Exported) -> None:
    from watcher.spark import time_machine

    baseline = Baseline([str(made.full), str(made.next)], HERE)
    start, until = moment(made.began), moment(made.ended)
    for name in ("item-0", "nobody"):
        plain = item_history(
            Sources([made.lake], None), ItemKey({"pk": name}), start, until, baseline
        )
        # Twice the same archive: each change comes once.
        lakes = [made.lake, made.lake]
        found = time_machine.history(
            spark, lakes, ItemKey({"pk": name}), start=start, until=until, baseline=baseline
        )
        assert [bytes(each.raw) for each in found] == [bytes(each.raw) for each in plain]
        assert (found.exported_at, found.exported_wire) == (plain.exported_at, plain.exported_wire)
        assert found.key == plain.key


def test_the_source_has_the_columns_of_a_stream_s(spark: Any, made: Exported) -> None:
    stream = set(_columns())
    frame = spark.read.format("dynamodb_export").option("keys", "pk").load(str(made.full))
    assert set(frame.columns) == stream
    rows = frame.collect()
    assert len(rows) == len(Baseline([str(made.full)], HERE).full.files and _items(made.full))
    row = rows[0]
    assert json.loads(row.keys) == {"pk": json.loads(row.new_image)["pk"]}
    assert (row.event_name, row.sequence_number, row.old_image) == (None, None, None)
    assert abs(row.approximate_creation_time.timestamp() - made.full_time) < 0.01
    assert (row.event_source, row.aws_region) == ("aws:dynamodb", "us-east-1")
    later = spark.read.format("dynamodb_export").load(str(made.next)).collect()
    kinds = {row.event_name: (bool(row.old_image), bool(row.new_image)) for row in later}
    assert kinds == {"INSERT": (False, True), "MODIFY": (True, True), "REMOVE": (True, False)}
    typed = spark.read.format("dynamodb_export").option("imageSchema", "pk string")
    assert typed.load(str(made.full)).select("new_image.pk").first().pk


def _columns() -> Any:
    from watcher.spark.columns import columns
    from watcher.spark.options import parse

    return columns(parse({"stream": "orders"}, streaming=False))


def _items(place: Path) -> list[Any]:
    return list(Baseline([str(place)], HERE).items())


def test_the_command_line(command: Run, made: Exported, tmp_path: Path) -> None:
    second = moment(made.full_time + 9)
    words = ["as-of", made.lake, "--at", second.isoformat(), "--baseline", str(made.full)]
    here = command(*words)
    there = command(*words, "--engine", "spark")
    assert there.status == 0, there.err
    assert sorted(there.out.splitlines()) == sorted(here.out.splitlines())
    assert there.err.splitlines()[-1] == here.err.splitlines()[-1]
    for form in ("parquet", "jsonl"):
        to = tmp_path / form
        done = command(*words, "--engine", "spark", "--to", str(to), "-o", form)
        assert done.status == 0 and f"items to {to}" in done.err, done.err
    lines = [
        line
        for part in (tmp_path / "jsonl").glob("part-*")
        for line in part.read_text().splitlines()
    ]
    assert sorted(lines) == sorted(here.out.splitlines())
    again = command(*words, "--engine", "spark", "--to", str(tmp_path / "parquet"))
    assert again.status == 1 and len(again.err.splitlines()) <= 2, again.err
    life = ["history", made.lake, "--key", "pk=item-0", "--baseline", str(made.full), "-o", "json"]
    assert command(*life, "--engine", "spark").out == command(*life).out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--engine", "spark"], "give an export of the table with --baseline"),
        (["-o", "parquet", "--baseline", "{full}"], "only Spark writes it: add --engine spark"),
        (
            ["-o", "parquet", "--engine", "spark", "--baseline", "{full}"],
            "--output parquet: give --to and a folder",
        ),
        (
            ["-o", "csv", "--engine", "spark", "--baseline", "{full}"],
            "-o csv: use jsonl or parquet",
        ),
        (
            ["--to-table", "x", "--engine", "spark", "--baseline", "{full}"],
            "not for --engine spark",
        ),
    ],
)
def test_what_can_not_be_is_one_line(
    words: list[str], said: str, command: Run, made: Exported
) -> None:
    words = [word.format(full=made.full) for word in words]
    done = command("as-of", made.lake, "--at", "1h", *words)
    assert done.status == 2
    (line,) = done.err.splitlines()
    assert said in line


def test_what_can_only_be_guessed_is_refused(
    spark: Any, made: Exported, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    early = exports.full(tmp_path / "early", [], made.began - 1000)
    with pytest.raises(UsageError, match="is before what"):
        archives_as_of(spark, made, made.began + 5, early)
    archives_as_of(spark, made, made.ledger.second + 5)
    assert "if the table was changed between" in caplog.text
    damaged = exports.full(tmp_path / "damaged", [{"pk": {"S": "a"}}], made.full_time)
    data = damaged / "data" / "full0.json.gz"
    data.write_bytes(data.read_bytes()[:-6])
    from watcher.spark.error_mapping import translating_errors

    with pytest.raises(WatcherError, match=r"can't read .*full0.json.gz"), translating_errors():
        archives_as_of(spark, made, made.began + 5, damaged).rows().collect()
