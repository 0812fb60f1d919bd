"""The time machine's sources: archives, files of records and a stream, read one after another.

Each change comes once, and the changes of one item come in their order.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from watcher.aws.arns import region_in, table_of
from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect, for_worker
from watcher.aws.lister import Lister
from watcher.aws.model import CLOCKS_APART, AtTime, Latest, Service
from watcher.aws.tables import TablesClient
from watcher.clock import CLOCK, Clock
from watcher.errors import DataLossError, StreamError, UsageError, blame
from watcher.formatting.style import local_time
from watcher.formatting.text import grouped, none_matched
from watcher.pull.backlog import BacklogReader
from watcher.records.filters import RecordFilter
from watcher.records.record import Record
from watcher.records.record_files import RecordLines, open_lines, read_records
from watcher.records.wire import WireRecord, is_replicated_expiry
from watcher.streams.checkpoint_format import Token
from watcher.streams.lineage import RETENTION
from watcher.streams.messages import PageFilter
from watcher.streams.start_times import Moment, parse_start, parse_time
from watcher.time_machine.archives import Archive
from watcher.time_machine.table import TableHandle

logger = logging.getLogger("watcher")

COARSEST_STAMP: Final = timedelta(minutes=1)
"""The steps of DynamoDB Local's times; the service's are seconds."""
CREATED_TOGETHER: Final = timedelta(seconds=5)
"""The most between the times of creation of a table and a stream made with it."""
_TO_RETYPE = timedelta(minutes=1)
_TO_NEXT_SECOND = timedelta(microseconds=999_999)


class StreamSource:
    """A stream and its table, as a source of changes. Raises StreamError."""

    def __init__(
        self,
        arn: str,
        service: Service,
        tables: TablesClient,
        *,
        background: Service | None = None,
        table_arn: Callable[[], str] | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self.arn = arn
        self.service = service
        self.tables = tables
        self.clock = clock
        self._background = background
        self._table_arn = table_arn or partial(table_of, arn)
        self._table: TableHandle | None = None

    @classmethod
    def connected(cls, text: str, connection: AwsConfig) -> StreamSource:
        """Connects to the stream that `text` names: an ARN or a table."""
        service, arn = connect(text, connection)
        return cls(
            arn,
            for_worker(connection, arn),
            TablesClient(connection, region_in(arn)),
            background=Lister(service),
            table_arn=partial(service.table, arn),
            clock=CLOCK,
        )

    def backlog(
        self, start: datetime | Token | None, *, strict: bool, page_filter: PageFilter | None = None
    ) -> BacklogReader:
        """Returns a reader of the retained records from `start` on (None: all of them)."""
        return BacklogReader(
            self.arn,
            self.service,
            start,
            strict=strict,
            page_filter=page_filter,
            clock=self.clock,
            listing_service=self._background,
        )

    @property
    def table(self) -> TableHandle:
        """The table as it is now. Raises StreamError where there is none."""
        if self._table is None:
            name, description = self.tables.named(self._table_arn())
            self._table = TableHandle(self.tables, name, description, self.clock)
        return self._table


class Matching:
    """Tests records, and counts them, to tell at the end that none of them matched."""

    def __init__(self, test: RecordFilter) -> None:
        self._test = test
        self._names: set[str] = set()
        self.read = self.matched = 0

    def matching_indexes(self, records: Sequence[WireRecord]) -> list[int]:
        """Returns the indexes of the matching records; the others come here alone."""
        found = self._test.matching_indexes(records)
        self._names.update(self._test.names_beside(records))
        self.read += len(records) - len(found)
        return found

    def __call__(self, record: Record) -> bool:
        """Returns True for a matching record."""
        self.read += 1
        if not self._test(record):
            self._names.update(self._test.names_beside([record.wire]))
            return False
        self.matched += 1
        return True

    @property
    def unmatched(self) -> str:
        """Says that none matched, for the end of a sentence; "" where one did."""
        if self.matched or not self.read:
            return ""
        return f"; {none_matched(self.read, 'change', self._test.names, self._names)}"


class _Seen:
    """Tells names that came before, in a temporary database: memory holds some pages of it."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("CREATE TABLE seen (name BLOB PRIMARY KEY) WITHOUT ROWID")

    def is_new(self, name: str) -> bool:
        """Returns True for a name that did not come before. Raises OSError on a full disk."""
        digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
        try:
            added = self._database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (digest,))
        except sqlite3.OperationalError as error:
            raise OSError(errno.ENOSPC, str(error)) from None
        return added.rowcount > 0


class Sources:
    """Archives and files, and after them a stream, as one sequence of records.

    Changes that are missing in between are logged as a warning, and listed in `gaps`. With
    `strict` they raise DataLossError, and a stream without old images raises StreamError.
    """

    def __init__(
        self,
        files: Sequence[str],
        stream: StreamSource | None,
        *,
        strict: bool = False,
    ) -> None:
        self.stream = stream
        self.exact = True
        """False once an archive of plain JSON was read, whose images are not in wire types."""
        self._files = self._named_files = files
        self._gaps: list[str] = []
        self.left_out = ""
        """What could not be read of the files, for the end of a sentence; "" where all was."""
        self._strict = strict
        self._seen = _Seen() if files else None
        self._start: datetime | None = None
        self._expiry: str | None = None
        """The attribute with an item's time to live, in a replica, whose stream names no caller."""
        self._oldest: datetime | None = None
        self._newest: datetime | None = None
        self._backlog: BacklogReader | None = None

    @property
    def gaps(self) -> list[str]:
        """One line for each stretch of time whose changes are missing."""
        return [*self._gaps, *(self._backlog.losses if self._backlog else ())]

    @property
    def table_arn(self) -> str:
        """The ARN of the stream's table; "" where archives and files are all."""
        return "" if self.stream is None else table_of(self.stream.arn)

    @classmethod
    def named(cls, names: Sequence[str], connection: AwsConfig, *, strict: bool = False) -> Sources:
        """Opens sources by name: paths, then at most one stream. Raises UsageError, StreamError."""
        if not names:
            raise UsageError("name a stream, an archive or a file")
        *before, last = names
        for name in before:
            if not source_path(name):
                raise UsageError(
                    f"{name} is not an archive or a file; give one stream, and give it last"
                )
        if source_path(last):
            return cls(names, None, strict=strict)
        return cls(before, StreamSource.connected(last, connection), strict=strict)

    def open(
        self,
        start: datetime | None,
        page_filter: PageFilter | None = None,
        *,
        tells_expiry: bool = False,
    ) -> None:
        """Fixes the time to read from; None reads from the oldest record on.

        Records of the stream that the `page_filter` rejects may be left out. With `tells_expiry`,
        removals by time-to-live have their caller also where replication brought them. With
        `strict`, raises UsageError or StreamError where the items at that time can't be
        reconstructed.
        """
        self._start = start
        self._expiry = self._expiry_attribute() if tells_expiry else None
        if self.stream is not None:
            if page_filter is not None and self._expiry is not None:
                page_filter = self._or_expired(page_filter)
            self._backlog = self.stream.backlog(start, strict=self._strict, page_filter=page_filter)
            if self._strict and start is not None:
                self._check_reconstructable(self._backlog, start)
            elif not self._files:  # else they may hold it, and a gap is reported later
                self._backlog.warn_if_starting_late()

    def open_behind(self, token: Token) -> None:
        """Fixes the positions to read from, of the stream alone. Raises StreamError."""
        assert self.stream is not None
        self._files = ()
        self._backlog = self.stream.backlog(token, strict=self._strict)
        self.check_not_ended()

    def again(self) -> Sources:
        """Returns the same sources, to be read again; what is missing in them is a warning."""
        return Sources(self._named_files, self.stream)

    def records(self) -> Iterator[Record]:
        """Yields all records up to now; those of one item come in their order."""
        for name in self._files:
            yield from self._new(self._noted(self._file_records(name)))
        if self._backlog is not None:
            self._report_gap(self._backlog.since)
            yield from self._new(self._backlog.read())

    def newer_records(self) -> Iterator[Record]:
        """Yields the records that came to the stream since `records` ended."""
        return self._new(self._reader.read_on())

    @property
    def _reader(self) -> BacklogReader:
        assert self._backlog is not None  # there is a stream, and it is open
        return self._backlog

    @property
    def view_type(self) -> str:
        """The stream's view type; "" without a stream, or with files before it."""
        return "" if self._backlog is None or self._files else self._backlog.listing.view_type

    @property
    def time(self) -> datetime:
        """The service's time when the reading began."""
        return self._reader.listing.time

    def wait_until_complete(self, second: datetime) -> None:
        """Waits until the service stamps no further change with this second."""
        assert self.stream is not None
        over = second + timedelta(seconds=1) + CLOCKS_APART
        wait = (over - self.time).total_seconds()
        if wait > 0:
            self.stream.clock.sleep(wait)

    def retains(self, start: datetime, duration: timedelta) -> bool:
        """Returns True where the stream alone has all since `start`, and keeps it so long."""
        return not self._files and start >= self.time - RETENTION + duration

    def check_covers(self, start: datetime) -> None:
        """Raises UsageError where the records begin only after `start`.

        Call it after the reading, during which records may have left retention.
        """
        names, since = [*self._files], self._oldest if self._files else None
        if self._backlog is not None:
            names.append(self._backlog.listing.table)
            since = min(since or self._backlog.since, self._backlog.since)
        of = " and ".join(names)
        if since is None:
            raise UsageError(f"{of} holds no changes")
        if start < since:
            # A second that is still held when the user gives it.
            later = _TO_RETYPE if self._backlog and self._backlog.is_trimmed else timedelta()
            first = (since + later + _TO_NEXT_SECOND).replace(microsecond=0)
            raise UsageError(
                f"{local_time(start)} is before what {of} holds, which begins {local_time(first)}"
                + "; an archive before the stream may go further back" * (not self._files)
            )

    def warn_if_ends_before(self, end: datetime) -> None:
        """Warns where the records end before this time, and no stream tells what came after."""
        if self._backlog is None and self._newest is not None and self._newest < end:
            logger.warning(
                f"{self._files[-1]} ends {local_time(self._newest)}; if the table was changed "
                f"between then and {local_time(end)}, that is not in it"
            )

    def check_view_type(self, purpose: str = "undo") -> None:
        """Raises StreamError where the stream does not have both images."""
        view_type = self._reader.listing.view_type
        if view_type != "NEW_AND_OLD_IMAGES":
            raise StreamError(
                f"the stream's view type is {view_type}; NEW_AND_OLD_IMAGES is needed to {purpose}"
            )

    def check_not_ended(self) -> None:
        """Raises StreamError where the stream has ended: later changes are in none."""
        if self._reader.has_ended:
            raise StreamError(
                f"the stream {self._reader.listing.arn} is disabled or deleted: what has "
                "changed the table since is not in it"
            )

    def _check_reconstructable(self, backlog: BacklogReader, start: datetime) -> None:
        assert self.stream is not None
        listing = backlog.listing
        if "OLD" not in listing.view_type:
            raise StreamError(
                f"the stream's view type is {listing.view_type}; NEW_AND_OLD_IMAGES is "
                "needed to show earlier states"
            )
        if start > listing.time:
            raise UsageError(f"{local_time(start)} is in the future: give a time that has passed")
        self.check_not_ended()
        if not self._files:
            self.check_covers(start)
        table = self.stream.table.description
        if listing.created is not None and table.created > listing.created + CREATED_TOGETHER:
            raise StreamError(
                f"table {listing.table} was deleted and created again {local_time(table.created)}: "
                "the stream belongs to the deleted one"
            )

    def _expiry_attribute(self) -> str | None:
        if self.stream is None:
            return None
        with suppress(StreamError):  # to read the stream takes no permission for the table
            table = self.stream.table
            if table.description.is_replicated:
                try:
                    return table.tables.ttl_attribute(table.name)
                except StreamError as error:
                    logger.warning(
                        "Items that expired in another region pass for ones that somebody removed: "
                        f"it takes dynamodb:DescribeTimeToLive to tell them ({error})"
                    )
        return None

    def _or_expired(self, page_filter: PageFilter) -> PageFilter:
        """Returns a filter that lets what expired pass, too: it is filtered once it is named."""

        def indexes(records: Sequence[WireRecord]) -> list[int]:
            expired = {at for at, each in enumerate(records) if self._has_expired(each)}
            others = [at for at in range(len(records)) if at not in expired]
            found = page_filter([records[at] for at in others])
            return sorted([*expired, *(others[at] for at in found)])

        return indexes

    def _has_expired(self, record: WireRecord) -> bool:
        return self._expiry is not None and is_replicated_expiry(record, self._expiry)

    def _note(self, created: datetime | None) -> None:
        if created is not None:
            self._oldest = min(created, self._oldest or created)
            self._newest = max(created, self._newest or created)

    def _noted(self, records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            self._note(record.created_at)
            yield record

    def _new(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yields the records from the start on, each once: an archive and the stream overlap."""
        for record in records:
            created = record.created_at
            if self._start is not None and created is not None and created < self._start:
                continue
            name = record.wire.eventID or f"{record.shard_id} {record.sequence_number}"
            if self._seen is not None and self._files and not self._seen.is_new(name):
                continue
            yield record.as_expired() if self._has_expired(record.wire) else record

    def _report_gap(self, since: datetime) -> None:
        """Reports a stream that begins only after the end of the files."""
        known = max(filter(None, (self._newest, self._start)), default=since)
        if not self._files or known + COARSEST_STAMP >= since:
            return
        line = (
            f"nothing is known of {local_time(known)} to {local_time(since)}: "
            f"{self._files[-1]} ends there, and the stream begins later"
        )
        if self._strict:
            raise DataLossError(line)
        self._gaps.append(line)
        logger.warning(f"GAP: {line}")

    def _file_records(self, name: str) -> Iterator[Record]:
        if name != "-" and Path(name).is_dir():
            archive = Archive(Path(name))
            yield from archive.records(self._start)
            self._note(archive.oldest)
            self.exact = self.exact and archive.exact
            return
        with ExitStack() as stack:
            lines = RecordLines(stack.enter_context(open_lines(name)))
            yield from read_records(lines, name)
            if lines.unreadable:
                text = f"{grouped(lines.unreadable, 'line')} of {name} could not be read"
                if self._strict:
                    raise DataLossError(text)
                self._gaps.append(text)
                self.left_out += f"; {text}"


def source_path(name: str) -> Path | None:
    """Returns the path of a source that is a file or a folder; None for a stream.

    Logs which one it takes where a name could be both.
    """
    if name.startswith("arn:"):
        return None
    path = Path(name)
    if "/" in name or name == "-":
        return path
    if path.exists():
        logger.info(f"{name} is read as a path; for a table of that name, give its ARN")
        return path
    return None


def start_time(start: Moment) -> datetime | None:
    """Returns the time to read from; None for the trim horizon. Raises UsageError."""
    now = datetime.now(UTC)
    with blame("start"):
        position = parse_start(start, now)
        if isinstance(position, Latest):
            raise UsageError(f"{start!r} is not in the past: give an age like 2h, or a time")
    return position.time if isinstance(position, AtTime) else None


def past_time(text: Moment, option: str) -> datetime:
    """Returns a time that has passed, or now, to the second. Raises UsageError."""
    now = datetime.now(UTC)
    with blame(option):
        return parse_time(text, now).time


def records_until(records: Iterable[Record], until: datetime | None) -> Iterable[Record]:
    """Leaves out the records made after `until`; None leaves out none."""
    if until is None:
        return records
    return (each for each in records if each.created_at is None or each.created_at <= until)
