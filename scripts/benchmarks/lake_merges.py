"""Merges changes into a table of many rows, as `mirror --engine spark` does; prints the seconds.

A program of its own: each release of Delta and Iceberg is for one Spark.
"""

from __future__ import annotations

import json
import sys
import time

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tests.support.lakes import session_of
from watcher.mirror.columns import MirrorColumns
from watcher.mirror.versions import COPIED, LastVersion
from watcher.spark import session
from watcher.spark.lake_table import LakeTable
from watcher.spark.merge import Merge

TYPES = {"pk": "S"}
RUNS = 3


def main(words: list[str]) -> None:
    """Measure so many changes a batch, as the last words say, in a table of so many rows."""
    *mirror, size, counts = words
    spark = session_of(mirror)
    kind, to = (mirror[mirror.index(name) + 1] for name in ("--format", "--to"))
    rows = LastVersion()
    columns = MirrorColumns(TYPES, pa.schema([]), rows.own)
    columns.grow({"status": "S", "total": "N"})
    table = LakeTable(spark, to, kind)
    table.create(pa.schema([*columns.schema, *rows.own]), None, {"copy": "done"})
    table.overwrite(
        spark.range(int(size)).selectExpr(
            "concat('order-', lpad(id, 8, '0')) AS pk",
            "CAST(null AS string) AS _rescued_data",
            "'open' AS status",
            "CAST(id AS decimal(38, 18)) AS total",
            f"'{COPIED}' AS _sequence_number",
            "CAST(null AS timestamp) AS _at",
        )
    )
    merge = Merge((to, kind), rows, columns, options={}, checkpoint="")
    number = 0
    for count in map(int, counts.split(",")):
        for _ in range(RUNS):
            number += 1
            batch = changes(spark, count, int(size), number)
            began = time.monotonic()
            merge(batch, number)
            seconds = time.monotonic() - began
            print(json.dumps({"changes": count, "seconds": seconds}), flush=True)
    session.stop(spark)


def changes(spark: SparkSession, count: int, size: int, number: int) -> DataFrame:
    """So many changes of items, as the source has them."""
    pk = f'"pk":{{"S":"order-\', lpad((id * 7919 + {number}) % {size}, 8, \'0\'), \'"}}'
    return spark.range(0, count, 1, 2).selectExpr(
        f"concat('{{{pk}}}') AS keys",
        "'MODIFY' AS event_name",
        f'concat(\'{{{pk},"status":{{"S":"paid"}},"total":{{"N":"\', id, \'"}}}}\') AS new_image',
        "CAST(null AS string) AS old_image",
        f"lpad(id + {number} * 1000000L, 40, '0') AS position",
        "current_timestamp() AS approximate_creation_time",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
