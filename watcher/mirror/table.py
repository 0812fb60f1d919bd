"""The table of a mirror: rows and, in the same commit, how far the stream has been read.

So there is no checkpoint beside it that could be lost, or be ahead of it or behind: a commit is
there as a whole, or not at all. A format (Delta, Iceberg) says how a commit is made; this module
says which files it replaces.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.dataset

from watcher.errors import WatcherError
from watcher.mirror.folder import Folder
from watcher.mirror.parts import PART, DataFile, PartFiles, part_of


@dataclass(frozen=True, kw_only=True)
class StorageLimits:
    """The limits of the files kept for readers of older versions."""

    replaced_share: float = 2.0
    """The most replaced bytes to keep, as a multiple of the table's bytes …"""
    replaced_bytes: int = 16 * 1024 * 1024
    """… or this number of bytes, if that is more."""
    at_least: timedelta = timedelta(minutes=5)
    """The shortest time to keep a version: a reader may be in the middle of it."""
    commits: int = 10
    """The fewest commits to keep: one of the newest has the mirror's state."""
    at_most: timedelta = timedelta(weeks=1)
    """The longest time to keep a version."""
    unfinished_after: timedelta = timedelta(hours=1)
    """A file that no commit names is then garbage: its writer was killed."""


class Commit(NamedTuple):
    """A commit, and the bytes that it made superfluous."""

    version: int
    made_at: datetime
    replaced_bytes: int
    """The files that it has removed, and what the commit itself takes."""


class Retention:
    """Decides when older versions go, and which of them."""

    def __init__(self, limits: StorageLimits) -> None:
        self.limits = limits
        self._since_tidied: int | None = None

    def count(self, replaced_bytes: int) -> None:
        """Counts what a commit has replaced, and its own size."""
        if self._since_tidied is not None:
            self._since_tidied += replaced_bytes

    def is_due(self, live_bytes: int) -> bool:
        """Returns True once half of what may be kept was replaced, and at the beginning."""
        return self._since_tidied is None or self._since_tidied > self._most(live_bytes) / 2

    def tidied(self) -> None:
        """Begins to count again."""
        self._since_tidied = 0

    def oldest(self, commits: Iterable[Commit], live_bytes: int, now: datetime) -> int | None:
        """Returns the oldest version to keep, of these commits, the newest first; None: all."""
        kept = 0
        for newer, commit in enumerate(commits):
            # The version before this commit has what the commit has removed.
            kept += commit.replaced_bytes
            age = now - commit.made_at
            is_much = kept > self._most(live_bytes) / 2 and age >= self.limits.at_least
            if (is_much or age > self.limits.at_most) and newer >= self.limits.commits:
                return commit.version
        return None

    def _most(self, live_bytes: int) -> float:
        return max(live_bytes * self.limits.replaced_share, self.limits.replaced_bytes)


logger = logging.getLogger("watcher")


class MirrorState(msgspec.Struct, frozen=True, kw_only=True):
    """The mirror's state, stored in each of its commits."""

    stream: str
    history: bool
    token: dict[str, Any]
    """The stream's position."""
    copied: bool = False
    """True once all items are copied that existed when the mirror began."""
    copied_at: datetime | None = None
    """The time when the copy ended; None in mirrors of earlier versions."""
    number: int = 0
    """The commit's number, among the mirror's own."""
    redaction: str = ""
    """The fingerprint of its redaction; empty without one."""
    tidied: datetime


@dataclass(frozen=True, kw_only=True)
class MirrorLimits:
    """Sizes and pauses of a mirror."""

    items: int = 20_000
    """The most items or changes of a commit …"""
    image_bytes: int = 32 * 1024 * 1024
    """… and their most bytes."""
    segment_bytes: int = 100 * 1024 * 1024
    """The bytes of a table for which the copy scans one more segment …"""
    segments: int = 8
    """… up to this number side by side."""
    poll_seconds: float = 0.2
    """Between two looks for a change, where there was none."""
    idle_commit_seconds: float = 600.0
    """A position is stored by then, though nothing changes: the stream keeps a day."""
    tidy_after: timedelta = timedelta(days=1)
    """The time between two deletions of old versions where little was replaced."""
    storage: StorageLimits = field(default_factory=StorageLimits)
    part_bytes: int = 5 * 1024
    """The bytes of a part's rows, without the file's own …"""
    parts: int = 4096
    """… up to this number of parts."""
    part_rows: int = 16
    """The fewest rows of a part, on average."""
    chunk_bytes: int = 32 * 1024 * 1024
    """The bytes of compressed rows in memory while a table is split …"""
    merge_bytes: int = 2 * 1024 * 1024
    """… and of the parts that one commit changes together."""
    recent_commits: int = 50
    """The state is looked for in so many first: others (OPTIMIZE) may come in between."""


LIMITS: Final = MirrorLimits()

_TREE: Final = re.compile(r"\x1b\[\d*m|↳")
# Of a file with a column of a name of no length.
_COLUMN_BYTES: Final = 200


class Applied(NamedTuple):
    """The rows of some parts after changes."""

    valid: pa.Table
    ended: pa.Table | None = None
    """Versions that will never change."""


class Merge(NamedTuple):
    """Changes of rows, and how they are applied to the rows of some parts."""

    rows: pa.Table
    keys: Sequence[str]
    """The columns that say which row is meant."""
    apply: Callable[[pa.Table, pa.Table], Applied]
    """Called with the stored rows, and those of `rows` for the same parts."""
    has_ended: Callable[[pa.Table], pa.Array] | None = None
    """Returns, of rows, whether they will never change; None where all may."""


class MirrorTable(ABC):
    """A table in a folder, and its state; None in the state where there is no table yet."""

    def __init__(self, to: str, limits: MirrorLimits) -> None:
        self.to = to
        self.limits = limits
        self.retention = Retention(limits.storage)
        self.state: MirrorState | None = None
        self.stored_at: datetime | None = None
        """The time of the commit in which an opened table's state was found."""

    @property
    @abstractmethod
    def folder(self) -> Folder:
        """Returns the folder of its files of rows."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Returns its columns."""

    @property
    @abstractmethod
    def version(self) -> int:
        """Returns the version that was opened, or written last."""

    @abstractmethod
    def create(self, schema: pa.Schema, state: MirrorState) -> None:
        """Creates it, or empties what a copy that was killed has left. Raises WatcherError."""

    @abstractmethod
    def append(self, rows: pa.Table, state: MirrorState) -> None:
        """Appends rows (there may be none), and stores the stream's position."""

    @abstractmethod
    def grow(self, columns: Iterable[pa.Field]) -> None:
        """Adds the columns that it lacks, null in all its rows. Raises UsageError, WatcherError."""

    @abstractmethod
    def files(self) -> dict[str, DataFile]:
        """Returns the files of the newest version, by their paths."""

    @abstractmethod
    def rows(self) -> pyarrow.dataset.Dataset:
        """Returns the rows of the newest version."""

    @abstractmethod
    def commit(
        self, removed: Sequence[DataFile], added: Sequence[DataFile], state: MirrorState | None
    ) -> None:
        """Replaces files, at once; without a state, by files with the same rows."""

    @abstractmethod
    def delete_replaced(self, live_bytes: int, now: datetime) -> None:
        """Deletes what only older versions need than those that `retention` keeps."""

    @abstractmethod
    def translated_errors(self) -> AbstractContextManager[None]:
        """Raises the errors of the format's library as WatcherError."""

    def tidy(self, now: datetime) -> None:
        """Deletes what was replaced, where that has become much, and once a day."""
        assert self.state is not None
        live_bytes = sum(each.size for each in self.files().values())
        is_late = now - self.state.tidied >= self.limits.tidy_after
        if is_late or self.retention.is_due(live_bytes):
            with self.translated_errors():
                self.delete_replaced(live_bytes, now)
            self.state = msgspec.structs.replace(self.state, tidied=now)

    def merge(self, merge: Merge, state: MirrorState) -> None:
        """Applies changes to the parts that they are of.

        Raises WatcherError, also where another program has changed the table at the same time.
        """
        with self.translated_errors():
            self._merge(merge, state)

    def _merge(self, merge: Merge, state: MirrorState) -> None:
        parts = self._suitable_parts(merge)
        removed: list[DataFile] = []
        added: list[DataFile] = []
        ended: list[pa.Table] = []
        schema = self.schema
        for files, rows in self._changed_parts(merge, parts):
            applied = merge.apply(self.part_files.read_parts(files, schema), rows)
            removed += files
            added += self.part_files.write_parts(applied.valid, parts, schema)
            if applied.ended is not None and applied.ended.num_rows:
                ended.append(applied.ended)
        if ended:
            added.append(self.part_files.write_ended(pa.concat_tables(ended), schema))
        self.commit(removed, added, self.next_state(state))
        self._merge_ended()

    @property
    def part_files(self) -> PartFiles:
        """Returns what reads and writes its files."""
        return PartFiles(self.folder, chunk_bytes=self.limits.chunk_bytes)

    def next_state(self, state: MirrorState) -> MirrorState:
        """Returns the state of the next commit."""
        assert self.state is not None
        return msgspec.structs.replace(
            state, number=self.state.number + 1, tidied=self.state.tidied
        )

    def changed_by_others(self) -> WatcherError:
        """Returns the error of a commit that another program's commit came before."""
        return WatcherError(
            f"{self.to} was changed by another program at the same time: run one mirror a table; "
            "the same command continues"
        )

    def error_of(self, error: Exception) -> WatcherError:
        """Returns a library's error as one line; delta-rs colours a tree of causes."""
        lines = (_TREE.sub("", line).strip() for line in str(error).splitlines())
        return WatcherError(f"{self.to}: {': '.join(line for line in lines if line)}")

    def _changed_parts(self, merge: Merge, parts: int) -> Iterator[tuple[list[DataFile], pa.Table]]:
        """Yields the files of parts that have changes, and these: as many as the memory takes."""
        numbers = part_of([merge.rows[name] for name in merge.keys], parts)
        rows_of: dict[int, list[int]] = defaultdict(list)
        for row, part in enumerate(numbers):
            rows_of[part].append(row)
        files_of: dict[int, list[DataFile]] = defaultdict(list)
        for file in self.files().values():
            if file.part is not None and file.part in rows_of:
                files_of[file.part].append(file)
        rows = merge.rows.append_column(PART, pa.array(numbers, pa.int32()))
        files: list[DataFile] = []
        indexes: list[int] = []
        for part, of_part in rows_of.items():
            files += files_of[part]
            indexes += of_part
            if sum(each.size for each in files) >= self.limits.merge_bytes:
                yield files, rows.take(indexes)
                files, indexes = [], []
        if indexes:
            yield files, rows.take(indexes)

    def _suitable_parts(self, merge: Merge) -> int:
        """Returns the number of parts; splits the table again if the old number doesn't fit."""
        files = [each for each in self.files().values() if each.level is None]
        target_parts = self._wanted_parts(files)
        found = {each.parts for each in files}
        if len(found) == 1 and (has := next(iter(found))) is not None:
            if has / 4 <= target_parts <= has * 1.5:
                return has
        elif not files:
            return target_parts
        logger.info(f"Splitting {self.to} into {target_parts} files")
        new = self.part_files.part_anew(
            files, self.schema, merge.keys, target_parts, has_ended=merge.has_ended
        )
        self.commit(files, list(new), None)
        return target_parts

    def _wanted_parts(self, files: Sequence[DataFile]) -> int:
        own = sum(_COLUMN_BYTES + 3 * len(name) for name in self.schema.names)
        content = sum(max(0, each.size - own) for each in files)
        rows = sum(each.rows for each in files)
        by_size = -(-content // self.limits.part_bytes)
        return max(1, min(self.limits.parts, by_size, rows // self.limits.part_rows))

    def _merge_ended(self) -> None:
        found = self.part_files.to_merge(list(self.files().values()))
        if found is not None:
            files, level = found
            schema = self.schema
            merged = self.part_files.write_ended(self.part_files.read(files, schema), schema, level)
            self.commit(files, [merged], None)
