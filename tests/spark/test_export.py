"""`dynamodb_export`: an export's rows have a stream's columns."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.ledger.ledger import Ledger
from tests.support import exports
from tests.support.secret import EVERYTHING, refuse_traces, secret_item
from tests.unit.time_machine.test_exports import HERE, Exported
from watcher.errors import WatcherError
from watcher.spark.columns import columns
from watcher.spark.error_mapping import translating_errors
from watcher.spark.options import parse
from watcher.time_machine.exports import Export

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    with Ledger(21) as ledger:
        yield Exported(ledger, tmp_path_factory.mktemp("past"))


def test_the_source_has_the_columns_of_a_stream_s(spark: Any, made: Exported) -> None:
    frame = spark.read.format("dynamodb_export").option("keys", "pk").load(str(made.full))
    assert frame.columns == list(columns(parse({"stream": "orders"}, streaming=False)))
    rows = frame.collect()
    assert len(rows) == len(list(Export(str(made.full), HERE).lines()))
    row = rows[0]
    assert json.loads(row.keys) == {"pk": json.loads(row.new_image)["pk"]}
    assert (row.event_name, row.sequence_number, row.old_image) == (None, None, None)
    assert abs(row.approximate_creation_time.timestamp() - made.full_time) < 0.01
    assert (row.event_source, row.aws_region) == ("aws:dynamodb", "us-east-1")
    wire = spark.read.format("dynamodb_export").options(keys="pk", imageFormat="dynamodb-json")
    later = wire.load(str(made.next)).collect()
    texts = {row.keys for row in wire.load(str(made.full)).collect()}
    assert {row.keys for row in later if row.old_image} <= texts, "one text of an item's key"
    kinds = {row.event_name: (bool(row.old_image), bool(row.new_image)) for row in later}
    assert kinds == {"INSERT": (False, True), "MODIFY": (True, True), "REMOVE": (True, False)}


def test_what_is_redacted_is_in_no_row_of_an_export(
    spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also without `keys`, of which a full export has none."""
    place = exports.full(tmp_path_factory.mktemp("hidden"), [secret_item(1)], 1_760_000_000)
    reader = spark.read.format("dynamodb_export").option("redact", EVERYTHING[1])
    rows = reader.load(str(place)).collect()
    assert len(rows) == 1 and "seen-1" in repr(rows)
    refuse_traces(repr(rows).encode())


@pytest.mark.proof
def test_a_damaged_file_is_told_in_one_line(
    spark: Any, made: Exported, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("damaged")
    damaged = exports.full(place, [{"pk": {"S": "a"}}], made.full_time)
    data = damaged / "data" / "full0.json.gz"
    data.write_bytes(data.read_bytes()[:-6])
    frame = spark.read.format("dynamodb_export").load(str(damaged))
    with pytest.raises(WatcherError, match=r"can't read .*full0.json.gz"), translating_errors():
        frame.collect()
