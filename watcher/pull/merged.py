"""Pulls a stream's records one by one, its shards merged by creation time."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping
from concurrent import futures
from concurrent.futures import Future
from functools import partial
from operator import attrgetter

import msgspec

from watcher.aws.background import BackgroundService
from watcher.aws.model import AfterSequence, Latest, Listing, Position, Service, ShardKey
from watcher.clock import CLOCK, Clock
from watcher.pull import executor
from watcher.pull.calls import CallPool
from watcher.records import page as pages
from watcher.records.record import Record
from watcher.streams import token as tokens
from watcher.streams.coordinator import AGAIN_SECONDS, Coordinator, ShardEnd
from watcher.streams.lineage import ShardStatus, TrackedShard
from watcher.streams.losses import Losses
from watcher.streams.messages import (
    Chosen,
    Message,
    Page,
)
from watcher.streams.shard_reader import ShardReader
from watcher.streams.token import Token


class ShardBuffer(msgspec.Struct, eq=False):
    """A shard that is being read: its reader, and what it has read and not given out yet."""

    tracked: TrackedShard
    reader: ShardReader
    due: float = 0.0
    """When it is to be read again, by itself and …"""
    soonest: float = 0.0
    """… where somebody asks who would go away with nothing."""
    turn: float = -math.inf
    """Until then the service would refuse a read, as it has refused others (see `read_rate`)."""
    answer: Future[list[Message]] | None = None
    """What a read of it brings that is going on, or has just ended."""
    began: float = 0.0
    """When it has begun."""
    records: Iterator[Record] = iter(())
    size: int = 0
    """How many bytes hold what it has read and not given out."""
    left_out: int = 0
    """How many records a filter has left out of what was given out."""
    buffered: bool = False
    """Whether a record of it stands in the heap."""
    busy_until: float = 0.0
    """Until then more records of it are likely."""
    refused: bool = False
    """Whether the service lists it, and does not let it be read just now."""
    ended: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether "latest" is a moment, where it is to be read from there."""
        return not isinstance(self.reader.position, Latest)

    @property
    def may_have_more(self) -> bool:
        """Whether another read may find something at once."""
        return not (self.refused or self.reader.at_tip)

    @property
    def is_free(self) -> bool:
        """Whether it may be read: nothing of it is waiting, or still to come."""
        return not (self.buffered or self.ended or self.answer)

    @property
    def awaits_turn(self) -> bool:
        """Whether another read may find something, and the service lets it come only later."""
        return self.turn > -math.inf and self.is_free and self.may_have_more

    def takes(self, page: Page, origin: ShardKey) -> None:
        """Its records are given out after those that wait."""
        self.records = itertools.chain(self.records, self._given_out(page, origin))
        self.size += len(page.body)

    def _given_out(self, page: Page, origin: ShardKey) -> Iterator[Record]:
        """What was left out goes with the record after it, and behind the last one by itself."""
        records = pages.records(page.body, origin, page.first, page.last)
        left_out = 0
        for record, upto in zip(records, page.left_out or itertools.repeat(0), strict=False):
            self.left_out += upto - left_out
            left_out = upto
            yield record
        if page.left_out:
            self.left_out += page.left_out[-1] - left_out
            self.tracked.position = AfterSequence(page.last_sequence_number)

    def counted(self) -> int:
        """How many more were left out since the last time."""
        count, self.left_out = self.left_out, 0
        return count

    def read_with(self, reader: ShardReader, pause: float) -> None:
        """Have another reader go on, after so many seconds."""
        self.reader = reader
        reader.pause = pause

    def rests(self, now: float, seconds: float, least: float) -> None:
        """Let it rest so long, or at least so long."""
        self.due, self.soonest = now + seconds, now + min(least, seconds)
        turn = self.reader.reads.pause()
        self.turn = now + turn if turn > 0 else -math.inf


# So long it looks for a record where pages are empty that need not be the last ones.
_MOST_SECONDS = 1.0
# So long for the first reads, and where nothing else goes on: nobody waits for one that drips.
_PATIENT_SECONDS = 5.0
# So long for what a read of a shard brings that is only looked after.
_MOMENT_SECONDS = 0.05
# So long for what is asked about shards; an answer that comes later is taken in then.
_ANSWER_SECONDS = 1.0
# More pages, of all streams together, take longer: four of them are asked for in a second.
_PAGES_AT_ONCE = 2
# Reads at the same time, and bytes of pages that wait for their turn.
_READS_AHEAD = 100
_BYTES = 64 * 1024 * 1024
_PAUSE_A_SHARD = 0.001
_HURRY_SECONDS = 30.0
# So long a shard that had records comes before those that had none.
_BUSY_SECONDS = 60.0
_due = attrgetter("due")


class MergedReader:
    """One stream, from a position or from where a token stands.

    `losses` is told what was gone; `calls` makes those that may go on side by side; `sharers` is
    how many streams are pulled together. What is not `chosen` may be left out. With `up_to_now` it
    ends where all is read that there was as it began (see `open_end`). The constructor reads a
    first time: "latest" means now. Raises StreamError, DataLossError.
    """

    def __init__(
        self,
        service: Service,
        arn: str,
        start: Position | Token,
        losses: Losses,
        clock: Clock = CLOCK,
        *,
        calls: CallPool,
        poll_max: float = 1.0,
        sharers: int = 1,
        on_stale: str = "trim-horizon",
        up_to_now: bool = False,
        chosen: Chosen | None = None,
    ) -> None:
        self.arn = arn
        self._service = service
        self._clock = clock
        self._calls = calls
        self._poll_max = poll_max
        self._sharers = sharers
        self._up_to_now = up_to_now
        self._chosen = chosen
        self.left_out = 0
        """How many records were left out that are not `chosen`."""
        self._reading: dict[str, ShardBuffer] = {}
        self._in_call: dict[str, ShardBuffer] = {}
        self._size = 0
        self._run_out: list[ShardBuffer] = []
        """Of these all was taken; their children's turn may have come."""
        self._hurry_due = 0.0
        self._heap: list[tuple[float, int, str, Record]] = []
        token = start if isinstance(start, Token) else None
        self._coordinator = Coordinator(
            arn,
            start if not isinstance(start, Token) else Latest(),
            tokens.resume(token) if token else None,
            losses=losses,
            in_use=self._reading,
            clock=clock,
        )
        self._coordinator.schedule.sharers = sharers
        executor.begin(self._coordinator, service, clock)
        # What there is to read must not wait for a listing, or for a shard that hangs.
        is_small = self.listing.pages * sharers <= _PAGES_AT_ONCE
        patience = _ANSWER_SECONDS if is_small else 0.0
        aside = BackgroundService(service, patience=patience)
        self._asking: Service = aside if calls.may_have_threads else service
        saved_at = token.saved_at if token else None
        self._anew = losses.begins_anew(on_stale, "token", saved_at, self.listing)
        # Iterators at once: "latest" means now, not the moment of the first `next`.
        self.read_all()

    def begin_reads(self, *, at_once: bool = False) -> None:
        """What `look` would read first, for those who look at several streams one by one."""
        if not self._heap:
            self._go_on()
            self._start_due(at_once)

    def look(self, *, at_once: bool = False) -> float | None:
        """The creation time (epoch seconds) of the next record; None when there is nothing now.

        With `at_once` all shards are read before that is said, four times a second at most.
        """
        self._go_on()
        until = self._clock.monotonic() + _MOST_SECONDS
        while not self._heap:
            self._read_due(at_once)
            # An empty page alone does not say that there is nothing.
            now = self._clock.monotonic()
            more = any(s.may_have_more and s.turn <= now for s in self._reading.values())
            if not self._heap and not (more and now < until):
                return None
        return self._heap[0][0]

    def take(self) -> Record:
        """The record that `look` has seen; the token moves behind it."""
        record = self.take_read()
        self._go_on()
        return record

    def take_read(self) -> Record:
        """As `take`, but the service is not asked for anything before the next `look`."""
        *_, shard_id, record = heapq.heappop(self._heap)
        shard = self._reading[shard_id]
        shard.buffered = False
        shard.tracked.position = AfterSequence(record.sequence_number)
        self._buffer(shard)
        return record

    @property
    def next_at(self) -> float | None:
        """The creation time (epoch seconds) of the next record, if one was read already."""
        return self._heap[0][0] if self._heap else None

    @property
    def turn_in(self) -> float:
        """Seconds until a shard that may have more can be read, as the service allows; or inf."""
        turns = (shard.turn for shard in self._reading.values() if shard.awaits_turn)
        return min(turns, default=math.inf) - self._clock.monotonic()

    @property
    def listing(self) -> Listing:
        """What the service last said of the stream."""
        return self._coordinator.listing

    @property
    def has_caught_up(self) -> bool:
        """Whether all is read, and taken, that there was as it began; only with `up_to_now`."""
        return not self._reading and self._coordinator.is_settled()

    @property
    def seems_caught_up(self) -> bool:
        """Whether the last reads say so; but empty pages may come though records follow."""
        read = all(shard.reader.caught_up for shard in self._reading.values())
        return read and not self._heap and not self._in_call and self._coordinator.is_settled()

    def hold(self, firsts: Mapping[str, str]) -> None:
        """Have the token stay at these records of shards; see `Lineage.hold`."""
        self._coordinator.lineage.hold(firsts)

    @property
    def token(self) -> Token:
        """Where it stands."""
        coordinator = self._coordinator
        return tokens.make(
            coordinator.arn, coordinator.lineage, coordinator.listing.time, coordinator.began_at
        )

    def read_all(self) -> None:
        """One read of each shard with nothing buffered, as long as there is room.

        An answer that drips is not waited for: only the moment that is a shard's "latest".
        """
        self._attend()
        left = self._free()
        while left and self._size < _BYTES:
            self._read(left[:_READS_AHEAD], few=0)
            del left[:_READS_AHEAD]
            self._take(self._in_call_since(_PATIENT_SECONDS), _PATIENT_SECONDS)
            while waiting := [each for each in self._in_call.values() if not each.has_begun]:
                self._take(waiting, _MOMENT_SECONDS)

    def _read_due(self, at_once: bool) -> None:
        """One read of each shard with nothing buffered that may have more, or has rested.

        Those that may have more are waited for, the others (unless `at_once` can mean all of them)
        for a moment only, as is one whose read takes long.
        """
        behind = self._start_due(at_once)
        is_crowd = self._together > _READS_AHEAD
        if at_once and not is_crowd:
            behind = self._in_call_since(_MOST_SECONDS)
        self._take(behind, _PATIENT_SECONDS if self._together == 1 else _MOST_SECONDS)
        moment = _MOMENT_SECONDS / self._sharers
        self._take(list(self._in_call.values()), moment / 2 if is_crowd else moment)

    def _start_due(self, at_once: bool) -> list[ShardBuffer]:
        """Begin to read, and which may have more; who had some lately has half of the turns."""
        self._attend()
        now = self._clock.monotonic()
        free = self._free()
        behind = sorted((shard for shard in free if shard.may_have_more), key=_due)
        idle = (s for s in free if not s.may_have_more)
        rested = sorted((s for s in idle if (s.soonest if at_once else s.due) <= now), key=_due)
        room = max(_READS_AHEAD - len(self._in_call), 0)
        behind = behind[:room] if self._size < _BYTES else []
        room -= len(behind)
        busy = [shard for shard in rested if now < shard.busy_until][: (room + 1) // 2]
        rested = list(dict.fromkeys(busy + rested))[:room]
        self._read(behind + rested, few=1 if self._together == 1 else 0)
        return behind

    def _in_call_since(self, seconds: float) -> list[ShardBuffer]:
        """Those whose read has begun within so many seconds."""
        since = self._clock.monotonic() - seconds
        return [shard for shard in self._in_call.values() if shard.began > since]

    @property
    def _together(self) -> int:
        """About how many shards are read side by side; beside one alone, nothing goes on."""
        return len(self._reading) * self._sharers

    def _free(self) -> list[ShardBuffer]:
        now = self._clock.monotonic()
        return [shard for shard in self._reading.values() if shard.is_free and shard.turn <= now]

    def _read(self, shards: list[ShardBuffer], *, few: int) -> None:
        attempts = [partial(executor.read, shard.reader, self._service) for shard in shards]
        answers = self._calls.start(attempts, few)
        for shard, answer in zip(shards, answers, strict=True):
            shard.answer, shard.began = answer, self._clock.monotonic()
            self._in_call[shard.tracked.id] = shard

    def _take(self, shards: list[ShardBuffer], seconds: float) -> None:
        """What these reads have brought; waited for up to so long."""
        answers = [shard.answer for shard in shards if shard.answer is not None]
        done = futures.wait(answers, seconds).done if answers else set()
        for shard in shards:
            if shard.answer in done:
                answer, shard.answer = shard.answer, None
                del self._in_call[shard.tracked.id]
                assert answer is not None
                self._on_answer(shard, answer.result())

    def _attend(self) -> None:
        executor.refresh(self._coordinator, self._asking)
        for shard in self._reading.values():
            shard.reader.closed = shard.reader.closed or self._coordinator.is_closed(
                shard.tracked.id
            )
        for tracked in self._coordinator.to_start():
            self._reading[tracked.id] = ShardBuffer(tracked, self._reader(tracked))

    def _reader(self, tracked: TrackedShard) -> ShardReader:
        closed = self._coordinator.is_closed(tracked.id)
        return ShardReader(
            self.arn,
            tracked.id,
            tracked.position,
            closed=closed,
            until=self._coordinator.written_at if self._up_to_now else None,
            chosen=self._chosen,
            poll_max=self._poll_max,
            latest=self._coordinator.began_at,
            clock=self._clock,
        )

    def _on_answer(self, shard: ShardBuffer, messages: list[Message]) -> None:
        for message in messages:
            match self._coordinator.on_message(shard.tracked, message):
                case Page() as page:
                    shard.refused = False
                    shard.takes(page, ShardKey(self.arn, shard.tracked.id))
                    shard.busy_until = self._clock.monotonic() + _BUSY_SECONDS
                    self._size += len(page.body)
                    self._hurry()
                case ShardEnd.READ_AGAIN:
                    shard.read_with(self._reader(shard.tracked), AGAIN_SECONDS)
                    shard.refused = True
                case ShardEnd():
                    shard.ended = True
        pause = shard.reader.pause
        least = pause if shard.refused else shard.reader.least_pause
        now = self._clock.monotonic()
        # Of very many shards, this one process can't ask all every second.
        crowd = len(self._reading) * _PAUSE_A_SHARD if now >= shard.busy_until else 0.0
        if pause >= 1:
            pause = max(pause, crowd)
        shard.rests(now, pause, max(least, crowd))
        self._buffer(shard)
        self._go_on()

    def _hurry(self) -> None:
        """Where one shard has records, the others may soon have some."""
        now = self._clock.monotonic()
        if now < self._hurry_due:
            return
        self._hurry_due = now + _HURRY_SECONDS
        for shard in self._reading.values():
            if shard.answer is None and shard.reader.hurry():
                shard.due = shard.soonest = now

    def _buffer(self, shard: ShardBuffer) -> None:
        """Put the shard's next record on the heap, if there is one."""
        record = next(shard.records, None)
        self.left_out += shard.counted()
        if record is not None:
            created = record["dynamodb"].get("ApproximateCreationDateTime")
            seconds = created.timestamp() if created else 0.0
            entry = (seconds, int(record.sequence_number), shard.tracked.id, record)
            heapq.heappush(self._heap, entry)
            shard.buffered = True
        else:
            self._size -= shard.size
            shard.size = 0
            if shard.ended:
                self._run_out.append(shard)

    def _go_on(self) -> None:
        """From shards that have ended to their children; none come of those left open."""
        while self._run_out:
            shard = self._run_out.pop()
            del self._reading[shard.tracked.id]
            if shard.tracked.status is not ShardStatus.CAUGHT_UP:
                self._coordinator.finish(shard.tracked)
            self._attend()
