"""Reads one shard from a position to its end, through all errors of the service."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from datetime import datetime
from functools import partial

from watcher.aws.model import (
    CLOCKS_APART,
    AfterSequence,
    AtSequence,
    AtTime,
    Latest,
    Position,
    Service,
    TrimHorizon,
    moved_behind,
)
from watcher.clock import Clock
from watcher.errors import (
    CredentialsError,
    DeniedError,
    ExpiredIteratorError,
    ShardNotFoundError,
    TimestampRefusedError,
    TransientError,
    TrimmedDataError,
    UnexpectedAnswerError,
    WatcherError,
)
from watcher.records import page
from watcher.records.wire import WireRecord
from watcher.retry import Backoff
from watcher.streams.deduplicator import Deduplicator, numbers_of, sorted_places
from watcher.streams.end_detector import EndDetector
from watcher.streams.messages import (
    IteratorGranted,
    Loss,
    MakePage,
    Message,
    Notice,
    PageFilter,
    ReaderEnded,
    ReadFailed,
    make_page,
    position_text,
)
from watcher.streams.persistent_errors import kind_of
from watcher.streams.position_check import REASON, PositionCheck
from watcher.streams.read_rate import AdaptiveRateLimit, PageFetcher, is_full

_IDLE_PAGES = 5
"""The number of empty pages that make a shard idle: records may follow a few of them."""
_AFTER_RECORDS_SECONDS = 0.25
"""The delay after some records: GetRecords allows four to five reads a second."""
_IDLE_POLLS = 60
"""The number of polls without a record after which the delay starts to double."""
_CREDENTIALS_BACKOFF = Backoff(first_seconds=0.5, longest_seconds=5.0)
"""The delays after refused credentials: someone may log in again."""
_TRIMMED_READS = 5
"""The number of trimmed reads in a row after which a shard counts as gone.

The trim horizon can move between the iterator and the read, but not that often.
"""
_COARSEST_TIME_SECONDS = 60
"""The precision of creation times where AT_TIMESTAMP is refused (DynamoDB Local's minutes)."""
_FAILURES_UNTIL_DOUBT = 3
"""The number of failures after which an iterator at a time is dropped (moto's never work)."""
_NEAR_END_SECONDS = 0.2
"""The delay after a page with records, while the reader looks for the shard's end."""
_IDLE_SECONDS = 1.0
"""The delay between polls of an idle shard in its first minute; each call is billed."""
_READ_BACKOFF = Backoff()
"""The delays after failed reads."""


class ShardReader:
    """Reads one shard's records, page by page, in order, each record once.

    `attempt()` makes the calls of one read and returns its messages; `delay` is then the number of
    seconds until the next, at most `poll_max` unless a call has failed. `position` is always the
    start of a replacement reader; `latest` is the time that "latest" means if the first iterator
    has to be retried, `created` the creation time of the record that the position is behind.

    With `bounded_at` (see `EndDetector`) the reader also finishes once a shard that is not `closed`
    is read up to now; with `end` it drops records created later, and finishes after many of them.
    Records that the `page_filter` rejects may be left out of the pages, which `make_page` builds.
    With `prefetches` it requests the page after a full one while it handles that. `rate` is the
    rate limit that a former reader has learned.
    """

    def __init__(  # noqa: PLR0913 (what a read depends on, by keyword)
        self,
        arn: str,
        shard_id: str,
        position: Position,
        *,
        closed: bool = False,
        bounded_at: datetime | None = None,
        end: datetime | None = None,
        page_filter: PageFilter | None = None,
        make_page: MakePage = make_page,
        poll_max: float = 1.0,
        prefetches: bool = True,
        latest: datetime | None = None,
        created: float | None = None,
        clock: Clock,
        rate: AdaptiveRateLimit | None = None,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.shard_id = shard_id
        self.position = position
        self.delay = 0.0
        self.finished = False
        self.closed = closed
        self._latest = latest
        self._arn = arn
        self._iterator: str | None = None
        self._started = False
        self._has_ended = False
        """True if the last page had no next iterator; a new one shows whether that was the end."""
        self._deduplicator = Deduplicator(position, end)
        self._make_page = (
            make_page if page_filter is None else partial(make_page, page_filter=page_filter)
        )
        self._coarseness: int | None = None  # seconds; None: AT_TIMESTAMP works
        self._poll_max = poll_max
        self._empty_pages = 0
        self._was_idle = isinstance(position, Latest)
        self._failures = 0
        self._trimmed_in_a_row = 0
        self._jitter = jitter
        self.reads = PageFetcher(clock, rate, prefetches=prefetches)
        self._check = PositionCheck(arn, shard_id, self.reads)
        if isinstance(position, AfterSequence) and created is not None:
            self._check.expect(position.sequence_number, created)
        self._end_detector: EndDetector | None = None
        if bounded_at is not None:
            self._end_detector = EndDetector(
                arn,
                shard_id,
                bounded_at,
                clock=clock,
                reads=self.reads,
            )

    @property
    def may_have_more(self) -> bool:
        """True unless the last reads found nothing more, or failed."""
        # Throttled reads were only too early; another one is due soon.
        if (
            self.finished
            or self._failures > self.reads.rate.throttled_in_a_row
            or self._deduplicator.repeats_in_a_row
        ):
            return False
        needed = 1 if self._was_idle else _IDLE_PAGES
        return self.closed or self._empty_pages < needed

    @property
    def is_idle(self) -> bool:
        """True if the last read found nothing more; records may still follow (see EndDetector).

        The first time this takes several empty pages; after that, one.
        """
        return self._was_idle and self._empty_pages > 0 and not self._failures

    @property
    def was_empty(self) -> bool:
        """True if the last page was empty; the next one is likely to be, too."""
        return self._empty_pages > 0

    @property
    def least_delay(self) -> float:
        """The part of `delay` that has to pass even if a caller waits for the next read."""
        if self._failures or self._trimmed_in_a_row or self._deduplicator.repeats_in_a_row:
            return self.delay
        return min(self.delay, max(_AFTER_RECORDS_SECONDS, self.reads.rate.delay()))

    def attempt(self, service: Service) -> list[Message]:
        """Makes one attempt to read. Raises StreamError without a way to the service."""
        if self.finished:
            return []
        messages = self._answered(service)
        was_refused = bool(messages) and not self._started
        if was_refused and self._latest is not None and isinstance(self.position, Latest):
            # "Latest" means the start, not the first successful read.
            self.position = AtTime(self._latest)
        return messages

    def _answered(self, service: Service) -> list[Message]:
        """Reads a page, or turns the service's error into the next attempt's state."""
        granted: list[Message] = []
        is_new = self._iterator is None
        try:
            if is_new:
                granted = self._get_iterator(service)
            messages = self._read(service)
            return granted + messages if granted else messages
        except ExpiredIteratorError as error:
            self._iterator = None
            self.delay = 0.0
            return [*granted, self._on_failure(error)] if is_new else []  # not by its age
        except TrimmedDataError as error:
            return granted + self._on_trimmed(str(error))
        except ShardNotFoundError as error:
            return [*granted, self._finish(closed=True, gone=self._loss(str(error)))]
        except TransientError as error:
            is_read_throttled = error.throttled and self._iterator is not None
            failure = self._on_failure(error, is_read_throttled=is_read_throttled)
            self._doubt_timestamp(error)
            return [*granted, failure]
        except CredentialsError as error:
            service.renew_credentials()
            failure = self._on_failure(error)
            self.delay = _CREDENTIALS_BACKOFF.after(self._failures)
            return [*granted, failure]
        except (DeniedError, UnexpectedAnswerError) as error:
            # A refused read sends no `IteratorGranted`.
            self._started = self._started and not granted
            return [self._on_failure(error)]

    def _read(self, service: Service) -> list[Message]:
        """Reads a page; in its place LATEST, where a throttled probe of it comes first."""
        assert self._iterator is not None
        if self._end_detector is not None and self._end_detector.awaits_rate_limit:
            self._end_detector.probe_latest(self._deduplicator.newest, service)
            self.delay = self.reads.rate.delay()
            return []
        if self._check.waits:
            anew = self._check_position(service)
            self.delay = self.reads.rate.delay()
            return anew
        body = self.reads.fetch(self._iterator, service)
        if not self._deduplicator.repeated:
            self.reads.prefetch(body, service)
        messages = self._on_page(page.decode(body), body, service)
        self._failures = self._trimmed_in_a_row = 0
        self.delay = max(self.delay, self.reads.rate.delay())
        return messages

    def _on_failure(self, error: WatcherError, *, is_read_throttled: bool = False) -> ReadFailed:
        """Counts a failure and sets the delay; after a throttled read, the rate limit's."""
        self._failures += 1
        if is_read_throttled:
            self.delay = self.reads.rate.delay()
        else:
            # An emulator may have started again, and the iterator be behind its first records.
            self._iterator = None
            self._check.doubt(self.position, is_broken=True)
            self.delay = self._retry_delay(self._failures)
        return ReadFailed(str(error), self._failures, kind_of(error))

    def _on_trimmed(self, reason: str) -> list[Message]:
        """Goes on at the trim horizon; after repeated trimmed reads there, the shard is gone.

        A horizon or a time moves on with retention, so that a single refusal means little (DynamoDB
        Local refuses an iterator on an empty shard when the first record comes).
        """
        self._iterator = None
        if isinstance(self.position, AtSequence | AfterSequence):
            loss = self._loss(reason)
            self._check.doubt(self.position)  # even its horizon may lie below
            self.position = TrimHorizon()
            self.delay = 0.0
            return [loss]
        self._trimmed_in_a_row += 1
        self.delay = self._retry_delay(self._trimmed_in_a_row)
        if self._trimmed_in_a_row < _TRIMMED_READS:
            return []
        return [self._finish(closed=True, gone=self._loss(reason))]

    def _get_iterator(self, service: Service) -> list[Message]:
        """Gets an iterator at the position; returns the message about it, where that has news."""
        self._deduplicator.rewind()
        self._check.doubt(self.position, is_broken=not self._started)
        self._iterator, time = self._iterator_at_position(service)
        if self._end_detector is not None:
            self._end_detector.on_iterator(time)
        time -= CLOCKS_APART
        if isinstance(self.position, Latest):
            # After an expired iterator the reader must not continue at a later LATEST.
            self.position = AtTime(time)
        # At a position without a number, records may have left the shard since the last iterator.
        if not self._started or not isinstance(self.position, AtSequence | AfterSequence):
            self._started = True
            return [IteratorGranted(time)]
        return []

    def _iterator_at_position(self, service: Service) -> tuple[str, datetime]:
        position = self.position
        if not (isinstance(position, AtTime) and self._coarseness is not None):
            try:
                return service.get_iterator(self._arn, self.shard_id, position)
            except TimestampRefusedError:
                self._coarseness = _COARSEST_TIME_SECONDS
        assert isinstance(position, AtTime) and self._coarseness is not None
        self._deduplicator.skip_before = position.time.timestamp() - self._coarseness
        return service.get_iterator(self._arn, self.shard_id, TrimHorizon())

    def _doubt_timestamp(self, error: TransientError) -> None:
        """Asks for no iterator at a time where that fails: moto grants some that never work.

        The same records come from the trim horizon, only later.
        """
        at_time = isinstance(self.position, AtTime) and self._coarseness is None
        if at_time and self._failures >= _FAILURES_UNTIL_DOUBT and not error.throttled:
            self._coarseness = 0

    def _on_page(self, wire: page.WirePage, body: bytes, service: Service) -> list[Message]:
        """Returns a page's new records, and the end or the oddities that it shows."""
        if self._check.holds(wire.Records):
            anew = self._check_position(service)
            if anew or self._check.holds(wire.Records):  # the same page is to be read again
                self.delay = 0.0 if anew else _NEAR_END_SECONDS
                return anew
        messages: list[Message] = []
        records = self._before_end(wire.Records)
        parts = self._deduplicator.through(records)
        if parts is None:
            # An emulator's page: the changes' order is that of their numbers.
            places = sorted_places(wire.Records)
            body = page.reordered(body, places)
            wire.Records = [wire.Records[place] for place in places]
            messages.append(Notice("the records of a page are out of order; they are sorted"))
            records = self._before_end(wire.Records)
            parts = self._deduplicator.through(records) or []
        self._iterator = wire.NextShardIterator
        self._set_delay(len(wire.Records), len(body))
        for first, last in parts:
            number = records[last - 1].dynamodb.SequenceNumber
            self.position = moved_behind(self.position, number)
            self._check.on_record(records[last - 1])
            messages.append(self._make_page(body, records, first, last))
        has_news = len(wire.Records) > self._deduplicator.repeated
        if self._check.on_page(has_news=has_news) and (anew := self._check_position(service)):
            return [*messages, *anew]
        if self._deduplicator.late:
            messages.append(Notice("a record comes pages after later ones; it is delivered now"))
        if self._deduplicator.repeated:
            messages.append(self._on_repeats())
        return messages + self._end_behind(wire, records, bool(parts), service)

    def _end_behind(
        self, wire: page.WirePage, records: list[WireRecord], has_news: bool, service: Service
    ) -> list[Message]:
        """Returns the end that a page shows, if any."""
        messages: list[Message] = []
        is_read = self._is_at_end(bool(records), service) and not self._check.is_pending
        if len(records) < len(wire.Records) or is_read:
            messages.append(self._on_caught_up())
        elif wire.NextShardIterator is None:
            is_checked = not self._check.is_pending
            if is_checked and (self.closed or (self._has_ended and not has_news)):
                messages.append(self._finish(closed=True))
            else:  # one odd answer ends no shard that no listing shows as closed
                self.delay = 0.0 if is_checked else _NEAR_END_SECONDS
        if wire.NextShardIterator is None:
            self._has_ended = True
        elif has_news or not wire.Records:  # records that repeat show nothing of the end
            self._has_ended = False
        return messages

    def _check_position(self, service: Service) -> list[Message]:
        """Makes a step of the check; returns the end of this reader if the stream is another."""
        if self.reads.rate.delay() > 0:
            self._check.waits = True
            return []
        if not self._check.step(service):
            return []
        loss, self.position = self._loss(REASON), TrimHorizon()
        return [self._finish(closed=False, anew=loss)]

    def _on_caught_up(self) -> ReaderEnded:
        reason = "what comes next was written later"
        if self._empty_pages:
            reason = f"{self._empty_pages} empty pages in a row"
        return self._finish(closed=False, reason=reason)

    def _before_end(self, records: list[WireRecord]) -> list[WireRecord]:
        """Returns a page's records before the end's number, where that is known."""
        number = None if self._end_detector is None or self.closed else self._end_detector.number
        if number is None:
            return records
        numbers = numbers_of(records)
        if any(map(operator.gt, numbers, numbers[1:])):
            return records  # to be sorted first
        return records[: sum(each < number for each in numbers)]

    def _is_at_end(self, has_records: bool, service: Service) -> bool:
        """Returns True if everything requested of an open shard is read."""
        if self._deduplicator.is_past_end:
            return True
        if self._end_detector is None or self.closed or self._iterator is None:
            return False
        return self._end_detector.at_end(self._deduplicator.newest, has_records, service)

    def _on_repeats(self) -> Notice | ReadFailed:
        text = "the service gives records again that came before; they are left out"
        if self._deduplicator.leads_back and isinstance(self.position, AfterSequence):
            self._iterator = None  # a new one is behind the last record at once
        if not self._deduplicator.repeats_in_a_row:
            return Notice(text)
        self._iterator = None
        if self._check.is_pending:
            self.delay = _NEAR_END_SECONDS
            return Notice(text)
        self.delay = self._retry_delay(self._deduplicator.repeats_in_a_row)
        return ReadFailed(text, self._deduplicator.repeats_in_a_row)

    def _set_delay(self, records: int, size: int) -> None:
        """Sets the delay behind a page: none after a full one, longer after empty ones."""
        detector, near = self._end_detector, _NEAR_END_SECONDS
        if records > self._deduplicator.repeated:
            self._empty_pages = 0
            after_records = min(_AFTER_RECORDS_SECONDS, self._poll_max)
            delay = 0.0 if is_full(records, size) else after_records
        elif records and not self._deduplicator.repeats_in_a_row:
            self.delay = near  # no empty page: the iterator has gone back
            return
        else:
            self._empty_pages += 1
            self._was_idle |= self._empty_pages >= _IDLE_PAGES
            delay = self._idle_delay()
        if detector is not None:
            detector.on_page(is_empty=self._empty_pages > 0)
            delay = min(delay, near) if records else detector.delay
        # A closed shard gets no more records.
        self.delay = 0.0 if self.closed and not records else delay

    def _idle_delay(self) -> float:
        """Returns a delay that doubles after a minute, with jitter to spread the shards' polls."""
        rare = self._empty_pages - _IDLE_POLLS
        if rare <= 0 or self._poll_max <= _IDLE_SECONDS:
            delay = min(_AFTER_RECORDS_SECONDS * self._empty_pages, _IDLE_SECONDS)
            return min(delay, self._poll_max)
        growing = Backoff(first_seconds=_IDLE_SECONDS, longest_seconds=self._poll_max)
        longest = growing.after(rare + 1)
        return self._jitter(0.9 * longest, longest)

    def _retry_delay(self, times: int) -> float:
        longest = _READ_BACKOFF.after(times + 1)
        return self._jitter(longest / 2, longest)

    def _finish(
        self,
        *,
        closed: bool,
        gone: Loss | None = None,
        reason: str = "",
        anew: Loss | None = None,
    ) -> ReaderEnded:
        self.finished = True
        self.delay = 0.0
        proven = not closed and self._end_detector is not None and self._end_detector.is_open
        past_end = not closed and self._deduplicator.is_past_end
        return ReaderEnded(closed, gone, proven, reason, past_end, anew)

    def _loss(self, reason: str) -> Loss:
        return Loss(self.shard_id, position_text(self.position), reason)
