"""The Delta table of a mirror: rows and, in the same commit, how far the stream has been read.

So there is no checkpoint beside it that could be lost, or be ahead of it or behind: a commit is
there as a whole, or not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.dataset
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from watcher.errors import UsageError, WatcherError

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
    """Small files become big ones, and replaced ones go, that often."""
    recent_commits: int = 50
    """The state is looked for in so many first: others (OPTIMIZE) may come in between."""


LIMITS: Final = MirrorLimits()


class MirrorTable:
    """A Delta table and its state; None in the state where there is no table yet."""

    def __init__(self, to: str, limits: MirrorLimits = LIMITS) -> None:
        self._to = to
        self._limits = limits
        self.state: MirrorState | None = None
        self._table: DeltaTable | None = None
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

    def merge(
        self,
        rows: pa.Table,
        on: str,
        state: MirrorState,
        *,
        deletes: Sequence[str] = (),
        updates: Sequence[tuple[dict[str, str], str | None]] = (),
        inserts: Sequence[tuple[dict[str, str], str]] = (),
    ) -> None:
        """Merges rows (`s`) into it (`t`): of each sequence the first whose condition holds.

        Raises WatcherError, also where somebody else has changed it at the same time.
        """
        assert self._table is not None
        state = self._next(state)
        merging = self._table.merge(
            rows,
            predicate=on,
            source_alias="s",
            target_alias="t",
            commit_properties=_properties(state),
        )
        for condition in deletes:
            merging = merging.when_matched_delete(predicate=condition)
        for values, condition_or_none in updates:
            merging = merging.when_matched_update(updates=values, predicate=condition_or_none)
        for values, condition in inserts:
            merging = merging.when_not_matched_insert(updates=values, predicate=condition)
        before = self._table.version()
        try:
            merging.execute()
        except DeltaError as error:
            raise self._translated(error) from error
        if self._table.version() == before:  # it has changed nothing
            self._write(self.schema.empty_table(), state, mode="append")
        self.state = state

    def tidy(self, now: datetime) -> None:
        """Once a day makes big files of small ones, and removes what was replaced a week ago."""
        assert self._table is not None and self.state is not None
        if now - self.state.tidied < self._limits.tidy_after:
            return
        try:
            self._table.optimize.compact()
            self._table.vacuum(dry_run=False)
        except DeltaError as error:
            raise self._translated(error) from error
        self.state = msgspec.structs.replace(self.state, tidied=now)

    def _write(self, rows: pa.Table, state: MirrorState, **options: Any) -> None:
        try:
            write_deltalake(
                self._table or self._to, rows, commit_properties=_properties(state), **options
            )
        except (DeltaError, OSError) as error:
            raise self._translated(error) from error
        self.state = state

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
