"""Counts delivered records, and moves each shard's position behind them."""

from __future__ import annotations

import difflib
import logging
import math
from collections.abc import Callable, Mapping, Set
from typing import Protocol

from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.formatting.text import counted
from watcher.observability.watch_stats import Totals
from watcher.records.page import RecordPage
from watcher.records.redaction import Redaction
from watcher.records.wire import WireRecord
from watcher.streams.lineage import TrackedShard
from watcher.streams.messages import Page, WireFilter

logger = logging.getLogger("watcher")

_UNMATCHED_SECONDS = 30.0
"""The time after which a filter that has let nothing through is worth a line."""


class PositionStats(Protocol):
    """Keeps figures of each shard's progress."""

    def moved(self, shard_key: ShardKey, created: float | None, totals: Totals) -> None:
        """Notes the creation time of a shard's last delivered (or filtered out) record."""


class Progress:
    """Counts the delivered records, applies the filters, and moves the positions.

    Both kinds of delivery have one; it belongs to the loop's thread.
    """

    def __init__(
        self,
        *,
        totals: Totals,
        stats: PositionStats,
        mark_dirty: Callable[[], object],
        wire_filter: WireFilter | None = None,
        names: Set[str] = frozenset(),
        redaction: Redaction | None = None,
        max_records: int | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        """Calls `mark_dirty` when there are new positions to save.

        `names` are the attributes that the filter names.
        """
        self._redaction = redaction
        self.limit = math.inf if max_records is None else max_records
        """The number of records after which the watch ends."""
        self._totals = totals
        self._stats = stats
        self._mark_dirty = mark_dirty
        self._wire_filter = wire_filter
        self._names = names
        self._seen: set[str] = set()
        self._clock = clock
        self._unmatched_due: float | None = None
        self._is_within: Callable[[ShardKey, WireRecord], bool] | None = None

    @property
    def is_complete(self) -> bool:
        """True once the requested number of records is delivered."""
        return self._totals.records >= self.limit

    @property
    def delivered(self) -> int:
        """The number of records delivered."""
        return self._totals.records

    @property
    def passed(self) -> int:
        """The number of records delivered, or left out by a filter."""
        return self._totals.records + self._totals.filtered

    def limit_to(self, count: int, is_within: Callable[[ShardKey, WireRecord], bool]) -> None:
        """Delivers at most `count` records, and only those for which `is_within` returns True."""
        self.limit = min(self.limit, count)
        self._is_within = is_within

    def opened(self, shard_key: ShardKey, page: Page) -> RecordPage:
        """Returns a page's records as handlers see them; the filters see the original.

        Every record passes here on its way to a handler, so redaction needs no other place.
        """
        self._seen.update(page.names)
        if self._unmatched_due is None and self._wire_filter is not None:
            self._unmatched_due = self._clock.monotonic() + _UNMATCHED_SECONDS
        return page.opened(shard_key, self._redaction)

    def wire_filter(self, shard_key: ShardKey) -> WireFilter | None:
        """Returns the test that a shard's records have to pass; None: all are delivered."""
        passes, is_within = self._wire_filter, self._is_within
        if is_within is None:
            return passes
        return lambda wire: is_within(shard_key, wire) and (passes is None or passes(wire))

    def log_if_none_matches(self, *, at_end: bool = False) -> None:
        """Logs that the filter has let nothing through: at the end, and once after a while."""
        due = self._unmatched_due
        if due is None or not (at_end or self._clock.monotonic() >= due):
            return
        self._unmatched_due = math.inf
        if self._totals.records or not self._totals.filtered:
            return
        text = f"0 of {counted(self._totals.filtered, 'change')} matched"
        absent = sorted(self._names - self._seen) if self._seen else []
        if not absent:
            return logger.info(text)
        near = difflib.get_close_matches(absent[0], self._seen, 1)
        named = ", ".join(absent) + (f" ({near[0]}?)" if near else "")
        logger.warning(f"{text}; none has {named}")

    def count(
        self, table: str, kinds: Mapping[str, int] | list[str], records: int, filtered: int
    ) -> None:
        """Adds a table's delivered records, also by kind, and those that a filter left out."""
        if kinds:  # no table without a record
            self._totals.tables[table].update(kinds)
        self._totals.records += records
        self._totals.filtered += filtered

    def count_left_out(self, records: int) -> None:
        """Adds records that a worker has left out."""
        self._totals.filtered += records

    def move(
        self, shard_key: ShardKey, shard: TrackedShard, number: str, created: float | None
    ) -> None:
        """Moves a shard's position behind this sequence number; a late record moves nothing."""
        shard.move_behind(number)
        self._stats.moved(shard_key, created, self._totals)
        self._mark_dirty()
