"""`--engine spark`: the watch's handlers on Spark's executors."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Sequence
from inspect import Parameter
from pathlib import Path
from typing import Any

from watcher.aws.discovery import WantedStreams
from watcher.cli import choosing, options, spark
from watcher.cli.choosing import Choice
from watcher.delivery.handler import Handler
from watcher.delivery.handler_modules import HandlerModule
from watcher.errors import UsageError
from watcher.formatting import style
from watcher.options import refuse_bad_seconds
from watcher.records.filters import record_filter
from watcher.records.record import Record

# What the watch can do and Spark can't, with the reason or the way round.
_NOT_HERE = {
    "max_records": "use --no-follow",
    "until": "use query or archive, or leave --engine out",
    "tail": "use --from",
    **dict.fromkeys(("tags", "everything", "exclude", "yes"), "name the tables, or globs of them"),
    "strict": "there each name has to have a stream",
    **dict.fromkeys(("snapshot", "on_stale"), "run it without --engine"),
    "poll_max": "Spark reads as it can",
    "reload": "each executor has loaded its own",
    "concurrency": "Spark's tasks run side by side",
    "processes": "Spark's executors are its processes",
    **dict.fromkeys(("live", "live_web"), "leave --engine out"),
    "metrics_port": "Spark has metrics of its own (spark.metrics.conf)",
}

_FOR_THE_JOB = ("start", "checkpoint", "on_error", "stop_timeout")


def command(handlers: dict[str, HandlerModule], parts: Sequence[Parameter]) -> Callable[..., int]:
    """The default command on Spark, with the options of the watch and of Spark."""
    parts = [*parts, *options.of(spark.module("session").start)]

    def run(*streams: options.Streams, given: options.Asked, **values: Any) -> int:
        return _watch(streams, Choice(handlers, given, values), given, values)

    return options.spelled(run, choosing.flags(handlers.values(), parts), parts)


def _watch(
    streams: Sequence[str], choice: Choice, given: options.Given, values: dict[str, Any]
) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark is to be ended in order
    session, once = spark.module("session"), not values["follow"]
    _refuse(choice, given, values["checkpoint"])
    refuse_bad_seconds(stop_timeout=values["stop_timeout"])
    several = WantedStreams.of(streams).are_several
    load = functools.partial(_load, choice, values, several)
    load()  # what is wrong with a handler is said here, not by Spark
    started = session.start(**options.values(session.start, values))
    try:
        totals = spark.module("jobs").watch(
            spark.joined(*streams),
            load,
            once=once,
            connection=options.connection(values),
            spark=started,
            **{name: values[name] for name in _FOR_THE_JOB},
            fail_on_data_loss=values["fail_on_data_loss"],
        )
    finally:
        session.stop(started)
    return spark.ended(totals, once=once, goes_on=bool(values["checkpoint"]))


def _load(choice: Choice, values: dict[str, Any], several: bool) -> list[Handler]:
    # In the executor's process:
    style.set_up(**options.values(style.set_up, values))
    style.set_prefix(**options.values(style.set_prefix, values))
    style.show_tables(several)
    observers = choice.load(choosing.DEFAULT_HANDLER)
    test = record_filter(values["filters"], values["key"], values["only"])
    return observers if test is None else [_filtered(each, test) for each in observers]


def _filtered(observer: Handler, test: Callable[[Record], bool]) -> Handler:
    def handle(record: Record) -> None:
        if test(record):
            observer.handle(record)

    return Handler(observer.name, handle, observer.close, observer.begin)


def _refuse(choice: Choice, given: options.Given, checkpoint: str | None) -> None:
    for name, advice in _NOT_HERE.items():
        if name in given.typed:  # a default is not for this run in particular
            raise UsageError(f"not for --engine spark: {advice}", name)
    if checkpoint and checkpoint.startswith("dynamodb://"):
        text = "on Spark a checkpoint is a folder; choose one, or run without --engine"
        raise UsageError(text, "checkpoint", checkpoint)
    if checkpoint and Path(checkpoint).is_file():
        text = f"{checkpoint} is a file: on Spark it is a folder; choose another"
        raise UsageError(text, "checkpoint")
    if choice.has_lambda:
        raise UsageError("--lambda is not for --engine spark: run it without --engine")
