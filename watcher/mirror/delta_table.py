"""A mirror in Delta's format, written by delta-rs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.dataset
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from watcher.errors import UsageError
from watcher.mirror.folder import Folder
from watcher.mirror.parts import DataFile
from watcher.mirror.table import LIMITS, Commit, MirrorLimits, MirrorState, MirrorTable

_STATE: Final = "watcher"
_APP: Final = "watcher-mirror"
# Readers of older versions are served by what Retention keeps; each checkpoint names all files
# that were removed in this time.
_PROPERTIES: Final = {"delta.deletedFileRetentionDuration": "interval 15 minutes"}

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\..*parquet")


class _Remove(msgspec.Struct):
    path: str
    size: int | None = None


class _CommitInfo(msgspec.Struct):
    timestamp: int = 0


class _Action(msgspec.Struct):
    remove: _Remove | None = None
    commitInfo: _CommitInfo | None = None


_action: Final = msgspec.json.Decoder(_Action)


class DeltaMirror(MirrorTable):
    """A Delta table in a folder."""

    def __init__(self, to: str, folder: Folder, limits: MirrorLimits = LIMITS) -> None:
        super().__init__(to, limits)
        self._folder = folder
        self._table: DeltaTable | None = None
        self._log = folder.inner("_delta_log")
        self._known_files: dict[str, DataFile] | None = None
        self._options = {**folder.options}
        with self.translated_errors():
            if DeltaTable.is_deltatable(to, self._options):
                self._table = DeltaTable(to, storage_options=self._options)
                self.state = self._found_state(self._table)

    @property
    def folder(self) -> Folder:
        """Returns the folder of its files of rows."""
        return self._folder

    @property
    def schema(self) -> pa.Schema:
        """Returns its columns."""
        assert self._table is not None
        return pa.schema(self._table.schema().to_arrow())

    @property
    def version(self) -> int:
        """Returns the version that was opened, or written last."""
        assert self._table is not None
        return int(self._table.version())

    def rows(self) -> pyarrow.dataset.Dataset:
        """Returns the rows of the newest version."""
        assert self._table is not None
        return self._table.to_pyarrow_dataset()

    def create(self, schema: pa.Schema, state: MirrorState) -> None:
        """Creates it, or empties what a copy that was killed has left. Raises WatcherError."""
        before = self.state.number if self.state else 0
        state = msgspec.structs.replace(state, number=before + 1)
        self._write(schema.empty_table(), state, mode="overwrite", schema_mode="overwrite")
        self._table = DeltaTable(self.to, storage_options=self._options)

    def append(self, rows: pa.Table, state: MirrorState) -> None:
        """Appends rows (there may be none), and stores the stream's position."""
        self._write(rows, self.next_state(state), mode="append")

    def grow(self, columns: Iterable[pa.Field]) -> None:
        """Adds the columns that it lacks, null in all its rows."""
        assert self._table is not None
        has = {field.name for field in self._table.schema().fields}
        new = [Field.from_arrow(each) for each in columns if each.name not in has]
        if new:
            self._table.alter.add_columns(new)

    def files(self) -> dict[str, DataFile]:
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

    def commit(
        self, removed: Sequence[DataFile], added: Sequence[DataFile], state: MirrorState | None
    ) -> None:
        """Replaces files, at once; without a state, by files with the same rows."""
        assert self._table is not None
        if state is None:
            self._set_properties()
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
        if self.version > before + 1:  # another program's commit came in between
            self._known_files = None
        files = self.files()
        for each in removed:
            files.pop(each.path, None)
        files.update((each.path, each) for each in added)
        log_bytes = self._log.size(f"{self.version:020}.json")
        self.retention.count(log_bytes + sum(each.size for each in removed))
        if state is not None:
            self.state = state

    def _set_properties(self) -> None:
        assert self._table is not None
        has = self._table.metadata().configuration
        if any(has.get(name) != value for name, value in _PROPERTIES.items()):
            self._table.alter.set_table_properties({**_PROPERTIES})

    def _write(
        self,
        rows: pa.Table,
        state: MirrorState,
        *,
        mode: Literal["append", "overwrite"],
        schema_mode: Literal["overwrite"] | None = None,
    ) -> None:
        with self.translated_errors():
            write_deltalake(
                self._table or self.to,
                rows,
                commit_properties=_properties(state),
                mode=mode,
                schema_mode=schema_mode,
                storage_options=self._options,
            )
        self.state = state
        self._known_files = None

    def _found_state(self, table: DeltaTable) -> MirrorState:
        """Returns the state of the latest commit that has one."""
        for limit in (self.limits.recent_commits, None):
            for commit in table.history(limit):
                if text := commit.get(_STATE):
                    self.stored_at = datetime.fromtimestamp(commit["timestamp"] / 1000, UTC)
                    try:
                        return msgspec.json.decode(text, type=MirrorState)
                    except msgspec.DecodeError as error:
                        raise UsageError(
                            f"{self.to} has a state that can't be read: {error}"
                        ) from error
        raise UsageError(
            f"{self.to} is a Delta table that mirror has not made: choose another folder"
        )

    # Older versions

    def delete_replaced(self, live_bytes: int, now: datetime) -> None:
        """Deletes the files that only too old versions need, and these versions' log."""
        assert self._table is not None
        self._table.create_checkpoint()  # what reads the log from here on needs no commit before
        self.retention.tidied()
        names = [info.base_name for info in self._log.files()]
        versions = _versions(_COMMIT, names)
        removed: dict[int, set[str]] = {}
        commits = self._commits(versions, removed)
        oldest = self.retention.oldest(commits, live_bytes, now)
        if oldest is None:
            oldest = versions[0]
        for version in versions:
            if version not in removed:
                removed[version] = self._read_commit(version)[1]
        needed = set(self.files()).union(*(removed[each] for each in versions if each > oldest))
        replaced = set[str]().union(*(removed[each] for each in versions if each <= oldest))
        abandoned = now - self.retention.limits.unfinished_after
        for info in self._folder.files():
            name = info.base_name
            if name in needed or not name.endswith(".parquet"):
                continue
            if name in replaced or info.mtime < abandoned:
                self._folder.delete(name)
        # The log last: a kill in between leaves the names of what is still to go.
        base = max((each for each in _versions(_CHECKPOINT, names) if each <= oldest), default=0)
        for name in names:
            for pattern in (_COMMIT, _CHECKPOINT):
                if (found := pattern.fullmatch(name)) and int(found[1]) < base:
                    self._log.delete(name)

    def _commits(self, versions: list[int], removed: dict[int, set[str]]) -> Iterator[Commit]:
        """Yields the commits, the newest first, and notes the files that each has removed."""
        for version in reversed(versions):
            commit, removed[version] = self._read_commit(version)
            yield commit

    def _read_commit(self, version: int) -> tuple[Commit, set[str]]:
        text = self._log.read(f"{version:020}.json")
        actions = [_action.decode(line) for line in text.splitlines() if line]
        removed = [each.remove for each in actions if each.remove is not None]
        made = max((each.commitInfo.timestamp for each in actions if each.commitInfo), default=0)
        size = len(text) + sum(each.size or 0 for each in removed)
        commit = Commit(version, datetime.fromtimestamp(made / 1000, UTC), size)
        return commit, {each.path for each in removed}

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Raises delta-rs's errors as WatcherError."""
        try:
            yield
        except CommitFailedError as error:
            raise self.changed_by_others() from error
        except (DeltaError, OSError) as error:
            raise self.error_of(error) from error


def _properties(state: MirrorState) -> CommitProperties:
    # The application's transaction: of two that begin at one state, only one is let through.
    return CommitProperties(
        custom_metadata={_STATE: msgspec.json.encode(state).decode()},
        app_transactions=[Transaction(_APP, state.number)],
    )


def _versions(pattern: re.Pattern[str], names: list[str]) -> list[int]:
    found = (pattern.fullmatch(name) for name in names)
    return sorted({int(each[1]) for each in found if each})
