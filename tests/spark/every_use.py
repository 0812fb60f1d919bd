"""Each way to use a batch read more than once: each has its own filters, and all of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def check(spark: Any, frame: Any, kinds: Mapping[str, int]) -> None:
    """`kinds` is how many changes there are of each event name; two of them at least."""
    some, others = sorted(kinds)[:2]
    one, two, whole = kinds[some], kinds[others], sum(kinds.values())
    frame.createOrReplaceTempView("changes")
    ones, twos = (frame.where(f"event_name = '{kind}'") for kind in (some, others))
    ones.explain()  # without an action

    counts = {
        "whole": (frame, whole),
        "filtered": (ones, one),
        "whole again": (frame, whole),
        "filtered otherwise": (twos, two),
        "one column": (frame.select("sequence_number").distinct(), whole),
        "united": (ones.union(twos), one + two),
        "joined": (ones.crossJoin(twos), one * two),
        "joined with itself": (
            frame.alias("a").join(frame.alias("b").where(f"b.event_name = '{some}'"), "event_id"),
            one,
        ),
        "in a subquery": (
            spark.sql(
                "SELECT * FROM changes WHERE sequence_number NOT IN "
                f"(SELECT sequence_number FROM changes WHERE event_name = '{others}')"
            ),
            whole - two,
        ),
        "a view in SQL, twice": (
            spark.sql(
                f"SELECT keys FROM changes WHERE event_name = '{some}' UNION ALL "
                "SELECT keys FROM changes"
            ),
            one + whole,
        ),
        "whole at last": (spark.table("changes"), whole),
    }
    assert {name: used.count() for name, (used, _) in counts.items()} == {
        name: count for name, (_, count) in counts.items()
    }
    ones.cache()
    try:
        assert (ones.count(), frame.count(), twos.count(), ones.count()) == (one, whole, two, one)
    finally:
        ones.unpersist()
    found = spark.sql("SELECT event_name, count(*) FROM changes GROUP BY 1").collect()
    assert dict(tuple(row) for row in found) == dict(kinds)
