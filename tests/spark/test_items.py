"""`items`: a table's present items as a DataFrame, which fits to its changes."""

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.simulator import Simulator
from tests.spark.conftest import options
from watcher.errors import UsageError
from watcher.spark.options import parse


@pytest.mark.spark
def test_items_have_the_keys_of_their_changes_and_come_before_them(spark: Any) -> None:
    with Simulator(table="orders", key_names=("pk", "at")) as sim:
        sim.bulk(50, keys=20)
        read = spark.read.format("dynamodb_streams")
        whole = read.options(**options(sim, items="true", segments="3", readLimit="900")).load()
        items = whole.collect()
        changes = spark.read.format("dynamodb_streams").options(**options(sim)).load().collect()
        last = {each.key: each.version for each in sim.records}
        parts = whole.rdd.getNumPartitions()

    assert {json.loads(row["keys"])["pk"]: json.loads(row.new_image)["v"] for row in items} == last
    assert len(items) == len(last) and parts == 3
    assert all(row["keys"].startswith('{"pk":') for row in items), "the partition key comes first"
    assert {row["keys"] for row in items} == {row["keys"] for row in changes}
    assert {(row.event_name, row.sequence_number) for row in items} == {("SNAPSHOT", None)}
    assert max(row.position for row in items) < min(row.position for row in changes)
    assert all(row.position == row.sequence_number.zfill(40) for row in changes)


@pytest.mark.parametrize(
    ("given", "streaming", "said"),
    [
        ({"items": "true"}, True, "items is for spark.read"),
        ({"items": "true", "startingPosition": "1h"}, False, "startingPosition is for changes"),
        ({"readLimit": "4"}, False, "readLimit is for items"),
    ],
)
def test_options_of_items_and_of_changes_are_not_mixed(
    given: dict[str, str], streaming: bool, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        parse({"stream": "orders", **given}, streaming=streaming)
