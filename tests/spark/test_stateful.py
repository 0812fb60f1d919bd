"""State in Spark, as docs/spark.md has it, over rotations and restarts: no row lost, none twice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.simulator import Simulator
from tests.spark.conftest import PATIENCE, options

pytestmark = [pytest.mark.spark, pytest.mark.proof, pytest.mark.usefixtures("no_query_left")]

PAGE = (Path(__file__).parents[2] / "docs/spark.md").read_text()


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """What the page's examples define."""
    section = PAGE.partition("### State")[2].partition("\n## ")[0]
    names: dict[str, Any] = {"__name__": __name__}
    for text in re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
        exec(text, names)
    return names


def changes(spark: Any, sim: Simulator, **more: Any) -> Any:
    given = options(sim, startingPosition="trim_horizon", maxRecordsPerTrigger=120) | more
    return spark.readStream.format("dynamodb_streams").options(**given).load()


def run(frame: Any, folder: Path, mode: str = "append") -> list[Any]:
    """Runs a query to the end of what there is; returns the rows of all its runs."""
    writer = frame.writeStream.outputMode(mode)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    place = str(folder / "rows")
    if mode == "append":
        writer = writer.format("parquet").option("path", place)
    else:
        writer = writer.foreachBatch(lambda rows, number: rows.write.parquet(f"{place}/b={number}"))
    assert writer.trigger(availableNow=True).start().awaitTermination(PATIENCE)
    found: list[Any] = frame.sparkSession.read.parquet(place).collect()
    return found


def rotations(sim: Simulator) -> Iterator[None]:
    """Two runs' worth of changes; shards are split and closed between and in them."""
    sim.bulk(150, keys=12)
    sim.split()
    sim.bulk(100, keys=12, remove_every=9)
    yield
    sim.rotate()
    sim.bulk(130, keys=12, remove_every=7)
    yield


def test_a_window_counts_each_change_once(
    spark: Any, sim: Simulator, tmp_path: Path, page: dict[str, Any]
) -> None:
    for _ in rotations(sim):
        found = run(page["by_minute"](changes(spark, sim)), tmp_path, "update")
    grown = dict[tuple[Any, str], int]()
    for row in found:
        window = row["window"]["start"], row["event_name"]
        grown[window] = max(row["count"], grown.get(window, 0))
    batch = spark.read.format("dynamodb_streams").options(**options(sim)).load()
    expected = {
        (row["window"]["start"], row["event_name"]): row["count"]
        for row in page["by_minute"](batch).collect()
    }
    assert sum(expected.values()) == len(sim.records)
    assert grown == expected


def test_two_reads_of_a_stream_united_are_deduplicated_within_a_watermark(
    spark: Any, sim: Simulator, tmp_path: Path, page: dict[str, Any]
) -> None:
    for _ in rotations(sim):
        other = changes(spark, sim, maxRecordsPerTrigger=70)
        found = run(page["each_once"](changes(spark, sim), other), tmp_path)
    numbers = Counter(row["sequence_number"] for row in found)
    assert numbers == Counter(each.sequence_number for each in sim.records)
