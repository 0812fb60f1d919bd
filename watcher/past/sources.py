"""What the time machine reads: an archive, a file of records, a stream; or some, one after another.

Each change comes once, and those of one item in their order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path

from watcher.clock import CLOCK, Clock
from watcher.errors import UsageError
from watcher.past import archived
from watcher.past.archive import Archive
from watcher.past.retained import Retained
from watcher.record.lines import RecordLines, opened, records_of
from watcher.record.record import Record
from watcher.service.connect import connect, for_worker
from watcher.service.connection import Connection
from watcher.service.model import Service
from watcher.service.names import region_in, table_of
from watcher.service.tables import Description, TablesClient

logger = logging.getLogger("watcher")


# Creation times are as coarse as whole minutes in DynamoDB Local.
_COARSEST = timedelta(minutes=1)


class TableStream:
    """A table and its stream, as two services know them. Raises StreamError."""

    def __init__(
        self,
        arn: str,
        service: Service,
        tables: TablesClient,
        lanes: Callable[[int], Sequence[Service]] | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self.arn = arn
        self.service = service
        self.tables = tables
        self.clock = clock
        self._lanes = lanes
        self._table: tuple[str, Description] | None = None

    @classmethod
    def connected(cls, text: str, connection: Connection) -> TableStream:
        """The stream that `text` names (as for `connect`)."""
        service, arn = connect(text, connection)
        tables = TablesClient(connection, region_in(arn))

        def lanes(count: int) -> list[Service]:
            return [for_worker(connection, arn) for _ in range(count)]

        return cls(arn, service, tables, lanes)

    def retained(self, start: datetime | None, *, strict: bool) -> Retained:
        """What it holds from `start` on (None: all)."""
        return Retained(
            self.arn, self.service, start, lanes=self._lanes, strict=strict, clock=self.clock
        )

    @property
    def table(self) -> tuple[str, Description]:
        """The name by which calls reach the table, and what it is like."""
        if self._table is None:
            self._table = self.tables.named(table_of(self.arn))
        return self._table


class Sources:
    """Archives and files, and at the end a stream, as one source of records.

    With `strict`, changes that are missing in between raise DataLossError or UsageError; else they
    are said as a warning, and stand in `gaps`.
    """

    def __init__(self, files: Sequence[str], stream: TableStream | None) -> None:
        self.stream = stream
        self.gaps: list[str] = []
        """Where changes are missing: one line each."""
        self.exact = True
        """Whether all images so far were in wire types; in an archive they may be plain JSON."""
        self._files = files

    @classmethod
    def named(cls, names: Sequence[str], connection: Connection) -> Sources:
        """Those of these names: paths, and at the end a stream. Raises UsageError, StreamError."""
        if not names:
            raise UsageError("name a stream, an archive or a file")
        *before, last = names
        for name in before:
            if not is_path(name):
                raise UsageError(f"{name} is no archive or file; a stream comes last, and alone")
        if is_path(last):
            return cls(names, None)
        return cls(before, TableStream.connected(last, connection))

    def records(self, start: datetime | None) -> Iterator[Record]:
        """All records from `start` on; None: all."""
        seen: set[str] = set()
        newest: datetime | None = None
        for name in self._files:
            for record in self._file(name, start):
                created = record.created_at
                if created is not None and (newest is None or created > newest):
                    newest = created
                if _is_after(record, start) and _first(record, seen):
                    yield record
        if self.stream is None:
            return
        retained = self.stream.retained(start, strict=False)
        self.gaps = retained.losses
        if newest is not None and newest + _COARSEST < retained.since:
            self._gap(newest, retained.since)
        for record in retained.read():
            if _is_after(record, start) and (not self._files or _first(record, seen)):
                yield record

    def _gap(self, newest: datetime, since: datetime) -> None:
        line = (
            f"nothing is known of {newest.isoformat(timespec='seconds')} to "
            f"{since.isoformat(timespec='seconds')}: {self._files[-1]} ends there, and the stream "
            "begins later"
        )
        self.gaps.append(line)
        logger.warning(f"GAP: {line}")

    def _file(self, name: str, start: datetime | None) -> Iterator[Record]:
        if name != "-" and Path(name).is_dir():
            for each in archived.records(Archive(Path(name), ("parquet", "json")), start):
                self.exact = self.exact and each.exact
                yield each.record
            return
        with ExitStack() as stack:
            lines = RecordLines(stack.enter_context(opened(name)))
            yield from records_of(lines, name)
            if lines.unread:
                self.gaps.append(f"{lines.unread} lines of {name} could not be read")


def is_path(name: str) -> bool:
    """Whether a source is a file or a folder, and no stream; said where it could be both."""
    if name.startswith("arn:"):
        return False
    if "/" in name or name == "-":
        return True
    if Path(name).exists():
        logger.info(f"{name} is a path here, and read as such; give a table of that name's ARN")
        return True
    return False


def _is_after(record: Record, start: datetime | None) -> bool:
    created = record.created_at
    return start is None or created is None or created >= start


def _first(record: Record, seen: set[str]) -> bool:
    """Whether it comes for the first time. An archive and a stream overlap."""
    name = record.wire.eventID or f"{record.shard_id} {record.sequence_number}"
    if name in seen:
        return False
    seen.add(name)
    return True
