"""`replicate`: keep another table equal to the stream's."""

from __future__ import annotations

import logging

from watcher.cli import spark

logger = logging.getLogger("watcher")


def main(arguments: list[str]) -> int:
    """Copy, then apply every change until stopped, or up to now with `--once`."""
    job = spark.module("jobs").replicate
    totals = spark.run(spark.parse("replicate", arguments, job), job)
    logger.info(f"Done: {totals.records} changes in {totals.batches} batches")
    return 0
