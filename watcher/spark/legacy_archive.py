"""Archives as earlier versions left them: Spark's log of its files and its checkpoint inside."""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession

from watcher.errors import UsageError
from watcher.spark.folders import DAYS, LOG, Folder

logger = logging.getLogger("watcher")

CHECKPOINT = "_checkpoint"
_OWN_FILES = "part-"
# Where a folder is moved at once; an object store would copy it, file by file.
_MOVING = ("file", "hdfs", "viewfs")


def moved_out(folder: Folder, inside: Folder, beside: Folder) -> Folder:
    """Where a folder's checkpoint is: beside it, or inside where it can't be moved from there."""
    if not inside.has("offsets") or beside.has("offsets"):
        return beside
    if inside.scheme not in _MOVING or beside.has("."):
        return inside
    with inside.locked():
        folder.move(CHECKPOINT, beside, ".")
    logger.info(f"Moved the checkpoint out of the archive, to {beside.path}")
    return beside


def cleared(spark: SparkSession, folder: Folder) -> int:
    """Remove what a killed attempt has left; the number of the last batch that is whole.

    Raises UsageError where the folder has been moved: its log does not know its files then.
    """
    whole = _committed(spark, folder.path)
    log = folder.entries(LOG)
    found = {
        (f"{place}/{name}" if place else name): time
        for place in ("", *(each for each in folder.entries() if each.startswith(DAYS)))
        for name, time in folder.entries(place or ".").items()
        if name.startswith(_OWN_FILES)
    }
    paths = {f"{folder.uri_path}/{name}": name for name in found}
    if elsewhere := sorted(whole - paths.keys()):
        raise UsageError(
            f"{folder.path} is not as it was written: it lacks {len(elsewhere)} of its files, such "
            f"as {elsewhere[0]}; put it back to where it was, or choose another folder"
        )
    # What is older than the last batch is no attempt's that came after it, but somebody else's.
    since = max(log.values(), default=0)
    left = [n for path, n in paths.items() if path not in whole and found[n] >= since]
    for name in left:
        folder.remove(name)
    if left:
        logger.info(f"Removed {len(left)} files of an attempt that did not finish")
    numbers = [name.partition(".")[0] for name in log]
    return max((int(number) for number in numbers if number.isdecimal()), default=-1)


def forget(folder: Folder) -> None:
    """Remove what is no data: Spark's log, and the checksums that only Hadoop reads."""
    folder.remove(LOG)
    if folder.disk_path is not None:
        for path in folder.disk_path.glob(f"{DAYS}*/.*.crc"):
            path.unlink()


def _committed(spark: SparkSession, path: str) -> set[str]:
    """The files that the sink's log calls whole, wherever it says they are."""
    jvm: Any = spark.sparkContext._jvm
    files = spark._jsparkSession.read().format("text").load(path).inputFiles()
    return {jvm.java.net.URI(each).getPath() for each in files}
