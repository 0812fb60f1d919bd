"""The Delta table of a mirror: rows and, in the same commit, how far the stream has been read.

So there is no checkpoint beside it that could be lost, or be ahead of it or behind: a commit is
there as a whole, or not at all.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.dataset
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from watcher.errors import UsageError, WatcherError
from watcher.mirror.parts import DataFile, PartFiles, part_of
from watcher.mirror.storage import Storage, StorageLimits

logger = logging.getLogger("watcher")

_STATE: Final = "watcher"
_APP: Final = "watcher-mirror"


class MirrorState(msgspec.Struct, frozen=True, kw_only=True):
    """The mirror's state, stored in each of its commits."""

    stream: str
    history: bool
    token: dict[str, Any]
    """The stream's position."""
    copied: bool = False
    """True once all items were copied that were there when it began."""
    copied_at: datetime | None = None
    """The time at which they were; None in mirrors of former versions."""
    number: int = 0
    """The commit's number, among the mirror's own."""
    redaction: str = ""
    """What tells its redaction from others; empty without one."""
    tidied: datetime


@dataclass(frozen=True, kw_only=True)
class MirrorLimits:
    """Sizes and pauses of a mirror."""

    items: int = 20_000
    """Items or changes in a commit, at most …"""
    image_bytes: int = 32 * 1024 * 1024
    """… or so many bytes of them."""
    segment_bytes: int = 100 * 1024 * 1024
    """The copy scans one segment for each …"""
    segments: int = 8
    """… up to so many side by side."""
    poll_seconds: float = 0.2
    """Between two looks for a change, where there was none."""
    idle_commit_seconds: float = 600.0
    """A position is stored by then, though nothing changes: the stream keeps a day."""
    tidy_after: timedelta = timedelta(days=1)
    """What is too old goes that often, also where little was replaced."""
    storage: StorageLimits = field(default_factory=StorageLimits)
    part_bytes: int = 5 * 1024
    """The rows of a part take so many, beside what each file takes, …"""
    parts: int = 4096
    """… up to so many parts."""
    part_rows: int = 16
    """A part has no less on average."""
    chunk_bytes: int = 32 * 1024 * 1024
    """What is held in memory while a table is parted anew, of compressed rows."""
    recent_commits: int = 50
    """The state is looked for in so many first: others (OPTIMIZE) may come in between."""


LIMITS: Final = MirrorLimits()

# Readers of older versions are served by what Storage keeps; each checkpoint names all files that
# were removed in this time.
_PROPERTIES: Final = {"delta.deletedFileRetentionDuration": "interval 15 minutes"}
# Of a file with a column of a name of no length.
_COLUMN_BYTES: Final = 200


class Applied(NamedTuple):
    """The rows of a part after changes."""

    valid: pa.Table
    ended: pa.Table | None = None
    """Versions that will never change."""


class Merge(NamedTuple):
    """Changes of rows, and how they are applied to the rows of a part."""

    rows: pa.Table
    keys: Sequence[str]
    """The columns that say which row is meant."""
    apply: Callable[[pa.Table, pa.Table], Applied]
    """Called with the rows that are there, and those of `rows` for the same part."""
    has_ended: Callable[[pa.Table], pa.Array] | None = None
    """Returns, of rows, whether they will never change; None where all may."""


class MirrorTable:
    """A Delta table and its state; None in the state where there is no table yet."""

    def __init__(self, to: str, limits: MirrorLimits = LIMITS) -> None:
        self._to = to
        self._limits = limits
        self.state: MirrorState | None = None
        self._table: DeltaTable | None = None
        self._parts = PartFiles(to, chunk_bytes=limits.chunk_bytes)
        self._storage = Storage(to, limits.storage)
        self._known_files: dict[str, DataFile] | None = None
        if DeltaTable.is_deltatable(to):
            self._table = DeltaTable(to)
            self.state = self._found_state(self._table)

    @property
    def schema(self) -> pa.Schema:
        """Returns its columns."""
        assert self._table is not None
        return pa.schema(self._table.schema().to_arrow())

    @property
    def version(self) -> int:
        """The version that was opened, or written last."""
        assert self._table is not None
        return int(self._table.version())

    def rows(self) -> pyarrow.dataset.Dataset:
        """Returns the rows of that version."""
        assert self._table is not None
        return self._table.to_pyarrow_dataset()

    def create(self, schema: pa.Schema, state: MirrorState) -> None:
        """Creates it, or empties what a copy that was killed has left. Raises WatcherError."""
        before = self.state.number if self.state else 0
        state = msgspec.structs.replace(state, number=before + 1)
        self._write(schema.empty_table(), state, mode="overwrite", schema_mode="overwrite")
        self._table = DeltaTable(self._to)

    def append(self, rows: pa.Table, state: MirrorState) -> None:
        """Appends rows (there may be none), and stores the stream's position."""
        self._write(rows, self._next(state), mode="append")

    def grow(self, columns: Iterable[pa.Field]) -> None:
        """Adds the columns that it lacks, null in all its rows."""
        assert self._table is not None
        has = {field.name for field in self._table.schema().fields}
        new = [Field.from_arrow(each) for each in columns if each.name not in has]
        if new:
            self._table.alter.add_columns(new)

    def merge(self, merge: Merge, state: MirrorState) -> None:
        """Applies changes to the parts that they are of.

        Raises WatcherError, also where somebody else has changed the table at the same time.
        """
        try:
            self._merge(merge, state)
            self._merge_ended()
        except (DeltaError, OSError) as error:
            raise self._translated(error) from error

    def _merge(self, merge: Merge, state: MirrorState) -> None:
        parts = self._suitable_parts(merge)
        by_part: dict[int, list[int]] = defaultdict(list)
        for row, part in enumerate(part_of([merge.rows[name] for name in merge.keys], parts)):
            by_part[part].append(row)
        files: dict[int, list[DataFile]] = defaultdict(list)
        for file in self._files().values():
            if file.part is not None and file.part in by_part:
                files[file.part].append(file)
        schema, removed, added = self.schema, [], []
        ended: list[pa.Table] = []
        for part, rows in by_part.items():
            applied = merge.apply(self._parts.read(files[part], schema), merge.rows.take(rows))
            removed += files[part]
            if applied.valid.num_rows:
                added.append(self._parts.write_part(applied.valid, part, parts))
            if applied.ended is not None and applied.ended.num_rows:
                ended.append(applied.ended)
        if ended:
            added.append(self._parts.write_ended(pa.concat_tables(ended)))
        self._commit(removed, added, self._next(state))

    def tidy(self, now: datetime) -> None:
        """Removes what was replaced, where that has become much, and once a day."""
        assert self._table is not None and self.state is not None
        live = self._files()
        size = sum(each.size for each in live.values())
        if now - self.state.tidied < self._limits.tidy_after and not self._storage.is_due(size):
            return
        try:
            self._storage.tidy(self._table, live, size, now)
        except (DeltaError, OSError) as error:
            raise self._translated(error) from error
        self.state = msgspec.structs.replace(self.state, tidied=now)

    def _suitable_parts(self, merge: Merge) -> int:
        """Returns the number of parts; splits the table again if the old number doesn't fit."""
        files = [each for each in self._files().values() if each.level is None]
        wanted = self._wanted_parts(files)
        found = {each.parts for each in files}
        if len(found) == 1 and (has := next(iter(found))) is not None:
            if has / 4 <= wanted <= has * 1.5:
                return has
        elif not files:
            return wanted
        assert self._table is not None
        logger.info(f"Parting {self._to} into {wanted} files")
        self._set_properties()
        new = self._parts.part_anew(
            files, self.schema, merge.keys, wanted, has_ended=merge.has_ended
        )
        self._commit(files, list(new), None)
        return wanted

    def _wanted_parts(self, files: Sequence[DataFile]) -> int:
        own = sum(_COLUMN_BYTES + 3 * len(name) for name in self.schema.names)
        content = sum(max(0, each.size - own) for each in files)
        rows = sum(each.rows for each in files)
        by_size = -(-content // self._limits.part_bytes)
        return max(1, min(self._limits.parts, by_size, rows // self._limits.part_rows))

    def _merge_ended(self) -> None:
        found = self._parts.to_merge(list(self._files().values()))
        if found is not None:
            files, level = found
            merged = self._parts.write_ended(self._parts.read(files, self.schema), level)
            self._commit(files, [merged], None)

    def _set_properties(self) -> None:
        assert self._table is not None
        has = self._table.metadata().configuration
        if any(has.get(name) != value for name, value in _PROPERTIES.items()):
            self._table.alter.set_table_properties({**_PROPERTIES})

    def _files(self) -> dict[str, DataFile]:
        """Returns the files of the newest version, by their paths."""
        assert self._table is not None
        if self._known_files is None:
            found = pa.table(self._table.get_add_actions(flatten=True))
            columns = (found[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
            files = (
                DataFile(path, size, rows or 0) for path, size, rows in zip(*columns, strict=True)
            )
            self._known_files = {each.path: each for each in files}
        return self._known_files

    def _commit(
        self, removed: Sequence[DataFile], added: Sequence[DataFile], state: MirrorState | None
    ) -> None:
        """Replaces files; without a state, by files with the same rows."""
        assert self._table is not None
        before = self.version
        changes, at = state is not None, int(datetime.now().timestamp() * 1000)
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(each.path, changes, at, each.size, {}) for each in removed
        ]
        for each in added:
            stats = msgspec.json.encode({"numRecords": each.rows}).decode()
            actions.append(AddAction(each.path, each.size, {}, at, changes, stats))
        self._table.create_write_transaction(
            actions,
            "append",
            self._table.schema(),
            commit_properties=_properties(state) if state else None,
        )
        self._table.update_incremental()
        if self.version > before + 1:  # somebody else's commit is there, too
            self._known_files = None
        files = self._files()
        for each in removed:
            files.pop(each.path, None)
        files.update((each.path, each) for each in added)
        self._storage.count_commit(self.version, sum(each.size for each in removed))
        if state is not None:
            self.state = state

    def _write(
        self,
        rows: pa.Table,
        state: MirrorState,
        *,
        mode: Literal["append", "overwrite"],
        schema_mode: Literal["overwrite"] | None = None,
    ) -> None:
        try:
            write_deltalake(
                self._table or self._to,
                rows,
                commit_properties=_properties(state),
                mode=mode,
                schema_mode=schema_mode,
            )
        except (DeltaError, OSError) as error:
            raise self._translated(error) from error
        self.state = state
        self._known_files = None

    def _next(self, state: MirrorState) -> MirrorState:
        assert self.state is not None
        return msgspec.structs.replace(
            state, number=self.state.number + 1, tidied=self.state.tidied
        )

    def _found_state(self, table: DeltaTable) -> MirrorState:
        """Returns the state of the latest commit that has one."""
        for limit in (self._limits.recent_commits, None):
            for commit in table.history(limit):
                if text := commit.get(_STATE):
                    try:
                        return msgspec.json.decode(text, type=MirrorState)
                    except msgspec.DecodeError as error:
                        raise UsageError(
                            f"{self._to} has a state that can't be read: {error}"
                        ) from error
        raise UsageError(
            f"{self._to} is a Delta table that mirror has not made: choose another folder"
        )

    def _translated(self, error: Exception) -> WatcherError:
        if isinstance(error, CommitFailedError):
            return WatcherError(
                f"{self._to} was changed by somebody else at the same time: one mirror a table; "
                "the same command goes on"
            )
        return WatcherError(f"{self._to}: {str(error).splitlines()[0]}")


def _properties(state: MirrorState) -> CommitProperties:
    # The application's transaction: of two that begin at one state, only one is let through.
    return CommitProperties(
        custom_metadata={_STATE: msgspec.json.encode(state).decode()},
        app_transactions=[Transaction(_APP, state.number)],
    )
