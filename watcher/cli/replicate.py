"""`replicate`: keep another table equal to the stream's."""

from __future__ import annotations

from watcher.cli import options, spark


def parser(arguments: list[str]) -> options.Parser:
    """The options of the job, of Spark and of AWS."""
    return spark.parser("replicate", spark.module("jobs").replicate)


def main(arguments: list[str]) -> int:
    """Copy, then apply every change until stopped, or up to now with `--once`."""
    job = spark.module("jobs").replicate
    parsed = spark.parse(parser(arguments), arguments)
    totals = spark.run(parsed, job)
    return spark.ended(totals, once=parsed.once, goes_on=True)
