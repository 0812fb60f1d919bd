"""`archive`: append every change to files."""

from __future__ import annotations

import logging

from watcher.cli import spark

logger = logging.getLogger("watcher")


def main(arguments: list[str]) -> int:
    """Archive until stopped, or up to now with `--once`."""
    job = spark.module("jobs").archive
    totals = spark.run(spark.parse("archive", arguments, job), job)
    logger.info(f"Done: {totals.records} changes in {totals.batches} batches")
    return 0
