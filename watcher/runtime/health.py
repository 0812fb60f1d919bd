"""Checks a running watch for work that is late, for the probes of a service manager."""

from __future__ import annotations

from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.delivery.protocol import Delivery
from watcher.formatting.text import counted
from watcher.observability.heartbeat import LATE_SECONDS
from watcher.observability.watch_stats import Health, LeaseState
from watcher.runtime.stats import StatsCollector
from watcher.runtime.watched_streams import WatchedStreams
from watcher.runtime.workers import Workers
from watcher.shutdown import Shutdown
from watcher.stores.checkpoint_saver import CheckpointSaver
from watcher.stores.protocol import Store

# The pause of the loop (a slow save, a suspended machine) that restarts all these limits.
_BUSY_SECONDS = 5.0
_FEW = 5
_NO_END, _NO_ANSWER = "no read has come to an end", "no read was answered"
_NO_LISTING, _UNANSWERED = "no listing has come to an end", "no listing was answered"
_STREAM = "stream"


def lease_state(store: Store | None, *, stands_by: bool) -> LeaseState:
    """Returns the watch's state regarding the lease of its checkpoint's store."""
    if store is None or store.raise_unless_held is None:
        return LeaseState.NONE
    if stands_by:
        return LeaseState.UNUSABLE if store.trouble else LeaseState.STANDING_BY
    return LeaseState.UNUSABLE if store.in_doubt or store.is_lost else LeaseState.HELD


class HealthChecker:
    """Checks several times a second for reads, listings and handlers that are late.

    A refused read counts as an attempt: when the service is down, a restart would not help.
    """

    def __init__(
        self,
        *,
        streams: WatchedStreams,
        stats: StatsCollector,
        workers: Workers,
        delivery: Delivery,
        saver: CheckpointSaver,
        shutdown: Shutdown,
        poll_max_seconds: float,
        clock: Clock = CLOCK,
        late_seconds: float = LATE_SECONDS,
    ) -> None:
        self._streams = streams
        self._stats = stats
        self._workers = workers
        self._delivery = delivery
        self._saver = saver
        self._store = saver.store
        self._shutdown = shutdown
        self._late_seconds = late_seconds
        self._read_seconds = self._late_seconds + poll_max_seconds
        self._due_seconds = self._late_seconds / 4 + poll_max_seconds
        self._clock = clock
        self._was_ready = False
        self._checked_at = self._loop_blocked_until = clock.monotonic()

    def check(self) -> Health:
        """Returns the current findings: stuck (restart), unready, and the store's trouble."""
        now = self._clock.monotonic()
        if now - self._checked_at > _BUSY_SECONDS:
            self._loop_blocked_until = now
        self._checked_at = now
        if self._shutdown.requested:
            return Health((), ("the watch is ending",))
        stuck, unready = self._check_listings(now)
        self._check_shards(now, stuck, unready)
        self._check_handlers(now, stuck, unready)
        if self._saver.error is not None:
            unready.append(f"the positions are not saved: {self._saver.error}")
        self._was_ready |= not (stuck or unready)
        trouble = self._store.trouble if self._store is not None else ""
        return Health(tuple(stuck), tuple(unready), trouble)

    def excuse_loop(self) -> None:
        """Notes that the loop waits for a good reason; waiting work gets its full time again."""
        self._checked_at = self._loop_blocked_until = self._clock.monotonic()

    def _check_listings(self, now: float) -> tuple[list[str], list[str]]:
        refused, new = _Lines("can't be read just now", _STREAM), _Lines("not listed yet", _STREAM)
        late, failing = _Lines(_NO_LISTING, _STREAM), _Lines(_UNANSWERED, _STREAM)
        shut = _Lines("it has no open shard, though its stream is enabled", _STREAM)
        over = _Lines("its stream has ended; looking for a new one of its table", _STREAM)
        for stream in self._streams:
            coordinator = stream.coordinator
            seconds_late = min(coordinator.schedule.late_seconds, now - self._loop_blocked_until)
            seconds_failing = now - coordinator.schedule.failing_since
            # A page takes up to a second, and several streams are listed one after the other.
            patience = self._late_seconds + coordinator.listing.pages * stream.stream_count
            if stream.retry.failures:
                refused.add(stream.table)
            elif not stream.has_started:
                new.add(stream.table)
            elif stream.successor.is_searching:
                over.add(stream.table)
            elif seconds_late > patience:
                late.add(stream.table, seconds_late)
            elif seconds_failing > self._late_seconds:
                failing.add(stream.table, seconds_failing)
            elif (seconds_shut := now - coordinator.none_open_since) > self._late_seconds:
                shut.add(stream.table, seconds_shut)
        unready = refused.all() + new.all() + over.all() + failing.all() + shut.all()
        if now - self._streams.searches_fail_since > self._late_seconds:
            unready.append("the region's streams can't be listed: new tables are not found")
        return late.all(), unready

    def _check_shards(self, now: float, stuck: list[str], unready: list[str]) -> None:
        new, late, refused = _Lines("not read yet"), _Lines(_NO_END), _Lines(_NO_ANSWER)
        for shard_key, shard in self._stats.shards.items():
            stream = self._streams.get(shard_key.stream)
            if stream is None:
                continue
            if stream.retry.failures:
                shard.paused_at = now
                continue
            tried, answered = shard.counters.tried_at, shard.counters.answered_at
            # By the reads alone, which go on while the loop waits for a handler.
            seconds_refused = tried - max(answered, shard.since, shard.paused_at)
            if not answered and not self._was_ready:
                new.add(_name(shard_key))
            elif seconds_refused > self._read_seconds:
                refused.add(_name(shard_key), seconds_refused)
            if self._delivery.is_delivering(shard_key):
                shard.held_at = now
                continue
            since = max(shard.since, shard.paused_at, shard.moved_at, self._loop_blocked_until)
            # Checked early: the worker may only wait for the loop to receive its messages.
            is_due = now - max(since, answered) > self._due_seconds
            if is_due and self._workers.has_unread(shard_key):
                shard.held_at = now
            since = max(since, shard.held_at, tried)
            if now - since > self._read_seconds:
                late.add(_name(shard_key), now - since)
        stuck += late.all()
        unready += new.all() + refused.all()

    def _check_handlers(self, now: float, stuck: list[str], unready: list[str]) -> None:
        if self._store is not None and self._store.in_doubt:
            unready.append("the lease has run out, and can't be renewed: delivery waits")
            return
        late, retried = _Lines("a handler is stuck"), _Lines("a handler is being retried")
        for step in self._delivery.steps():
            since = max(step.since, self._loop_blocked_until)
            since_try = max(since, step.retried_at)
            if now - since_try > self._late_seconds:
                late.add(_name(step.shard), now - since_try)
            elif now - since > self._late_seconds:
                retried.add(_name(step.shard), now - since)
        stuck += late.all()
        unready += retried.all()


class _Lines:
    """One finding about several shards or streams: a line for each of the first few."""

    def __init__(self, text: str, noun: str = "shard") -> None:
        self._text = text
        self._noun = noun
        self._found: list[str] = []

    def add(self, name: str, seconds: float | None = None) -> None:
        how_long = "" if seconds is None else f", for {seconds:.0f} s"
        self._found.append(f"{name}: {self._text}{how_long}")

    def all(self) -> list[str]:
        more = len(self._found) - _FEW
        rest = [f"{counted(more, f'more {self._noun}')}: {self._text}"] if more > 0 else []
        return self._found[:_FEW] + rest


def _name(shard_key: ShardKey) -> str:
    return f"shard {shard_key.shard_id} of {shard_key.table}"
