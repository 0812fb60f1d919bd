"""Keeps a mirror equal to a DynamoDB table: copies its items, then applies every change.

The parameters of `mirror` declare the command's options.
"""

import functools
import itertools
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa

from watcher.aws.arns import region_in
from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.model import CLOCKS_APART, AtTime, Listing, Position, Service, WireItem
from watcher.aws.tables import Description, TablesClient
from watcher.clock import CLOCK, Clock
from watcher.declared import Parameter
from watcher.errors import StreamError, StreamGoneError, UsageError
from watcher.mirror.columns import MirrorColumns, given_columns, item_of
from watcher.mirror.copy import Format, open_mirror
from watcher.mirror.table import MirrorState, MirrorTable
from watcher.mirror.versions import EveryVersion, ItemChange, LastVersion, change_of
from watcher.pull.call_pool import CallPool
from watcher.pull.merged_shards import MergedShards
from watcher.pull.shard_pool import PullOptions
from watcher.records.redaction import Redaction, redaction
from watcher.shutdown import Shutdown
from watcher.streams import checkpoint_format
from watcher.streams.checkpoint_format import Token
from watcher.streams.losses import Losses

logger = logging.getLogger("watcher")


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
        tables: TablesClient,
        table: str,
        description: Description,
        mirror: MirrorTable,
        history: bool = False,
        once: bool = False,
        given: pa.Schema | None = None,
        redaction: Redaction | None = None,
        fail_on_data_loss: bool = True,
        calls: CallPool | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self._arn = arn
        self._service = service
        self._tables = tables
        self._table = table
        self._size = description.size
        self._history = history
        self._once = once
        self._rows = EveryVersion() if history else LastVersion()
        self._redaction = redaction
        types = _redacted_types(description.types, redaction)
        self._columns = MirrorColumns(types, given or pa.schema([]), self._rows.own)
        self._mirror = mirror
        self._losses = Losses(is_error=fail_on_data_loss, clock=clock)
        self._calls = calls or CallPool()
        self._clock = clock
        self._limits = mirror.limits
        self._refuse_other()
        self._stream = self._reader()
        self._committed_at = clock.monotonic()
        self.items = 0
        """The number of items that this run has copied."""
        self.changes = 0
        """The number of changes that this run has applied."""

    def run(self, every: float, stopped: Callable[[], bool]) -> None:
        """Copies the items, unless that is done, then commits changes `every` so many seconds.

        Raises StreamError, DataLossError, WatcherError.
        """
        self._copy(stopped)
        while not stopped():
            changes, is_all = self._gather(every, stopped)
            if changes or self._is_commit_due():
                self._apply(changes)
            if is_all:
                return

    def _refuse_other(self) -> None:
        state, to = self._mirror.state, self._mirror.to
        if state is None:
            return
        if state.stream != self._arn:
            raise UsageError(f"{to} mirrors {state.stream}, not {self._arn}: give another folder")
        if state.history != self._history:
            made, option = ("with", "give") if state.history else ("without", "leave out")
            raise UsageError(
                f"{to} was created {made} --history: {option} --history, or give another folder"
            )
        if state.redaction != self._fingerprint:
            raise UsageError(
                f"{to} was created with other rules or another key: give those, or another folder",
                "redact",
            )
        if state.copied:
            self._columns.adopt(self._mirror.schema)
            self._mirror.grow(self._columns.schema)

    @property
    def _fingerprint(self) -> str:
        return "" if self._redaction is None else self._redaction.fingerprint

    def _reader(self) -> MergedShards:
        state = self._mirror.state
        start: Position | Token
        if state is not None and state.copied:
            start = checkpoint_format.from_json(state.token)
        else:
            listing = self._service.list_shards(self._arn)
            self._refuse_view(listing)
            # Fixed before the first item is read: a change from here on is in the stream.
            start = AtTime((listing.time - CLOCKS_APART).replace(microsecond=0))
        return MergedShards(
            self._service,
            self._arn,
            start,
            losses=self._losses,
            calls=self._calls,
            clock=self._clock,
            options=PullOptions(up_to_now=self._once),
        )

    def _refuse_view(self, listing: Listing) -> None:
        needed_view = "NEW_AND_OLD_IMAGES" if self._history else "NEW"
        if needed_view not in listing.view_type:
            raise StreamError(
                f"the stream's view type is {listing.view_type}: set NEW_AND_OLD_IMAGES to "
                + ("keep every version" if self._history else "mirror a table")
            )

    @property
    def _whole_schema(self) -> pa.Schema:
        return pa.schema([*self._columns.schema, *self._rows.own])

    def _is_commit_due(self) -> bool:
        return self._clock.monotonic() - self._committed_at >= self._limits.idle_commit_seconds

    # The copy

    def _copy(self, stopped: Callable[[], bool]) -> None:
        state = self._mirror.state
        if state is not None and state.copied:
            return
        if state is not None:
            logger.info("An earlier run was stopped while it copied: the copy starts again")
        state = self._state(copied=False)
        self._mirror.create(self._whole_schema, state)
        for items in self._batched(self._scan()):
            if stopped():
                return
            self._columns.grow(items)
            self._mirror.grow(self._columns.schema)
            self._mirror.append(self._rows.items(self._columns, items), state)
            self.items += len(items)
            logger.info(f"copied: {self.items} items")
        done = msgspec.structs.replace(state, copied=True, copied_at=self._clock.now())
        self._mirror.append(self._whole_schema.empty_table(), done)

    def _scan(self) -> Iterator[msgspec.Raw]:
        """Yields all items; a page of each segment at a time."""
        segments = min(self._limits.segments, 1 + self._size // self._limits.segment_bytes)
        parts = [self._tables.scan(self._table, each, segments) for each in range(segments)]
        while parts:
            reads = [functools.partial(next, part, None) for part in parts]
            pages = [answer.result() for answer in self._calls.start(reads)]
            parts = [part for part, page in zip(parts, pages, strict=True) if page is not None]
            yield from itertools.chain.from_iterable(page for page in pages if page)

    def _batched(self, images: Iterable[msgspec.Raw]) -> Iterator[list[WireItem]]:
        found: list[WireItem] = []
        size = 0
        for image in images:
            if self._redaction is not None:
                image = msgspec.Raw(self._redaction.item(image))
            found.append(item_of(image))
            size += len(bytes(image))
            if self._is_full(found, size):
                yield found
                found, size = [], 0
        if found:
            yield found

    def _is_full(self, gathered: Sequence[object], size: int) -> bool:
        return len(gathered) >= self._limits.items or size >= self._limits.image_bytes

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
                self._clock.sleep(self._limits.poll_seconds)
                continue
            record = self._stream.pop()
            size += len(record.raw)
            if self._redaction is not None:
                record = self._redaction(record)
            found.append(change_of(record))
            if self._is_full(found, size):
                return found, False
            if self._clock.monotonic() >= deadline:
                return found, False
        return found, False

    def _apply(self, changes: list[ItemChange]) -> None:
        state = self._state(copied=True)
        if changes:
            self._columns.grow(self._rows.attributes(changes))
            self._mirror.grow(self._columns.schema)
            self._mirror.merge(self._rows.merge(self._columns, changes), state)
        else:
            self._mirror.append(self._mirror.schema.empty_table(), state)
        self._committed_at = self._clock.monotonic()
        self.changes += len(changes)
        self._mirror.tidy(datetime.now(UTC))

    def _state(self, *, copied: bool) -> MirrorState:
        return MirrorState(
            stream=self._arn,
            history=self._history,
            token=checkpoint_format.to_dict(self._stream.token),
            copied=copied,
            copied_at=self._mirror.state.copied_at if copied and self._mirror.state else None,
            redaction=self._fingerprint,
            tidied=datetime.now(UTC),
        )


def _redacted_types(types: Mapping[str, str], redaction: Redaction | None) -> Mapping[str, str]:
    """Returns the types of the key's attributes as a mirror has them. Raises UsageError."""
    found = {} if redaction is None else dict(types)
    for name, kind in found.items():
        assert redaction is not None
        made = redaction.key_type(name, kind)
        if made is None:
            raise UsageError(f"a mirror needs the items' keys: use {name}=hash", "redact")
        found[name] = made
    return found or types


_TIME = re.compile(r"(\d+)\s*(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_HERE = AwsConfig()


class MirrorTotals(NamedTuple):
    """The numbers of items and changes of a run."""

    items: int
    changes: int
    signal: int
    """The signal that ended the run; 0 for none."""


To: TypeAlias = Annotated[
    str, Parameter(metavar="PATH", help="the mirror's folder, or NAMESPACE.TABLE with --catalog")
]
History: TypeAlias = Annotated[
    bool, Parameter(help="keep a row for every version of an item, with the time it was valid")
]
FormatOption: TypeAlias = Annotated[
    Format, Parameter(metavar="FORMAT", help="delta (default) or iceberg, which needs PyIceberg")
]
Catalog: TypeAlias = Annotated[
    str | None,
    Parameter(
        metavar="NAME",
        help="a catalog of .pyiceberg.yaml for --format iceberg; default a file in the folder",
    ),
]
ImageSchema: TypeAlias = Annotated[
    str | None,
    Parameter(
        metavar="COLUMNS",
        help="types of columns: 'total decimal(12,2), placed timestamp'; values set the others",
    ),
]
Once: TypeAlias = Annotated[bool, Parameter(help="end when everything up to now is done")]
Every: TypeAlias = Annotated[
    str, Parameter(metavar="TIME", help="the interval between commits: 1s, 1m; default 10s")
]
FailOnDataLoss: TypeAlias = Annotated[
    bool,
    Parameter(
        help="warn and continue if changes expired before they were read",
    ),
]


def mirror(  # noqa: PLR0913 (its parameters are the options)
    stream: str,
    *,
    to: To,
    history: History = False,
    format: FormatOption = "delta",  # noqa: A002 (the option's name)
    catalog: Catalog = None,
    image_schema: ImageSchema = None,
    once: Once = False,
    every: Every = "10s",
    fail_on_data_loss: FailOnDataLoss = True,
    redact: Sequence[str] | None = None,
    redact_file: str | None = None,
    redact_key_file: str | None = None,
    connection: AwsConfig = _HERE,
) -> MirrorTotals:
    """Keeps a Delta or Iceberg table equal to the stream's table, until stopped.

    It may be killed at any time, and continues with the same command: rows and the position in
    the stream are one commit. Raises UsageError, StreamError, DataLossError, WatcherError.
    """
    rules = redaction(redact, redact_file, redact_key_file)
    given = given_columns(image_schema) if image_schema else None
    seconds = _seconds(every)
    service, arn = connect(stream, connection)
    service.use_fast_path(arn)
    tables = TablesClient(connection, region_in(arn))
    name, description = tables.named(service.table(arn))
    # No signal is handled until the job runs: there is nothing yet to wait for.
    job = MirrorJob(
        arn=arn,
        service=service,
        tables=tables,
        table=name,
        description=description,
        mirror=open_mirror(to, form=format, catalog=catalog),
        history=history,
        once=once,
        given=given,
        redaction=rules,
        fail_on_data_loss=fail_on_data_loss,
    )
    stop, shutdown = threading.Event(), Shutdown()
    with shutdown.handle_signals(stop.set):
        logger.info(f"Mirroring {stream} to {to}")
        job.run(seconds, stop.is_set)
    return MirrorTotals(job.items, job.changes, shutdown.signal)


def _seconds(text: str) -> float:
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"can't read {text!r} as a time: use 500ms, 10s, 1m, 1h", "every")
    return int(found[1]) * _SECONDS[found[2]]
