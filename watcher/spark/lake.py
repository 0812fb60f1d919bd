"""A folder that a query appends whole files to; readers never see a part of a batch's file.

The query writes a batch to the folder beside it first. Then it saves one small file in the
checkpoint, with the place of each of the batch's files: from then on the batch counts as appended,
and a start after a kill moves the files that are not moved yet.
"""

from __future__ import annotations

import itertools
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import PurePosixPath

import msgspec
from pyspark.sql import SparkSession

from watcher.errors import UsageError
from watcher.spark.folders import DAYS, Folder

logger = logging.getLogger("watcher")

_BATCH = "watcher-batch.json"
_UNFINISHED = "unfinished"
_INSIDE = "_checkpoint"
_BATCH_FILE = re.compile(r"batch-(\d+)-")
_NEWEST_DAYS = 2


class LakeBatch(msgspec.Struct, frozen=True):
    """The last batch that was appended; stored in the checkpoint."""

    number: int
    moves: dict[str, str]
    """Its files: the place that each was written to, and its name in the folder."""


class Lake:
    """A folder of files; `work` is the folder beside it, where batches are written first."""

    def __init__(self, folder: Folder, work: Folder, checkpoint: Folder) -> None:
        self.folder = folder
        self.checkpoint = checkpoint
        """The query's."""
        self._work = work
        self._lock = threading.Lock()
        self._is_open = False

    @contextmanager
    def open(self, note: str, content: str) -> Iterator[None]:
        """Locks the folder against other jobs, and completes the batch that a kill cut off.

        Raises UsageError (see `bind`), also where another job holds the lock.
        """
        is_own = self.checkpoint is self._work
        with self._work.locked(), nullcontext() if is_own else self.checkpoint.locked():
            bind(self.folder, self.checkpoint, note, content, may_move=is_own)
            self.folder.make()
            self._refuse_older_checkpoint()
            self._finish()
            self._is_open = True
            try:
                yield
            finally:
                self._is_open = False
                with self._lock:  # waits for a batch that Spark has cut off
                    pass

    def files_of(self, number: int) -> list[str] | None:
        """Returns the files of a batch that is appended already; None for a new one.

        Spark repeats a batch that was cut off, or killed, before Spark had noted its end.
        """
        last = self.checkpoint.load(_BATCH, LakeBatch)
        if last is None or number > last.number:
            return None
        names = last.moves.values() if number == last.number else ()
        return [name for name in names if self.folder.has(name)]

    def append(self, write: Callable[[str], None], number: int) -> None:
        """Appends the files that `write` writes to a path; does nothing for a batch that is in."""
        with self._lock:
            if not self._is_open:
                raise UsageError(f"{self.folder.path} is not open for batch {number}")
            if self.files_of(number) is not None:
                return
            temporary = f"{_UNFINISHED}/{number}"
            write(f"{self._work.whole_path}/{temporary}")
            moves = _moves(self._work, temporary, number)
            self.checkpoint.save(_BATCH, LakeBatch(number, moves))
            self._finish()

    def _refuse_older_checkpoint(self) -> None:
        """Raises UsageError where the checkpoint, or Spark's part of it, is an older copy.

        Spark would read changes again, and give the numbers of later batches to others: the folder
        would hold some changes twice, and lack some.
        """
        last = self.checkpoint.load(_BATCH, LakeBatch)
        number = -1 if last is None else last.number
        newest = max(map(int, self._newest_batches()), default=-1)
        # Spark notes each batch there before it runs it.
        if newest > number or (last is not None and not self.checkpoint.has(f"offsets/{number}")):
            raise UsageError(
                f"the checkpoint {self.checkpoint.path} is older than the files in "
                f"{self.folder.path}, which has batch {max(newest, number)}: restore both as of "
                "the same time, or choose a new folder"
            )

    def _newest_batches(self) -> Iterator[str]:
        """Yields the numbers of the batches that have files in the newest days, or in no day."""
        names = self.folder.entries()
        days = sorted(name for name in names if name.startswith(DAYS))[-_NEWEST_DAYS:]
        for name in itertools.chain(names, *map(self.folder.entries, days)):
            if found := _BATCH_FILE.match(name):
                yield found[1]

    def _finish(self) -> None:
        """Moves the last batch's files that are not moved yet, and removes unfinished ones."""
        last = self.checkpoint.load(_BATCH, LakeBatch)
        for source, target in (last.moves if last else {}).items():
            if not self._work.has(source):
                continue
            if self.folder.disk_path is None and self.folder.has(target):
                continue  # an object store has copied it, and was cut off before it removed this
            self.folder.make(str(PurePosixPath(target).parent))
            self._work.move(source, self.folder, target)
        self._work.remove(_UNFINISHED)


def lake_of(spark: SparkSession, to: str, checkpoint: str | None) -> Lake:
    """Returns the folder `to`, with its checkpoint: the one given, or the folder beside it."""
    folder = Folder(spark, to)
    work = _work_folder(spark, folder)
    return Lake(folder, work, Folder(spark, checkpoint) if checkpoint else work)


def _work_folder(spark: SparkSession, folder: Folder) -> Folder:
    """Returns the folder beside it, which no reader looks into; inside where it is alone."""
    if folder.is_alone:
        return Folder(spark, f"{folder.shown_path}/{_INSIDE}")
    return Folder(spark, f"{folder.shown_path}.checkpoint")


def _moves(work: Folder, temporary: str, number: int) -> dict[str, str]:
    """Returns a batch's files with the names that they get; as deep as one folder."""
    moves: dict[str, str] = {}
    for entry in sorted(work.entries(temporary)) if work.has(temporary) else ():
        if entry[0] in "._":
            continue
        names = [entry]
        if "=" in entry:
            names = [f"{entry}/{each}" for each in work.entries(f"{temporary}/{entry}")]
        for name in sorted(names):
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
            f"the checkpoint {checkpoint.path} belongs to the {there.format} files in "
            f"{there.folder}: "
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
    if data:
        raise UsageError(
            f"{folder.path} was written with another checkpoint than {checkpoint.path}: "
            "give that one, or choose another folder"
        )
