"""The commands that run on Spark or write Delta tables, and the Spark engine of others."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import logging
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from watcher.aws.lease_storage import SCHEME
from watcher.cli import handler_flags, options
from watcher.cli.handler_flags import Choice
from watcher.cli.options import Values
from watcher.declared import Opt
from watcher.delivery.handler_modules import HandlerModule
from watcher.errors import UsageError, refuse_unless_positive
from watcher.formatting import style
from watcher.options import WatchOptions
from watcher.shutdown import exit_status
from watcher.version import install

# Imported by the work itself: it takes boto3, which help does not.
if TYPE_CHECKING:
    from watcher.cli.command_line import CommandLine
    from watcher.delivery.handler import Handler
    from watcher.spark.jobs.run import JobTotals

logger = logging.getLogger("watcher")

_Result = TypeVar("_Result")
_REDACTING = ("archive", "mirror", "query")


def session_options() -> list[options.Option]:
    """Returns the options of Spark's session."""
    return list(options.declared_by(module("session").start))


def module(name: str) -> ModuleType:
    """Returns a module of watcher.spark. Raises UsageError without the extra."""
    for needed in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(needed) is None:
            raise UsageError(f"this needs Spark: {install('spark')}")
    return importlib.import_module(f"watcher.spark.{name}")


def _job(name: str) -> tuple[Callable[..., Any], list[options.Option]]:
    """Returns a job, and its command's options: its own, Spark's and AWS's."""
    function: Callable[..., Any] = getattr(module("jobs"), name)
    names = ("redact", *options.AWS) if name in _REDACTING else options.AWS
    aws = options.declared_by(WatchOptions, *names)
    return function, [*options.declared_by(function), *session_options(), *aws]


def _run(job: Callable[..., _Result], *operands: str | list[str], values: Values) -> _Result:
    """Starts Spark, does the job, and ends Spark."""
    if "stop_timeout" in values:
        refuse_unless_positive("stop_timeout", values["stop_timeout"])
    session, own = module("session"), inspect.signature(job).parameters
    spark = session.start(**options.values(session.start, values))
    try:
        with module("error_mapping").translating_errors():
            return job(
                *operands,
                **options.values(job, values),
                **({"redact": values["redact"]} if "redact" in own else {}),
                connection=options.connection(values),
                spark=spark,
            )
    finally:
        session.stop(spark)


def _ended(done: str, number: int, *, once: bool, goes_on: bool = True) -> int:
    """Logs what was done; returns the exit status. `number` is the signal's."""
    status = exit_status(number, ends_by_itself=once)
    if status:
        rest = "run the same command to continue" if goes_on else "the rest was not read"
        logger.warning(f"Stopped early: {done}; {rest}")
    else:
        logger.info(f"Done: {done}")
    return status


def _until_stopped(
    name: str,
    *more: options.Option,
    prepare: Callable[[dict[str, options.Value]], None] = lambda values: None,
) -> options.Command:
    """Returns the command of a job that goes on until it is stopped, with `more` options."""
    function, parts = _job(name)

    def run(stream: options.Stream, /, **values: options.Value) -> int:
        prepare(values)
        totals = _run(function, stream, values=values)
        return _ended(str(totals), totals.signal, once=values["once"])

    return options.with_options(run, parts, more)


def archive_command(line: CommandLine) -> options.Command:
    """Appends every change to files, until stopped or with `--no-follow` up to now."""
    return _until_stopped("archive")


_Sql = Annotated[str, Opt("in quotes, such as: SELECT keys, count(*) FROM changes …")]
_More = Annotated[
    str, Opt("the SQL, where an archive's folder and then its stream stand before it", name="[SQL]")
]


def query_command(line: CommandLine) -> options.Command:
    """Prints the result of SQL over the view `changes`."""
    function, parts = _job("query")

    def run(stream: options.Stream, sql: _Sql, /, *more: _More, **values: object) -> int:
        from watcher.formatting.text import counted

        words = [stream, sql, *more]
        sources, text = words[:-1], words[-1]
        if not any(map(str.isspace, text)):
            raise UsageError(f"{text!r} is not SQL: give it in quotes")
        rows = _run(function, sources, text, values=values)
        logger.info(f"Done: {counted(rows, 'row')}")
        return 0

    return options.with_options(run, parts)


def replicate_command(line: CommandLine) -> options.Command:
    """Keeps another table equal to the stream's, until stopped or with `--no-follow` up to now."""
    why = "a replica is equal to its table"
    return _until_stopped(
        "replicate",
        *options.declared_by(WatchOptions, "redact"),
        prepare=lambda values: options.refuse_redaction(values, why),
    )


_MIRROR_ENGINE = options.Option(
    "engine",
    str,
    "delta-rs",
    Opt(
        "what writes the table: delta-rs here (default), or MERGE on spark",
        "ENGINE",
        "spark",
        choices=("delta-rs", "spark"),
    ),
)


def mirror_command(line: CommandLine) -> options.Command:
    """Keeps a table in a lake equal to one, until stopped or with `--no-follow` up to now."""
    if line.peek(_MIRROR_ENGINE).last == "spark":
        return _until_stopped("mirror", _MIRROR_ENGINE, prepare=_add_settings)
    from watcher.formatting.text import counted

    if importlib.util.find_spec("deltalake") is None:
        raise UsageError(f"mirror needs delta-rs: {install('mirror')}")
    mirror = importlib.import_module("watcher.mirror.job").mirror

    def run(stream: options.Stream, /, **values: object) -> int:
        own = options.values(mirror, values) | {"redact": values["redact"]}
        before = os.umask(0o077)  # delta-rs has no option for it
        try:
            done = mirror(stream, **own, connection=options.connection(values))
        finally:
            os.umask(before)
        copied = f"{counted(done.items, 'item')} copied, " if done.items else ""
        text = f"{copied}{counted(done.changes, 'change')} applied"
        return _ended(text, done.signal, once=bool(values["once"]))

    parts = options.declared_by(WatchOptions, "redact", *options.AWS)
    return options.with_options(run, options.declared_by(mirror), [_MIRROR_ENGINE], parts)


def _add_settings(values: dict[str, options.Value]) -> None:
    """Adds Spark's settings for the format of a lake's table, which the user's own override."""
    lake = module("lake_table").SETTINGS[values["format"]]
    values["conf"] = [*(f"{name}={text}" for name, text in lake), *(values["conf"] or ())]


# The default command with --engine spark: the handlers on executors

_ADVICE = {
    "max_records": "use --no-follow",
    "until": "use query or archive, or leave --engine out",
    "tail": "use --from",
    **dict.fromkeys(("tags", "everything", "exclude"), "name the tables, or globs of them"),
}
_OF_A_WATCH = ["live", *(each.name for each in options.declared_by(WatchOptions))]
_FOR_THE_JOB = ("start", "checkpoint", "on_error", "stop_timeout", "fail_on_data_loss")
_USED = {*_FOR_THE_JOB, "follow", *options.FILTERS, "redact", *options.AWS}


def watch_on_spark(
    handlers: dict[str, HandlerModule], parts: Sequence[options.Option]
) -> options.Command:
    """Returns the default command on Spark, with the options of the watch and of Spark."""
    parts = [*parts, *session_options()]

    def run(*streams: options.Streams, origins: options.Origins, **values: options.Value) -> int:
        # Our own errors come before Spark starts: they are a line, and Spark's a page.
        choice = Choice(handlers, origins, values)
        _refuse(streams, choice, origins, values)
        load = functools.partial(_load, choice, values)
        load()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark is to be ended in order
        session, once = module("session"), not values["follow"]
        started = session.start(**options.values(session.start, values))
        try:
            totals: JobTotals = module("jobs").watch(
                streams[0],
                load,
                test=options.record_filter(values),
                redaction=options.redaction(values),
                once=once,
                connection=options.connection(values),
                spark=started,
                **{name: values[name] for name in _FOR_THE_JOB},
            )
        finally:
            session.stop(started)
        goes_on = bool(values["checkpoint"])
        status = _ended(str(totals), totals.signal, once=once, goes_on=goes_on)
        return status or int(once and totals.unhandled > 0)

    return options.with_options(run, handler_flags.flags(handlers.values(), parts), parts)


def _load(choice: Choice, values: Values) -> list[Handler]:
    # In the executor's process:
    options.call(style.set_up, values)
    style.show_tables(several=False)
    return choice.load(handler_flags.DEFAULT_HANDLER)


def _refuse(
    streams: Sequence[str], choice: Choice, origins: options.Origins, values: Values
) -> None:
    for name in origins.typed:  # a default is not for this run in particular
        if name in _OF_A_WATCH and name not in _USED:
            advice = _ADVICE.get(name, "leave --engine out")
            raise UsageError(f"not for --engine spark: {advice}", name)
    checkpoint = values["checkpoint"]
    if checkpoint and (checkpoint.startswith(SCHEME) or Path(checkpoint).is_file()):
        raise UsageError("on Spark it is a folder: choose another", "checkpoint", checkpoint)
    refuse_unless_positive("stop_timeout", values["stop_timeout"])
    if len(streams) != 1:
        raise UsageError("--engine spark watches one table a run: name one")
    if choice.has_lambda:
        raise UsageError("--lambda is not for --engine spark: run it without --engine")
