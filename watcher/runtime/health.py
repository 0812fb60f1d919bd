"""What a watch that goes on finds wrong with itself, for the probes of a service manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.formatting.text import counted
from watcher.observability import watch_stats
from watcher.observability.watch_stats import Health

if TYPE_CHECKING:
    from watcher.delivery.sequential import SequentialDelivery
    from watcher.delivery.shutdown import Shutdown
    from watcher.runtime.stats import StatsCollector
    from watcher.runtime.watched_streams import WatchedStreams
    from watcher.runtime.workers import Workers
    from watcher.stores.checkpoint_saver import CheckpointSaver, Store

# Longer than this the loop waits for nothing: whoever was waiting for it gets the whole time anew.
_BUSY_SECONDS = 5.0
_FEW = 5
_NO_END, _NO_ANSWER = "no read has come to an end", "no read was answered"
_NO_LISTING, _UNANSWERED = "no listing has come to an end", "no listing was answered"
_STREAM = "stream"


class Parts(NamedTuple):
    """The parts of a watch that are looked at."""

    streams: WatchedStreams
    figures: StatsCollector
    workers: Workers
    handover: SequentialDelivery
    saver: CheckpointSaver
    store: Store | None
    shutdown: Shutdown


class Checks:
    """Looks at them, several times a second while the watch goes on.

    A read that was refused has been attempted: with a service that is not there, a restart helps
    nobody.
    """

    def __init__(self, parts: Parts, poll_max: float, clock: Clock = CLOCK) -> None:
        self._parts = parts
        self._read_seconds = watch_stats.LATE_SECONDS + poll_max
        self._due_seconds = watch_stats.LATE_SECONDS / 4 + poll_max
        self._clock = clock
        self._was_ready = False
        self._looked_at = self._stood_until = clock.monotonic()

    def check(self) -> Health:
        """What is wrong now."""
        now = self._clock.monotonic()
        if now - self._looked_at > _BUSY_SECONDS:
            self._stood_until = now
        self._looked_at = now
        if self._parts.shutdown.requested:
            return Health((), ("the watch is ending",))
        stuck, unready = self._listings(now)
        self._look_at_shards(now, stuck, unready)
        self._look_at_deliveries(now, stuck, unready)
        if self._parts.saver.error is not None:
            unready.append(f"the positions are not saved: {self._parts.saver.error}")
        self._was_ready |= not (stuck or unready)
        trouble = self._parts.store.trouble if self._parts.store is not None else ""
        return Health(tuple(stuck), tuple(unready), trouble)

    def _listings(self, now: float) -> tuple[list[str], list[str]]:
        refused, new = _Alike("can't be read just now", _STREAM), _Alike("not listed yet", _STREAM)
        late, failing = _Alike(_NO_LISTING, _STREAM), _Alike(_UNANSWERED, _STREAM)
        for stream in self._parts.streams:
            listing = stream.coordinator.schedule
            seconds_late = min(listing.late(), now - self._stood_until)
            seconds_failing = min(now - listing.failing_since, now - self._stood_until)
            # Each page takes a part of a second, and of several streams one after the other.
            patience = watch_stats.LATE_SECONDS + stream.coordinator.listing.pages * stream.sharers
            if stream.failures:
                refused.add(stream.table)
            elif not stream.has_begun:
                new.add(stream.table)
            elif seconds_late > patience:
                late.add(stream.table, seconds_late)
            elif seconds_failing > watch_stats.LATE_SECONDS:
                failing.add(stream.table, seconds_failing)
        return late.all(), refused.all() + new.all() + failing.all()

    def _look_at_shards(self, now: float, stuck: list[str], unready: list[str]) -> None:
        new, late, refused = _Alike("not read yet"), _Alike(_NO_END), _Alike(_NO_ANSWER)
        for origin, shard in self._parts.figures.shards.items():
            stream = self._parts.streams.get(origin.stream)
            if stream is None:
                continue
            if stream.failures or self._parts.handover.holds(origin):
                shard.excused_at = now
                continue
            since = max(shard.since, shard.moved_at, self._stood_until)
            tried, answered = shard.tally.tried_at, shard.tally.answered_at
            # Looked at long before it counts: what its worker waits with may just be taken in.
            is_due = now - max(since, answered) > self._due_seconds
            if is_due and self._parts.workers.waits_for_us(origin):
                shard.excused_at = now
            since = max(since, shard.excused_at)
            if now - max(since, tried) > self._read_seconds:
                late.add(_name(origin), now - max(since, tried))
            elif not answered and not self._was_ready:
                new.add(_name(origin))
            elif now - max(since, answered) > self._read_seconds:
                refused.add(_name(origin), now - max(since, answered))
        stuck += late.all()
        unready += new.all() + refused.all()

    def _look_at_deliveries(self, now: float, stuck: list[str], unready: list[str]) -> None:
        if self._parts.store is not None and self._parts.store.in_doubt:
            unready.append("the lease has run out, and can't be renewed: delivery waits")
            return
        stands, fails = _Alike("a handler stands"), _Alike("a handler is tried again and again")
        for origin, begun, tried in self._parts.handover.standing():
            since = max(begun, self._stood_until)
            if now - max(since, tried) > watch_stats.LATE_SECONDS:
                stands.add(_name(origin), now - max(since, tried))
            elif now - since > watch_stats.LATE_SECONDS:
                fails.add(_name(origin), now - since)
        stuck += stands.all()
        unready += fails.all()


class _Alike:
    """Of some shards, or streams, the same; a line each, as long as they are few."""

    def __init__(self, text: str, what: str = "shard") -> None:
        self._text = text
        self._what = what
        self._lines: list[str] = []
        self._more = 0

    def add(self, name: str, seconds: float | None = None) -> None:
        if len(self._lines) == _FEW:
            self._more += 1
            return
        how_long = "" if seconds is None else f", for {seconds:.0f} s"
        self._lines.append(f"{name}: {self._text}{how_long}")

    def all(self) -> list[str]:
        more = f"{counted(self._more, f'more {self._what}')}: {self._text}"
        return [*self._lines, more] if self._more else self._lines


def _name(origin: ShardKey) -> str:
    return f"shard {origin.shard_id} of {origin.table}"
