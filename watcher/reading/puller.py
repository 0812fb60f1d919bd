"""Pulls a stream's records one by one, its shards merged by creation time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import msgspec

from watcher.clock import CLOCK, Clock
from watcher.reading import token as tokens
from watcher.reading.lineage import Tracked
from watcher.reading.losses import Losses
from watcher.reading.messages import Finished, Loss, Page, Remark, Started, Trouble
from watcher.reading.roster import AGAIN_SECONDS, End, Roster
from watcher.reading.shard_reader import ShardReader
from watcher.reading.token import Token
from watcher.record import page as pages
from watcher.record.origin import Origin
from watcher.record.record import Record
from watcher.service.model import AfterSequence, Latest, Position, Service

# So long it looks for a record where pages are empty that need not be the last ones.
_MOST_SECONDS = 1.0


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


class Puller:
    """One stream, from a position or from where a token stands.

    `losses` is told what was gone. The constructor reads a first time: "latest" means now. Raises
    StreamError, DataLossError.
    """

    def __init__(
        self,
        service: Service,
        arn: str,
        start: Position | Token,
        losses: Losses,
        clock: Clock = CLOCK,
    ) -> None:
        self.arn = arn
        self._service = service
        self._clock = clock
        self._reading: dict[str, _Pulled] = {}
        self._heap: list[tuple[float, int, str, Record]] = []
        token = start if isinstance(start, Token) else None
        self._roster = Roster(
            arn,
            start if not isinstance(start, Token) else Latest(),
            tokens.resume(token) if token else None,
            losses=losses,
            in_use=self._reading,
            clock=clock,
        )
        self._roster.begin(service)
        saved_at = token.saved_at if token else None
        losses.say_if_old("checkpoint", saved_at, self._roster.listing.time)
        # Iterators at once: "latest" means now, not the moment of the first `next`.
        self.read_due()

    def look(self) -> float | None:
        """The creation time (epoch seconds) of the next record; None when there is nothing now."""
        until = self._clock.monotonic() + _MOST_SECONDS
        while not self._heap:
            self.read_due()
            # An empty page alone does not say that there is nothing.
            more = any(shard.may_have_more for shard in self._reading.values())
            if not self._heap and not (more and self._clock.monotonic() < until):
                return None
        return self._heap[0][0]

    def take(self) -> Record:
        """The record that `look` has seen; the token moves behind it."""
        *_, shard_id, record = heapq.heappop(self._heap)
        shard = self._reading[shard_id]
        shard.buffered = False
        shard.tracked.position = AfterSequence(record.sequence_number)
        self._buffer(shard)
        return record

    @property
    def token(self) -> Token:
        """Where it stands."""
        roster = self._roster
        return tokens.make(roster.arn, roster.lineage, roster.listing.time, roster.began_at)

    def read_due(self, now: float | None = None) -> None:
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
