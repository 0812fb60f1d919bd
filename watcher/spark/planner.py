"""Decides, in Spark's driver, which records the next micro-batch has; an engine of the core."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from watcher.aws.connect import connect, for_worker
from watcher.aws.lister import Lister
from watcher.aws.model import AfterSequence, Listing, Service, TrimHorizon, opened_at
from watcher.aws.retry import first_listing
from watcher.clock import CLOCK, Clock
from watcher.errors import StreamError, StreamGoneError, UsageError
from watcher.pull.ranges import Range
from watcher.pull.stream_successor import StreamEnd
from watcher.spark import micro_batch, offsets
from watcher.spark.buffered_shard import BufferedPage, BufferedShard, ReaderEvent, unread_since
from watcher.spark.deferred_range import DeferredRange
from watcher.spark.event_time import EventTimeAlignment
from watcher.spark.offsets import Offset, ShardOffset
from watcher.spark.options import REMEDY, SourceOptions
from watcher.spark.read_ahead import ReadAhead
from watcher.spark.succession import StreamSuccession
from watcher.spark.tasks import BufferedRange
from watcher.streams.coordinator import Coordinator, ReadAgain, ShardEnd
from watcher.streams.lineage import RETENTION, Lineage, ShardStatus, TrackedShard
from watcher.streams.losses import Losses
from watcher.streams.messages import ReaderEnded
from watcher.streams.timing import TIMING as CORE_TIMING

logger = logging.getLogger("watcher")

_IDLE_ANSWER_SECONDS: Final = 0.04
"""The time until an idle query gets its answer, as Spark asks every 12 ms; news end it."""
_PASSES_SHARE: Final = 0.2
"""The share of the time in which the planner looks at all shards; in the rest they are read."""
_FIRST_READS_SECONDS: Final = 0.1
"""The wait for the first reads of shards, so that the first micro-batch has all of them."""
_FIRST_ANSWER_SECONDS: Final = 5.0
"""The longest wait of the very first answer for them: with a slow trigger it counts most."""
_FILL_SECONDS: Final = 1.0
"""The longest wait for the records that a limit asks for, where a backlog has them."""
_FRESH_SECONDS: Final = 1.0
"""The age up to which a planner's start, in several steps, takes one listing."""


class Planner:
    """Plans micro-batches for `latestOffset`, and holds their pages.

    Raises StreamError, UsageError, and DataLossError (with `failOnDataLoss`). After its start it
    retries passing errors of the service, which would end the query. `background` is the service
    for listings, which must not delay the query.
    """

    def __init__(
        self,
        options: SourceOptions,
        arn: str,
        service: Service,
        ahead: ReadAhead,
        *,
        clock: Clock = CLOCK,
        background: Service | None = None,
    ) -> None:
        self.arn = arn
        self._options = options
        self._service = service
        self._background = background or service
        self._ahead = ahead
        self._clock = clock
        self._losses = Losses(is_error=options.fail_on_data_loss, remedy=REMEDY, clock=clock)
        self._succession = StreamSuccession(
            arn,
            of_table=options.of_table,
            losses=self._losses,
            clock=clock,
        )
        self._listing: Listing | None = None
        self._listed_at = 0.0
        self._coordinator: Coordinator | None = None
        self._first_shards: set[str] = set()  # those of the first offset
        # The end of `availableNow`: the time, some seconds later, by which earlier records are in
        # their shards, and the shards that were closed at that moment (None: unknown).
        self._stop_at: datetime | None = None
        self._closed_then: set[str] | None = None
        self._alignment = EventTimeAlignment(options.max_event_time_skew, clock)
        self.awaits_others = False
        """True if buffered records wait for a shard that is behind them in event time."""
        self._first_until = math.inf
        self.has_begun_anew = False
        """True once it has planned to read its stream anew, from the trim horizon: by another."""
        self._begins_anew = False
        self._planned: dict[str, ShardOffset] = {}
        """The end of the newest micro-batch."""
        self._finished = 0

    @property
    def successor(self) -> str | None:
        """The ARN of the table's next stream, once this one has ended and is delivered."""
        return self._succession.successor

    @property
    def key_names(self) -> tuple[str, ...]:
        """The attributes of the table's key, in its order; empty where the service names none."""
        listing = self._listed() if self._coordinator is None else self._coordinator.listing
        return listing.key_names

    @classmethod
    def connected(cls, options: SourceOptions) -> Planner:
        """Returns a planner over the real service, its shards read by threads."""
        service, arn = connect(options.stream, options.connection)
        ahead = ReadAhead(
            arn, CLOCK, connect=lambda: for_worker(options.connection, arn), end=options.end
        )
        return cls(options, arn, service, ahead, background=Lister(service))

    def initial_offset(self) -> Offset:
        """Returns a new query's start, as positions whose meaning does not change with time."""
        coordinator = self._new_coordinator(None)
        coordinator.start(self._listed())
        self._losses.warn_if_starting_late(coordinator.listing)
        return Offset(
            self.arn,
            {
                shard.id: ShardOffset(
                    coordinator.restart(shard),
                    shard.parent,
                    unlisted=not shard.expected,
                    since=shard.since,
                )
                for shard in coordinator.lineage.unfinished
            },
            created=coordinator.listing.created,
        )

    def _listed(self) -> Listing:
        """Returns a listing, or that of a moment ago: a large stream's takes seconds."""
        if self._listing is None or self._clock.monotonic() > self._listed_at + _FRESH_SECONDS:
            self._listing = first_listing(self._service, self.arn)
            self._listed_at = self._clock.monotonic()
        return self._listing

    def stop_at_now(self) -> None:
        """Ends the query with the records written before this moment (`availableNow`)."""
        try:
            listing = self._listed()
            now, self._closed_then = listing.time, listing.closed()
        except StreamGoneError:  # `latest` reports it
            now = datetime.fromtimestamp(self._clock.time(), UTC)
        self._stop_at = now + timedelta(seconds=CORE_TIMING.written_seconds + 1)

    def take_over(self, former: Planner) -> None:
        """Takes the place of the planner of another stream of the table, or of this one before."""
        self._succession.take_over(former._succession)
        self._stop_at = former._stop_at

    def latest(self, start: Offset, max_records: int | None) -> Offset:
        """Returns the end of the next micro-batch; `start` itself if there is none now.

        Behind a stream that has ended, returns the start of the table's next stream.
        """
        try:
            coordinator = self._resume(start)
        except StreamGoneError as error:
            return Offset(self._succession.move_beyond_lost(error), {})
        if coordinator.listing.began_anew(start.created):  # read from its trim horizon on
            return Offset(self.arn, {}, created=coordinator.listing.created)
        now = self._clock.monotonic()
        deadline, first_reads_by = now + _IDLE_ANSWER_SECONDS, now + _FIRST_READS_SECONDS
        while True:
            began = self._clock.monotonic()
            pending = coordinator.refresh(self._background)
            with self._ahead.lock:
                self._handle_events(coordinator)
                self._refresh_shards(coordinator)
                if not self._are_tried() and self._clock.monotonic() < first_reads_by:
                    self._wait(began)
                    continue
                end = self._next_end(start, max_records, coordinator)
                if end is not None and self._is_filling(max_records, now + _FILL_SECONDS):
                    self._wait(began)
                    continue
                if end is not None:
                    self._planned = end.shards
                    return end
                if coordinator.due_in(pending) <= 0:
                    continue  # the children of one that has just finished
                if (beginning := self._next_beginning(coordinator)) is not None:
                    return beginning
                if self._confirm_nothing(coordinator, deadline):
                    return start
                self._wait(began)

    def _wait(self, began: float) -> None:
        """Waits for news, and for more of them after a long look, which began at this time.

        A look at a thousand shards takes longer than a read of one.
        """
        took = self._clock.monotonic() - began
        least = min(took * (1 / _PASSES_SHARE - 1), _IDLE_ANSWER_SECONDS)
        self._ahead.wait(_IDLE_ANSWER_SECONDS, least)

    def _next_beginning(self, coordinator: Coordinator) -> Offset | None:
        """Returns the start of the table's next stream, or of this one from scratch, if due."""
        if self._begins_anew and not self.awaits_others:
            self.has_begun_anew = True
            return Offset(self.arn, {}, created=coordinator.listing.created)
        end = self._find_end(coordinator)
        if end is None or end.successor is None:
            return None
        return Offset(self._succession.move_on(end.successor), {})

    def _is_filling(self, max_records: int | None, until: float) -> bool:
        """True while more of a backlog is read, for a moment: for a limit, or a query's start.

        While Spark works on the first micro-batch, more is read than the next one may hold.
        """
        shards = self._ahead.shards.values()
        is_first = not self._planned
        if not (is_first or max_records) or self._clock.monotonic() >= until:
            return False
        waiting = sum(page.count for shard in shards for page in shard.pages)
        is_short = max_records is None or waiting < max_records
        return is_short and any(shard.may_have_more for shard in shards)

    def _next_end(
        self, start: Offset, max_records: int | None, coordinator: Coordinator
    ) -> Offset | None:
        """Returns the end of the next micro-batch; None if that would be empty now."""
        shards, lineage = self._ahead.shards, coordinator.lineage
        if not any(each.pages or each.for_executors for each in shards.values()):
            self.awaits_others = False
            return micro_batch.end_offset(start, max_records, shards, lineage)
        until, is_awaited = self._alignment.limit(shards, lineage.ready())
        is_cut = not any(each.for_executors for each in shards.values())
        self.awaits_others = not is_cut and (
            is_awaited or self._read_here(until, start, coordinator)
        )
        if self.awaits_others:
            return None
        end = micro_batch.end_offset(
            start,
            max_records,
            shards,
            lineage,
            limits=self._ahead.limits,
            until=until,
        )
        self.awaits_others = is_awaited or end is None
        return end

    def _read_here(self, limit: float, start: Offset, coordinator: Coordinator) -> bool:
        """Reads the shards here that executors would read past the end; True if there are any."""
        whole = [each for each in self._ahead.shards.values() if each.for_executors]
        full_at = micro_batch.full_at(self._ahead.shards, self._ahead.limits, limit)
        until = min(limit, full_at + self._options.max_event_time_skew)
        if until == math.inf:
            return False
        lineage = coordinator.lineage
        past = [each for each in whole if each.since <= until < self._upto(each, lineage)]
        for shard in past:
            if shard.is_being_read:
                continue
            before = start.shards.get(shard.id)
            shard.tracked.status = ShardStatus.RUNNING
            self._ahead.read_here(shard, before.position if before else shard.tracked.position)
            self._ahead.wake()
        return bool(past)

    @staticmethod
    def _upto(shard: BufferedShard, lineage: Lineage) -> float:
        """Returns a time that is after all records which executors read of a shard."""
        if shard.deferred is not None:
            return shard.deferred.upto_created
        opened = min(map(unread_since, lineage.children(shard.id)), default=-math.inf)
        return math.inf if opened == -math.inf else opened

    def up_to_now(self) -> list[BufferedRange]:
        """Returns a batch's ranges: those of all micro-batches of a query with `availableNow`.

        Executors read again what is more than one micro-batch may hold.
        """
        self.stop_at_now()
        start, found, size = self.initial_offset(), dict[str, BufferedRange](), 0
        while (end := self.latest(start, None)) is not start:
            if self.has_begun_anew:  # what was read before is of another life
                raise StreamError(f"{self.arn} has started from scratch meanwhile: read it again")
            for each in self.ranges(start, end):
                shard_id = each.between.shard_id
                joined = found[shard_id].joined(each) if shard_id in found else each
                size += 0 if joined.pages is None else each.size
                if size > self._ahead.limits.batch and joined.pages is not None:
                    size -= joined.size
                    joined = BufferedRange(self._for_executors(joined.between, start, end))
                # A batch keeps no order between shards: each is a task's by itself.
                between = msgspec.structs.replace(joined.between, topmost=None)
                found[shard_id] = msgspec.structs.replace(joined, between=between)
            start = end
        return list(found.values())

    def ranges(self, start: Offset, end: Offset) -> list[BufferedRange]:
        """Returns a micro-batch's ranges, with their pages where they were read already."""
        found = list[BufferedRange]()
        for between in offsets.ranges(start, end):
            with self._ahead.lock:
                shard = self._ahead.shards.get(between.shard_id)
                pages = shard.pages_between(between.start, between.upto) if shard else None
            # As of a shard that had its turn long ago, or of a micro-batch before a restart.
            if pages is None:
                between = self._for_executors(between, start, end)
            if pages != []:
                found.append(BufferedRange(between, pages))
        return found

    def _for_executors(self, between: Range, start: Offset, end: Offset) -> Range:
        """Returns a range as executors read it; reports a loss if records have left its shard.

        The planner has checked that when the shard was ready; after a crash, that may be long ago.
        """
        between = msgspec.structs.replace(between, end=self._options.end)
        if between.starts_at_number:
            return between
        if self._coordinator is not None:
            now = self._coordinator.now
            shard = self._coordinator.lineage.shards.get(between.shard_id)
        else:
            try:
                now = self._listed().time
            except StreamGoneError:
                self._losses.report(str(between), "its stream is gone")
                return between
            shard = None
        self._losses.report_if_waited_past_retention(
            shard or offsets.tracked(between.shard_id, start, end), now
        )
        return msgspec.structs.replace(between, since=now)

    def report(self) -> dict[str, int]:
        """Returns the query's progress: figures of what follows the newest micro-batch.

        Spark asks right after it has planned one, and shows the answer until the next.
        """
        with self._ahead.lock:
            shards = list(self._ahead.shards.values())
            unfinished = [] if self._coordinator is None else self._coordinator.lineage.unfinished
            unstarted = [each for each in unfinished if each.status is ShardStatus.WAITING]
            return {
                "data_losses": len(self._losses.lines),
                "lag_seconds": _lag(shards, unstarted, self._planned, self._clock.time()),
                "shards_finished": self._finished,
                "shards_left_behind": len(self._alignment.left_behind),
                "shards_open": sum(not shard.has_ended for shard in shards),
            }

    def stop(self) -> None:
        """Ends the background reading."""
        self._ahead.stop()

    # The shards that are read

    def _new_coordinator(self, start: Offset | None) -> Coordinator:
        return Coordinator(
            self.arn,
            self._options.start if start is None else TrimHorizon(),
            None if start is None else offsets.resume(start),
            since=None if start is None else start.created,
            losses=self._losses,
            in_use=self._ahead.shards,
            clock=self._clock,
        )

    def _resume(self, start: Offset) -> Coordinator:
        """Returns the coordinator, resumed at `start`; drops the pages delivered before that."""
        if start.stream != self.arn:
            raise UsageError(
                f"the checkpoint belongs to {start.stream}, not to {self.arn}; "
                "choose another checkpoint, or name that stream"
            )
        if self._coordinator is None:
            coordinator = self._new_coordinator(start)
            if not self._succession.follows:  # a running query has listed before
                listing = self._listed()
                self._losses.report_if_anew("checkpoint", start.created, listing)
                coordinator.start(listing)
            self._coordinator = coordinator
            self._first_shards = set(start.shards)
            self._first_until = self._clock.monotonic() + _FIRST_ANSWER_SECONDS
        with self._ahead.lock:
            for shard_id, reached in start.shards.items():
                if (shard := self._ahead.shards.get(shard_id)) is None:
                    continue
                if self._ahead.delivered(shard, reached.position):
                    self._ahead.wake()
                if reached.finished and shard.has_ended and not shard.pages:
                    del self._ahead.shards[shard_id]
                    shard.tracked.position = reached.position
                    self._finished += 1
        return self._coordinator

    def _refresh_shards(self, coordinator: Coordinator) -> None:
        """Starts the ready shards: executors read closed ones, unless a limit needs counting."""
        while ready := coordinator.take_ready():
            self._start(coordinator, ready)
            self._ahead.wake()

    def _start(self, coordinator: Coordinator, ready: list[TrackedShard]) -> None:
        closed = coordinator.listing.closed() if self._closed_then is None else self._closed_then
        for shard in ready:
            if shard.id not in self._first_shards:
                # It opened after the query's start: the query reads it from its first record on.
                shard.since = opened_at(shard.id) or shard.since
            if shard.id in closed and self._options.max_records is None:
                self._losses.report_if_waited_past_retention(shard, coordinator.now)
                self._ahead.add_closed(shard)
                coordinator.finish(shard)
            else:
                self._ahead.add(
                    shard,
                    self._stop_at,
                    closed=coordinator.is_closed(shard.id),
                    may_defer=self._options.max_records is None,
                )

    def _handle_events(self, coordinator: Coordinator) -> None:
        """Handles the readers' events. Raises the error that ended them, and DataLossError."""
        for shard in self._ahead.shards.values():
            shard.closed = shard.closed or coordinator.is_closed(shard.id)
        for tracked in coordinator.take_reopened():
            self._ahead.start_reader(self._ahead.shards[tracked.id])
            self._ahead.wake()
        if self._ahead.failure is not None:
            raise self._ahead.failure
        while self._ahead.events:
            shard, event = self._ahead.events.popleft()
            self._on_event(coordinator, shard, event)

    def _on_event(self, coordinator: Coordinator, shard: BufferedShard, event: ReaderEvent) -> None:
        tracked = shard.tracked
        if isinstance(event, DeferredRange):
            tracked.on_records()
            return
        message = event.packed if isinstance(event, BufferedPage) else event
        is_anew = isinstance(message, ReaderEnded) and message.anew is not None
        match coordinator.on_message(tracked, message):
            case ReadAgain() if is_anew:  # numbers of before would be mistaken for later ones
                self._begins_anew = True
            case ShardEnd.CLOSED:
                coordinator.finish(tracked)
            case ReadAgain(seconds):
                self._ahead.start_reader(shard, seconds)
                self._ahead.wake()

    # When there is no micro-batch

    def _confirm_nothing(self, coordinator: Coordinator, deadline: float) -> bool:
        """True once there is certainly nothing to plan now. Raises StreamGoneError."""
        end = self._succession.end
        if self._stop_at is not None:
            is_over = end is not None or not coordinator.is_over
            return is_over and self._confirm_done(coordinator)
        if end is not None:
            raise self._succession.error(coordinator)
        now = self._clock.monotonic()
        is_tried = self._are_tried() and not self.awaits_others
        return now >= deadline and (is_tried or now >= self._first_until)

    def _confirm_done(self, coordinator: Coordinator) -> bool:
        """True once every record is delivered, and no further child can appear."""
        shards = self._ahead.shards.values()
        was_never_listed = coordinator.is_gone and not coordinator.has_listed
        return all(shard.is_complete for shard in shards) and (
            was_never_listed or coordinator.confirm_exhausted()
        )

    def _find_end(self, coordinator: Coordinator) -> StreamEnd | None:
        """Returns the end of the stream once all of it is delivered; None while more may come."""
        succession = self._succession
        if succession.end is None and coordinator.is_over and self._confirm_done(coordinator):
            stops = self._stop_at is not None
            succession.find_end(coordinator, self._background, stops=stops)
        return succession.end

    def _are_tried(self) -> bool:
        """True once each shard was read, successfully or not."""
        shards = self._ahead.shards.values()
        return all(shard.attempted for shard in shards if shard.reader is not None)


# Progress


def _lag(
    shards: Iterable[BufferedShard],
    unstarted: Iterable[TrackedShard],
    planned: Mapping[str, ShardOffset],
    now: float,
) -> int:
    """Returns the age of the oldest record behind the newest micro-batch, whose end is `planned`.

    `unstarted` are shards that are not ready.
    """
    times: list[float] = []
    unread = [*unstarted]
    for shard in shards:
        reached = planned.get(shard.id)
        held: list[BufferedPage | DeferredRange] = [*shard.pages]
        if shard.deferred is not None:
            held.append(shard.deferred)
        times += [each.created for each in held if _is_left(each, reached)]
        if not (shard.attempted or shard.pages or (reached and reached.finished)):
            unread.append(shard.tracked)
    kept = now - RETENTION.total_seconds()
    times += [max(kept, since) for since in map(unread_since, unread) if since > -math.inf]
    return max(0, round(now - min(times))) if times else 0


def _is_left(held: BufferedPage | DeferredRange, planned: ShardOffset | None) -> bool:
    return (
        planned is None
        or not isinstance(planned.position, AfterSequence)
        or int(held.upto) > int(planned.position.sequence_number)
    )
