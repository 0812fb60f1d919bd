"""`--engine spark`: the watch's handlers on Spark's executors."""

from __future__ import annotations

import argparse
import functools
import signal
from collections.abc import Callable
from pathlib import Path

from watcher import cli
from watcher.cli import choosing, defaults, options, spark
from watcher.delivery.handlers import Handler
from watcher.delivery.handlers import load as load_handler
from watcher.delivery.observer import Observer
from watcher.errors import UsageError
from watcher.printing import style as output
from watcher.record.record import Record
from watcher.record.selection import wanted

# What the watch can do and Spark can't, with the reason or the way round.
_NOT_HERE = {
    "max_records": "use --no-follow",
    "poll": "Spark reads as it can",
    "metrics_port": "Spark has metrics of its own (spark.metrics.conf)",
}


def watch(
    parser: options.Parser,
    arguments: list[str],
    handlers: dict[str, Handler],
    default: str,
) -> int:
    """The default command on Spark, with the parser of the watch."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark is to be ended in order
    session = spark.module("session")
    observe = spark.module("jobs").observe
    parsed = parser.parse_args(arguments)
    cli.set_verbose(parsed.verbose)
    _refuse(parsed, parser)
    load = functools.partial(_load, parsed, handlers, default)
    load()  # what is wrong with a handler is said here, not by Spark
    started = session.start(**options.chosen(parsed, session.start))
    try:
        totals = observe(
            parsed.stream,
            load,
            start=parsed.start,
            checkpoint=parsed.checkpoint,
            once=not parsed.follow,
            on_error=parsed.on_error,
            fail_on_data_loss=parsed.fail_on_data_loss,
            connection=options.connection(parsed),
            spark=started,
        )
    finally:
        session.stop(started)
    return spark.ended(totals, once=not parsed.follow, goes_on=bool(parsed.checkpoint))


def _load(parsed: argparse.Namespace, handlers: dict[str, Handler], default: str) -> list[Observer]:
    output.set_up(**options.chosen(parsed, output.set_up))  # in the executor's process
    observers = choosing.load(parsed, handlers) or [load_handler(handlers[default])]
    test = wanted(parsed.filters, parsed.key, parsed.only)
    return observers if test is None else [_filtered(each, test) for each in observers]


def _filtered(observer: Observer, test: Callable[[Record], bool]) -> Observer:
    def handle(record: Record) -> None:
        if test(record):
            observer.handle(record)

    return Observer(observer.name, handle, observer.close, observer.begin)


def _refuse(parsed: argparse.Namespace, parser: options.Parser) -> None:
    for name, advice in _NOT_HERE.items():
        if name in defaults.of(parsed):  # not for this run in particular
            continue
        if getattr(parsed, name, None) != parser.get_default(name):
            raise UsageError(f"--{name.replace('_', '-')} is not for --engine spark: {advice}")
    if parsed.checkpoint and Path(parsed.checkpoint).is_file():
        raise UsageError(
            f"--checkpoint {parsed.checkpoint} is a file: on Spark it is a folder; choose another"
        )
    if any(isinstance(each, choosing.Lambda) for each in parsed.chosen or []):
        raise UsageError("--lambda is not for --engine spark: run it without --engine")
