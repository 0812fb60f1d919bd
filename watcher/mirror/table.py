"""The mirror's Delta table: rows and, in the same commit, how far the stream has been read.

So there is no checkpoint beside it that could be lost, or be ahead of it or behind: a commit is
there as a whole, or not at all. delta-rs writes, merges, compacts and vacuums.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.fs import DeltaStorageHandler

from watcher.aws.error_hints import s3_hint
from watcher.errors import UsageError, WatcherError
from watcher.mirror.versions import Rows

logger = logging.getLogger("watcher")

MERGED: Final = "watcher."
"""The beginning of the properties in which Spark's engine has its state."""
_STATE: Final = "watcher"
_APP: Final = "watcher-mirror"
_S3: Final = "s3://"
# The state is looked for in so many commits first: others' (OPTIMIZE) may come in between.
_RECENT_COMMITS: Final = 50
# Others (OPTIMIZE) are done by then, or change the table all the time.
_PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
# Many small files make slow readers; a compaction writes them again.
COMMITS_TO_COMPACT: Final = 100
VACUUM_AFTER: Final = timedelta(days=1)
# Both are a user's to change. Older versions stay readable for so long, and what others are
# writing is safe.
_PROPERTIES: Final = {
    "delta.deletedFileRetentionDuration": "interval 7 days",
    "delta.logRetentionDuration": "interval 7 days",
}
_TREE: Final = re.compile(r"\x1b\[\d*m|↳")


class MirrorState(msgspec.Struct, frozen=True, kw_only=True):
    """The mirror's state, stored in each of its commits."""

    made_as: Mapping[str, str]
    """Its stream, its redaction's fingerprint, its item's form, and whether it has a history."""
    token: dict[str, Any] | None = None
    """The stream's position, with the progress of the copy until that is complete.

    None for a table of Spark's engine, which has it in a checkpoint.
    """
    copied_at: datetime | None = None
    """The time when the copy was complete."""
    vacuumed: datetime | None = None
    number: int = 1
    """The commit's number, among the mirror's own."""


class MirrorTable:
    """A table in a folder, and its state; None in the state where there is no table yet.

    Raises UsageError for a folder of something else, and WatcherError for what delta-rs can't do.
    """

    def __init__(self, to: str) -> None:
        if "://" in to and not to.startswith(_S3):
            raise UsageError(f"give a folder or {_S3}…, or add --engine spark", "to", to)
        self.to = to
        self.state: MirrorState | None = None
        self.stored_at: datetime | None = None
        """The time of the commit in which an opened table's state was found."""
        self._options = _storage_options(to)
        self._table: DeltaTable | None = None
        with self._translated_errors():
            if DeltaTable.is_deltatable(to, self._options):
                self._table = DeltaTable(to, storage_options=self._options)
                self.state = _merged_state(self.table) or self._found_state()

    @property
    def table(self) -> DeltaTable:
        """Returns the version that was opened, or written last."""
        assert self._table is not None, "create comes first"
        return self._table

    @property
    def schema(self) -> pa.Schema:
        """Returns its columns."""
        return pa.schema(self.table.schema().to_arrow())

    def create(self, schema: pa.Schema, state: MirrorState) -> None:
        """Creates it, or empties it for a new copy."""
        if self.state is None:
            self._refuse_other_files()
        self._commit(state, lambda properties: self._overwrite(schema, properties))

    def append(self, rows: pa.Table, state: MirrorState) -> None:
        """Appends rows (there may be none), and stores the stream's position."""
        self._commit(state, lambda properties: self._append(rows, properties))

    def merge(self, made: pa.Table, rows: Rows, keys: Sequence[str], state: MirrorState) -> None:
        """Merges the rows that `rows` has made of changes, and stores the stream's position."""
        flags = {field.name for field in rows.flags}
        clauses = rows.clauses([name for name in made.column_names if name not in flags])

        def write(properties: CommitProperties) -> None:
            merger = self.table.merge(
                made,
                rows.on(keys),
                source_alias="source",
                target_alias="target",
                # From the statistics of rows that are in memory, it skips files without them.
                streamed_exec=False,
                commit_properties=properties,
            )
            for clause in clauses:
                values = {f"`{name}`": f"source.`{name}`" for name in clause.columns}
                match clause.action:
                    case "delete":
                        merger = merger.when_matched_delete(clause.condition)
                    case "update":
                        merger = merger.when_matched_update(values, clause.condition)
                    case "insert":
                        merger = merger.when_not_matched_insert(values, clause.condition)
            done = merger.execute()
            counts = (
                done[f"num_target_rows_{what}"] for what in ("inserted", "updated", "deleted")
            )
            if not any(counts):  # then it has committed nothing
                self._append(self.schema.empty_table(), properties)

        self._commit(state, write)

    def grow(self, columns: Iterable[pa.Field]) -> None:
        """Adds the columns that it lacks, null in all its rows."""
        has = {field.name for field in self.table.schema().fields}
        if new := [Field.from_arrow(each) for each in columns if each.name not in has]:
            self._retry(lambda: self.table.alter.add_columns(new))

    def tidy(self) -> None:
        """Compacts the files after many commits, and deletes replaced ones once a day.

        delta-rs keeps a replaced file for `delta.deletedFileRetentionDuration`; and one that no
        commit names, as its writer may still be at work.
        """
        assert self.state is not None
        assert self.state.vacuumed is not None
        if self.state.number % COMMITS_TO_COMPACT == 0:
            self.compact()
        now = datetime.now(UTC)
        if now - self.state.vacuumed >= VACUUM_AFTER:
            with self._translated_errors(), suppress(CommitFailedError):
                self.table.vacuum(dry_run=False, full=True)
            self.state = msgspec.structs.replace(self.state, vacuumed=now)

    def compact(self) -> None:
        """Makes larger files of small ones; where another program does it just now, not."""
        with self._translated_errors(), suppress(CommitFailedError):
            self.table.optimize.compact()

    def _commit(self, state: MirrorState, write: Callable[[CommitProperties], None]) -> None:
        if before := self.state:
            state = msgspec.structs.replace(
                state, number=before.number + 1, vacuumed=before.vacuumed
            )
        self._retry(lambda: write(_properties(state)))
        self.state = state

    def _retry(self, write: Callable[[], None]) -> None:
        """Writes, and again after others' commits, but not after another mirror's."""
        for pause in (*_PAUSES, None):
            self._refuse_other_mirror()
            try:
                with self._translated_errors():
                    return write()
            except CommitFailedError as error:
                if pause is None:
                    raise WatcherError(
                        f"{self.to}: other programs change it all the time"
                    ) from error
                logger.debug(f"Another program has changed {self.to}: {error}")
                time.sleep(pause)
                self._table = DeltaTable(self.to, storage_options=self._options)

    def _refuse_other_mirror(self) -> None:
        number = self.state.number if self.state else 0
        if self._table and (self._table.transaction_version(_APP) or 0) > number:
            raise WatcherError(
                f"{self.to} was changed by another mirror at the same time: run one a table; "
                "the same command continues"
            )

    def _append(self, rows: pa.Table, properties: CommitProperties) -> None:
        write_deltalake(self.table, rows, mode="append", commit_properties=properties)

    def _overwrite(self, schema: pa.Schema, properties: CommitProperties) -> None:
        write_deltalake(
            self._table or self.to,
            schema.empty_table(),
            mode="overwrite" if self._table else "error",
            schema_mode="overwrite" if self._table else None,
            configuration=_PROPERTIES,
            storage_options=self._options,
            commit_properties=properties,
        )
        self._table = DeltaTable(self.to, storage_options=self._options)

    def _refuse_other_files(self) -> None:
        # The next VACUUM would delete them.
        if not self.to.startswith(_S3) and not Path(self.to).exists():
            return
        with self._translated_errors():
            folder = pa.fs.PyFileSystem(DeltaStorageHandler(self.to, self._options))
            found = folder.get_file_info(pa.fs.FileSelector("", allow_not_found=True))
        if any(not each.path.startswith("_") for each in found):
            raise UsageError(f"{self.to} has files that are no Delta table: give another folder")

    def _found_state(self) -> MirrorState:
        """Returns the state of the latest commit that has one."""
        for limit in (_RECENT_COMMITS, None):
            for commit in self.table.history(limit):
                if text := commit.get(_STATE):
                    self.stored_at = datetime.fromtimestamp(commit["timestamp"] / 1000, UTC)
                    try:
                        return msgspec.json.decode(text, type=MirrorState)
                    except msgspec.DecodeError as error:
                        raise UsageError(
                            f"{self.to} is a mirror of another version of watcher: "
                            "give another folder"
                        ) from error
        raise UsageError(
            f"{self.to} is a Delta table that mirror has not made: choose another folder"
        )

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raises delta-rs's errors as WatcherError, but for a commit that was in vain."""
        try:
            yield
        except CommitFailedError:
            raise
        except (DeltaError, OSError) as error:
            lines = (_TREE.sub("", line).strip() for line in str(error).splitlines())
            text = ": ".join(line for line in lines if line)
            raise WatcherError(f"{self.to}: {s3_hint(text) or text}") from error


def _merged_state(table: DeltaTable) -> MirrorState | None:
    """Returns the state of a table that Spark merges into; see watcher/spark/lake_table.py."""
    found = {
        name.removeprefix(MERGED): text
        for name, text in table.metadata().configuration.items()
        if name.startswith(MERGED)
    }
    is_copied = found.get("copy") == "done"
    copied_at = datetime.fromisoformat(found["from"]) if is_copied else None
    return MirrorState(made_as=found, copied_at=copied_at) if found else None


def _properties(state: MirrorState) -> CommitProperties:
    # The application's transaction: of two that begin at one state, only one is let through.
    return CommitProperties(
        custom_metadata={_STATE: msgspec.json.encode(state).decode()},
        app_transactions=[Transaction(_APP, state.number)],
    )


def _storage_options(to: str) -> dict[str, str]:
    """Returns what delta-rs does not find in the environment: that a test's S3 may be http."""
    variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    endpoint = next((os.environ[each] for each in variables if os.environ.get(each)), "")
    if not to.startswith(_S3) or not endpoint:
        return {}
    allows_http = "true" if endpoint.startswith("http://") else "false"
    return {"aws_endpoint": endpoint, "aws_allow_http": allows_http}
