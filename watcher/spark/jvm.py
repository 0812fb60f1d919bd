"""Starts Spark's JVM; what it writes meanwhile is told in a line where the start fails."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from watcher import safe_path
from watcher.errors import UsageError

_EXCEPTION = re.compile(r'^Exception in thread "[^"]*" (?:[\w.$]+: )?(.+)', re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)", re.MULTILINE)
# What 4.0 to 4.3 say of a Python process that has died; where it was just being written to, or is
# the one in the driver that plans, they say no more than that its socket has ended.
_DEATH = re.compile(
    r"Python worker exited unexpectedly|"
    r"(?:EOFException|Connection reset|Broken pipe)[^\n]*\n"
    r"(?:\s+at java[^\n]+\n)*\s+at org\.apache\.spark\.(?:\w+\.)*python\."
)
_FATAL = re.compile(r"Fatal Python error: ([^\n]+)")
_END_SECONDS = 5.0
_callbacks = logging.getLogger("py4j.clientserver")
# Of this process's JVM, as Spark's own gateway is; none where somebody else has started it.
_started: list[JvmOutput] = []


class JvmOutput:
    """What the JVM writes: held back at first, then passed on to stderr, line by line.

    Its stdout too (Ivy's, a library's): ours is for data.
    """

    def __init__(self) -> None:
        reader, self.writer = os.pipe()
        self._lock = threading.Lock()
        self._held: list[bytes] | None = []
        self.is_silent = False
        """Whether what comes from now on is dropped."""
        self._thread = threading.Thread(target=self._run, args=(reader,), daemon=True)
        self._thread.start()

    def _run(self, reader: int) -> None:
        with open(reader, "rb") as lines:
            for line in lines:
                with self._lock:
                    if self._held is not None:
                        self._held.append(line)
                        continue
                if self.is_silent:
                    continue
                # Not Python's stderr: its lock is no place to be as the interpreter ends.
                os.write(2, line)

    def pass_on(self, *, held: bool) -> None:
        """From here on; with `held` also what was written until now."""
        with self._lock:
            if held and self._held:
                os.write(2, b"".join(self._held))
            self._held = None

    def last_words(self) -> str:
        """Why the JVM has ended, in its own words; empty where it has said nothing."""
        self._thread.join(_END_SECONDS)
        with self._lock:
            text = b"".join(self._held or ()).decode(errors="replace")
        if found := _EXCEPTION.search(text):
            return found[1].strip()
        return text.strip().partition("\n")[0]


def launch(settings: Mapping[str, str]) -> JvmOutput | None:
    """Start the JVM of this process, with Spark's settings; None where it runs already.

    Raises UsageError with what the JVM has said, where it does not start.
    """
    if SparkContext._gateway is not None:
        return None
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    output = JvmOutput()
    try:
        start: Any = launch_gateway
        with safe_path.inherited():
            gateway = start(conf, {"stdout": output.writer, "stderr": output.writer})
    except Exception as error:
        os.close(output.writer)
        raise UsageError(f"Spark did not start: {output.last_words() or said(error)}") from error
    os.close(output.writer)
    SparkContext._ensure_initialized(gateway=gateway)
    _started.append(output)
    return output


def silence() -> None:
    """Drop what the JVM and Spark's Python processes still write; a signal handler may call it.

    A query that is being stopped makes pages of it: every task that was cut off, in Java.
    """
    for output in _started:
        output.is_silent = True
    hush_py4j()


def hush_py4j() -> None:
    """Let py4j write no traceback of what is raised as an error all the same.

    It does so where the JVM ends in the middle of a call, or a foreachBatch raises: to the root
    logger, which it has set up by then, and to its own.
    """
    logging.getLogger().addFilter(_is_not_of_py4j)
    _callbacks.disabled = True


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.msg != "Exception while sending command."


def text_of(error: Exception) -> str:
    """An error's text; of Java's it is asked for in the JVM, which may have ended meanwhile."""
    try:
        return str(error)
    except Exception as gone:
        return f"{type(error).__name__}: Spark's JVM has ended ({type(gone).__name__})"


def death(error: Exception) -> str | None:
    """What is to be said where one of Spark's Python processes has died; None where none has."""
    # Of a streaming query only the Java side has all causes.
    text = f"{text_of(error)}\n{getattr(error, '_stackTrace', None) or ''}"
    if not _DEATH.search(text):
        return None
    if found := _FATAL.search(text):
        return f"one of its Python processes has died: {found[1].strip()}"
    return (
        "one of its Python processes has died: it was killed, most often by the system as memory "
        "ran out; give it more memory, or run fewer tasks at once (--master 'local[1]')"
    )


def said(error: Exception) -> str:
    """What an error out of Spark says, in one line; of what others have wrapped, the innermost."""
    text = text_of(error)
    if isinstance(error, Py4JJavaError) and (causes := _CAUSE.findall(text)):
        return str(causes[-1]).strip()
    lines = [line.strip(" :") for line in text.splitlines() if line.strip()]
    # py4j's own first line is which call it was.
    told = lines[1:] or lines if isinstance(error, Py4JJavaError) else lines
    return told[0] if told else type(error).__name__
