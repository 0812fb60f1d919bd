"""A folder that a query appends whole files to: nothing else is in it, and nothing half-done.

A batch is written elsewhere first. Then one small file, saved in the checkpoint, says which of its
files go where: from then on the batch is in, and a start after a kill moves what is not moved yet.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import PurePosixPath

import msgspec
from pyspark.sql import SparkSession

from watcher.errors import UsageError
from watcher.spark import compaction
from watcher.spark.folders import DAYS, LOG, Folder

logger = logging.getLogger("watcher")

_BATCH = "watcher-batch.json"
_UNFINISHED = "unfinished"
_INSIDE = "_checkpoint"


class LakeBatch(msgspec.Struct, frozen=True):
    """The last batch that is in; stored in the checkpoint."""

    number: int
    moves: dict[str, str]
    """Its files, where they were written, and where in the folder they go."""


class Lake:
    """A folder of files; `home` is the folder beside it, and `kept` the query's checkpoint."""

    def __init__(self, folder: Folder, home: Folder, kept: Folder) -> None:
        self.folder = folder
        self.kept = kept
        self._home = home
        self._lock = threading.Lock()
        self._is_open = False
        self._compacted_before = ""

    @contextmanager
    def open(self, note: str, content: str, *, by_spark: bool = False) -> Iterator[None]:
        """Keeps other jobs out of it, and finishes what a killed one has begun.

        `by_spark` for files that Spark's own sink writes, with its log. Raises UsageError (see
        `bind`), also where another job holds it.
        """
        if not by_spark and self.folder.has(LOG):
            raise UsageError(
                f"{self.folder.path} is an archive of the first version, with Spark's log {LOG}: "
                "choose a new folder; this one can still be read"
            )
        is_own = self.kept is self._home
        with self._home.locked(), nullcontext() if is_own else self.kept.locked():
            bind(self.folder, self.kept, note, content, may_move=is_own)
            self.folder.make()
            self._finish()
            self._is_open = True
            try:
                yield
            finally:
                self._is_open = False
                with self._lock:  # a batch that Spark has cut off may still be at work here
                    pass

    def files_of(self, number: int) -> list[str] | None:
        """Returns the files that are left of a batch that is in already; None for one that is not.

        Such a batch was cut off, or killed, after it was in and before Spark had noted that.
        """
        last = self.kept.load(_BATCH, LakeBatch)
        if last is None or number > last.number:
            return None
        names = last.moves.values() if number == last.number else ()
        return [name for name in names if self.folder.has(name)]

    def append(self, write: Callable[[str], None], number: int) -> list[str]:
        """Has `write` write a batch to a path, and takes its files in; returns their names."""
        with self._lock:
            if not self._is_open:
                raise UsageError(f"{self.folder.path} is not open for batch {number}")
            if self.files_of(number) is not None:
                return []
            temporary = f"{_UNFINISHED}/{number}"
            write(f"{self._home.whole_path}/{temporary}")
            moves = _moves(self._home, temporary, number)
            self.kept.save(_BATCH, LakeBatch(number, moves))
            self._finish()
            return list(moves.values())

    def compact(self, files: Iterable[str], go_on: Callable[[], bool]) -> None:
        """Compacts the days before those of a batch's files, where no reader can notice."""
        lake, home = self.folder.disk_path, self._home.disk_path
        day = min((file.partition("/")[0] for file in files), default="")
        if lake is None or home is None or not day:
            return
        with self._lock:
            compaction.sweep(home)
            if day == self._compacted_before:
                return
            self._compacted_before = day
            try:
                for each in compaction.days(lake, before=day):
                    compaction.compact_day(each, home, lambda: self._is_open and go_on())
            except (UsageError, OSError) as error:
                logger.warning(f"Archiving goes on, but {error}")

    def _finish(self) -> None:
        """Moves what is not moved yet of the last batch, and removes what became no batch."""
        last = self.kept.load(_BATCH, LakeBatch)
        for source, target in (last.moves if last else {}).items():
            if not self._home.has(source):
                continue
            if self.folder.disk_path is None and self.folder.has(target):
                continue  # an object store has copied it, and was cut off before it removed this
            self.folder.make(str(PurePosixPath(target).parent))
            self._home.move(source, self.folder, target)
        self._home.remove(_UNFINISHED)


def lake_of(spark: SparkSession, to: str, checkpoint: str | None) -> Lake:
    """Returns the folder `to`, with its checkpoint: the one given, or the folder beside it.

    Raises UsageError where the folder's checkpoint is inside it, as the first version kept it.
    """
    folder = Folder(spark, to)
    home = _home(spark, folder)
    return Lake(folder, home, Folder(spark, checkpoint) if checkpoint else home)


def _home(spark: SparkSession, folder: Folder) -> Folder:
    """Returns the folder beside it, which no reader looks into; inside where it is alone."""
    inside = Folder(spark, f"{folder.shown_path}/{_INSIDE}")
    if folder.is_alone:
        return inside
    beside = Folder(spark, f"{folder.shown_path}.checkpoint")
    if inside.has("offsets") and not folder.has(LOG) and not beside.has("offsets"):
        raise UsageError(
            f"the checkpoint of {folder.path} is in it: move {inside.shown_path} "
            f"to {beside.shown_path}"
        )
    return beside


def _moves(home: Folder, temporary: str, number: int) -> dict[str, str]:
    """Returns a batch's files with the names that they get; as deep as one folder."""
    moves: dict[str, str] = {}
    for entry in sorted(home.entries(temporary)) if home.has(temporary) else ():
        if entry[0] in "._":
            continue
        is_folder = "=" in entry
        names = [f"{entry}/{each}" for each in home.entries(f"{temporary}/{entry}")]
        for name in sorted(names) if is_folder else [entry]:
            path = PurePosixPath(name)
            if path.name[0] in "._":
                continue
            # Spark's are part-00000-<UUID>.c000.snappy.parquet.
            ending = path.name.split(".", 2)[-1]
            target = path.with_name(f"batch-{number:09}-{len(moves):05}.{ending}")
            moves[f"{temporary}/{name}"] = str(target)
    return moves


class CheckpointUse(msgspec.Struct, frozen=True):
    """The use of a checkpoint; stored in it."""

    folder: str
    """With its file system."""
    format: str
    """The format of the files."""


def bind(
    folder: Folder, checkpoint: Folder, note: str, content: str, *, may_move: bool = False
) -> None:
    """Notes in a new checkpoint what it is for; `may_move` where its place names the folder.

    Raises UsageError where folder, checkpoint and content have not been used together before:
    Spark would go on, and leave out or mix up what it writes.
    """
    here = CheckpointUse(folder.whole_path, content)
    is_new = not checkpoint.has("offsets")
    # Before the first batch nothing is bound to anything: a mistyped format, say.
    there = None if is_new else checkpoint.load(note, CheckpointUse)
    if there is not None and may_move:
        there = msgspec.structs.replace(there, folder=here.folder)
    if there is not None and there != here:
        raise UsageError(
            f"the checkpoint {checkpoint.path} is of the {there.format} files in {there.folder}: "
            f"give that folder and format, or another --checkpoint and --to"
        )
    if is_new:
        _refuse_used(folder, checkpoint)
    elif there is None and checkpoint.has("commits/1"):
        raise UsageError(
            f"the checkpoint {checkpoint.path} was used for another folder than {folder.path}: "
            "give that one, or another --checkpoint"
        )
    if there is None:
        checkpoint.save(note, here)


def _refuse_used(folder: Folder, checkpoint: Folder) -> None:
    """Raises UsageError for a folder that has files: all changes would be in it once more."""
    names = folder.entries() if folder.has(".") else {}
    data = [name for name in names if name.startswith(DAYS) or name.endswith(".parquet")]
    if data or folder.has(LOG):
        raise UsageError(
            f"{folder.path} was written with another checkpoint than {checkpoint.path}: "
            "give that one, or choose another folder"
        )
