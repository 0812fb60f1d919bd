"""Folders of any file system that Spark knows: a disk, HDFS, S3."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from watcher.errors import UsageError

DAYS = "date="
"""The beginning of the names of an archive's folders."""
LOCK = ".watcher-lock"
"""A file in a checkpoint on a disk, which the writing job locks."""
LOCK_SECONDS: Final = 15.0
"""The wait for a folder's lock: a killed job's JVM may write for some more seconds."""
_LOCK_POLL_SECONDS: Final = 0.25
_DISK = "file"
# Of Hadoop, and of the same version as Spark's own.
_MODULES = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"}

_PATTERN = re.compile(r"[][{}*?\\]")

JavaObject: TypeAlias = Any
"""An object in the JVM, by way of py4j, which has no types."""

_Kind = TypeVar("_Kind", bound=msgspec.Struct)


class Folder:
    """A folder of one of Hadoop's file systems; it need not exist yet."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        context: Any = spark.sparkContext
        self._jvm_view = context._jvm
        self._path = self._new_path(path)
        try:
            self._system = self._path.getFileSystem(context._jsc.hadoopConfiguration())
        except Py4JJavaError as error:
            if "ClassNotFound" in str(error) or "No FileSystem for scheme" in str(error):
                raise UsageError(self._missing_module(path)) from error
            raise
        self.path = path
        self._whole_path = self._system.makeQualified(self._path)
        self.whole_path: str = self._whole_path.toString()
        """The whole path, with its file system."""
        uri = self._whole_path.toUri()
        self.scheme = str(uri.getScheme())
        self.disk_path = Path(uri.getPath()) if self.scheme == _DISK else None
        """Its path on this machine's disks; None if it is elsewhere."""
        self.shown_path = str(self.disk_path or self.whole_path.rstrip("/"))
        """The whole path for messages."""

    @property
    def is_alone(self) -> bool:
        """True for a bucket or a mounted disk: no folder can be beside it."""
        if self.disk_path is not None and self.disk_path.is_mount():
            return True
        return self._whole_path.getParent() is None

    def has(self, name: str) -> bool:
        """True if it has an entry of this name."""
        return bool(self._system.exists(self._inside(name)))

    def literal(self, name: str) -> str:
        """Returns the whole path of an entry, for Spark's readers, which take `[` for a pattern."""
        return _PATTERN.sub(r"\\\g<0>", f"{self.whole_path}/{name}")

    def entries(self, name: str = ".") -> list[str]:
        """Returns the names in it, or in one of its folders, which must exist."""
        if self.disk_path is not None:  # two calls of the JVM for each name take seconds for a day
            return os.listdir(self.disk_path / name)
        found = self._system.listStatus(self._inside(name))
        return [str(each.getPath().getName()) for each in found]

    def make(self, name: str = ".") -> None:
        """Creates it, or a folder in it, if it does not exist. Raises UsageError."""
        if not self._system.mkdirs(self._inside(name)):
            raise UsageError(f"can't make the folder {self.path}: {name}")

    def move(self, name: str, to: Folder, as_name: str) -> None:
        """Moves an entry to a folder of the same file system that has none of this name.

        A disk and HDFS move it in one step; an object store does so with a file (it copies it), but
        not with a folder. Raises OSError, UsageError.
        """
        if self.disk_path is not None and to.disk_path is not None:
            # Hadoop's rename would copy where it has to cross disks, and replaces files.
            if (to.disk_path / as_name).is_file():
                raise UsageError(
                    f"{to.path}/{as_name} already exists, and another program may own it"
                )
            os.rename(self.disk_path / name, to.disk_path / as_name)
        elif not self._system.rename(self._inside(name), to._inside(as_name)):
            raise UsageError(f"{self.path}/{name} can't be moved to {to.path}/{as_name}")

    def remove(self, name: str) -> None:
        """Removes an entry with everything in it; does nothing if there is none."""
        self._system.delete(self._inside(name), True)

    def load(self, name: str, kind: type[_Kind]) -> _Kind | None:
        """Returns the value that `save` has stored; None before the first."""
        found = next((each for each in (name, f".{name}.new") if self.has(each)), None)
        if found is None:
            return None
        stream = self._system.open(self._inside(found))
        try:
            return msgspec.json.decode(bytes(stream.readAllBytes()), type=kind)
        except msgspec.DecodeError:
            if found == name:
                raise
            return None  # a kill interrupted the first write
        finally:
            stream.close()

    def save(self, name: str, value: msgspec.Struct) -> None:
        """Stores a value as a small JSON file; a kill leaves the former or the new one."""
        new, current = self._inside(f".{name}.new"), self._inside(name)
        stream = self._system.create(new, True)
        stream.write(bytearray(msgspec.json.encode(value)))
        stream.close()
        # Hadoop's rename does not replace: between these two there is only the new one.
        self._system.delete(current, False)
        self._system.rename(new, current)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks it against other jobs, if it is on this machine's disks.

        Other file systems have no locks that end with a process. The JVM holds the lock, as it
        writes the files. Raises UsageError if another job has it.
        """
        if self.disk_path is None:
            yield
            return
        java, path = self._jvm_view.java, str(self.disk_path)
        there = java.io.File(path)
        if not there.mkdirs() and not there.isDirectory():
            raise UsageError(
                f"can't make the folder {path}: a file is in its way, or no permission"
            )
        file = java.io.RandomAccessFile(java.io.File(path, LOCK), "rw")
        try:
            deadline = time.monotonic() + LOCK_SECONDS
            while not _has_locked(file):
                if time.monotonic() >= deadline:
                    raise UsageError(
                        f"another job is writing with {self.path}: one at a time; "
                        "end that one, or choose another folder"
                    )
                time.sleep(_LOCK_POLL_SECONDS)
            yield
        finally:
            with suppress(Py4JError, OSError):  # a JVM that has ended, and its locks with it
                file.close()

    def _missing_module(self, path: str) -> str:
        """Returns the error for a file system whose classes Spark's package lacks."""
        scheme = path.partition(":")[0]
        if scheme == "s3":
            return f"{path}: Hadoop calls it s3a://"
        if scheme not in _MODULES:
            return f"{path}: Spark knows no {scheme}://; --packages can bring it"
        version = self._jvm_view.org.apache.hadoop.util.VersionInfo.getVersion()
        module = f"org.apache.hadoop:{_MODULES[scheme]}:{version}"
        return f"{path}: this Spark has no {scheme}://; give --packages {module}"

    def _inside(self, name: str) -> JavaObject:
        return self._new_path(self._path, name)

    def _new_path(self, *parts: JavaObject | str) -> JavaObject:
        return self._jvm_view.org.apache.hadoop.fs.Path(*parts)


def _has_locked(file: JavaObject) -> bool:
    try:
        return file.getChannel().tryLock() is not None
    except Exception as error:
        if "OverlappingFileLockException" in str(error):  # a job of this very JVM
            return False
        raise
