"""Spark's planner, its offsets and its executors."""

from __future__ import annotations

from tests.simulation.mutations.mutant import Mutant

SPARK = [
    # Spark
    Mutant(
        "a child's records go along with its parent's last ones",
        "spark/micro_batch.py",
        "or not above.has_ended or above.pages:",
        "or not above.has_ended:",
        "spark",
    ),
    Mutant(
        "a shard is finished in the offset before its last pages are",
        "spark/micro_batch.py",
        "shard.has_ended and len(pages) == len(shard.pages)",
        "shard.has_ended",
        "spark",
    ),
    Mutant(
        "maxRecordsPerTrigger cuts no page",
        "spark/micro_batch.py",
        "        if page.count > records:",
        "        if False:",
        "spark",
    ),
    Mutant(
        "an offset forgets finished shards whose children it does not hold",
        "spark/micro_batch.py",
        "        or shard_id not in with_child\n",
        "",
        "spark",
    ),
    Mutant(
        "a replayed range goes on to what there is now",
        "spark/ranges.py",
        "            part = page if between.upto is None else page.upto(between.upto)\n",
        "            part = page\n",
        "spark",
    ),
    Mutant(
        "pages that are only a part of a range are taken for it",
        "spark/read_ahead.py",
        "whole = found and found[0].after == start and found[-1].upto == upto",
        "whole = found",
        "spark",
    ),
    Mutant(
        "pages are forgotten when they are planned",
        "spark/read_ahead.py",
        "            while self.pages and int(self.pages[0].upto) <= number:",
        "            while self.pages:",
        "spark",
    ),
    Mutant(
        "the driver goes on behind a backlog that nobody is left with",
        "spark/read_ahead.py",
        "        self.left = what\n",
        "        assert self.reader is not None\n"
        "        self.reader.position, self.reader._iterator = self.frontier, None\n",
        "spark",
        given={"limit": None, "behind_seconds": 1.0, "start": "trim_horizon"},
    ),
    Mutant(
        "a backlog ends behind the record near the tip",
        "spark/deferred_range.py",
        "                    number = records[0].dynamodb.SequenceNumber\n",
        "                    number = str(int(records[0].dynamodb.SequenceNumber) + 1)\n",
        "spark",
        given={"limit": None, "behind_seconds": 1.0, "start": "trim_horizon"},
    ),
    Mutant(
        "a finished range is read again",
        "spark/offsets.py",
        "        if before.finished:\n            continue\n",
        "",
        "spark",
    ),
    Mutant(
        "a query is anchored at LATEST when it reads, not when it begins",
        "spark/planner.py",
        "                    coordinator.restart(shard),\n",
        "                    shard.position,\n",
        "spark",
    ),
    Mutant(
        "an executor that can't read does not say so",
        "spark/ranges.py",
        "        if troubles[-1].is_worth_saying:",
        "        if False:",
        "spark",
    ),
]
