"""`metrics`: count changes by kind and window of time."""

from __future__ import annotations

from watcher.cli import options, spark


def parser(arguments: list[str]) -> options.Parser:
    """The options of the job, of Spark and of AWS."""
    return spark.parser("metrics", spark.module("jobs").metrics)


def main(arguments: list[str]) -> int:
    """Count until stopped, or up to now with `--once`."""
    job = spark.module("jobs").metrics
    parsed = spark.parse(parser(arguments), arguments)
    totals = spark.run(parsed, job)
    return spark.ended(totals, once=parsed.once, goes_on=bool(parsed.checkpoint or parsed.to))
