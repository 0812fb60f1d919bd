"""Finds the end of an open shard that is read up to now.

All engines keep one rule: every record written before the start of the reading is delivered. Three
things do not reliably tell where these records end:

- a clock: a record may be stamped ahead, and the service's `Date` may be minutes off;
- an empty page: GetRecords may return several although records follow;
- a listing: for seconds it may show a closed shard as open.

LATEST is reliable: it reflects at once what a listing shows late
(https://github.com/CoorpAcademy/serverless-plugins/issues/36; DynamoDB Local does the same). So:

- A closed shard (a listing shows its ending number, or a child) ends where its iterators do,
  however many empty pages come before. Then its children start.
- An open shard ends before the first record written after the start. An iterator at LATEST,
  requested two seconds after the start, shows which record that is: a write takes a moment to reach
  its shard.
- Where LATEST returns no record, an open shard ends after as many empty pages as a quiet day may
  have, over at least a second. But LATEST has to show that more may follow: then the shard was open
  at the start, and no listing hides a child of it. Where LATEST fails, or shows that the shard is
  closed, the end waits until listings show the shards that were closed at the start. Time passes by
  the service's clock or this machine's: one that runs is enough.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from watcher.aws.model import Latest, Service
from watcher.clock import Clock
from watcher.errors import ServiceError, StreamError
from watcher.records import page
from watcher.streams.deduplicator import numbers_of
from watcher.streams.read_rate import PageFetcher
from watcher.streams.timing import TIMING

_PROBE_END_SECONDS = 1.0
"""The delay between probes of LATEST."""
_READS_PER_PROBE = 20
"""The number of allowed reads for each probe."""
_PROBES = 3
"""The number of iterators at LATEST whose answers count: a single one may go back."""
_QUIET_PAGES = 36
"""… and the number of empty pages of one iterator.

bloop counts 5 in 4 hours; this covers more than a day. It holds for young shards too: AWS
documents no smaller number.
"""
_SPREAD_PAGES = 3
"""The number of last empty pages that are spread over the remaining time."""
_EMPTY_PAGE_SECONDS = 0.02
"""The delay after an empty page, while the reader looks for the shard's end."""
_QUIET_SECONDS = 1.0
"""The time without a record after which an open shard may be left, …"""
_EMPTY_PAGES_OF_ALL_ITERATORS = 120
"""… or of several iterators, each refused after a while."""
_LISTING_RECEIVED_SECONDS = 0.5
"""The time in which a listing reaches the coordinator."""


class EndDetector:
    """Finds the end of an open shard while it is read.

    From `bounded_at` on, by the service's clock, an iterator at LATEST is behind every record
    that must be delivered; by this machine's, two seconds after the start. `--until` is another
    end, which the reader finds by the records' times.
    """

    def __init__(
        self,
        arn: str,
        shard_id: str,
        bounded_at: datetime,
        *,
        clock: Clock,
        reads: PageFetcher,
    ) -> None:
        self.number: int | None = None
        """The number of the first record written after the start, once known."""
        self.is_open = False
        """True once LATEST has shown that the shard is open."""
        self.awaits_rate_limit = False
        """True if a probe of LATEST is due, and the service throttles reads."""
        self._reads = reads
        self._arn = arn
        self._shard_id = shard_id
        self._bounded_at = bounded_at
        self._clock = clock
        self._due = clock.monotonic() + TIMING.written_seconds
        self._probes: list[str] = []
        """Iterators at LATEST that have returned no record yet."""
        self._candidates: list[int] = []
        """The first number that each of the other probes has returned."""
        self._newest_at_probe = -1
        self._probed_at = -math.inf
        self._probe_delay = _PROBE_END_SECONDS
        self._empty_since = math.inf
        self._empty_pages = self._empty_in_all = 0

    def on_iterator(self, time: datetime) -> None:
        """Handles a new iterator, at this time of the service: the same pages come again."""
        self._empty_pages = 0
        missing = max(timedelta(), self._bounded_at - time).total_seconds()
        self._due = min(self._due, self._clock.monotonic() + missing)

    @property
    def is_due(self) -> bool:
        """True once enough time has passed for LATEST to be behind the start."""
        return self._clock.monotonic() >= self._due

    def at_end(self, newest: int, has_records: bool, service: Service) -> bool:
        """Returns True if all of the shard is read; `newest` is the last number read."""
        if has_records or self._is_quiet:
            self.probe_latest(newest, service)
        return self.is_left_open if self.number is None else newest >= self.number

    def probe_latest(self, newest: int, service: Service) -> None:
        """Looks for the end's number by LATEST; `newest` is the last number read.

        Its errors also occur with the shard's pages, and are reported there.
        """
        passed = self._clock.monotonic() - self._probed_at
        delay = _PROBE_END_SECONDS if self._is_quiet else self._probe_delay
        is_early = passed < delay and not self.awaits_rate_limit
        if self.number is not None or not self.is_due or is_early:
            return
        if self._reads.rate.delay():
            self.awaits_rate_limit = True
            return
        self.awaits_rate_limit = False
        self._probed_at = self._clock.monotonic()
        try:
            self._read_probes(newest, service)
        except (ServiceError, StreamError):
            self._probes = []  # new ones will be requested
        # Most of the allowed reads are for the pages.
        self._probe_delay = max(_PROBE_END_SECONDS, _READS_PER_PROBE * self._reads.rate.delay())
        if len(self._candidates) == _PROBES:
            self.number = max(self._candidates)
            self.is_open = True

    def _read_probes(self, newest: int, service: Service) -> None:
        if not self._probes:
            self._candidates = []
            self._newest_at_probe = newest
            # One iterator shows whether an idle shard is open; a record's number takes several.
            self._add_probes(1 if self._is_quiet else _PROBES, service)
        while self._probes and not self.awaits_rate_limit and self._read_probe(service):
            if not self._probes and len(self._candidates) < _PROBES:
                self._add_probes(_PROBES - len(self._candidates), service)
            self.awaits_rate_limit = bool(self._probes) and self._reads.rate.delay() > 0

    def _add_probes(self, count: int, service: Service) -> None:
        for _ in range(count):
            iterator, _ = service.get_iterator(self._arn, self._shard_id, Latest())
            self._probes.append(iterator)

    def _read_probe(self, service: Service) -> bool:
        """Reads at one of the iterators; returns True if it brought a candidate for the end."""
        wire = page.decode(self._reads.fetch_at(self._probes[-1], service))
        numbers = numbers_of(wire.Records)
        if not numbers and wire.NextShardIterator is not None:
            self.is_open = True
            self._probes[-1] = wire.NextShardIterator
            return False
        # A service that answers LATEST with earlier records does not support it.
        if not numbers or numbers[0] <= self._newest_at_probe:
            self._probes, self._candidates = [], []
            return False
        self._probes.pop()
        self._candidates.append(numbers[0])
        return True

    def on_page(self, *, is_empty: bool) -> None:
        """Counts a page, empty or not."""
        if not is_empty:
            self._empty_pages = self._empty_in_all = 0
            self._empty_since = math.inf
            return
        self._empty_pages += 1
        self._empty_in_all += 1
        self._empty_since = min(self._empty_since, self._clock.monotonic())

    @property
    def delay(self) -> float:
        """Seconds until the next read, behind an empty page.

        Records may closely follow the first empty pages; the last ones are spread over the required
        time.
        """
        now = self._clock.monotonic()
        needed = _QUIET_PAGES - self._empty_pages
        if needed > _SPREAD_PAGES:
            return _EMPTY_PAGE_SECONDS
        if self._is_quiet:  # only LATEST, or a listing, can decide
            seconds = self._probed_at + _PROBE_END_SECONDS - now
        else:
            seconds = (self._quiet_at - now) / max(needed, 1)
        return max(_EMPTY_PAGE_SECONDS, seconds)

    @property
    def _quiet_at(self) -> float:
        return max(self._due, self._empty_since + _QUIET_SECONDS)

    @property
    def _is_quiet(self) -> bool:
        """True after enough empty pages, over enough time, to leave an open shard."""
        enough = (
            self._empty_pages >= _QUIET_PAGES or self._empty_in_all >= _EMPTY_PAGES_OF_ALL_ITERATORS
        )
        return enough and self._clock.monotonic() >= self._quiet_at

    @property
    def is_left_open(self) -> bool:
        """True if the shard can be left open: it is read up to now."""
        return self._is_quiet and (self.is_open or self._is_listed)

    @property
    def _is_listed(self) -> bool:
        """True once listings show the shards that were closed at the start."""
        listed_at = (
            self._due + TIMING.listed_seconds - TIMING.written_seconds + _LISTING_RECEIVED_SECONDS
        )
        return self._clock.monotonic() >= listed_at
