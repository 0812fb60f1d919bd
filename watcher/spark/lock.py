"""Keeps a second job out of a folder that one is writing to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from watcher.errors import UsageError
from watcher.spark.folder import Folder

_FILE = ".watcher-lock"
# The JVM of a job that was killed may live on, and write, for some seconds.
_WAIT_SECONDS = 15.0
_PAUSE_SECONDS = 0.25


@contextmanager
def only_here(spark: SparkSession, folder: Folder) -> Iterator[None]:
    """Hold a folder on this machine's disks; other file systems know no locks that end with us.

    The JVM holds it, since it is the one that writes. Raises UsageError where another one does.
    """
    local = folder.on_this_machine
    if local is None:
        yield
        return
    context: Any = spark.sparkContext
    java = context._jvm.java
    place = java.io.File(local)
    if not place.mkdirs() and not place.isDirectory():
        raise UsageError(f"can't make the folder {local}: a file is in its way, or no permission")
    file = java.io.RandomAccessFile(java.io.File(local, _FILE), "rw")
    try:
        until = time.monotonic() + _WAIT_SECONDS
        while not _has_locked(file):
            if time.monotonic() >= until:
                raise UsageError(
                    f"another job is writing with {folder.path}: one at a time; "
                    "end that one, or choose another folder"
                )
            time.sleep(_PAUSE_SECONDS)
        yield
    finally:
        with suppress(Py4JError, OSError):  # a JVM that has ended, and its locks with it
            file.close()


def _has_locked(file: Any) -> bool:
    try:
        return file.getChannel().tryLock() is not None
    except Exception as error:
        if "OverlappingFileLockException" in str(error):  # a job of this very JVM
            return False
        raise
