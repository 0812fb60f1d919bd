"""What the commands that run on Spark have in common."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Callable, Mapping
from inspect import Parameter
from types import ModuleType
from typing import Any

from watcher.cli import options
from watcher.errors import UsageError
from watcher.options import refuse_bad_seconds
from watcher.version import install
from watcher.watching import watch

logger = logging.getLogger("watcher")


def module(name: str) -> ModuleType:
    """A module of watcher.spark. Raises UsageError where the extra is not installed."""
    for needed in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(needed) is None:
            raise UsageError(f"this runs on Spark: {install('spark')}")
    return importlib.import_module(f"watcher.spark.{name}")


def job(name: str) -> tuple[Callable[..., Any], list[Parameter]]:
    """A job, and its command's options: its own, Spark's and AWS's."""
    function: Callable[..., Any] = getattr(module("jobs"), name)
    start = module("session").start
    aws = options.of(watch, *options.AWS)
    return function, [*options.of(function), *options.of(start), *aws]


def run(
    job: Callable[..., Any], *operands: str, values: Mapping[str, Any], short: bool = False
) -> Any:
    """Start Spark, do the job, and end Spark."""
    if "stop_timeout" in values:
        refuse_bad_seconds(stop_timeout=values["stop_timeout"])
    session = module("session")
    spark = session.start(**options.values(session.start, values), short=short)
    try:
        with module("error_mapping").translating_errors():
            return job(
                *operands,
                **options.values(job, values),
                connection=options.connection(values),
                spark=spark,
            )
    finally:
        session.stop(spark)


def joined(*streams: str) -> str:
    """Several streams as the source takes them."""
    return ",".join(streams)


def command(
    name: str, goes_on: Callable[[Mapping[str, Any]], bool], *, several: bool = False
) -> Callable[..., int]:
    """The command of a job that goes on until it is stopped, or up to now with `--once`.

    `goes_on` where the same command would do the rest; `several` streams, or one.
    """
    function, parts = job(name)

    def run_of_one(stream: options.Stream, /, **values: Any) -> int:
        totals = run(function, stream, values=values)
        return ended(totals, once=values["once"], goes_on=goes_on(values))

    def run_of_several(stream: options.Stream, /, *others: options.Others, **values: Any) -> int:
        return run_of_one(joined(stream, *others), **values)

    run_job = run_of_several if several else run_of_one

    return options.spelled(run_job, parts)


def ended(totals: Any, *, once: bool, goes_on: bool) -> int:
    """Say what was done; the exit status: 0, or 128 + the signal that ended a `once` too early.

    `goes_on` where there is a checkpoint: a cron job is to take neither for finished.
    """
    done = f"{totals.records} changes in {totals.batches} batches"
    number: int = totals.signal
    if once and number:
        rest = "the same command goes on" if goes_on else "the rest was not read"
        logger.warning(f"Stopped early: {done}; {rest}")
        return 128 + number
    logger.info(f"Done: {done}")
    return 0
