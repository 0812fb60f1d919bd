"""A folder of any file system that Spark knows (a disk, HDFS, S3), seen through Hadoop."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


class Folder:
    """A folder, which need not be there yet."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        context: Any = spark.sparkContext
        self._hadoop = context._jvm.org.apache.hadoop
        self._path = self._hadoop.fs.Path(path)
        self._system = self._path.getFileSystem(context._jsc.hadoopConfiguration())
        self.path = path
        self.whole_path: str = self._system.makeQualified(self._path).toString()
        """With its file system, wherever it is asked from."""

    @property
    def on_this_machine(self) -> str | None:
        """Its path on this machine's own disks; None for any other file system."""
        uri = self._system.makeQualified(self._path).toUri()
        path: str = uri.getPath()
        return path if uri.getScheme() == "file" else None

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
        self._system.delete(self._hadoop.fs.Path(path), False)

    def read(self, name: str) -> str | None:
        """The text of a small file in it; None where there is none."""
        found = next((each for each in (name, f".{name}.new") if self.has(each)), None)
        if found is None:
            return None
        stream = self._system.open(self._inside(found))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Replace a small file's text; whoever is killed in between has the one or the other."""
        aside, place = self._inside(f".{name}.new"), self._inside(name)
        stream = self._system.create(aside, True)
        stream.write(bytearray(text.encode()))
        stream.close()
        # Hadoop's rename does not replace: between these two the new text is only aside.
        self._system.delete(place, False)
        self._system.rename(aside, place)

    def _inside(self, name: str) -> Any:
        return self._hadoop.fs.Path(self._path, name)
