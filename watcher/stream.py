"""The pull interface: `next(stream)` gives one record, or None when there is nothing now."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from watcher.clock import CLOCK, Clock
from watcher.errors import UsageError
from watcher.reading import token as tokens
from watcher.reading.lineage import Tracked
from watcher.reading.losses import Losses
from watcher.reading.messages import Finished, Loss, Page, Remark, Started, Trouble
from watcher.reading.roster import AGAIN_SECONDS, End, Roster
from watcher.reading.shard_reader import ShardReader
from watcher.record import page as pages
from watcher.record.origin import Origin
from watcher.record.record import Record
from watcher.record.selection import wanted
from watcher.service.connect import connect
from watcher.service.connection import Connection
from watcher.service.model import AfterSequence, Latest, Position, Service
from watcher.watching import position

# So long `next` looks for a record where pages are empty that need not be the last ones.
_MOST_SECONDS = 1.0

Start: TypeAlias = str | datetime | dict[str, Any]


class _Pulled(msgspec.Struct):
    """A shard that is being read: its reader, and what it has read and not given out yet."""

    tracked: Tracked
    reader: ShardReader
    due: float = 0.0
    records: Iterator[Record] = iter(())
    buffered: bool = False
    """Whether a record of it stands in the heap."""
    refused: bool = False
    """Whether the service lists it, and does not let it be read just now."""
    ended: bool = False

    @property
    def may_have_more(self) -> bool:
        """Whether another read may find something at once."""
        return not (self.refused or self.reader.at_tip)


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
        test = wanted(filters, key, only)
        service, arn = connect(stream, Connection(region, profile, endpoint_url))
        self._set_up(service, arn, start, test, fail_on_data_loss, CLOCK)

    @classmethod
    def over(
        cls,
        service: Service,
        arn: str,
        start: Start,
        *,
        wanted: Callable[[Record], bool] | None = None,
        fail_on_data_loss: bool = False,
        clock: Clock = CLOCK,
    ) -> Stream:
        """A stream over a service and a clock that are handed in."""
        made = cls.__new__(cls)
        made._set_up(service, arn, start, wanted, fail_on_data_loss, clock)
        return made

    def _set_up(
        self,
        service: Service,
        arn: str,
        start: Start,
        wanted: Callable[[Record], bool] | None,
        fail_on_data_loss: bool,
        clock: Clock,
    ) -> None:
        self._wanted = wanted
        self.filtered = 0
        """How many records the filters have left out."""
        self.arn = arn
        self._service = service
        self._clock = clock
        self._losses = Losses(is_error=fail_on_data_loss, clock=clock)
        self.losses = self._losses.lines
        """What was gone before it was read: one line each, shard and position named."""
        self.move_to(start)

    def move_to(self, start: Start) -> None:
        """Go on from another position; takes what the constructor takes.

        A token's shards that are gone are dropped, their children begin at their trim horizon,
        and what is lost thereby is in `losses` (or raised, with `fail_on_data_loss`).
        """
        if isinstance(start, dict) or (isinstance(start, str) and start.lstrip().startswith("{")):
            token = tokens.from_json(start)
            if token.stream_arn != self.arn:
                raise UsageError(f"the token is of {token.stream_arn}, not of {self.arn}")
            self._roster = self._new_roster(Latest(), tokens.resume(token))
            saved_at = token.saved_at
        else:
            self._roster = self._new_roster(position(start))
            saved_at = None
        self._heap: list[tuple[float, int, str, Record]] = []
        self._roster.begin(self._service)
        self._roster.losses.say_if_old("checkpoint", saved_at, self._roster.listing.time)
        # Iterators at once: "latest" means now, not the moment of the first `next`.
        self._read_due()

    def _new_roster(self, start: Position, resumed: Iterable[Tracked] | None = None) -> Roster:
        self._reading: dict[str, _Pulled] = {}
        return Roster(
            self.arn, start, resumed, losses=self._losses, in_use=self._reading, clock=self._clock
        )

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
        until = self._clock.monotonic() + _MOST_SECONDS
        while not self._heap:
            self._read_due()
            # An empty page alone does not say that there is nothing.
            more = any(shard.may_have_more for shard in self._reading.values())
            if not self._heap and not (more and self._clock.monotonic() < until):
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
        roster = self._roster
        token = tokens.make(roster.arn, roster.lineage, roster.listing.time, roster.began_at)
        return tokens.to_dict(token)

    def heartbeat(self) -> None:
        """Read the shards that have nothing buffered, so that their iterators stay fresh.

        For callers that pull seldom; an iterator lives 15 minutes. (One that expires all the same
        loses nothing here: a new one goes on from the last position.)
        """
        self._read_due(now=float("inf"))

    def _read_due(self, now: float | None = None) -> None:
        """One read of each shard with nothing buffered that may have more, or has rested."""
        self._attend()
        now = self._clock.monotonic() if now is None else now
        for shard in list(self._reading.values()):
            due = shard.due <= now or shard.may_have_more
            if due and not shard.buffered and not shard.ended:
                self._read(shard)

    def _attend(self) -> None:
        self._roster.attend(self._service)
        for shard in self._reading.values():
            shard.reader.closed = shard.reader.closed or self._roster.is_closed(shard.tracked.id)
        for tracked in self._roster.to_begin():
            self._reading[tracked.id] = _Pulled(tracked, self._reader(tracked))

    def _reader(self, tracked: Tracked) -> ShardReader:
        closed = self._roster.is_closed(tracked.id)
        return ShardReader(
            self._service,
            self.arn,
            tracked.id,
            tracked.position,
            closed=closed,
            clock=self._clock,
        )

    def _read(self, shard: _Pulled) -> None:
        for message in shard.reader.read():
            match message:
                case Page(first, last, _, body):
                    shard.tracked.comes()
                    shard.refused = False
                    origin = Origin(self.arn, shard.tracked.id)
                    shard.records = pages.records(body, origin, first, last)
                case Started(moment):
                    self._roster.started(shard.tracked, moment)
                case Finished():
                    self._finished(shard, message)
                case Loss():
                    self._roster.losses.heard(shard.tracked, message)
                case Trouble() | Remark():
                    self._roster.in_trouble(shard.tracked, message)
        shard.due = self._clock.monotonic() + shard.reader.pause
        self._buffer(shard)

    def _finished(self, shard: _Pulled, message: Finished) -> None:
        if self._roster.meaning(shard.tracked, message) is End.READ_AGAIN:
            shard.reader = self._reader(shard.tracked)
            shard.reader.pause = AGAIN_SECONDS
            shard.refused = True
        else:
            shard.ended = True

    def _buffer(self, shard: _Pulled) -> None:
        """Put the shard's next record on the heap; past the last one, its children's turn comes."""
        record = next(shard.records, None)
        if record is not None:
            created = record["dynamodb"].get("ApproximateCreationDateTime")
            seconds = created.timestamp() if created else 0.0
            entry = (seconds, int(record.sequence_number), shard.tracked.id, record)
            heapq.heappush(self._heap, entry)
            shard.buffered = True
        elif shard.ended:
            del self._reading[shard.tracked.id]
            self._roster.finish(shard.tracked)
            self._attend()
