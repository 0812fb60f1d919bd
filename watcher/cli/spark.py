"""What the commands that run on Spark have in common."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

from watcher import cli
from watcher.cli import options
from watcher.errors import UsageError

logger = logging.getLogger("watcher")


def module(name: str) -> ModuleType:
    """A module of watcher.spark. Raises UsageError where the extra is not installed."""
    for needed in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(needed) is None:
            raise UsageError("this runs on Spark: pip install 'watcher[spark]'")
    return importlib.import_module(f"watcher.spark.{name}")


def parser(command: str, job: Callable[..., Any], operands: str = "STREAM") -> options.Parser:
    """The command's options: STREAM, the job's own, Spark's and AWS's."""
    made = options.parser(command, cli.sentence(command), operands)
    options.add_stream(made)
    options.add(made, command, function=job)
    options.add(made, "spark", function=module("session").start)
    options.add(made, "aws", options.AWS)
    return made


def parse(made: options.Parser, arguments: list[str]) -> argparse.Namespace:
    """The command's arguments."""
    parsed = made.parse_args(arguments)
    cli.set_verbose(parsed.verbose)
    return parsed


def run(
    parsed: argparse.Namespace, job: Callable[..., Any], *more: str, short: bool = False
) -> Any:
    """Start Spark, do the job, and end Spark."""
    session = module("session")
    spark = session.start(**options.chosen(parsed, session.start), short=short)
    try:
        with module("jobs.run").in_one_line():
            return job(
                parsed.stream,
                *more,
                **options.chosen(parsed, job),
                connection=options.connection(parsed),
                spark=spark,
            )
    finally:
        session.stop(spark)


def ended(totals: Any, *, once: bool, goes_on: bool) -> int:
    """Say what was done; the exit status: 0, or 128 + the signal that ended a `once` too early.

    `goes_on` where there is a checkpoint: a cron job is to take neither for finished.
    """
    done = f"{totals.records} changes in {totals.batches} batches"
    number: int = module("jobs.run").ended_by()
    if once and number:
        rest = "the same command goes on" if goes_on else "the rest was not read"
        logger.warning(f"Stopped early: {done}; {rest}")
        return 128 + number
    logger.info(f"Done: {done}")
    return 0
