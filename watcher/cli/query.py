"""`query`: SQL over the changes of the last 24 hours."""

from __future__ import annotations

import argparse

from watcher.cli import spark


def main(arguments: list[str]) -> int:
    """Print what the SQL finds in the view `changes`."""
    job = spark.module("jobs").query
    parsed = spark.parse("query", arguments, job, _add_sql)
    spark.run(parsed, job, parsed.sql, short=True)
    return 0


def _add_sql(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sql", metavar="SQL", help="such as: SELECT keys, count(*) FROM changes …")
