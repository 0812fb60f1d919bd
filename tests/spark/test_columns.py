"""A read's columns."""

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from tests.support.wire import body
from watcher.errors import UsageError
from watcher.spark.columns import ArrowEncoder, ddl
from watcher.spark.options import parse
from watcher.streams.messages import Page


def test_only_the_columns_that_are_asked_for_are_made() -> None:
    options = parse({"stream": "orders", "columns": "sequence_number, event_name"}, streaming=True)
    assert ddl(options) == "sequence_number string, event_name string"
    schema = pa.schema([("sequence_number", pa.string()), ("event_name", pa.string())])
    page = Page(0, 2, "0", body([1, 2]))

    batch = ArrowEncoder(options, schema).encode(page, "a")

    assert batch.schema == schema
    assert batch.column("event_name").to_pylist() == ["MODIFY", "MODIFY"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"columns": "new_imge"}, "columns: no column new_imge; did you mean new_image?"),
        ({"columns": "record"}, "no column record; did you mean "),
        (
            {"columns": "record,keys", "wireRecords": "true"},
            "no column keys; did you mean shard_id",
        ),
        ({"columns": "keys,,"}, "give names with commas"),
        ({"columns": "keys,keys"}, "each once"),
    ],
)
def test_a_column_that_there_is_not_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ddl(parse({"stream": "orders", **given}, streaming=False))


def test_changed_attributes_is_a_column_like_others() -> None:
    given = {"stream": "orders", "changedAttributes": "true", "columns": "keys,changed_attributes"}

    assert ddl(parse(given, streaming=True)) == "keys string, changed_attributes array<string>"
