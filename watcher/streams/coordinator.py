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
from typing import NamedTuple

from watcher.aws.model import CLOCKS_APART, AtTime, Latest, Listing, Position, Service
from watcher.aws.retry import retry_at_start
from watcher.clock import CLOCK, Clock, no_later
from watcher.errors import (
    CredentialsError,
    DeniedError,
    NoAnswerYetError,
    OddAnswerError,
    ServiceError,
    StreamError,
    StreamGoneError,
    TransientError,
    WatcherError,
)
from watcher.retry import worth_logging
from watcher.streams.caught_up import SETTLED_SECONDS, WRITTEN_SECONDS, left_open
from watcher.streams.lineage import Lineage, ShardStatus, TrackedShard
from watcher.streams.listing_schedule import (
    PAUSE_SECONDS_MAX,
    LateChildren,
    ListingSchedule,
    is_young,
)
from watcher.streams.losses import Losses
from watcher.streams.messages import ErrorKind, Finished, Notice, Retrying
from watcher.streams.refusals import Refusals, kind_of
from watcher.streams.unlisted_parents import UnlistedParents


class RequestKind(Enum):
    """The kinds of questions."""

    LISTING = "all shards"
    CHILDREN = "the children of a finished shard"
    HIDDEN = "whether a shard that only its child names is there"


class Request(NamedTuple):
    """A question that is due; `shard_id` is of the shard that it is about, if of one."""

    question: RequestKind
    shard_id: str = ""


logger = logging.getLogger("watcher")

AGAIN_SECONDS = 1.0
"""So long a shard rests that is to be read again."""


class ShardEnd(Enum):
    """What it means that a shard's reader has finished."""

    CLOSED = "its children's turn"
    CAUGHT_UP = "everything up to the end that was asked for is read"
    READ_AGAIN = "the listing says otherwise"


class Coordinator:
    """The shards of one stream: which are to be read next, and what their ends mean.

    `start` and `resumed` are those of `Lineage`; `in_use` holds shards that must not be forgotten.
    """

    def __init__(
        self,
        arn: str,
        start: Position,
        resumed: Iterable[TrackedShard] | None = None,
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
        self.next_listing = ListingSchedule(clock)
        self._clock = clock
        self._began = -math.inf
        self._finished: deque[str] = deque()  # whose children are to be asked for
        self._late = LateChildren(clock)
        self._closed = set[str]()
        self._hidden = UnlistedParents(clock)
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
        self._take(retry_at_start(lambda: service.listing(self.arn), self._clock))
        self._ask_for_late_children()

    def attend(
        self, service: Service, before: Callable[[], object] = lambda: None
    ) -> set[RequestKind]:
        """Ask what is due; return what has no answer yet. Raises DeniedError."""
        asked = set[RequestKind]()
        while (ask := self.due(asked)) is not None:
            before()
            try:
                self.put(ask, service)
            except NoAnswerYetError:
                asked.add(ask.question)
        return asked

    def due(self, asked: Container[RequestKind] = ()) -> Request | None:
        """The next question that is due, but of none that are `asked` already."""
        if self._finished and RequestKind.CHILDREN not in asked:
            return Request(RequestKind.CHILDREN, self._finished[0])
        if RequestKind.LISTING not in asked and self.next_listing.is_due(
            self._reads_to_an_open_end
        ):
            return Request(RequestKind.LISTING)
        if self._hidden.is_due() and RequestKind.HIDDEN not in asked:
            return Request(RequestKind.HIDDEN)
        return None

    def _reads_to_an_open_end(self) -> bool:
        """Whether another listing could tell something: of closed shards all is known."""
        shards = self.lineage.shards.values()
        reading = [each for each in shards if each.status is ShardStatus.RUNNING]
        reading += self.lineage.ready()  # between one's end and its child's beginning
        are_awaited = len(self._hidden) > 0 or self._late.may_still_come()
        return are_awaited or not reading or not all(self.is_closed(each.id) for each in reading)

    def put(self, ask: Request, service: Service) -> None:
        """Ask it, and take the answer in. Raises DeniedError where that does not pass."""
        try:
            match ask.question:
                case RequestKind.LISTING:
                    self._take(service.listing(self.arn))
                case RequestKind.CHILDREN:
                    self._take_children(service)
                case RequestKind.HIDDEN:
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
            if shard.status is ShardStatus.CAUGHT_UP and self.is_closed(shard.id):
                if shard.id not in self._in_use:
                    shard.status = ShardStatus.WAITING
                else:  # still by the one who has left it
                    self._late.settled_at = now + PAUSE_SECONDS_MAX

    def _ask_for_late_children(self) -> None:
        """A resumed shard may have finished just before: no listing may show its children yet."""
        for shard in self.lineage.shards.values():
            if shard.status is ShardStatus.FINISHED and self._may_have_more_children(shard.id):
                self._finished.append(shard.id)

    def _may_have_more_children(self, shard_id: str) -> bool:
        children = self.lineage.children(shard_id)
        return not children or any(is_young(each, self.listing.time) for each in children)

    def _trouble(self, error: WatcherError) -> None:
        self.next_listing.failed()
        failures = self.next_listing.failures
        self._listings.hear(self.arn, Retrying(str(error), failures, kind_of(error)))
        # What has taken long by itself is said the first time.
        if worth_logging(failures, 1 if kind_of(error) is ErrorKind.OVERDUE else 2):
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

    def to_begin(self) -> list[TrackedShard]:
        """The shards whose turn has come; from now on they count as being read."""
        if not self._news and not self._hidden.has_overdue():
            return []
        self._news = False
        begun = self._hidden.sorted_out(self.lineage.ready())
        for shard in begun:
            shard.status = ShardStatus.RUNNING
        return begun

    def started(self, shard: TrackedShard, moment: datetime) -> None:
        """Its reader has an iterator since this moment, by the service. Raises DataLossError."""
        self.reads.work()
        self.losses.say_if_too_late(shard, moment)
        if isinstance(shard.position, Latest):
            # A restart, or a resume, of a shard that stayed idle goes on here, not at a new LATEST.
            shard.position = AtTime(moment)

    def in_trouble(self, shard: TrackedShard, message: Retrying | Notice) -> None:
        """Its reader is refused again and again, or has seen something odd: say what is news.

        Raises DeniedError, OddAnswerError where that is to end the reading.
        """
        if isinstance(message, Retrying):
            self.begin_again(shard)  # "latest" is not whenever it can be begun
            self.reads.hear(shard.id, message)
        text = shard.news(message)
        if text and (whose := self.reads.whose(shard.id, message)):
            logger.warning(f"{whose}: {text}", extra=self.about(shard))

    def begin_again(self, shard: TrackedShard) -> Position:
        """Where a shard begins whose reader died, or could not begin."""
        if isinstance(shard.position, Latest):
            # It has promised nothing yet, but "latest" is the moment when the reading began.
            shard.position = AtTime(self.began_at)
        return shard.position

    def meaning(self, shard: TrackedShard, message: Finished) -> ShardEnd:
        """What the end of its reader means; after CLOSED, `finish` is to be called.

        Raises DataLossError.
        """
        if not message.closed:
            if self.is_closed(shard.id) or not (message.proven or self._knows_what_is_open()):
                return ShardEnd.READ_AGAIN
            shard.status = ShardStatus.CAUGHT_UP
            if not message.proven:  # a listing may yet show that it was closed
                self._late.settled_at = max(self._late.settled_at, self._clock.monotonic())
            logger.debug(f"Left open: {shard.id}: {message.reason}", extra=self.about(shard))
            return ShardEnd.CAUGHT_UP
        if message.gone is not None:
            is_over = self.is_gone or self.is_closed(shard.id)
            if not is_over and self.listing.is_open(shard.id):
                # Nothing else would read what comes; unless it is the stream that is gone.
                self.next_listing.want_in(0)
                shard.refusals += 1
                self.in_trouble(shard, Retrying(message.gone.reason, shard.refusals))
                return ShardEnd.READ_AGAIN
            self.losses.heard(shard, message.gone)
        return ShardEnd.CLOSED

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

    def finish(self, shard: TrackedShard) -> None:
        """All of it has been delivered: its children's turn comes."""
        shard.status = ShardStatus.FINISHED
        shard.loss_said = False
        self._finished.append(shard.id)

    @property
    def has_ended(self) -> bool:
        """Whether the stream gets no more records."""
        return self.is_gone or self.listing.status == "DISABLED"

    @property
    def left(self) -> int:
        """How many shards were read up to the end that was asked for, and may have more."""
        return sum(each.status is ShardStatus.CAUGHT_UP for each in self.lineage.shards.values())

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

    def about(self, shard: TrackedShard | None = None) -> dict[str, str]:
        """What a log line is about, for programs that read it."""
        about = {"stream": self.arn}
        return about if shard is None else {**about, "shard": shard.id}
