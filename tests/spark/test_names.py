"""Spark reads streams of other accounts, and of engines that name them otherwise."""

from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.simulator import Simulator
from tests.spark.conftest import options

pytestmark = [pytest.mark.spark, pytest.mark.proof]

ELSEWHERE = "999999999999"


def counted(spark: Any, sim: Simulator, text: str) -> tuple[int, int]:
    """The changes that a batch finds, and a stream."""
    given = options(sim, stream=text, startingPosition="trim_horizon")
    batch = spark.read.format("dynamodb_streams").options(**given).load().count()
    frame = spark.readStream.format("dynamodb_streams").options(**given).load()
    writer = frame.writeStream.format("memory").queryName("named").trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    return batch, spark.table("named").count()


def test_another_accounts_table_is_not_our_own_of_that_name(spark: Any, sim: Simulator) -> None:
    sim.write("a", 2)
    theirs = sim.add_foreign_table("orders", ELSEWHERE, records=5)
    assert counted(spark, sim, theirs.partition("/stream/")[0]) == (5, 5)


def test_alternators_names_are_taken_as_they_are(spark: Any) -> None:
    with Simulator(shards=3, naming="alternator") as sim:
        sim.set_faults(table_arns="refused", at_timestamp=False)
        sim.write("a", 2)
        sim.rotate("all")
        sim.write("b", 2)
        assert counted(spark, sim, sim.stream_arn) == (4, 4)
