"""`archive`: append every change to files."""

from __future__ import annotations

from watcher.cli import options, spark


def parser(arguments: list[str]) -> options.Parser:
    """The options of the job, of Spark and of AWS."""
    return spark.parser("archive", spark.module("jobs").archive)


def main(arguments: list[str]) -> int:
    """Archive until stopped, or up to now with `--once`."""
    job = spark.module("jobs").archive
    parsed = spark.parse(parser(arguments), arguments)
    totals = spark.run(parsed, job)
    return spark.ended(totals, once=parsed.once, goes_on=True)
