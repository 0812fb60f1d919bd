"""`metrics`: count changes by kind and window of time."""

from __future__ import annotations

import logging

from watcher.cli import spark

logger = logging.getLogger("watcher")


def main(arguments: list[str]) -> int:
    """Count until stopped, or up to now with `--once`."""
    job = spark.module("jobs").metrics
    totals = spark.run(spark.parse("metrics", arguments, job), job)
    logger.info(f"Done: {totals.records} changes in {totals.batches} batches")
    return 0
