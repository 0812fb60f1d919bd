"""`replicate`: keep another table equal to the stream's."""

from __future__ import annotations

import logging

from watcher.cli import options, spark

logger = logging.getLogger("watcher")


def parser(arguments: list[str]) -> options.Parser:
    """The options of the job, of Spark and of AWS."""
    return spark.parser("replicate", spark.module("jobs").replicate)


def main(arguments: list[str]) -> int:
    """Copy, then apply every change until stopped, or up to now with `--once`."""
    job = spark.module("jobs").replicate
    totals = spark.run(spark.parse(parser(arguments), arguments), job)
    logger.info(f"Done: {totals.records} changes in {totals.batches} batches")
    return 0
