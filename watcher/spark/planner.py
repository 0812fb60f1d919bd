"""Decides, in Spark's driver, what the next micro-batch holds."""

from __future__ import annotations

import heapq
import logging
import math
import sys
import time
from datetime import UTC, datetime
from typing import Any

from watcher.errors import DataLossError, ServiceError, StreamError, TransientError, UsageError
from watcher.reading.lineage import RETENTION, Lineage, Status, Tracked
from watcher.reading.messages import Loss
from watcher.reading.unlisted import Unlisted
from watcher.service.client import StreamsClient
from watcher.service.connect import connect
from watcher.service.model import (
    CLOCKS_APART,
    AfterSequence,
    AtTime,
    Latest,
    Listing,
    TrimHorizon,
    opened_at,
)
from watcher.service.model import Shard as ListedShard
from watcher.service.patience import patiently
from watcher.spark import offsets
from watcher.spark.background import BATCH_BYTES, SHARD_BYTES, Background, Shard, Slice
from watcher.spark.offsets import Offset, Place, Range
from watcher.spark.options import SourceOptions

logger = logging.getLogger("watcher")

_LISTING_SECONDS = 5.0
_CHILD_SECONDS = 0.25
# A listing may lag: so long an `availableNow` waits for a finished shard's child.
_CHILD_GRACE_SECONDS = 5.0
# An idle query asks again every 12 ms: each time it is answered so late, or when there is news.
_IDLE_SECONDS = 0.04
# With a slow trigger the first answer counts: it waits for the first reads so long.
_FIRST_SECONDS = 5.0


class Planner:
    """The state behind `latestOffset`, and the pages that go along with a micro-batch.

    Raises StreamError, UsageError, and DataLossError (with `failOnDataLoss`); a passing trouble
    of the service never gets out of here, since it would end the query.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._streams, self.arn = connect(options.stream, options.connection)
        self._background = Background(self._client, self.arn, self._lost)
        self._lineage: Lineage | None = None
        self._listing: Listing | None = None
        self._listing_due = 0.0
        self._child_pause = _CHILD_SECONDS
        self._unlisted = Unlisted()
        self._news = True
        self._closed: set[str] = set()
        self._target: datetime | None = None
        self._closed_at_target: set[str] = set()
        self._too_late: set[str] = set()
        """Shards of which the query has said already that something has left them."""
        self._childless: dict[str, float] = {}
        """Finished shards without a child, and until when one may still show up."""
        self._first_until = 0.0
        self._finished = 0
        self.losses = 0
        """How many ranges were gone before they were read, with `failOnDataLoss=false`."""

    def _client(self) -> StreamsClient:
        return StreamsClient(self._options.connection, self.arn.split(":")[3])

    def anchor(self) -> Offset:
        """Where a new query starts, as positions that are the same whenever they are used."""
        listing = patiently(lambda: self._streams.listing(self.arn))
        lineage = Lineage(self._options.start)
        lineage.update(listing.shards)
        places: dict[str, Place] = {}
        for shard in lineage.unfinished:
            position = shard.position
            if isinstance(position, Latest):
                # LATEST is another place a moment later; the service's time is not.
                position = AtTime(listing.time - CLOCKS_APART)
            places[shard.id] = Place(
                position, shard.parent, unlisted=not shard.expected, since=listing.time
            )
        return Offset(self.arn, places)

    def stop_at_now(self) -> None:
        """From here on, behave as if nothing was written after this moment (`availableNow`)."""
        listing = patiently(lambda: self._streams.listing(self.arn))
        self._listing = listing
        self._target = listing.time + CLOCKS_APART
        self._closed_at_target = _closed(listing)

    def latest(self, start: Offset, limit: int | None) -> Offset:
        """The end of the next micro-batch; `start` itself where there is nothing to do (now)."""
        self._begin(start)
        until = time.monotonic() + _IDLE_SECONDS
        while True:
            self._keep_house()
            with self._background.lock:
                if self._background.failure is not None:
                    raise self._background.failure
                end = self._advance(start, limit)
                if end is not None:
                    return end
                if self._target is None:
                    if time.monotonic() >= until and self._is_warm():
                        return start
                elif self._is_done():
                    return start
                self._background.news.wait(_IDLE_SECONDS)

    def slices(self, between: Range) -> list[Slice] | None:
        """The pages of a range; None where they are not here, and executors have to read it."""
        with self._background.lock:
            shard = self._background.shards.get(between.shard_id)
            return None if shard is None else shard.between(between.start, between.upto)

    def say_if_too_late(self, between: Range, start: Offset, end: Offset) -> None:
        """Whether records have left a range's shard before executors read it.

        The planner has looked when the shard's turn came; after a crash that may be long ago.
        """
        if isinstance(between.start, AfterSequence):
            return  # the service says it itself
        if self._listing is None:
            self._listing = patiently(lambda: self._streams.listing(self.arn))
        before, place = start.shards.get(between.shard_id), end.shards[between.shard_id]
        self._say_if_too_late(
            Tracked(
                between.shard_id,
                place.parent,
                between.start,
                expected=not place.unlisted,
                since=before.since if before else None,
            )
        )

    def report(self) -> dict[str, Any]:
        """What the query's progress shows: how far behind, how much is being read."""
        with self._background.lock:
            shards = list(self._background.shards.values())
            waiting = [each for shard in shards for each in shard.slices]
            times = [each.created for each in waiting] + self._unread_since(shards)
            oldest = min(times, default=None)
            return {
                "buffered_bytes": sum(shard.bytes for shard in shards),
                "buffered_records": sum(each.count for each in waiting),
                "data_losses": self.losses,
                "lag_seconds": max(0, round(time.time() - oldest)) if oldest else 0,
                "shards_finished": self._finished,
                "shards_open": sum(not shard.has_ended for shard in shards),
            }

    def _unread_since(self, shards: list[Shard]) -> list[float]:
        """When the first record may have been made of shards that nobody has looked into here."""
        unread = [shard.tracked for shard in shards if not shard.attempted and not shard.slices]
        if self._lineage is not None:
            unread += [each for each in self._lineage.unfinished if each.status is Status.WAITING]
        kept = time.time() - RETENTION.total_seconds()
        return [max(kept, since.timestamp()) for each in unread if (since := _begins(each))]

    def stop(self) -> None:
        """End the background reading."""
        self._background.stop()

    # The lineage

    def _begin(self, start: Offset) -> None:
        if start.stream != self.arn:
            raise UsageError(
                f"the checkpoint is of {start.stream}, not of {self.arn}; "
                "choose another checkpoint, or name that stream"
            )
        if self._lineage is None:
            self._lineage = Lineage(TrimHorizon(), offsets.resume(start))
            self._first_until = time.monotonic() + _FIRST_SECONDS
        with self._background.lock:
            for shard_id, place in start.shards.items():
                shard = self._background.delivered(shard_id, place.position)
                if shard and place.finished and shard.has_ended and not shard.slices:
                    del self._background.shards[shard_id]
                    self._finished += 1

    def _keep_house(self) -> None:
        assert self._lineage is not None
        if time.monotonic() >= self._listing_due:
            self._list()
        with self._background.lock:
            shards = list(self._background.shards.values())
        for shard in shards:
            if shard.ended and shard.tracked.status is not Status.FINISHED:
                shard.tracked.status = Status.FINISHED
                self._look_for_children(shard.tracked)
        while self._news or time.monotonic() >= self._unlisted.due:
            self._news = False
            self._unlisted.due = math.inf
            for tracked in self._lineage.ready():
                if self._unlisted.may_begin(self._streams, self.arn, tracked):
                    self._open(tracked)
                elif tracked.status is Status.FINISHED:
                    self._news = True  # its children's turn
        self._listing_due = min(self._listing_due, self._unlisted.due)

    def _open(self, tracked: Tracked) -> None:
        """Executors read a closed shard; with a limit its records have to be counted here."""
        self._say_if_too_late(tracked)
        closed = self._closed if self._target is None else self._closed_at_target
        if tracked.id in closed and self._options.max_records is None:
            self._background.add_closed(tracked)
            tracked.status = Status.FINISHED
            self._look_for_children(tracked)
        else:
            tracked.status = Status.RUNNING
            self._background.add(tracked, self._target)

    def _list(self) -> None:
        assert self._lineage is not None
        try:
            listing = self._streams.listing(self.arn)
        except TransientError as error:
            logger.warning(f"Can't list shards, trying again: {error}")
            self._listing_due = time.monotonic() + _LISTING_SECONDS
            return
        self._listing_due = time.monotonic() + _LISTING_SECONDS + listing.pages / 5
        self._listing = listing
        self._closed = _closed(listing)
        self._news = True
        self._lineage.update(listing.shards)
        # What is not delivered yet must not be forgotten, though it left the listing.
        held = [ListedShard(shard_id) for shard_id in self._background.shards]
        self._lineage.forget([*listing.shards, *held])
        if self._is_waiting_for_children():
            self._listing_due = time.monotonic() + self._child_pause
            self._child_pause = min(self._child_pause * 2, 1.0)

    def _look_for_children(self, shard: Tracked) -> None:
        """A finished shard's children need no waiting for the next listing."""
        assert self._lineage is not None
        self._news = True
        if self._lineage.children(shard.id):
            return
        try:
            self._lineage.update(self._streams.children(self.arn, shard.id))
        except (ServiceError, StreamError) as error:
            logger.debug(f"No children of {shard.id} listed: {error}")
        if not self._lineage.children(shard.id):
            # Often the child is a moment late; not at all where throughput was lowered.
            self._childless[shard.id] = time.monotonic() + _CHILD_GRACE_SECONDS
            self._child_pause = _CHILD_SECONDS
            self._listing_due = min(self._listing_due, time.monotonic() + _CHILD_SECONDS)

    # The next micro-batch

    def _advance(self, start: Offset, limit: int | None) -> Offset | None:
        """The end of a micro-batch from `start` on; None where it would hold nothing."""
        shards = [shard for shard in self._background.shards.values() if self._may_go(shard)]
        places: dict[str, Place] = {}
        for shard, chosen in self._chosen(shards, limit):
            before = start.shards.get(shard.id)
            position = before.position if before else shard.tracked.position
            if chosen:
                position = AfterSequence(chosen[-1].upto)
            finished = shard.has_ended and len(chosen) == len(shard.slices)
            if chosen or (finished and not (before and before.finished)):
                parent, unlisted = shard.tracked.parent, not shard.tracked.expected
                places[shard.id] = Place(position, parent, finished, unlisted)
        return Offset(self.arn, self._pruned(start, places)) if places else None

    def _may_go(self, shard: Shard) -> bool:
        """Nothing of a child before the last of its parent: that is in a batch before, or empty."""
        parent = shard.tracked.parent
        above = self._background.shards.get(parent) if parent else None
        if above is None:
            return True
        if above.reader is None or not above.has_ended or above.slices:
            return False
        return self._may_go(above)

    def _chosen(self, shards: list[Shard], limit: int | None) -> list[tuple[Shard, list[Slice]]]:
        """What each shard gives to this micro-batch: oldest first, where not all fits in."""
        chosen: dict[str, list[Slice]] = {shard.id: [] for shard in shards}
        left = {shard.id: iter(list(shard.slices)) for shard in shards}
        room = {shard.id: SHARD_BYTES for shard in shards}
        records, size = limit or sys.maxsize, BATCH_BYTES
        heap: list[tuple[float, str, Slice]] = []

        def push(shard_id: str) -> None:
            if room[shard_id] > 0 and (following := next(left[shard_id], None)):
                heapq.heappush(heap, (following.created, shard_id, following))

        for shard in shards:
            push(shard.id)
        while heap and records > 0 and size > 0:
            _, shard_id, slice_ = heapq.heappop(heap)
            if slice_.count > records:
                slice_ = self._split(shard_id, slice_, records)
            chosen[shard_id].append(slice_)
            records -= slice_.count
            size -= slice_.bytes
            room[shard_id] -= slice_.bytes
            push(shard_id)
        return [(shard, chosen[shard.id]) for shard in shards]

    def _split(self, shard_id: str, slice_: Slice, count: int) -> Slice:
        head, tail = slice_.split(count)
        slices = self._background.shards[shard_id].slices
        index = slices.index(slice_)
        slices[index] = head
        slices.insert(index + 1, tail)
        return head

    def _pruned(self, start: Offset, places: dict[str, Place]) -> dict[str, Place]:
        """The whole of the places, without the finished ones whose children speak for them."""
        whole = {**start.shards, **places}
        with_child = {place.parent for place in whole.values()}
        return {
            shard_id: place
            for shard_id, place in whole.items()
            if shard_id in places
            or not (place.finished or self._was_never_there(shard_id, place))
            or shard_id not in with_child
        }

    def _was_never_there(self, shard_id: str, place: Place) -> bool:
        """Whether it is a parent that was gone before the query: it is finished without a range."""
        assert self._lineage is not None
        tracked = self._lineage.shards.get(shard_id)
        return place.unlisted and (tracked is None or tracked.status is Status.FINISHED)

    def _is_warm(self) -> bool:
        """Whether every shard was read once, or should have been."""
        shards = self._background.shards.values()
        tried = all(shard.attempted for shard in shards if shard.reader is not None)
        return tried or time.monotonic() >= self._first_until

    def _is_done(self) -> bool:
        """Whether everything up to the target time is in a micro-batch."""
        assert self._lineage is not None
        for shard in self._background.shards.values():
            if shard.slices or not (shard.has_ended or shard.caught_up):
                return False
        if self._lineage.ready():
            return False
        if self._listing is not None and self._listing.status == "DISABLED":
            return True
        return not self._is_waiting_for_children()

    def _is_waiting_for_children(self) -> bool:
        """Whether a shard has finished so lately that its child may not be listed yet."""
        assert self._lineage is not None
        now = time.monotonic()
        self._childless = {
            shard_id: until
            for shard_id, until in self._childless.items()
            if now < until and not self._lineage.children(shard_id)
        }
        return bool(self._childless)

    def _say_if_too_late(self, shard: Tracked) -> None:
        """A read from the trim horizon says nothing of what has left it while the shard waited.

        What has begun after the query was the query's to read from its first record on.
        """
        now = self._listing.time if self._listing else datetime.now(UTC)
        shard.since = shard.since or opened_at(shard.id)
        if shard.id not in self._too_late and shard.has_outwaited(now):
            self._too_late.add(shard.id)
            since = shard.since.isoformat() if shard.since else ""
            self._lost(shard, Loss(shard.id, since, "unread for longer than the retention"))

    def _lost(self, shard: Tracked, loss: Loss) -> None:
        # A parent that only its child named is most often gone since long.
        if not shard.expected:
            return
        self.losses += 1
        text = f"DATA LOSS: shard {loss.shard_id} from {loss.since} to what is left of it"
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{text} ({loss.reason}); to go on: failOnDataLoss=false")
        logger.warning(f"{text} ({loss.reason})")


def _begins(shard: Tracked) -> datetime | None:
    """A time before which no record of a shard is unread, where one is known."""
    if isinstance(shard.position, AtTime):
        return shard.position.time
    return opened_at(shard.id) or shard.since


def _closed(listing: Listing) -> set[str]:
    """The shards that get no more records: a parent with a child has ended, however it looks."""
    parents = {shard.parent for shard in listing.shards}
    return {shard.id for shard in listing.shards if shard.end is not None or shard.id in parents}
