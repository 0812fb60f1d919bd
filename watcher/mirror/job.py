"""Keeps a mirror equal to a DynamoDB table: copies its items, then applies every change.

The parameters of `mirror` declare the command's options.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Final, NamedTuple

import msgspec
import pyarrow as pa

from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.model import (
    CLOCKS_APART,
    AtTime,
    Position,
    Service,
    WireItem,
)
from watcher.aws.tables import Key, ReadPace
from watcher.call_pool import CallPool
from watcher.clock import CLOCK, Clock
from watcher.declared import Opt
from watcher.errors import StreamGoneError, UsageError, blame
from watcher.formatting.text import counted
from watcher.mirror.columns import (
    VARIANT,
    Baseline,
    Columns,
    History,
    ItemForm,
    Once,
    given_columns,
    item_of,
)
from watcher.mirror.table import MirrorState, MirrorTable
from watcher.mirror.versions import (
    ItemChange,
    MirrorForm,
    change_of,
    refuse_other,
    refuse_view,
)
from watcher.pull.merged_shards import MergedShards
from watcher.pull.shard_pool import PullOptions
from watcher.pull.table_snapshot import ItemsPage, read_pages
from watcher.records.redaction import Redaction, redaction
from watcher.shutdown import Shutdown
from watcher.streams import checkpoint_format
from watcher.streams.checkpoint_format import Token, TokenSegment, TokenSnapshot
from watcher.streams.losses import Losses
from watcher.time_machine.as_of import exported_items
from watcher.time_machine.exports import Export, joined_exports
from watcher.time_machine.table import TableHandle, open_table
from watcher.times import parse_seconds

logger = logging.getLogger("watcher")

ITEMS: Final = 20_000
"""The most changes of a commit (and items, by a page of each segment more) …"""
_IMAGE_BYTES: Final = 32 * 1024 * 1024  # … and their most bytes
_POLL_SECONDS: Final = 0.2  # between two looks for a change, where there was none
# A position is stored by then, though nothing changes: the stream keeps a day.
_IDLE_COMMIT_SECONDS: Final = 600.0
_REMEDY: Final = "; make a new copy, in another folder"


class MirrorJob:
    """Keeps one mirror equal to one table, by its stream; with `once`, up to now.

    Raises UsageError if the mirror is of another table, or can't have these columns, and
    StreamError if the stream lacks the images that a mirror needs.
    """

    def __init__(  # noqa: PLR0913 (what a job is made of, by keyword)
        self,
        *,
        arn: str,
        service: Service,
        table: TableHandle,
        mirror: MirrorTable,
        form: MirrorForm,
        once: bool = False,
        exports: Sequence[Export] = (),
        redaction: Redaction | None = None,
        calls: CallPool | None = None,
        clock: Clock = CLOCK,
        limit: int = ITEMS,
    ) -> None:
        self._arn = arn
        self._service = service
        self._table = table
        self._once = once
        self._rows, self._columns, self._made_as = form
        self._redaction = redaction
        self._exports = exports
        self._exported: Iterator[bytes] | None = None
        self._mirror = mirror
        self._calls = calls or CallPool()
        self._clock = clock
        self._limit = limit
        keys = table.description.types
        self._hides_keys = redaction is not None and any(map(redaction.hides, keys))
        self._copied = TokenSnapshot()
        self._committed_at = clock.monotonic()
        if mirror.state is not None:
            self._continue(mirror.state)
        else:
            self._stream = self._begun()
        self.items = 0
        """The number of items that this run has copied."""
        self.changes = 0
        """The number of changes that this run has applied."""

    def run(self, every: float, stopped: Callable[[], bool]) -> None:
        """Copies the items, unless that is done, then commits changes `every` so many seconds.

        Raises StreamError, DataLossError, WatcherError.
        """
        while not stopped():
            self._copy(stopped)
            if stopped():
                return
            changes, is_all = self._gather(every, stopped)
            if changes or self._is_commit_due():
                self._apply(changes)
            if is_all:
                return

    # The start

    def _continue(self, state: MirrorState) -> None:
        if state.token is None:
            to = self._mirror.to
            raise UsageError(f"{to} is of --engine spark: give that, or another folder")
        refuse_other(self._mirror.to, state.made_as, self._made_as)
        self._columns.adopt(self._mirror.schema)
        self._mirror.grow(self._columns.schema)
        token = checkpoint_format.from_json(state.token)
        if self._exports:
            self._stream = self._begun()
            return
        self._copied = token.snapshot or TokenSnapshot()
        self._stream = self._reader(token)
        if token.saved_at is not None:  # also short runs without a change store a position
            passed = self._stream.listing.time - token.saved_at
            self._committed_at -= passed.total_seconds()

    def _begun(self) -> MergedShards:
        """Returns the stream from now on, for a new copy."""
        listing = self._service.list_shards(self._arn)
        refuse_view(listing.view_type, history=not self._rows.last_only)
        # Fixed before the first item is read: a change from here on is in the stream.
        time = self._exports[-1].time if self._exports else listing.time
        return self._reader(AtTime((time - CLOCKS_APART).replace(microsecond=0)))

    def _reader(self, start: Position | Token) -> MergedShards:
        return MergedShards(
            self._service,
            self._arn,
            start,
            losses=Losses(is_error=True, remedy=_REMEDY, clock=self._clock),
            calls=self._calls,
            clock=self._clock,
            options=PullOptions(up_to_now=self._once),
        )

    def _is_commit_due(self) -> bool:
        return self._clock.monotonic() - self._committed_at >= _IDLE_COMMIT_SECONDS

    # The copy

    def _copy(self, stopped: Callable[[], bool]) -> None:
        """Copies the items that are left; each commit stores how far it is."""
        if self._copied.segments is None and not self._copied.done:
            self._copied = TokenSnapshot()
            if self._exports:
                self._exported = exported_items(self._exports, self._columns.keys)
            schema = pa.schema([*self._columns.schema, *self._rows.own])
            self._mirror.create(schema, self._state())
        while not (stopped() or self._copied.done):
            items, copied = self._next_items(self._copied)
            made = self._made(partial(self._rows.items, self._columns, items))
            self._copied = copied
            self._mirror.append(made, self._state())
            self.items += len(items)
            logger.info(f"copied: {counted(copied.items, 'item')}")
            if copied.done:
                self._mirror.compact()

    def _next_items(self, copied: TokenSnapshot) -> tuple[list[WireItem], TokenSnapshot]:
        """Returns the items of a commit, by pages of all segments, and the progress behind them.

        With exports there is none: such a copy begins again.
        """
        if self._exported is not None:
            return self._next_exported(self._exported, copied.items)
        segments = copied.split(ReadPace(None).segments(self._table.description.size))
        found: list[WireItem] = []
        size = 0
        while not (self._is_full(found, size) or all(each.done for each in segments)):
            pages = read_pages(segments, self._page, self._calls)
            for number, (images, last, _) in pages.items():
                segments[number] = TokenSegment(last, last is None)
                size += sum(len(bytes(image)) for image in images)
                found += map(self._item, images)
        return found, TokenSnapshot.of(segments, copied.items + len(found))

    def _page(self, after: Key | None, segment: int, segments: int) -> ItemsPage:
        part = {"Segment": segment, "TotalSegments": segments}
        return self._table.tables.page(self._table.name, after, **part)

    def _next_exported(
        self, images: Iterator[bytes], before: int
    ) -> tuple[list[WireItem], TokenSnapshot]:
        found: list[WireItem] = []
        size = 0
        for image in images:
            found.append(self._item(image))
            size += len(image)
            if self._is_full(found, size):
                return found, TokenSnapshot(before + len(found))
        return found, TokenSnapshot(before + len(found), done=True)

    def _item(self, image: bytes | msgspec.Raw) -> WireItem:
        return item_of(image if self._redaction is None else self._redaction.item(image))

    def _is_full(self, gathered: Sequence[object], size: int) -> bool:
        return len(gathered) >= self._limit or size >= _IMAGE_BYTES

    # The changes

    def _gather(self, every: float, stopped: Callable[[], bool]) -> tuple[list[ItemChange], bool]:
        """Returns the changes of so many seconds; and True, with `once`, after the last one."""
        found: list[ItemChange] = []
        size = 0
        deadline = self._clock.monotonic() + every
        while not stopped():
            try:
                is_idle = self._stream.poll() is None
            except StreamGoneError:
                if not found:
                    raise
                return found, False  # to be committed first
            if is_idle:
                if self._once and self._stream.confirm_caught_up():
                    return found, True
                if self._clock.monotonic() >= deadline:
                    return found, False
                self._clock.sleep(_POLL_SECONDS)
                continue
            record = self._stream.pop()
            size += len(record.raw)
            if self._redaction is not None:
                record = self._redaction(record)
            found.append(change_of(record))
            if self._is_full(found, size) or self._clock.monotonic() >= deadline:
                return found, False
        return found, False

    def _apply(self, changes: list[ItemChange]) -> None:
        if changes:
            made = self._made(partial(self._rows.changes, self._columns, changes))
            self._mirror.merge(made, self._rows, self._columns.keys, self._state())
        else:
            self._mirror.append(self._mirror.schema.empty_table(), self._state())
        self._committed_at = self._clock.monotonic()
        self.changes += len(changes)
        self._mirror.tidy()

    def _made(self, make: Callable[[], pa.Table]) -> pa.Table:
        """Returns rows; by then there are columns for all their attributes."""
        made = make()
        if new := self._columns.lacking(made):
            self._columns.grow(new)
            self._mirror.grow(self._columns.schema)
            made = make()
        return made

    def _state(self) -> MirrorState:
        """Returns the state behind all that is copied and applied."""
        before, is_copied = self._mirror.state, self._copied.done
        # A hidden key may be in no file: such a copy can't be continued, and begins again.
        progress = TokenSnapshot() if self._hides_keys and not is_copied else self._copied
        token = msgspec.structs.replace(self._stream.token, snapshot=progress)
        was_copied_at = before.copied_at if before is not None else None
        return MirrorState(
            made_as=self._made_as,
            token=checkpoint_format.all_to_dict([token]),
            copied_at=(was_copied_at or self._clock.now()) if is_copied else None,
            vacuumed=datetime.now(UTC),
        )


_HERE = AwsConfig()


class MirrorTotals(NamedTuple):
    """The numbers of items and changes of a run."""

    items: int
    changes: int
    signal: int
    """The signal that ended the run; 0 for none."""


def mirror(
    stream: str,
    *,
    to: Annotated[str, Opt("the Delta table's folder, or s3://BUCKET/FOLDER", "PATH")],
    history: History = False,
    columns: Columns = None,
    item: ItemForm = None,
    baseline: Baseline = None,
    once: Once = False,
    every: Annotated[str, Opt("the interval between commits: 1s, 1m; default 10s", "TIME")] = "10s",
    redact: Sequence[str] | None = None,
    connection: AwsConfig = _HERE,
) -> MirrorTotals:
    """Keeps a Delta table equal to the stream's table, until stopped.

    It may be killed at any time, and continues with the same command: rows and the position in
    the stream are one commit. Raises UsageError, StreamError, DataLossError, WatcherError.
    """
    rules, given = redaction(redact), given_columns(columns)
    if item == VARIANT:
        raise UsageError("delta-rs writes none: use json, or --engine spark", "item", item)
    with blame("every"):
        seconds = parse_seconds(every)
    mirror, exports = MirrorTable(to), []
    service, arn = connect(stream, connection)
    table = open_table(service.table(arn), connection)
    if baseline and (mirror.state is None or mirror.state.copied_at is None):
        exports = joined_exports(baseline, connection, table.description)
    types = table.description.types
    form = MirrorForm.of(arn, types, history=history, columns=given, item=item, redaction=rules)
    # No signal is handled until the job runs: there is nothing yet to wait for.
    job = MirrorJob(
        arn=arn,
        service=service,
        table=table,
        mirror=mirror,
        form=form,
        once=once,
        exports=exports,
        redaction=rules,
    )
    stop, shutdown = threading.Event(), Shutdown()
    with shutdown.handle_signals(stop.set):
        logger.info(f"Mirroring {stream} to {to}")
        job.run(seconds, stop.is_set)
    return MirrorTotals(job.items, job.changes, shutdown.signal)
