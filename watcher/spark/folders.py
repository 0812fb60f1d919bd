"""Folders of any file system that Spark knows (a disk, HDFS, S3): who writes there, and what for.

A query that writes files has two: the sink's folder, and the checkpoint that goes with it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import msgspec
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from watcher.errors import UsageError

LOG = "_spark_metadata"
"""Where the sink notes which files are whole; readers other than Spark don't look there."""
_LOCK = ".watcher-lock"
# The JVM of a job that was killed may live on, and write, for some seconds.
_WAIT_SECONDS = 15.0
_PAUSE_SECONDS = 0.25

_Kind = TypeVar("_Kind", bound=msgspec.Struct)


class Folder:
    """A folder, which need not be there yet, seen through Hadoop."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        self._path = self._new_path(path)
        self._system = self._path.getFileSystem(context._jsc.hadoopConfiguration())
        self.path = path
        self._whole_path = self._system.makeQualified(self._path)
        self.whole_path: str = self._whole_path.toString()
        """With its file system, wherever it is asked from."""

    def has(self, name: str) -> bool:
        """Whether there is such an entry in it."""
        return bool(self._system.exists(self._inside(name)))

    def files(self, folders: str, prefix: str) -> dict[str, int]:
        """The files with such names in its direct subfolders with such names.

        By their whole path, with the time of their last change (milliseconds, by the file system).
        """
        return {
            str(file.getPath().toUri().getPath()): int(file.getModificationTime())
            for folder in self._system.listStatus(self._path)
            if folder.isDirectory() and folder.getPath().getName().startswith(folders)
            for file in self._system.listStatus(folder.getPath())
            if file.isFile() and file.getPath().getName().startswith(prefix)
        }

    def newest(self, name: str) -> int:
        """When the last entry of one of its folders was written, in milliseconds; 0 for none."""
        entries = self._system.listStatus(self._inside(name))
        return max((int(entry.getModificationTime()) for entry in entries), default=0)

    def remove(self, path: str) -> None:
        """Remove one of its files, by its whole path."""
        self._system.delete(self._new_path(path), False)

    def load(self, name: str, kind: type[_Kind]) -> _Kind | None:
        """What `save` has put there; None where there is nothing."""
        found = next((each for each in (name, f".{name}.new") if self.has(each)), None)
        if found is None:
            return None
        stream = self._system.open(self._inside(found))
        try:
            return msgspec.json.decode(bytes(stream.readAllBytes()), type=kind)
        finally:
            stream.close()

    def save(self, name: str, value: msgspec.Struct) -> None:
        """Put it in a small file as JSON; after a kill in between there is the one or the other."""
        aside, there = self._inside(f".{name}.new"), self._inside(name)
        stream = self._system.create(aside, True)
        stream.write(bytearray(msgspec.json.encode(value)))
        stream.close()
        # Hadoop's rename does not replace: between these two the new text is only aside.
        self._system.delete(there, False)
        self._system.rename(aside, there)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other jobs out of it while it is on this machine's disks.

        Other file systems know no locks that end with us. The JVM holds it, since it is the one
        that writes. Raises UsageError where another one does.
        """
        uri = self._whole_path.toUri()
        if uri.getScheme() != "file":
            yield
            return
        java, path = self._jvm.java, uri.getPath()
        there = java.io.File(path)
        if not there.mkdirs() and not there.isDirectory():
            raise UsageError(
                f"can't make the folder {path}: a file is in its way, or no permission"
            )
        file = java.io.RandomAccessFile(java.io.File(path, _LOCK), "rw")
        try:
            until = time.monotonic() + _WAIT_SECONDS
            while not _has_locked(file):
                if time.monotonic() >= until:
                    raise UsageError(
                        f"another job is writing with {self.path}: one at a time; "
                        "end that one, or choose another folder"
                    )
                time.sleep(_PAUSE_SECONDS)
            yield
        finally:
            with suppress(Py4JError, OSError):  # a JVM that has ended, and its locks with it
                file.close()

    def _inside(self, name: str) -> Any:
        return self._new_path(self._path, name)

    def _new_path(self, *parts: Any) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(*parts)


def _has_locked(file: Any) -> bool:
    try:
        return file.getChannel().tryLock() is not None
    except Exception as error:
        if "OverlappingFileLockException" in str(error):  # a job of this very JVM
            return False
        raise


class CheckpointUse(msgspec.Struct, frozen=True):
    """What a checkpoint is used for; stored in it."""

    folder: str
    """With its file system."""
    format: str
    """What is in the files."""


@contextmanager
def alone(folder: Folder, checkpoint: Folder, note: str, content: str) -> Iterator[None]:
    """Hold a checkpoint against other jobs, and note in a new one what it is for.

    Raises UsageError where another job holds it, and where folder, checkpoint and content have not
    been used together before: Spark would go on, and leave out or mix up what it writes.
    """
    with checkpoint.locked():
        _bind(folder, checkpoint, note, content)
        yield


def _bind(folder: Folder, checkpoint: Folder, note: str, content: str) -> None:
    here = CheckpointUse(folder.whole_path, content)
    # Before the first batch nothing is bound to anything: a mistyped format, say.
    there = checkpoint.load(note, CheckpointUse) if checkpoint.has("offsets") else None
    if there is not None and there != here:
        raise UsageError(
            f"the checkpoint {checkpoint.path} is of the {there.format} files in {there.folder}: "
            f"give that folder and format, or another --checkpoint and --to"
        )
    if folder.has(LOG):
        if not checkpoint.has("offsets"):
            # Spark would count from 0 again, and skip what it takes for written.
            raise UsageError(
                f"{folder.path} was written with another checkpoint than {checkpoint.path}: "
                "give that one, or choose another folder"
            )
    elif there is None and checkpoint.has("commits/1"):
        raise UsageError(
            f"the checkpoint {checkpoint.path} was used for another folder than {folder.path}: "
            "give that one, or another --checkpoint"
        )
    if there is None:
        checkpoint.save(note, here)
