"""Where the reading of an open shard ends that is to bring everything up to now.

The rule, for all engines. What there was as the reading began has to come; what a clock says of
that is not to be trusted: a record may be stamped ahead, and the service's `Date` be minutes off.
Nor is an empty page, since GetRecords may answer some though records follow; nor a listing, which
may show a closed shard as open for seconds. LATEST is: a shard's own end tells at once what a
listing tells late (https://github.com/CoorpAcademy/serverless-plugins/issues/36; DynamoDB Local
does it, too).

- A closed shard (its listing has an ending number, or shows a child) ends where its iterator does,
  however many pages are empty before; and then its children's turn comes.
- An open shard ends at the first record that came after the beginning. LATEST tells which: what an
  iterator gives that was asked for after the beginning came after it. It is asked for once the
  beginning is two seconds past, since a write takes a moment to reach the stream.
- Where nothing comes, neither from LATEST nor before it, an open shard is left after some time of
  nothing but empty pages, which are read one right after the other as long as the service lets them
  be, and that is said: no number of such pages is the last one, and in that time whole days of a
  quiet shard go by. But only once an answer of LATEST says that more may follow. By that the shard
  is open, and so it was at the beginning: there was no child of it that a listing might hide. Where
  LATEST says nothing, or that the shard is closed, it is left as late as listings show what was
  closed at the beginning. How long that is past is told by the service's time now and at the
  beginning, or by its passing here: so it is enough that one of the clocks goes on.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from watcher.aws.model import CLOCKS_APART, Latest, Listing
from watcher.clock import Clock
from watcher.errors import ServiceError, StreamError
from watcher.formatting.text import counted
from watcher.records import page
from watcher.streams.deduplicator import numbers_of
from watcher.streams.page_fetcher import PageFetcher
from watcher.streams.requests import GetIterator, ReadSteps
from watcher.streams.timing import TIMING, Timing


def left_open(shards: int, listing: Listing, began: datetime, end: datetime | None) -> str:
    """Returns the log line for shards that were left open at this end, or at the beginning."""
    are = "is" if shards == 1 else "are"
    now = f"now ({(began + CLOCKS_APART).astimezone():%H:%M:%S})"
    upto = now if end is None else f"{end.astimezone():%Y-%m-%d %H:%M:%S}"
    return f"{counted(shards, 'shard')} of {listing.table} {are} open; read up to {upto}"


class CaughtUpDetector:
    """The end of an open shard, found out while it is read.

    From `catch_up_after` on, by the service's clock, an iterator at LATEST is later than all that
    was promised. It is not `--until`.
    """

    def __init__(
        self,
        arn: str,
        shard_id: str,
        catch_up_after: datetime,
        *,
        clock: Clock,
        reads: PageFetcher,
        timing: Timing = TIMING,
    ) -> None:
        self._timing = timing
        self.number: int | None = None
        """The number of the first record that came after the beginning, once known."""
        self.is_open = False
        """True once LATEST has shown that the shard is open."""
        self.awaits_rate_limit = False
        """True if LATEST is to be probed, and the service throttles reads just now."""
        self._reads = reads
        self._arn = arn
        self._shard_id = shard_id
        self._catch_up_after = catch_up_after
        self._clock = clock
        self._due = clock.monotonic() + self._timing.written_seconds
        self._latest: list[str] = []
        self._found: list[int] = []
        self._after = -1
        self._asked_at = -math.inf
        self._rest = self._timing.probe_end_seconds
        self._empty_since = math.inf
        self._empty_pages = self._empty_in_all = 0

    def on_iterator(self, time: datetime) -> None:
        """Takes in a new iterator, at this time of the service's: the same pages come again."""
        self._empty_pages = 0
        missing = max(timedelta(), self._catch_up_after - time).total_seconds()
        self._due = min(self._due, self._clock.monotonic() + missing)

    @property
    def is_due(self) -> bool:
        """True if the beginning is so long past that LATEST is after it."""
        return self._clock.monotonic() >= self._due

    def is_reached(self, newest: int, has_records: bool) -> ReadSteps[bool]:
        """Returns whether all of the shard is read, where `newest` is the last number that was."""
        if has_records or self.seems_caught_up:
            yield from self.look_for_end(newest)
        return self.is_caught_up if self.number is None else newest >= self.number

    def look_for_end(self, newest: int) -> ReadSteps[None]:
        """Looks for the end's number by LATEST, where `newest` is the last number that was read.

        What fails here fails for the shard's pages too, and is reported there.
        """
        passed = self._clock.monotonic() - self._asked_at
        is_early = passed < (self._timing.probe_end_seconds if self.seems_caught_up else self._rest)
        if self.number is not None or not self.is_due or (is_early and not self.awaits_rate_limit):
            return
        if self._reads.pause():
            self.awaits_rate_limit = True
            return
        self.awaits_rate_limit = False
        self._asked_at = self._clock.monotonic()
        try:
            if not self._latest:
                yield from self._get_iterators(newest)
            while self._latest and not self.awaits_rate_limit and (yield from self._goes_on()):
                self.awaits_rate_limit = bool(self._latest) and self._reads.pause() > 0
        except (ServiceError, StreamError):
            self._latest = []  # later ones will do
        # Most of what is allowed is for the pages.
        self._rest = max(
            self._timing.probe_end_seconds, self._timing.reads_per_probe * self._reads.pause()
        )
        if len(self._found) == self._timing.probes:
            self.number = max(self._found)
            self.is_open = True

    def _get_iterators(self, newest: int) -> ReadSteps[None]:
        """Gets the iterators; each one's first record is a candidate for the end."""
        self._found = []
        self._after = newest
        for _ in range(self._timing.probes):
            iterator, _ = yield GetIterator(self._arn, self._shard_id, Latest())
            self._latest.append(iterator)

    def _goes_on(self) -> ReadSteps[bool]:
        """Reads at one of the iterators; returns whether to read at another now."""
        wire = page.decode((yield from self._reads.fetch_at(self._latest[-1])))
        numbers = numbers_of(wire.Records)
        if not numbers and wire.NextShardIterator is not None:
            self.is_open = True
            self._latest[-1] = wire.NextShardIterator
            return False
        # A service that answers LATEST with what had come before knows no LATEST.
        if not numbers or numbers[0] <= self._after:
            self._latest = []
            return False
        self._latest.pop()
        self._found.append(numbers[0])
        return True

    def on_page(self, *, is_empty: bool) -> None:
        """Takes in a page."""
        self._empty_pages = self._empty_pages + 1 if is_empty else 0
        self._empty_in_all = self._empty_in_all + 1 if is_empty else 0
        since = min(self._empty_since, self._clock.monotonic())
        self._empty_since = since if is_empty else math.inf

    @property
    def seems_caught_up(self) -> bool:
        """True after so many empty pages, for so long, that an open shard may be left."""
        enough = (
            self._empty_pages >= self._timing.caught_up_pages
            or self._empty_in_all >= self._timing.caught_up_pages_in_all
        )
        seconds = self._clock.monotonic() - self._empty_since
        return enough and seconds >= self._timing.caught_up_seconds and self.is_due

    @property
    def is_caught_up(self) -> bool:
        """True if the shard may be left as an open one that is read up to now."""
        return self.seems_caught_up and (self.is_open or self._is_settled)

    @property
    def _is_settled(self) -> bool:
        settled = (
            self._due
            + self._timing.listed_seconds
            - self._timing.written_seconds
            + self._timing.listing_received_seconds
        )
        return self._clock.monotonic() >= settled
