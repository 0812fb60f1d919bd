"""Errors out of Spark as watcher's own, in one line each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from watcher import errors
from watcher.aws.error_hints import s3_hint
from watcher.errors import ResourceError, UsageError, WatcherError

_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)", re.MULTILINE)
# What 4.0 to 4.3 say of a Python process that has died; where it was just being written to, or is
# the one in the driver that plans, they say no more than that its socket has ended.
_DEATH = re.compile(
    r"Python worker exited unexpectedly|"
    r"(?:EOFException|Connection reset|Broken pipe)[^\n]*\n"
    r"(?:\s+at java[^\n]+\n)*\s+at org\.apache\.spark\.(?:\w+\.)*python\."
)
# What Spark wraps around an exception of ours is a page of Python and Java.
_OURS = re.compile(r"watcher\.errors\.(\w+): ([^\n]+)")
_LACKING = "ModuleNotFoundError: No module named 'watcher"
# The source knows its option, not which command it runs in.
_LOSS_OPTION = "failOnDataLoss=false"
_LOSS_FLAG = "on the command line --no-fail-on-data-loss"


@contextmanager
def translating_errors() -> Iterator[None]:
    """Raises errors out of Spark as watcher's own, one line each.

    Raises WatcherError, or the one of its kinds that the source has raised: DataLossError, …
    A streaming query raises its error in `query.awaitTermination()`.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise translated(error) from error


def translated(error: Exception) -> WatcherError:
    """Returns the exception of ours that is inside Spark's, or Spark's own first line."""
    text = error_text(error)
    if found := _OURS.findall(text):
        name, message = found[-1]
        message = message.replace(_LOSS_OPTION, f"{_LOSS_OPTION} ({_LOSS_FLAG})")
        kind = getattr(errors, name, WatcherError)
        return kind(message.strip()) if issubclass(kind, WatcherError) else WatcherError(message)
    if _LACKING in text:
        return ResourceError(
            "Spark's workers can't import dynamodb-watcher: install it for their Python, or send a "
            "packed environment with --archives (docs/spark.md, On a cluster)"
        )
    kind = UsageError if isinstance(error, AnalysisException) else ResourceError  # bad SQL, a path
    return kind(f"Spark: {s3_hint(text) or worker_death(error) or one_line(error)}")


def error_text(error: Exception) -> str:
    """Returns an error's text; a Java error's text is in the JVM, which may have ended."""
    try:
        return str(error)
    except Exception as gone:
        return f"{type(error).__name__}: Spark's JVM has ended ({type(gone).__name__})"


def worker_death(error: Exception) -> str | None:
    """Returns how one of Spark's Python processes has died; None where none has."""
    # Of a streaming query only the Java side has all causes.
    text = f"{error_text(error)}\n{getattr(error, '_stackTrace', None) or ''}"
    if not _DEATH.search(text):
        return None
    return (
        "one of its Python processes has died: it was killed, most often by the system as memory "
        "ran out; give it more memory, or run fewer tasks at once (--master 'local[1]')"
    )


def one_line(error: Exception) -> str:
    """Returns an error out of Spark in one line: the innermost cause."""
    text = error_text(error)
    if isinstance(error, Py4JJavaError) and (causes := _CAUSE.findall(text)):
        return str(causes[-1]).strip()
    lines = [line.strip(" :") for line in text.splitlines() if line.strip()]
    # py4j's own first line is which call it was.
    kept = lines[1:] or lines if isinstance(error, Py4JJavaError) else lines
    return kept[0] if kept else type(error).__name__
