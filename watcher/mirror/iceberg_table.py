"""A mirror in Iceberg's format, written through PyIceberg: a snapshot for each commit.

The snapshot's summary holds the mirror's state, and with it the position in the stream. PyIceberg's
own `upsert` and `overwrite` make two snapshots, and repeat a commit that lost a race. So this
module writes the manifests of a snapshot itself, and commits them to the catalog once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.dataset
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, RESTError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
)
from pyiceberg.typedef import Identifier, Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)
from sqlalchemy.exc import SQLAlchemyError

from watcher.errors import UsageError
from watcher.mirror.columns import KIND
from watcher.mirror.folder import Folder
from watcher.mirror.parts import DataFile
from watcher.mirror.table import LIMITS, Commit, MirrorLimits, MirrorState, MirrorTable

_STATE: Final = "watcher"
_METADATA_BYTES: Final = "watcher-metadata-bytes"
_MADE_BY: Final = {"watcher.mirror": "true"}
_PROPERTIES: Final = {
    **_MADE_BY,
    "write.metadata.previous-versions-max": "10",
    # Another program's commit in between has to end the mirror: its files may be replaced.
    "commit.retry.num-retries": "0",
}
_VERSION: Final = 2
_CODEC: Final = "deflate"
_HINT: Final = "version-hint.text"
_METADATA: Final = re.compile(r"(\d+)-.*\.metadata\.json")


class IcebergMirror(MirrorTable):
    """A table of a catalog; the catalog decides where its files are if `location` is None."""

    def __init__(
        self,
        to: str,
        catalog: Catalog,
        identifier: Identifier,
        *,
        location: str | None = None,
        limits: MirrorLimits = LIMITS,
    ) -> None:
        super().__init__(to, limits)
        self._catalog = catalog
        self._identifier = identifier
        self._location = location
        self._table: Table | None = None
        self._entries: dict[str, ManifestEntry] = {}
        self._files: dict[str, DataFile] = {}
        with self.translated_errors():
            if catalog.table_exists(identifier):
                self._open(catalog.load_table(identifier))

    @property
    def table(self) -> Table:
        """Returns the table as it was opened, or written last."""
        assert self._table is not None
        return self._table

    @property
    def folder(self) -> Folder:
        """Returns the folder of its files of rows."""
        return self._inner("data")

    @property
    def schema(self) -> pa.Schema:
        """Returns its columns."""
        return arrow_schema(self.table.schema())

    @property
    def version(self) -> int:
        """Returns the number of its newest commit."""
        return int(self.table.metadata.next_sequence_number()) - 1

    def rows(self) -> pyarrow.dataset.Dataset:
        """Returns the rows of the newest version."""
        folder = self.folder
        return pyarrow.dataset.dataset(
            [folder.path_of(path) for path in self._files],
            schema=self.schema,
            format="parquet",
            filesystem=folder.filesystem,
        )

    def create(self, schema: pa.Schema, state: MirrorState) -> None:
        """Creates it, instead of what a copy that was killed has left. Raises WatcherError."""
        before = self.state.number if self.state else 0
        made = iceberg_schema(schema)
        with self.translated_errors():
            if self._table is not None:
                self._catalog.purge_table(self._identifier)
            self._catalog.create_namespace_if_not_exists(self._identifier[:-1])
            self._entries, self._files = {}, {}
            self._table = self._catalog.create_table(
                self._identifier, made, location=self._location, properties=_PROPERTIES
            )
        for name in ("data", "metadata"):
            self._inner(name).make()
        self.commit([], [], msgspec.structs.replace(state, number=before + 1))

    def append(self, rows: pa.Table, state: MirrorState) -> None:
        """Appends rows (there may be none), and stores the stream's position."""
        with self.translated_errors():
            added = [self.part_files.write_copied(rows, self.schema)] if rows.num_rows else []
            self.commit([], added, self.next_state(state))

    def grow(self, columns: Iterable[pa.Field]) -> None:
        """Adds the columns that it lacks, null in all its rows. Raises UsageError."""
        has = {field.name for field in self.table.schema().fields}
        new = [(each, iceberg_type(each)) for each in columns if each.name not in has]
        if new:
            with self.translated_errors(), self.table.update_schema() as update:
                for field, kind in new:
                    update.add_column(field.name, kind, doc=comment(field))

    def files(self) -> dict[str, DataFile]:
        """Returns the files of the newest version, by their paths."""
        return self._files

    def commit(
        self, removed: Sequence[DataFile], added: Sequence[DataFile], state: MirrorState | None
    ) -> None:
        """Replaces files, in one snapshot; without a state, by files with the same rows."""
        with self.translated_errors():
            self._commit(removed, added, state)

    def _commit(
        self, removed: Sequence[DataFile], added: Sequence[DataFile], state: MirrorState | None
    ) -> None:
        metadata = self.table.metadata
        number = metadata.next_sequence_number()
        snapshot_id, parent = metadata.new_snapshot_id(), metadata.current_snapshot_id
        removed_entries = [self._entries[each.path] for each in removed]
        new = [self._entry(each, snapshot_id, number) for each in added]
        names = {each.path for each in removed}
        kept = [entry for path, entry in self._entries.items() if path not in names]
        manifests = self._write_manifests(snapshot_id, kept, new, removed_entries)
        listed = self._metadata_path(f"snap-{snapshot_id}-0-{uuid4()}.avro")
        with write_manifest_list(
            _VERSION, self.table.io.new_output(listed), snapshot_id, parent, number, _CODEC
        ) as manifest_list:
            manifest_list.add_manifests(manifests)
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": parent,
                "sequence-number": number,
                "manifest-list": listed,
                "summary": self._summary(removed, added, state, manifests),
                "schema-id": metadata.current_schema_id,
            }
        )
        self._commit_snapshot(snapshot)
        for each in removed:
            del self._entries[each.path], self._files[each.path]
        self._entries.update(zip((each.path for each in added), new, strict=True))
        self._files.update((each.path, each) for each in added)
        self.retention.count(_replaced_bytes(snapshot))
        if state is not None:
            self.state = state
        self._write_hint()

    def _commit_snapshot(self, snapshot: Snapshot) -> None:
        """Makes the snapshot the newest one, unless another writer has committed since."""
        parent = {"type": "assert-ref-snapshot-id", "ref": "main"}
        newest = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot.snapshot_id}
        done = self._catalog.commit_table(
            self.table,
            (
                AssertTableUUID(uuid=self.table.metadata.table_uuid),
                AssertRefSnapshotId.model_validate(
                    {**parent, "snapshot-id": snapshot.parent_snapshot_id}
                ),
            ),
            (AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(newest)),
        )
        self.table.metadata = done.metadata
        self.table.metadata_location = done.metadata_location

    def _write_manifests(
        self,
        snapshot_id: int,
        kept: Sequence[ManifestEntry],
        added: Sequence[ManifestEntry],
        removed: Sequence[ManifestEntry],
    ) -> list[ManifestFile]:
        """Writes a manifest of the live files, and one of the removed files, which `tidy` reads."""
        found: list[ManifestFile] = []
        for live, gone in (((kept, added), ()), (((), ()), removed)):
            if not (live[0] or live[1] or gone):
                continue
            file = self.table.io.new_output(self._metadata_path(f"{uuid4()}-m{len(found)}.avro"))
            spec, schema = self.table.spec(), self.table.schema()
            with write_manifest(_VERSION, spec, schema, file, snapshot_id, _CODEC) as writer:
                for entry in live[0]:
                    writer.existing(entry)
                for entry in live[1]:
                    writer.add(entry)
                for entry in gone:
                    writer.delete(entry)
            found.append(writer.to_manifest_file())
        return found

    def _summary(
        self,
        removed: Sequence[DataFile],
        added: Sequence[DataFile],
        state: MirrorState | None,
        manifests: Sequence[ManifestFile],
    ) -> Summary:
        gone = {each.path for each in removed}
        live = [each for each in self._files.values() if each.path not in gone] + [*added]
        figures: dict[str, int] = {_METADATA_BYTES: sum(m.manifest_length for m in manifests)}
        for prefix, suffix, files in (
            ("added-", "", added),
            ("deleted-", "", removed),
            ("total-", "", live),
        ):
            figures[f"{prefix}data-files"] = len(files)
            figures[f"{prefix}records{suffix}"] = sum(each.rows for each in files)
        figures["added-files-size"] = sum(each.size for each in added)
        figures["removed-files-size"] = sum(each.size for each in removed)
        figures["total-files-size"] = sum(each.size for each in live)
        properties = {name: str(value) for name, value in figures.items()}
        if state is not None:
            properties[_STATE] = msgspec.json.encode(state).decode()
        operation = Operation.APPEND if not removed else Operation.OVERWRITE
        return Summary(Operation.REPLACE if state is None else operation, **properties)

    def _entry(self, file: DataFile, snapshot_id: int, number: int) -> ManifestEntry:
        made = IcebergFile.from_args(
            _table_format_version=_VERSION,
            content=DataFileContent.DATA,
            file_path=f"{self.table.location()}/data/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=file.rows,
            file_size_in_bytes=file.size,
        )
        made.spec_id = self.table.spec().spec_id
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=snapshot_id,
            sequence_number=number,
            file_sequence_number=number,
            data_file=made,
        )

    def _open(self, table: Table) -> None:
        if not _MADE_BY.items() <= table.properties.items():
            raise UsageError(
                f"{self.to} is an Iceberg table that mirror has not made: choose another one"
            )
        self._table = table
        snapshot = table.current_snapshot()
        if snapshot is None:
            return  # killed as it began
        self.state = self._found_state(snapshot)
        for manifest in snapshot.manifests(table.io):
            if manifest.content == ManifestContent.DELETES:
                raise UsageError(
                    f"another program has deleted rows of {self.to}: have it rewrite the data files"
                )
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                file = entry.data_file
                path = file.file_path.removeprefix(f"{table.location()}/data/")
                self._entries[path] = entry
                self._files[path] = DataFile(path, file.file_size_in_bytes, file.record_count)

    def _found_state(self, snapshot: Snapshot | None) -> MirrorState:
        """Returns the state of the latest snapshot that has one."""
        while snapshot is not None:
            if snapshot.summary is not None and (text := snapshot.summary[_STATE]):
                self.stored_at = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
                try:
                    return msgspec.json.decode(text, type=MirrorState)
                except msgspec.DecodeError as error:
                    raise UsageError(f"{self.to} has a state that can't be read: {error}") from None
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self.table.snapshot_by_id(parent)
        raise UsageError(f"no snapshot of {self.to} has the mirror's state: choose another table")

    def _inner(self, name: str) -> Folder:
        io = self.table.io
        assert isinstance(io, PyArrowFileIO)
        scheme, netloc, path = io.parse_location(self.table.location(), io.properties)
        return Folder(io.fs_by_scheme(scheme, netloc), f"{path}/{name}")

    def _metadata_path(self, name: str) -> str:
        return f"{self.table.location()}/metadata/{name}"

    def _write_hint(self) -> None:
        """Names the newest metadata for readers that know no catalog: DuckDB's `iceberg_scan`."""
        name = self.table.metadata_location.rpartition("/")[2].removesuffix(".metadata.json")
        self._inner("metadata").replace(_HINT, name.encode())

    # Older versions

    def delete_replaced(self, live_bytes: int, now: datetime) -> None:
        """Expires older snapshots, and deletes what only they need."""
        self.retention.tidied()
        metadata = self.table.metadata
        snapshots = sorted(metadata.snapshots, key=_number, reverse=True)
        oldest = self.retention.oldest(map(_commit, snapshots), live_bytes, now) or 0
        named = {each.snapshot_id for each in metadata.refs.values()}  # branches and tags
        kept = [each for each in snapshots if _number(each) >= oldest or each.snapshot_id in named]
        expired = [each for each in snapshots if each not in kept]
        needed = {_name(path) for path in self._files}
        needed |= self._removed_by([each for each in kept if _number(each) > oldest])
        for each in kept:
            if _number(each) < oldest:
                needed |= self._live_in(each)
        gone = self._removed_by([*expired, *(each for each in kept if _number(each) == oldest)])
        lists, old_lists = self._lists(kept), self._lists(expired)
        if expired:
            ids = [each.snapshot_id for each in expired]
            self.table.maintenance.expire_snapshots().by_ids(ids).commit()
        self._delete(self._inner("data"), needed, gone, now)
        current = self._metadata_files()
        folder = self._inner("metadata")
        gone = old_lists | self._older_metadata(folder)
        self._delete(folder, lists | current, gone, now)

    def _delete(self, folder: Folder, needed: set[str], gone: set[str], now: datetime) -> None:
        abandoned = now - self.retention.limits.unfinished_after
        for info in folder.files():
            name = info.base_name
            if name not in needed and (name in gone or info.mtime < abandoned):
                folder.delete(name)

    def _metadata_files(self) -> set[str]:
        log = (each.metadata_file for each in self.table.metadata.metadata_log)
        return {_HINT, *map(_name, log), _name(self.table.metadata_location)}

    def _older_metadata(self, folder: Folder) -> set[str]:
        """Returns the metadata files before the newest one: 00041-….metadata.json."""
        newest = _METADATA.fullmatch(_name(self.table.metadata_location))
        found = (_METADATA.fullmatch(info.base_name) for info in folder.files())
        return {each[0] for each in found if each and newest and int(each[1]) < int(newest[1])}

    def _lists(self, snapshots: Iterable[Snapshot]) -> set[str]:
        found: set[str] = set()
        for snapshot in snapshots:
            found.add(_name(snapshot.manifest_list))
            found.update(_name(m.manifest_path) for m in snapshot.manifests(self.table.io))
        return found

    def _removed_by(self, snapshots: Iterable[Snapshot]) -> set[str]:
        return {
            _name(entry.data_file.file_path)
            for snapshot in snapshots
            for manifest in snapshot.manifests(self.table.io)
            if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.deleted_files_count
            for entry in manifest.fetch_manifest_entry(self.table.io, discard_deleted=False)
            if entry.status == ManifestEntryStatus.DELETED
        }

    def _live_in(self, snapshot: Snapshot) -> set[str]:
        return {
            _name(entry.data_file.file_path)
            for manifest in snapshot.manifests(self.table.io)
            for entry in manifest.fetch_manifest_entry(self.table.io, discard_deleted=True)
        }

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Raises PyIceberg's errors as WatcherError."""
        try:
            yield
        except CommitFailedException as error:
            raise self.changed_by_others() from error
        except (OSError, RESTError, SQLAlchemyError) as error:
            raise self.error_of(error) from error


def _number(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0


def _commit(snapshot: Snapshot) -> Commit:
    made = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
    return Commit(_number(snapshot), made, _replaced_bytes(snapshot))


def _replaced_bytes(snapshot: Snapshot) -> int:
    figures = ("removed-files-size", _METADATA_BYTES)
    return sum(int(snapshot.summary[each] or 0) for each in figures) if snapshot.summary else 0


def _name(path: str) -> str:
    return path.rpartition("/")[2]


_TYPES: Final[tuple[tuple[pa.DataType, IcebergType], ...]] = (
    (pa.string(), StringType()),
    (pa.bool_(), BooleanType()),
    (pa.binary(), BinaryType()),
    (pa.int32(), IntegerType()),
    (pa.int64(), LongType()),
    (pa.float32(), FloatType()),
    (pa.float64(), DoubleType()),
    (pa.timestamp("us", tz="UTC"), TimestamptzType()),
    (pa.date32(), DateType()),
)
_FIELD_ID: Final = b"PARQUET:field_id"
_KIND: Final = "DynamoDB "
"""Before the one type of attributes that a column has grown from, in its comment."""


def iceberg_type(field: pa.Field) -> IcebergType:
    """Returns the type of a column. Raises UsageError where Iceberg has none."""
    for ours, theirs in _TYPES:
        if ours == field.type:
            return theirs
    if pa.types.is_decimal(field.type):
        return DecimalType(field.type.precision, field.type.scale)
    if pa.types.is_list(field.type):
        return ListType(element_id=-1, element_type=StringType(), element_required=False)
    raise UsageError(f"Iceberg has no {field.type}: give int", "image_schema", field.name)


def comment(field: pa.Field) -> str | None:
    """Returns the comment of a column: the attributes that it is for."""
    kind = (field.metadata or {}).get(KIND)
    return None if kind is None else _KIND + kind.decode()


def iceberg_schema(columns: Iterable[pa.Field]) -> Schema:
    """Returns columns as a new table's schema; the catalog numbers the fields again."""
    return Schema(
        *(
            NestedField(number, field.name, iceberg_type(field), required=False, doc=comment(field))
            for number, field in enumerate(columns, 1)
        )
    )


def arrow_schema(schema: Schema) -> pa.Schema:
    """Returns a table's columns, with the numbers that its files have to name them by."""
    return pa.schema([_arrow_field(field) for field in schema.fields])


def _arrow_field(field: NestedField) -> pa.Field:
    metadata = {_FIELD_ID: str(field.field_id).encode()}
    if field.doc and field.doc.startswith(_KIND):
        metadata[KIND] = field.doc.removeprefix(_KIND).encode()
    return pa.field(field.name, _arrow_type(field.field_type), metadata=metadata)


def _arrow_type(kind: IcebergType) -> pa.DataType:
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ListType):
        number = {_FIELD_ID: str(kind.element_id).encode()}
        return pa.list_(pa.field("element", _arrow_type(kind.element_type), metadata=number))
    for ours, theirs in _TYPES:
        if theirs == kind:
            return ours
    raise UsageError(f"a mirror has no columns of the type {kind}")
