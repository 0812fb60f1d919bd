"""What the commands that run on Spark have in common."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Any

from watcher import cli
from watcher.cli import options
from watcher.errors import UsageError


def module(name: str) -> ModuleType:
    """A module of watcher.spark. Raises UsageError where the extra is not installed."""
    for needed in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(needed) is None:
            raise UsageError("this runs on Spark: pip install 'watcher[spark]'")
    return importlib.import_module(f"watcher.spark.{name}")


def parse(
    command: str,
    arguments: list[str],
    job: Callable[..., Any],
    more: Callable[[argparse.ArgumentParser], None] | None = None,
) -> argparse.Namespace:
    """The command's arguments: STREAM, the job's own options, Spark's and AWS's."""
    start = module("session").start
    parser = options.parser(command, cli.COMMANDS[command].capitalize() + ".")
    parser.add_argument(
        "stream", metavar="STREAM", help="a stream ARN, a table ARN or a table name"
    )
    if more is not None:
        more(parser)
    options.add(parser.add_argument_group(command), function=job)
    options.add(parser.add_argument_group("Spark"), function=start)
    options.add(parser.add_argument_group("AWS"), options.AWS)
    parsed = parser.parse_args(arguments)
    cli.set_verbose(parsed.verbose)
    return parsed


def run(
    parsed: argparse.Namespace, job: Callable[..., Any], *more: str, short: bool = False
) -> Any:
    """Start Spark, do the job, and end Spark."""
    session = module("session")
    spark = session.start(**options.chosen(parsed, session.start), short=short)
    try:
        with module("jobs.running").in_one_line():
            return job(
                parsed.stream,
                *more,
                **options.chosen(parsed, job),
                connection=options.connection(parsed),
                spark=spark,
            )
    finally:
        session.stop(spark)
