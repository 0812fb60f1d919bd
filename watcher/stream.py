"""The pull interface: `next(stream)` gives one record, or None when there is nothing now."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from concurrent.futures import Future
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from watcher.clock import CLOCK, Clock
from watcher.errors import UsageError
from watcher.reading import token as tokens
from watcher.reading.aside import Aside
from watcher.reading.lineage import Tracked
from watcher.reading.losses import Losses
from watcher.reading.messages import Finished, Loss, Message, Page, Remark, Started, Trouble
from watcher.reading.roster import AGAIN_SECONDS, End, Roster
from watcher.reading.shard_reader import ShardReader
from watcher.record import page as pages
from watcher.record.origin import Origin
from watcher.record.record import Record
from watcher.record.selection import wanted
from watcher.service.connect import connect
from watcher.service.connection import Connection
from watcher.service.model import AfterSequence, Latest, Listing, Position, Service
from watcher.side_by_side import SideBySide
from watcher.watching import position

# So long `next` looks for a record where pages are empty that need not be the last ones.
_MOST_SECONDS = 1.0
# So long for what a read of a shard brings that is only looked after.
_MOMENT_SECONDS = 0.05
# Reads at the same time, and pages that wait for their turn.
_READS_AHEAD = 100
_BYTES = 64 * 1024 * 1024
_PAUSE_A_SHARD = 0.001
_HURRY_SECONDS = 30.0

Start: TypeAlias = str | datetime | dict[str, Any]


class _Pulled(msgspec.Struct, eq=False):
    """A shard that is being read: its reader, and what it has read and not given out yet."""

    tracked: Tracked
    reader: ShardReader
    due: float = 0.0
    answer: Future[list[Message]] | None = None
    """What a read of it brings that is going on, or has just ended."""
    records: Iterator[Record] = iter(())
    size: int = 0
    """How many bytes hold what it has read and not given out."""
    buffered: bool = False
    """Whether a record of it stands in the heap."""
    refused: bool = False
    """Whether the service lists it, and does not let it be read just now."""
    ended: bool = False

    @property
    def may_have_more(self) -> bool:
        """Whether another read may find something at once."""
        return not (self.refused or self.reader.at_tip)

    @property
    def is_free(self) -> bool:
        """Whether it may be read: nothing of it is waiting, or still to come."""
        return not (self.buffered or self.ended or self.answer)


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
        service.take_shortcut(arn)
        self._calls, self._listings = SideBySide[list[Message]](), SideBySide[Listing](few=0)
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
        made._calls, made._listings = SideBySide(threads=False), SideBySide(threads=False)
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
        self._aside = Aside(self._roster, self._service, self._listings)
        self._roster.losses.say_if_old("checkpoint", saved_at, self._roster.listing.time)
        # Iterators at once: "latest" means now, not the moment of the first `next`.
        self.heartbeat()

    def _new_roster(self, start: Position, resumed: Iterable[Tracked] | None = None) -> Roster:
        self._reading: dict[str, _Pulled] = {}
        self._in_call: dict[str, _Pulled] = {}
        self._size = 0
        self._hurry_due = 0.0
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
        self._attend()
        left = [shard for shard in self._reading.values() if shard.is_free]
        while left and self._size < _BYTES:
            self._read(left[:_READS_AHEAD])
            del left[:_READS_AHEAD]
            self._take(list(self._in_call.values()), None)

    def _read_due(self) -> None:
        """One read of each shard with nothing buffered that may have more, or has rested.

        Those that may have more are waited for, the others for a moment only.
        """
        self._attend()
        now = self._clock.monotonic()
        free = [shard for shard in self._reading.values() if shard.is_free]
        behind = sorted((shard for shard in free if shard.may_have_more), key=_due)
        rested = sorted((s for s in free if s.due <= now and not s.may_have_more), key=_due)
        room = _READS_AHEAD - len(self._in_call)
        behind = behind[: max(room, 0)] if self._size < _BYTES else []
        self._read(behind + rested[: max(room - len(behind), 0)])
        self._take(behind, _MOST_SECONDS)
        self._take(list(self._in_call.values()), _MOMENT_SECONDS)

    def _read(self, shards: list[_Pulled]) -> None:
        answers = self._calls.start([shard.reader.read for shard in shards])
        for shard, answer in zip(shards, answers, strict=True):
            shard.answer = answer
            self._in_call[shard.tracked.id] = shard

    def _take(self, shards: list[_Pulled], seconds: float | None) -> None:
        """What these reads have brought; waited for up to so long (None: without an end)."""
        answers = [shard.answer for shard in shards if shard.answer is not None]
        done = futures.wait(answers, seconds).done if answers else set()
        for shard in shards:
            if shard.answer in done:
                answer, shard.answer = shard.answer, None
                del self._in_call[shard.tracked.id]
                assert answer is not None
                self._hear(shard, answer.result())

    def _attend(self) -> None:
        self._aside.attend()
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

    def _hear(self, shard: _Pulled, messages: list[Message]) -> None:
        for message in messages:
            match message:
                case Page(first, last, _, body):
                    shard.tracked.comes()
                    shard.refused = False
                    origin = Origin(self.arn, shard.tracked.id)
                    records = pages.records(body, origin, first, last)
                    shard.records = itertools.chain(shard.records, records)
                    self._size += len(body)
                    shard.size += len(body)
                    self._hurry()
                case Started(moment):
                    self._roster.started(shard.tracked, moment)
                case Finished():
                    self._finished(shard, message)
                case Loss():
                    self._roster.losses.heard(shard.tracked, message)
                case Trouble() | Remark():
                    self._roster.in_trouble(shard.tracked, message)
        pause = shard.reader.pause
        if pause >= 1:  # of so many shards, this one process can't ask all every second
            pause = max(pause, len(self._reading) * _PAUSE_A_SHARD)
        shard.due = self._clock.monotonic() + pause
        self._buffer(shard)

    def _hurry(self) -> None:
        """Where one shard has records, the others may soon have some."""
        now = self._clock.monotonic()
        if now < self._hurry_due:
            return
        self._hurry_due = now + _HURRY_SECONDS
        for shard in self._reading.values():
            if shard.answer is None and shard.reader.hurry():
                shard.due = now

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
            return
        self._size -= shard.size
        shard.size = 0
        if shard.ended:
            del self._reading[shard.tracked.id]
            self._roster.finish(shard.tracked)
            self._attend()


def _due(shard: _Pulled) -> float:
    return shard.due
