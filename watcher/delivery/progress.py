"""Counts delivered records, and moves each shard's position behind them."""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from typing import TypeAlias

from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.formatting.text import none_matched
from watcher.observability.watch_stats import Totals
from watcher.records.page import RecordPage
from watcher.records.redaction import Redaction
from watcher.records.wire import WireRecord
from watcher.streams.lineage import TrackedShard
from watcher.streams.messages import Page, WireFilter

logger = logging.getLogger("watcher")

_UNMATCHED_SECONDS = 30.0
"""The time after which a filter that has let nothing through is worth a line."""


class ShardProgress:
    """A shard's delivered records that are not in the totals yet, nor behind its position.

    One thread at a time delivers a shard's pages; the loop's thread takes what was noted.
    """

    def __init__(self, shard_key: ShardKey, shard: TrackedShard) -> None:
        self.shard_key = shard_key
        self.shard = shard
        self._page = Page(0, 0, "")
        self._records = RecordPage(b"", shard_key, range(0))
        self._done = 0
        self._lock = threading.Lock()
        self._kinds: Counter[str] = Counter()
        self._filtered = 0
        self._last: Callable[[], tuple[str, float | None]] | None = None

    @property
    def is_under_way(self) -> bool:
        """True while records of the begun page are left."""
        return self._done < self._page.count

    def begin(self, page: Page, records: RecordPage) -> None:
        """Begins the page that the next notes are about."""
        with self._lock:
            self._page, self._records = page, records
            self._done = 0

    def note(self, count: int, kinds: Mapping[str, int] | Iterable[str], filtered: int = 0) -> None:
        """Notes that the next records are delivered, of these kinds, or left out by a filter."""
        with self._lock:
            self._done += count
            self._kinds.update(kinds)
            self._filtered += filtered
            self._last = partial(_place_of, self._records, self._done - 1)

    def end_page(self) -> None:
        """Notes that the page is over, with the records that a worker left out of it."""
        page = self._page
        with self._lock:
            self._filtered += page.left_out
            self._last = lambda: (page.last_sequence_number, page.last_created)

    def take(self) -> _Noted | None:
        """Returns what was noted since the last call; None for nothing.

        Most often nobody needs the number and the time of each last record: a call returns them.
        """
        with self._lock:
            if self._last is None:
                return None
            noted = self, self._last, self._kinds, self._filtered
            self._last, self._kinds, self._filtered = None, Counter(), 0
            return noted


_Noted: TypeAlias = tuple[ShardProgress, Callable[[], tuple[str, float | None]], Counter[str], int]


def _place_of(records: RecordPage, index: int) -> tuple[str, float | None]:
    change = records.wire_records[index].dynamodb
    return change.SequenceNumber, change.ApproximateCreationDateTime


class Progress:
    """Counts the delivered records, applies the filters, and moves the positions.

    Both kinds of delivery have one; it belongs to the loop's thread.
    """

    def __init__(
        self,
        *,
        totals: Totals,
        moved: Callable[[ShardKey, float | None, Totals], object],
        wire_filter: WireFilter | None = None,
        names: Set[str] = frozenset(),
        redaction: Redaction | None = None,
        max_records: int | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        """Calls `moved` with a shard's new position: with the time of its last record, if known.

        `names` are the attributes that the filter names.
        """
        self._redaction = redaction
        self.limit = math.inf if max_records is None else max_records
        """The number of records after which the watch ends."""
        self.begun = 0
        """The number of records that were handed over, which the limit counts."""
        self._totals = totals
        self._moved = moved
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
    def is_full(self) -> bool:
        """True once no more records may be handed over."""
        return self.begun >= self.limit

    def limit_to(self, count: int, is_within: Callable[[ShardKey, WireRecord], bool]) -> None:
        """Delivers at most `count` records, and only those for which `is_within` returns True."""
        self.limit = min(self.limit, count)
        self._is_within = is_within

    def open(self, shard: ShardProgress, page: Page) -> RecordPage:
        """Begins a page; returns its records as handlers see them: filters see the original.

        Every record passes here on its way to a handler, so redaction needs no other place.
        """
        self._seen.update(page.names)
        if self._unmatched_due is None and self._wire_filter is not None:
            self._unmatched_due = self._clock.monotonic() + _UNMATCHED_SECONDS
        records = page.opened(shard.shard_key, self._redaction)
        shard.begin(page, records)
        return records

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
        text = none_matched(self._totals.filtered, "change", self._names, self._seen)
        logger.log(logging.WARNING if "none has" in text else logging.INFO, text)

    def move(self, shards: Iterable[ShardProgress], flush: Callable[[], object]) -> None:
        """Moves the positions behind what was noted, once `flush` has written it out."""
        moved = [noted for each in shards if (noted := each.take()) is not None]
        if moved:
            flush()
        for shard, last, kinds, filtered in moved:
            shard_key, (number, created) = shard.shard_key, last()
            if kinds:  # no table without a record
                self._totals.tables[shard_key.table].update(kinds)
            self._totals.records += kinds.total()
            self._totals.filtered += filtered
            shard.shard.move_behind(number, created)
            self._moved(shard_key, created, self._totals)
