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

    def has(self, name: str) -> bool:
        """Whether there is such an entry in it."""
        return bool(self._system.exists(self._inside(name)))

    def files(self, prefix: str) -> dict[str, Any]:
        """The files below it with such names, by their whole path; not those in `_folders`."""
        found: dict[str, Any] = {}
        whole = self._system.makeQualified(self._path).toString()
        listing = self._system.listFiles(self._path, True)
        while listing.hasNext():
            path = listing.next().getPath()
            if "/_" not in path.toString()[len(whole) :] and path.getName().startswith(prefix):
                found[path.toUri().getPath()] = path
        return found

    def remove(self, path: Any) -> None:
        """Remove one of its files."""
        self._system.delete(path, False)

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
