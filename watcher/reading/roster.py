"""Decides how a stream is read completely; every engine drives it, so that a fault is mended once.

Which shards to begin and when, when to list again, when a shard's end is the end, and what is lost.
Pure: the service and the time are handed in.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Container, Iterable
from datetime import UTC, datetime, timedelta
from enum import Enum

from watcher.backoff import worth_saying
from watcher.clock import CLOCK, Clock, no_later
from watcher.errors import (
    CredentialsError,
    DeniedError,
    OddAnswerError,
    ServiceError,
    StillAskingError,
    StreamError,
    StreamGoneError,
    TransientError,
    WatcherError,
)
from watcher.reading.asks import Ask, Question
from watcher.reading.hidden import HiddenParents
from watcher.reading.late_children import PAUSE_SECONDS_MAX, LateChildren, is_young
from watcher.reading.lineage import Lineage, Status, Tracked
from watcher.reading.losses import Losses
from watcher.reading.messages import Finished, Kind, Remark, Trouble
from watcher.reading.next_listing import NextListing
from watcher.reading.open_end import SETTLED_SECONDS, WRITTEN_SECONDS, left_open
from watcher.reading.refusals import Refusals, kind_of
from watcher.service.model import CLOCKS_APART, AtTime, Latest, Listing, Position, Service
from watcher.service.patience import patiently

logger = logging.getLogger("watcher")

AGAIN_SECONDS = 1.0
"""So long a shard rests that is to be read again."""


class End(Enum):
    """What it means that a shard's reader has finished."""

    CLOSED = "its children's turn"
    CAUGHT_UP = "everything up to the end that was asked for is read"
    READ_AGAIN = "the listing says otherwise"


class Roster:
    """The shards of one stream: which are to be read next, and what their ends mean.

    `start` and `resumed` are those of `Lineage`; `in_use` holds shards that must not be forgotten.
    """

    def __init__(
        self,
        arn: str,
        start: Position,
        resumed: Iterable[Tracked] | None = None,
        *,
        losses: Losses,
        in_use: Container[str] = (),
        clock: Clock = CLOCK,
    ) -> None:
        self.arn = arn
        self.lineage = Lineage(start, resumed)
        self.losses = losses
        losses.begin(arn, start if resumed is None else None)
        self.is_gone = False
        """Whether the service knows no such stream any more."""
        our_time = datetime.fromtimestamp(clock.time(), UTC)
        self.listing = Listing(arn, "", "ENABLED", "", [], 0, our_time)
        """The last one; at first an empty one."""
        self.began_at = our_time
        """Not after the reading began, at the first listing, by the service's clock or by ours."""
        self._first_listed = our_time
        self._in_use = in_use
        self.next_listing = NextListing(clock)
        self._clock = clock
        self._began = -math.inf
        self._finished: deque[str] = deque()  # whose children are to be asked for
        self._late = LateChildren(clock)
        self._closed = set[str]()
        self._hidden = HiddenParents(clock)
        self.reads = Refusals(clock)
        self._listings = Refusals(clock, has_worked=True)  # the first one has begun it all
        self._news = True

    @property
    def _has_listed(self) -> bool:
        return self.listing.pages > 0

    @property
    def written_at(self) -> datetime:
        """When all that was written as it began is in its shard (the service tells seconds)."""
        return self._first_listed + timedelta(seconds=WRITTEN_SECONDS + 1)

    # Asking the service

    def begin(self, service: Service) -> None:
        """Make the first listing, whose troubles end the beginning. Raises StreamError."""
        self._take(patiently(lambda: service.listing(self.arn), self._clock))
        self._ask_for_late_children()

    def attend(
        self, service: Service, before: Callable[[], object] = lambda: None
    ) -> set[Question]:
        """Ask what is due; what an `Aside` has no answer to yet is returned. Raises DeniedError."""
        asked = set[Question]()
        while (ask := self.due(asked)) is not None:
            before()
            try:
                self.put(ask, service)
            except StillAskingError:
                asked.add(ask.question)
        return asked

    def due(self, asked: Container[Question] = ()) -> Ask | None:
        """The next question that is due, but of none that are `asked` already."""
        if self._finished and Question.CHILDREN not in asked:
            return Ask(Question.CHILDREN, self._finished[0])
        if Question.LISTING not in asked and self.next_listing.is_due(self._reads_to_an_open_end):
            return Ask(Question.LISTING)
        if self._hidden.is_due() and Question.HIDDEN not in asked:
            return Ask(Question.HIDDEN)
        return None

    def _reads_to_an_open_end(self) -> bool:
        """Whether another listing could tell something: of closed shards all is known."""
        shards = self.lineage.shards.values()
        reading = [each for each in shards if each.status is Status.RUNNING]
        reading += self.lineage.ready()  # between one's end and its child's beginning
        are_awaited = len(self._hidden) > 0 or self._late.may_still_come()
        return are_awaited or not reading or not all(self.is_closed(each.id) for each in reading)

    def put(self, ask: Ask, service: Service) -> None:
        """Ask it, and take the answer in. Raises DeniedError where that does not pass."""
        try:
            match ask.question:
                case Question.LISTING:
                    self._take(service.listing(self.arn))
                case Question.CHILDREN:
                    self._take_children(service)
                case Question.HIDDEN:
                    if self._hidden.ask(self.arn, service):
                        self._news = True
                    elif not self.next_listing.failures:
                        self.next_listing.want_in(PAUSE_SECONDS_MAX)
        except StreamGoneError:
            # Those who read the shards find out for themselves, and say what is lost.
            self.is_gone = True
            self.next_listing.found_nothing()
        except (TransientError, OddAnswerError, DeniedError) as error:
            self._trouble(error)
        except CredentialsError as error:
            self._trouble(error)
            service.renew()

    def _take(self, listing: Listing) -> None:
        now = self._clock.monotonic()
        if not self._has_listed:
            self._first_listed = listing.time
            self.began_at = no_later(listing.time, self._clock.time()) - CLOCKS_APART
            self._began = now
        else:  # a machine that has slept: shards may have come and gone unseen
            self.losses.say_if_old("last listing", self.listing.time, listing.time)
        self.listing = listing
        self._closed = listing.closed()
        self.next_listing.came(listing.pages, by=self._began + SETTLED_SECONDS)
        self._hidden.listed_at = now
        self.lineage.update(listing.shards, listing.time)
        self.lineage.forget(listing.shards, keep=self._in_use)
        self._news = True
        if self._late.are_missing(self.lineage):
            self.next_listing.want_in(self._late.pause())
        self._look_at_those_left(now)

    def _look_at_those_left(self, now: float) -> None:
        """A shard that was left as an open one may be closed: then its end is to be read."""
        for shard in self.lineage.unfinished:
            if shard.status is Status.CAUGHT_UP and self.is_closed(shard.id):
                if shard.id not in self._in_use:
                    shard.status = Status.WAITING
                else:  # still by the one who has left it
                    self._late.settled_at = now + PAUSE_SECONDS_MAX

    def _ask_for_late_children(self) -> None:
        """A resumed shard may have finished just before: no listing may show its children yet."""
        for shard in self.lineage.shards.values():
            if shard.status is Status.FINISHED and self._may_have_more_children(shard.id):
                self._finished.append(shard.id)

    def _may_have_more_children(self, shard_id: str) -> bool:
        children = self.lineage.children(shard_id)
        return not children or any(is_young(each, self.listing.time) for each in children)

    def _trouble(self, error: WatcherError) -> None:
        self.next_listing.failed()
        failures = self.next_listing.failures
        self._listings.hear(self.arn, Trouble(str(error), failures, kind_of(error)))
        # What has taken long by itself is said the first time.
        if worth_saying(failures, 1 if kind_of(error) is Kind.OVERDUE else 2):
            logger.warning(f"Can't list shards, trying again: {error}", extra=self.about())

    def _take_children(self, service: Service) -> None:
        """A finished shard's children need no waiting for the next listing."""
        shard_id = self._finished[0]
        children = self.lineage.children(shard_id)
        if not children:
            try:
                self.lineage.update(service.children(self.arn, shard_id), self.listing.time)
            except (ServiceError, StreamError) as error:
                logger.debug(f"No children of {shard_id} listed: {error}")
            children = self.lineage.children(shard_id)
        self._finished.popleft()
        self._news = True
        more = self._may_have_more_children(shard_id)
        self._late.finished(shard_id, is_alone=not children, may_have_more=more)
        if not children:
            self.next_listing.want_in(self._late.pause())

    # Shards to begin, and what is heard of them

    def to_begin(self) -> list[Tracked]:
        """The shards whose turn has come; from now on they count as being read."""
        if not self._news and not self._hidden.has_overdue():
            return []
        self._news = False
        begun = self._hidden.sorted_out(self.lineage.ready())
        for shard in begun:
            shard.status = Status.RUNNING
        return begun

    def started(self, shard: Tracked, moment: datetime) -> None:
        """Its reader has an iterator since this moment, by the service. Raises DataLossError."""
        self.reads.work()
        self.losses.say_if_too_late(shard, moment)
        if isinstance(shard.position, Latest):
            # A restart, or a resume, of a shard that stayed idle goes on here, not at a new LATEST.
            shard.position = AtTime(moment)

    def in_trouble(self, shard: Tracked, message: Trouble | Remark) -> None:
        """Its reader is refused again and again, or has seen something odd: say what is news.

        Raises DeniedError, OddAnswerError where that is to end the reading.
        """
        if isinstance(message, Trouble):
            self.begin_again(shard)  # "latest" is not whenever it can be begun
            self.reads.hear(shard.id, message)
        text = shard.news(message)
        if text and (whose := self.reads.whose(shard.id, message)):
            logger.warning(f"{whose}: {text}", extra=self.about(shard))

    def begin_again(self, shard: Tracked) -> Position:
        """Where a shard begins whose reader died, or could not begin."""
        if isinstance(shard.position, Latest):
            # It has promised nothing yet, but "latest" is the moment when the reading began.
            shard.position = AtTime(self.began_at)
        return shard.position

    def meaning(self, shard: Tracked, message: Finished) -> End:
        """What the end of its reader means; after CLOSED, `finish` is to be called.

        Raises DataLossError.
        """
        if not message.closed:
            if self.is_closed(shard.id) or not (message.proven or self._knows_what_is_open()):
                return End.READ_AGAIN
            shard.status = Status.CAUGHT_UP
            if not message.proven:  # a listing may yet show that it was closed
                self._late.settled_at = max(self._late.settled_at, self._clock.monotonic())
            logger.debug(f"Left open: {shard.id}: {message.reason}", extra=self.about(shard))
            return End.CAUGHT_UP
        if message.gone is not None:
            is_over = self.is_gone or self.is_closed(shard.id)
            if not is_over and self.listing.is_open(shard.id):
                # Nothing else would read what comes; unless it is the stream that is gone.
                self.next_listing.want_in(0)
                shard.refusals += 1
                self.in_trouble(shard, Trouble(message.gone.reason, shard.refusals))
                return End.READ_AGAIN
            self.losses.heard(shard, message.gone)
        return End.CLOSED

    def is_closed(self, shard_id: str) -> bool:
        """Whether a shard is known to get no more records."""
        return shard_id in self._closed or bool(self.lineage.children(shard_id))

    def _knows_what_is_open(self) -> bool:
        """Whether the last listing is late enough to show what was closed at the beginning."""
        settled = self._began + SETTLED_SECONDS
        if self.next_listing.listed_at >= settled:
            return True
        self.next_listing.want_in(settled - self._clock.monotonic())
        return False

    def finish(self, shard: Tracked) -> None:
        """All of it has been delivered: its children's turn comes."""
        shard.status = Status.FINISHED
        shard.loss_said = False
        self._finished.append(shard.id)

    @property
    def has_ended(self) -> bool:
        """Whether the stream gets no more records."""
        return self.is_gone or self.listing.status == "DISABLED"

    @property
    def left(self) -> int:
        """How many shards were read up to the end that was asked for, and may have more."""
        return sum(each.status is Status.CAUGHT_UP for each in self.lineage.shards.values())

    def say_left(self, end: datetime | None = None) -> None:
        """That shards were left that may have more: read up to this end, or to the beginning."""
        if self.left:
            logger.info(left_open(self.left, self.listing, self.began_at, end), extra=self.about())

    def is_settled(self) -> bool:
        """Whether no shard waits for its turn, and no child can show up any more."""
        if self._finished or not self._has_listed or self.lineage.ready():
            return False
        settled = self._late.settled_at
        if self.next_listing.listed_at < settled and not self.is_gone:
            if not self.next_listing.failures:
                self.next_listing.want_in(settled - self._clock.monotonic())
            return False
        return True

    def is_whole(self) -> bool:
        """Whether the listing lacks no shard that can be read; for those who ask only once."""
        return not len(self._hidden) and (self.has_ended or self._knows_what_is_open())

    @property
    def now(self) -> datetime:
        """The time by the service's clock; by ours before the first listing."""
        if not self._has_listed:
            return datetime.fromtimestamp(self._clock.time(), UTC)
        passed = self._clock.monotonic() - self.next_listing.listed_at
        return self.listing.time + timedelta(seconds=passed)

    def about(self, shard: Tracked | None = None) -> dict[str, str]:
        """What a log line is about, for programs that read it."""
        about = {"stream": self.arn}
        return about if shard is None else {**about, "shard": shard.id}
