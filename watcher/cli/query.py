"""`query`: SQL over the changes of the last 24 hours."""

from __future__ import annotations

import logging

from watcher.cli import options, spark

logger = logging.getLogger("watcher")


def parser(arguments: list[str]) -> options.Parser:
    """SQL, and the options of the job, of Spark and of AWS."""
    made = spark.parser("query", spark.module("jobs").query, "STREAM SQL")
    made.add_argument("sql", metavar="SQL", help="such as: SELECT keys, count(*) FROM changes …")
    return made


def main(arguments: list[str]) -> int:
    """Print what the SQL finds in the view `changes`."""
    from watcher.printing.plural import counted

    parsed = spark.parse(parser(arguments), arguments)
    rows = spark.run(parsed, spark.module("jobs").query, parsed.sql, short=True)
    logger.info(f"Done: {counted(rows, 'row')}")
    return 0
