"""Spark's planner, its offsets and its executors."""

from __future__ import annotations

from tests.simulation.mutations.edits import (
    attribute,
    called,
    condition,
    instead,
    logic,
)
from tests.simulation.mutations.mutant import Mutant

_BEHIND = {"limit": None, "behind_seconds": 1.0, "start": "trim_horizon"}
_ENABLED_AGAIN = {"of_table": True, "events": ["disable"]}

SPARK = [
    Mutant(
        "a child's records go along with its parent's, and before the last of them",
        "_Admission._go_on",
        condition("has_ended", becomes="True"),
        "spark",
    ),
    Mutant(
        "a child's records go to another task than its parent's last ones",
        "tasks.share_among_tasks",
        logic("topmost", becomes="{1}"),
        "spark",
    ),
    Mutant(
        "a shard is finished in the offset before its last pages are",
        "micro_batch.end_offset",
        logic("has_ended", becomes="{0}"),
        "spark",
    ),
    Mutant(
        "maxRecordsPerTrigger cuts no page",
        "_Admission._take_records",
        called("min", becomes="{0}", nth=1),
        "spark",
    ),
    Mutant(
        "an offset forgets finished shards whose children it does not hold",
        "micro_batch._pruned",
        condition("_was_never_there", becomes="{0} or {1} or {3}"),
        "spark",
    ),
    Mutant(
        "a replayed range goes on to what there is now",
        "RangeReader.read",
        called("upto", becomes="{object}"),
        "spark",
    ),
    Mutant(
        "pages that are only a part of a range are taken for it",
        "BufferedShard.pages_between",
        logic("after", becomes="{0}"),
        "spark",
    ),
    Mutant(
        "pages are forgotten when they are planned",
        "BufferedShard.drop_delivered",
        condition("pages", becomes="{0}"),
        "spark",
    ),
    Mutant(
        "the driver goes on behind a backlog that nobody is left with",
        "BufferedShard.defer",
        instead(
            "replace",
            do="self.reader.position, self.reader._iterator = self.frontier, None",
        ),
        "spark",
        given=_BEHIND,
    ),
    Mutant(
        "a backlog ends behind the record near the tip",
        "BacklogDetector._deferred",
        attribute("SequenceNumber", becomes="str(int({it}) + 1)"),
        "spark",
        given=_BEHIND,
    ),
    Mutant(
        "a finished range is read again",
        "offsets.ranges",
        condition("finished", becomes="{0}.finished"),
        "spark",
    ),
    Mutant(
        "a query is anchored at LATEST when it reads, not when it begins",
        "Planner.initial_offset",
        called("restart", becomes="{0}.position"),
        "spark",
    ),
    Mutant(
        "an executor that can't read does not say so",
        "Coordinator._on_failure",
        condition("subject", becomes="False and {1}"),
        "spark",
    ),
    Mutant(
        "a range that began at a time is read again from that time on",
        "offsets.ranges",
        condition("first", becomes="False"),
        "spark",
        given={"start": "at_time"},
    ),
    Mutant(
        "a table's next stream is gone on with before all of the last one is delivered",
        "Planner._find_end",
        condition("_confirm_done", becomes="{0} and {1}"),
        "spark",
        given=_ENABLED_AGAIN,
    ),
    Mutant(
        "a query of a table stays with a stream that has ended",
        "Planner._find_end",
        condition("_confirm_done", becomes="False"),
        "spark",
        given=_ENABLED_AGAIN,
    ),
    Mutant(
        "all of a table's streams are planned by the newest one's planner",
        "StreamReader._planner_of",
        condition("reads", becomes="True"),
        "spark",
        given=_ENABLED_AGAIN,
    ),
]
