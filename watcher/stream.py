"""The pull interface: `next(stream)` gives one record, or None when there is nothing now."""

from __future__ import annotations

import contextlib
import heapq
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from watcher.errors import DataLossError, ServiceError, StreamError, TransientError, UsageError
from watcher.reading import token as checkpoints
from watcher.reading.lineage import Lineage, Status, Tracked
from watcher.reading.messages import Finished, Loss, Page, Started
from watcher.reading.shard_reader import CLOCKS_APART, ShardReader
from watcher.reading.unlisted import Unlisted
from watcher.record import page as pages
from watcher.record.record import Record
from watcher.record.selection import wanted
from watcher.service.connect import connect, patiently
from watcher.service.connection import Connection
from watcher.service.model import AfterSequence, AtTime, Latest
from watcher.watching import position

Start: TypeAlias = str | datetime | dict[str, Any]

_LISTING_SECONDS = 5.0


class _Shard(msgspec.Struct):
    """A shard that is being read: its reader, and what it has read and not given out yet."""

    tracked: Tracked
    reader: ShardReader
    due: float = 0.0
    records: Iterator[Record] = iter(())
    buffered: bool = False
    """Whether a record of it stands in the heap."""
    ended: bool = False


class Stream:
    """A table's changes, pulled one by one, its shards merged by creation time.

    `start` is `"latest"`, `"trim_horizon"`, a datetime (aware, or in local time), or a token, as
    a dict or its JSON. `filters`, `key` and `only` are those of `watch()`; what they leave out
    moves the token, and is counted in `filtered`. Raises StreamError where the stream can't be
    used, UsageError for a bad start or filter. Not for use by several threads at once.
    """

    def __init__(
        self,
        stream: str,
        start: Start = "latest",
        *,
        filters: Iterable[str | Mapping[str, Any]] | None = None,
        key: Iterable[str] | Mapping[str, Any] | None = None,
        only: str | Iterable[str] | None = None,
        fail_on_data_loss: bool = False,
        region: str | None = None,
        profile: str | None = None,
        endpoint_url: str | None = None,
    ) -> None:
        self._wanted = wanted(filters, key, only)
        self.filtered = 0
        """How many records the filters have left out."""
        self._streams, self.arn = connect(stream, Connection(region, profile, endpoint_url))
        self._fail_on_data_loss = fail_on_data_loss
        self.losses: list[str] = []
        """What was gone before it was read: one line each, shard and position named."""
        self.move_to(start)

    def move_to(self, start: Start) -> None:
        """Go on from another position; takes what the constructor takes.

        A token's shards that are gone are dropped, their children begin at their trim horizon,
        and what is lost thereby is in `losses` (or raised, with `fail_on_data_loss`).
        """
        if isinstance(start, dict) or (isinstance(start, str) and start.lstrip().startswith("{")):
            token = checkpoints.from_json(start)
            if token.stream_arn != self.arn:
                raise UsageError(f"the token is of {token.stream_arn}, not of {self.arn}")
            self._lineage = Lineage(Latest(), checkpoints.resume(token))
        else:
            self._lineage = Lineage(position(start))
        self._reading: dict[str, _Shard] = {}
        self._heap: list[tuple[float, int, str, Record]] = []
        self._unlisted = Unlisted()
        self._listing_due = math.inf
        patiently(self._list)
        self._began_at = self._time - CLOCKS_APART
        # Iterators at once: "latest" means now, not the moment of the first `next`.
        self._read_due()

    def __iter__(self) -> Iterator[Record | None]:
        return self

    def __next__(self) -> Record | None:
        """The next record; None when there is nothing now. Never ends by itself."""
        while (record := self._next()) is not None:
            if self._wanted is None or self._wanted(record):
                return record
            self.filtered += 1
        return None

    def _next(self) -> Record | None:
        while not self._heap:
            self._read_due()
            # An empty page alone does not say that there is nothing.
            if not self._heap and all(shard.reader.at_tip for shard in self._reading.values()):
                return None
        *_, shard_id, record = heapq.heappop(self._heap)
        shard = self._reading[shard_id]
        shard.buffered = False
        shard.tracked.position = AfterSequence(record.sequence_number)
        self._buffer(shard)
        return record

    @property
    def token(self) -> dict[str, Any]:
        """Where the stream stands, as a dict for JSON; readable by bloop's `Engine.stream`."""
        token = checkpoints.make(self.arn, self._lineage, self._time, self._began_at)
        return checkpoints.to_dict(token)

    def heartbeat(self) -> None:
        """Read the shards that have nothing buffered, so that their iterators stay fresh.

        For callers that pull seldom; an iterator lives 15 minutes. (One that expires all the same
        loses nothing here: a new one goes on from the last position.)
        """
        self._read_due(now=float("inf"))

    def _read_due(self, now: float | None = None) -> None:
        """One read of each shard with nothing buffered that may have more, or has rested."""
        moment = time.monotonic()
        if moment >= self._listing_due:
            self._list()
        now = moment if now is None else now
        for shard in list(self._reading.values()):
            due = shard.due <= now or not shard.reader.at_tip
            if due and not shard.buffered and not shard.ended:
                self._read(shard)

    def _read(self, shard: _Shard) -> None:
        for message in shard.reader.read():
            match message:
                case Page(first, last, _, body):
                    shard.records = pages.records(body, shard.tracked.id, first, last)
                case Started(moment):
                    self._started(shard.tracked, moment)
                case Finished():
                    shard.ended = True
                case Loss(shard_id, since, reason) if shard.tracked.expected:
                    self._lost(f"shard {shard_id} from {since}: {reason}")
        shard.due = time.monotonic() + shard.reader.pause
        self._buffer(shard)

    def _started(self, shard: Tracked, moment: datetime) -> None:
        if isinstance(shard.position, Latest):
            shard.position = AtTime(moment)
        if shard.has_outwaited(moment):
            since = shard.since
            shard.since = moment
            self._lost(f"shard {shard.id}, unread since {since}: longer than the retention")

    def _buffer(self, shard: _Shard) -> None:
        """Put the shard's next record on the heap; past the last one, its children's turn comes."""
        record = next(shard.records, None)
        if record is not None:
            created = record["dynamodb"].get("ApproximateCreationDateTime")
            seconds = created.timestamp() if created else 0.0
            entry = (seconds, int(record.sequence_number), shard.tracked.id, record)
            heapq.heappush(self._heap, entry)
            shard.buffered = True
        elif shard.ended:
            shard.tracked.status = Status.FINISHED
            del self._reading[shard.tracked.id]
            self._list_children(shard.tracked.id)

    def _list(self) -> None:
        try:
            listing = self._streams.listing(self.arn)
        except TransientError:
            if self._listing_due == math.inf:
                raise
            self._listing_due = time.monotonic() + _LISTING_SECONDS
            return
        self._listing_due = time.monotonic() + _LISTING_SECONDS + listing.pages / 5
        self._time = listing.time
        self._lineage.update(listing.shards)
        self._lineage.stamp(listing.time)
        self._lineage.forget(listing.shards)
        self._start_ready()

    def _list_children(self, shard_id: str) -> None:
        with contextlib.suppress(ServiceError, StreamError):  # the next listing shows them
            self._lineage.update(self._streams.children(self.arn, shard_id))
        self._lineage.stamp(self._time)
        if not self._lineage.children(shard_id):
            self._listing_due = min(self._listing_due, time.monotonic() + 0.25)
        self._start_ready()

    def _start_ready(self) -> None:
        self._unlisted.due = math.inf
        ready = self._lineage.ready()
        for tracked in ready:
            if not self._unlisted.may_begin(self._streams, self.arn, tracked):
                if tracked.status is Status.FINISHED:
                    ready.extend(self._lineage.children(tracked.id))
                continue
            tracked.status = Status.RUNNING
            reader = ShardReader(self._streams, self.arn, tracked.id, tracked.position)
            self._reading[tracked.id] = _Shard(tracked, reader)
        self._listing_due = min(self._listing_due, self._unlisted.due)

    def _lost(self, text: str) -> None:
        self.losses.append(text)
        if self._fail_on_data_loss:
            raise DataLossError(f"DATA LOSS: {text}")
