"""What a folder of Spark's file sink, and the checkpoint that goes with it, are used for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from pyspark.sql import SparkSession

from watcher.errors import UsageError
from watcher.spark.folder import Folder
from watcher.spark.lock import only_here

LOG = "_spark_metadata"
"""Where the sink notes which files are whole; readers other than Spark don't look there."""


class Use(msgspec.Struct, frozen=True):
    """What a checkpoint is used for; stored in it."""

    folder: str
    """With its file system."""
    format: str
    """What is in the files."""


@contextmanager
def alone(
    spark: SparkSession, place: Folder, checkpoint: Folder, note: str, content: str
) -> Iterator[None]:
    """Hold a checkpoint against other jobs, and note in a new one what it is for.

    Raises UsageError where another job holds it, and where folder, checkpoint and content have not
    been used together before: Spark would go on, and leave out or mix up what it writes.
    """
    with only_here(spark, checkpoint):
        _bind(place, checkpoint, note, content)
        yield


def _bind(place: Folder, checkpoint: Folder, note: str, content: str) -> None:
    here = Use(place.whole_path, content)
    # Before the first batch nothing is bound to anything: a mistyped format, say.
    text = checkpoint.read(note) if checkpoint.has("offsets") else None
    there = msgspec.json.decode(text, type=Use) if text else here
    if there != here:
        raise UsageError(
            f"the checkpoint {checkpoint.path} is of the {there.format} files in {there.folder}: "
            f"give that folder and format, or another --checkpoint and --to"
        )
    if place.has(LOG):
        if not checkpoint.has("offsets"):
            # Spark would count from 0 again, and skip what it takes for written.
            raise UsageError(
                f"{place.path} was written with another checkpoint than {checkpoint.path}: "
                "give that one, or choose another folder"
            )
    elif text is None and checkpoint.has("commits/1"):
        raise UsageError(
            f"the checkpoint {checkpoint.path} was used for another folder than {place.path}: "
            "give that one, or another --checkpoint"
        )
    if text is None:
        checkpoint.write(note, msgspec.json.encode(here).decode())
