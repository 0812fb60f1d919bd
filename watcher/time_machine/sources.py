"""What the time machine reads: an archive, a file of records, a stream; or some, one after another.

Each change comes once, and those of one item in their order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

from watcher.aws.arns import region_in, table_of
from watcher.aws.background import BackgroundService
from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect, for_worker
from watcher.aws.model import CLOCKS_APART, Service
from watcher.aws.tables import Description, TablesClient
from watcher.clock import CLOCK, Clock
from watcher.errors import DataLossError, StreamError, UsageError
from watcher.pull.backlog import BacklogReader
from watcher.records.record import Record
from watcher.records.record_files import RecordLines, open_lines, read_records
from watcher.streams.lineage import RETENTION
from watcher.streams.messages import Chosen
from watcher.time_machine import archives
from watcher.time_machine.archives import Archive


class TableHandle(NamedTuple):
    """A table that can be asked and written to."""

    tables: TablesClient
    name: str
    """By which calls reach it."""
    description: Description
    clock: Clock = CLOCK


def open_table(arn: str, connection: AwsConfig) -> TableHandle:
    """The table of this ARN. Raises StreamError where there is none."""
    tables = TablesClient(connection, region_in(arn))
    return TableHandle(tables, *tables.named(arn))


logger = logging.getLogger("watcher")


# Creation times are as coarse as whole minutes in DynamoDB Local.
_COARSEST = timedelta(minutes=1)
# A stream that was enabled with its table has about the same time of creation.
_TOGETHER = timedelta(seconds=5)


class StreamSource:
    """A table and its stream, as two services know them. Raises StreamError."""

    def __init__(
        self,
        arn: str,
        service: Service,
        tables: TablesClient,
        lanes: Callable[[int], Sequence[Service]] | None = None,
        clock: Clock = CLOCK,
        asking: Service | None = None,
        table: Callable[[], str] | None = None,
    ) -> None:
        self.arn = arn
        self._called = table or partial(table_of, arn)
        self.service = service
        self.tables = tables
        self._asking = asking
        self.clock = clock
        self._lanes = lanes
        self._table: TableHandle | None = None

    @classmethod
    def connected(cls, text: str, connection: AwsConfig) -> StreamSource:
        """The stream that `text` names (as for `connect`)."""
        service, arn = connect(text, connection)
        tables = TablesClient(connection, region_in(arn))

        def lanes(count: int) -> list[Service]:
            return [for_worker(connection, arn) for _ in range(count)]

        called = partial(service.table, arn)
        return cls(arn, service, tables, lanes, CLOCK, BackgroundService(service), called)

    def backlog(
        self, start: datetime | None, *, strict: bool, chosen: Chosen | None = None
    ) -> BacklogReader:
        """What it holds from `start` on (None: all); see `BacklogReader`."""
        return BacklogReader(
            self.arn,
            self.service,
            start,
            lanes=self._lanes,
            strict=strict,
            chosen=chosen,
            clock=self.clock,
            asking=self._asking,
        )

    @property
    def table(self) -> TableHandle:
        """The table as it is now. Raises StreamError where there is none."""
        if self._table is None:
            named = self.tables.named(self._called())
            self._table = TableHandle(self.tables, *named, self.clock)
        return self._table


class Sources:
    """Archives and files, and at the end a stream, as one source of records.

    Changes that are missing in between are said as a warning, and stand in `gaps`; with `strict`,
    DataLossError is raised, and StreamError for a stream without old images.
    """

    def __init__(
        self, files: Sequence[str], stream: StreamSource | None, *, strict: bool = False
    ) -> None:
        self.stream = stream
        self.exact = True
        """Whether all images so far were in wire types; in an archive they may be plain JSON."""
        self._files = files
        self._gaps: list[str] = []
        self._strict = strict
        self._seen: set[str] = set()
        self._start: datetime | None = None
        self._chosen: Chosen | None = None
        self._oldest: datetime | None = None
        self._newest: datetime | None = None
        self._retained: BacklogReader | None = None

    @property
    def gaps(self) -> list[str]:
        """Where changes are missing: one line each."""
        return [*self._gaps, *(self._retained.losses if self._retained else ())]

    @classmethod
    def named(cls, names: Sequence[str], connection: AwsConfig, *, strict: bool = False) -> Sources:
        """Those of these names: paths, and at the end a stream. Raises UsageError, StreamError."""
        if not names:
            raise UsageError("name a stream, an archive or a file")
        *before, last = names
        for name in before:
            if not is_path(name):
                raise UsageError(f"{name} is no archive or file; a stream comes last, and alone")
        if is_path(last):
            return cls(names, None, strict=strict)
        return cls(before, StreamSource.connected(last, connection), strict=strict)

    def open(self, start: datetime | None, chosen: Chosen | None = None) -> None:
        """Fix where to read from; None: from the oldest record on.

        What is not `chosen` of a stream's pages may be left out of them.

        With `strict`, raises UsageError or StreamError where no item can be told as it was then.
        """
        self._start = start
        self._chosen = chosen
        if self.stream is not None:
            self._retained = self.stream.backlog(start, strict=self._strict, chosen=chosen)
            if self._strict and start is not None:
                self._refuse_unfit(self._retained, start)
            elif not self._files:  # else they may hold it; a gap between them and it is said
                self._retained.say_if_begins_late()

    def reopen(self, start: datetime) -> None:
        """Read from an earlier moment than the one that was begun with, as far as there is any."""
        if self._start is not None and start < self._start:
            self._start = start
            if self.stream is not None:
                self._retained = self.stream.backlog(
                    start, strict=self._strict, chosen=self._chosen
                )

    def records(self) -> Iterator[Record]:
        """All records up to now, those of one item in their order."""
        for name in self._files:
            for record in self._file(name):
                self._note(record.created_at)
                if self._is_wanted(record):
                    yield record
        if self._retained is not None:
            self._say_gap(self._retained.since)
            yield from filter(self._is_wanted, self._retained.read())

    def newer_records(self) -> Iterator[Record]:
        """What has come since in the stream."""
        assert self._retained is not None
        return filter(self._is_wanted, self._retained.read_on())

    @property
    def time(self) -> datetime:
        """The time by the service's clock when the reading began."""
        assert self._retained is not None
        return self._retained.listing.time

    def wait_until_complete(self, second: datetime) -> None:
        """Until no further change can be stamped with this second, by the service's clock."""
        assert self._retained is not None and self.stream is not None
        over = second + timedelta(seconds=1) + CLOCKS_APART
        wait = (over - self._retained.listing.time).total_seconds()
        if wait > 0:
            self.stream.clock.sleep(wait)

    def retains(self, start: datetime, duration: timedelta) -> bool:
        """Whether the stream alone has all since `start`, and will for so long."""
        assert self._retained is not None
        return not self._files and start >= self.time - RETENTION + duration

    def check_covers(self, start: datetime) -> None:
        """Not what is before all records: what happened between is not known. Raises UsageError.

        To be asked after the reading: what it took, retention did not wait for.
        """
        names, since = [*self._files], self._oldest if self._files else None
        if self._retained is not None:
            names.append(self._retained.listing.table)
            since = min(since or self._retained.since, self._retained.since)
        check_start_covered(names, since, start, is_stream=not self._files)

    def warn_if_ends_before(self, end: datetime) -> None:
        """Whether what it holds may end before this: a table without changes looks the same."""
        if self._retained is None:
            warn_if_ends_before(self._files, self._newest, end)

    def check_view_type(self) -> None:
        """Not a stream that does not tell what a change has left. Raises StreamError."""
        assert self._retained is not None
        view_type = self._retained.listing.view_type
        if view_type != "NEW_AND_OLD_IMAGES":
            raise StreamError(
                f"the stream's view type is {view_type}: it takes NEW_AND_OLD_IMAGES to undo"
            )

    def check_not_ended(self) -> None:
        """Not a stream that has ended: what comes since is in none. Raises StreamError."""
        assert self._retained is not None
        if self._retained.has_ended:
            raise StreamError(
                f"the stream {self._retained.listing.arn} is disabled or deleted: what has "
                "changed the table since is not in it"
            )

    def _refuse_unfit(self, retained: BacklogReader, start: datetime) -> None:
        assert self.stream is not None
        listing = retained.listing
        if "OLD" not in listing.view_type:
            raise StreamError(
                f"the stream's view type is {listing.view_type}: it takes NEW_AND_OLD_IMAGES to "
                "tell what was"
            )
        if start > listing.time:
            raise UsageError(f"{_text(start)} is in the future: give a time that has passed")
        self.check_not_ended()
        if not self._files:
            self.check_covers(start)
        table = self.stream.table.description
        if listing.created is not None and table.created > listing.created + _TOGETHER:
            raise StreamError(
                f"table {listing.table} was deleted and made anew {_text(table.created)}: the "
                "stream is of the former one"
            )

    def _note(self, created: datetime | None) -> None:
        if created is not None:
            self._oldest = min(created, self._oldest or created)
            self._newest = max(created, self._newest or created)

    def _is_wanted(self, record: Record) -> bool:
        """Whether it is not too old, and comes for the first time: archive and stream overlap."""
        if self._start is not None:
            created = record.created_at
            if created is not None and created < self._start:
                return False
        if not self._files:
            return True
        name = record.wire.eventID or f"{record.shard_id} {record.sequence_number}"
        if name in self._seen:
            return False
        self._seen.add(name)
        return True

    def _say_gap(self, since: datetime) -> None:
        """Whether the stream begins only after what the files hold."""
        known = max(filter(None, (self._newest, self._start)), default=since)
        if not self._files or known + _COARSEST >= since:
            return
        line = (
            f"nothing is known of {_text(known)} to {_text(since)}: {self._files[-1]} ends there, "
            "and the stream begins later"
        )
        if self._strict:
            raise DataLossError(line)
        self._gaps.append(line)
        logger.warning(f"GAP: {line}")

    def _file(self, name: str) -> Iterator[Record]:
        if name != "-" and Path(name).is_dir():
            archive = Archive(Path(name), ("parquet", "json"))
            self._note(archives.oldest_change_time(archive))
            for each in archives.read_records(archive, self._start):
                self.exact = self.exact and each.exact
                yield each.record
            return
        with ExitStack() as stack:
            lines = RecordLines(stack.enter_context(open_lines(name)))
            yield from read_records(lines, name)
            if lines.unreadable:
                text = f"{lines.unreadable} lines of {name} could not be read"
                if self._strict:
                    raise DataLossError(text)
                self._gaps.append(text)


def check_start_covered(
    names: Sequence[str], since: datetime | None, start: datetime, *, is_stream: bool = False
) -> None:
    """Not what is before all that these hold. Raises UsageError."""
    of = " and ".join(names)
    if since is None:
        raise UsageError(f"{of} holds no changes")
    if start < since:
        raise UsageError(
            f"{_text(start)} is before what {of} holds, which begins {_text(since)}"
            + ("; an archive before the stream may go further back" if is_stream else "")
        )


def warn_if_ends_before(files: Sequence[str], newest: datetime | None, end: datetime) -> None:
    """Whether archives end before this: a table without changes since looks the same."""
    if newest is not None and newest < end:
        logger.warning(
            f"{files[-1]} ends {_text(newest)}; if the table was changed between then and "
            f"{_text(end)}, that is not in it"
        )


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


def _text(time: datetime) -> str:
    return time.astimezone().isoformat(timespec="seconds")
