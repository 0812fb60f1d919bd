"""What a query makes of images can only grow on the same checkpoint."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructType

from tests.simulator import RemoteSimulator
from tests.spark.conftest import options
from watcher.errors import UsageError
from watcher.spark.image_evolution import refuse_changed, shape_of

INT, STRING = IntegerType(), StringType()


def test_a_type_as_an_offset_keeps_it() -> None:
    city = StructType().add("city", STRING)
    kind = StructType().add("a", INT).add("l", ArrayType(city)).add("m", MapType(STRING, city))
    assert shape_of(kind) == {
        "a": "int",
        "l": [{"city": "string"}],
        "m": ["map", {"city": "string"}],
    }


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (None, {"a": "int"}),  # an earlier version's
        ("json", "json"),
        ({"a": "int"}, {"a": "int", "b": "int"}),
        ({"a": {"b": "int"}}, {"a": {"b": "int", "c": "int"}}),
        ({"a": [{"b": "int"}]}, {"a": [{"b": "int", "c": "int"}]}),
    ],
)
def test_it_may_stay_or_grow(before: Any, now: Any) -> None:
    refuse_changed(before, now)


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        ({"a": "int"}, {"a": "string"}, "a was int, and is string"),
        ({"a": "int", "b": "int"}, {"a": "int"}, "b is gone"),
        ({"a": {"b": "int"}}, {"a": {"b": "date"}}, "a.b was int, and is date"),
        ({"a": ["int"]}, {"a": ["map", "int"]}, "a was an array of int, and is a map of int"),
        ({"a": "int"}, "json", "an image was a struct, and is json"),
        ("json", "dynamodb-json", "an image was json, and is dynamodb-json"),
    ],
)
def test_it_may_not_change(before: Any, now: Any, text: str) -> None:
    with pytest.raises(UsageError, match=rf"since the checkpoint was begun: {text}\. It can only"):
        refuse_changed(before, now)


@pytest.mark.spark
def test_a_query_is_refused_before_it_writes_anything(
    spark: Any, sim: RemoteSimulator, tmp_path: Path
) -> None:
    to, kept = str(tmp_path / "to"), str(tmp_path / "kept")

    def run(schema: str) -> None:
        frame = spark.readStream.format("dynamodb_streams").options(
            **options(sim, startingPosition="trim_horizon", imageSchema=schema)
        )
        writer = frame.load().select("new_image").writeStream.trigger(availableNow=True)
        writer.start(to, "parquet", checkpointLocation=kept).awaitTermination()

    for schema in ("pk string", "n int, pk string"):
        sim.put({"pk": {"S": "a"}, "n": {"N": "1"}})
        sim.advance(2)
        run(schema)
    sim.put({"pk": {"S": "a"}, "n": {"N": "2"}})
    sim.advance(2)
    with pytest.raises(PySparkException, match=r"n was int, and is string\. It can only grow"):
        run("pk string, n string")

    rows = spark.read.option("mergeSchema", "true").parquet(to).select("new_image.*")
    assert sorted(map(tuple, rows.select("n", "pk").collect()), key=str) == [(1, "a"), (None, "a")]
