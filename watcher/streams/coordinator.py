"""Decides for one stream what to request next, which shards to start, and what was lost.

The core of every engine: no thread, no clock of its own. An engine calls `refresh()` with its
service, starts a reader for each of `take_ready()`, and passes the readers' messages to
`on_message()`, the one place that interprets them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Container, Iterable
from datetime import UTC, datetime, timedelta
from enum import Enum

import msgspec

from watcher.aws.model import (
    CLOCKS_APART,
    Listing,
    Position,
    Service,
    Shard,
    TrimHorizon,
    opened_at,
)
from watcher.clock import Clock, no_later
from watcher.errors import (
    CredentialsError,
    DeniedError,
    NoAnswerYetError,
    ServiceError,
    StreamError,
    StreamGoneError,
    TransientError,
    UnexpectedAnswerError,
    WatcherError,
)
from watcher.formatting.text import counted
from watcher.retry import worth_logging
from watcher.streams.lineage import Lineage, ShardStatus, TrackedShard
from watcher.streams.listing import ListingSchedule, is_young
from watcher.streams.losses import Losses
from watcher.streams.messages import (
    ErrorKind,
    IteratorGranted,
    Loss,
    Message,
    Notice,
    Page,
    ReaderCrashed,
    ReaderEnded,
    ReadFailed,
)
from watcher.streams.persistent_errors import PersistentErrors, kind_of
from watcher.streams.timing import TIMING

_READ_AGAIN_SECONDS = 1.0
"""The delay before a new reader of a shard whose reader ended too early."""
_UNLISTED_SECONDS = 60.0
"""The time after which listings show each shard that is there."""

logger = logging.getLogger("watcher")


class Call(Enum):
    """The kinds of call that a coordinator makes."""

    LISTING = "the whole listing of the stream"
    CHILDREN = "the children of a finished shard"


class ShardEnd(Enum):
    """The meaning of the end of a shard's reader."""

    CLOSED = "all is read; once that is delivered, `finish` starts its children"
    LEFT_OPEN = "everything up to the end that was asked for is read"


class ReadAgain(msgspec.Struct, frozen=True):
    """The reader's end is no end: a new reader goes on from the shard's position."""

    seconds: float
    """The delay before its first read."""


Meaning = Page | IteratorGranted | Loss | ReaderCrashed | ShardEnd | ReadAgain | None
"""The meaning of a reader's message for its engine; None where nothing is left to do.

A page is to be delivered. A granted iterator and a loss have moved the shard's position. A crash is
the engine's own: the core knows nothing of its processes.
"""


class Coordinator:
    """The shards of one stream: decides which are read next, and interprets readers' messages.

    `start` and `resumed` are those of `Lineage`; `in_use` holds the ids of shards that must not be
    forgotten. The resumed stream was there at the time `since`: one that was created later has
    other numbers, and is read from its trim horizon. `clock` is only read: no method waits.
    `has_worked` means that the stream was read before; see `PersistentErrors`. With
    `lists_in_doubt`, only what a reader's end leaves in doubt makes a listing due, and no first one
    is needed.
    """

    def __init__(
        self,
        arn: str,
        start: Position,
        resumed: Iterable[TrackedShard] | None = None,
        *,
        since: datetime | None = None,
        losses: Losses,
        in_use: Container[str] = (),
        clock: Clock,
        has_worked: bool = False,
        lists_in_doubt: bool = False,
    ) -> None:
        self.arn = arn
        self.lineage = Lineage(start, resumed)
        self.losses = losses
        losses.start(arn, start if resumed is None else None)
        self.is_gone = False
        """True once the service reports that the stream does not exist."""
        our_time = datetime.fromtimestamp(clock.time(), UTC)
        self.listing = Listing(arn, "", "ENABLED", "", [], 0, our_time)
        """The last listing; an empty one before the first."""
        self.began_at = our_time
        """A time at or before the first listing, by the slower clock."""
        self.schedule = ListingSchedule(clock, only_wanted=lists_in_doubt)
        # Counts the errors of reads that only the user can fix.
        self.read_errors = PersistentErrors(clock, has_worked=has_worked)
        self._first_listed = our_time
        self._since = since
        self._in_use = in_use
        self._clock = clock
        self._began = -math.inf
        self._listing_asked_at: float | None = None
        """The (monotonic) time of the first call for a listing that has no answer yet."""
        self._childless = dict[str, None]()
        """The finished shards whose children are to be requested, in their order."""
        self._asked_at = dict[str, datetime]()
        """The service's time when each of these was first asked for its children."""
        self._closed_at = dict[str, float]()
        """A (monotonic) time for each listed closed shard by which it was closed."""
        resumed_shards = self.lineage.shards.values()
        finished = (each for each in resumed_shards if each.status is ShardStatus.FINISHED)
        self._finished_at = {shard.id: clock.monotonic() for shard in finished}
        """A (monotonic) time by which each of these finished shards without a child had ended."""
        self._unlisted_since = dict[str, float]()
        """The (monotonic) time of the first listing that lacks each of these parents."""
        # The first listing has succeeded: the engine raises its errors.
        self._listing_errors = PersistentErrors(clock, has_worked=True)
        self._ready = dict[str, TrackedShard]()
        """The shards that may have become ready since `take_ready`."""
        self._again = ReadAgain(_READ_AGAIN_SECONDS)
        self._note_time(our_time)

    @property
    def has_listed(self) -> bool:
        """True once there was a listing."""
        return self.listing.pages > 0

    @property
    def written_at(self) -> datetime:
        """The time by which all records written before the start are in their shards."""
        return self._first_listed + timedelta(seconds=TIMING.written_seconds + 1)

    # Calls and their answers

    def start(self, listing: Listing) -> None:
        """Handles the first listing; see `Losses.restarts_snapshot` for what it may tell before."""
        if listing.began_anew(self._since):  # the positions mean nothing in it
            self.lineage = Lineage(TrimHorizon())
            self._finished_at.clear()
        self._listed(listing, asked_at=self._clock.monotonic())
        self._ask_for_late_children()

    def due_in(self, pending: Container[Call] = ()) -> float:
        """Seconds until `refresh` makes a call; infinite: only an answer can bring one."""
        if self._childless and Call.CHILDREN not in pending:
            return 0.0
        return math.inf if Call.LISTING in pending else max(0.0, self.schedule.due_in)

    def refresh(self, service: Service) -> set[Call]:
        """Makes the calls that are due.

        Returns the kinds that a `Lister` has no answer to yet. Raises DeniedError,
        UnexpectedAnswerError once it has lasted, DataLossError.
        """
        pending = set[Call]()
        while (call := self._next_call(pending)) is not None:
            try:
                if call is Call.CHILDREN:
                    self._list_children(service)
                else:
                    self._list_shards(service)
            except NoAnswerYetError:
                pending.add(call)
        return pending

    def _next_call(self, pending: Container[Call]) -> Call | None:
        """Returns the next call to make; none of a kind with a `pending` answer."""
        if self._childless and Call.CHILDREN not in pending:
            return Call.CHILDREN
        is_due = Call.LISTING not in pending and self.schedule.due_in <= 0
        return Call.LISTING if is_due else None

    def _list_shards(self, service: Service) -> None:
        if self._listing_asked_at is None:
            self._listing_asked_at = self._clock.monotonic()
        asked_at = self._listing_asked_at
        try:
            listing = service.list_shards(self.arn)
        except (ServiceError, StreamError) as error:
            self._listing_asked_at = None
            self._on_refusal(error, service)
        else:
            self._listing_asked_at = None
            self._listed(listing, asked_at=asked_at)

    def _list_children(self, service: Service) -> None:
        """Lists a finished shard's children; an error only leaves them to the next listing."""
        shard_id = next(iter(self._childless))
        asked_at = self._asked_at.setdefault(shard_id, self.now)
        try:
            children = service.list_children(self.arn, shard_id)
        except (ServiceError, StreamError) as error:
            logger.debug(f"No children of {shard_id} listed: {error}")
            children, asked_at = [], self.listing.time
        self._children_listed(shard_id, children, asked_at)

    def _on_refusal(self, error: WatcherError, service: Service) -> None:
        """Handles a refused listing. Raises it once it has lasted, or no retry helps."""
        if isinstance(error, StreamGoneError):
            # The shards' readers detect their own losses, but not those of unlisted children.
            if not self.has_ended:
                self.losses.report_if_stale("last listing", self.listing.time, self.now)
            self.is_gone = True
            self.schedule.on_gone()
        elif isinstance(
            error, TransientError | UnexpectedAnswerError | DeniedError | CredentialsError
        ):
            self._listing_failed(error)
            if isinstance(error, CredentialsError):
                service.renew_credentials()
        else:
            raise error

    def _listed(self, listing: Listing, *, asked_at: float) -> None:
        now = self._clock.monotonic()
        if not self.has_listed:
            self._first_listed = listing.time
            self.began_at = no_later(listing.time, self._clock.time()) - CLOCKS_APART
            self._began = now
        else:  # the machine may have slept, and shards come and gone unseen
            self._refuse_anew(listing)
            self.losses.report_if_stale("last listing", self.listing.time, listing.time)
        self.listing = listing
        self._listing_errors.forget_seconds()
        self._note_time(listing.time)
        self._closed_at = {name: self._closed_at.get(name, now) for name in listing.closed()}
        by = self._began + TIMING.listed_seconds
        self.schedule.on_listing(listing.pages, asked_at=asked_at, by=by)
        self.lineage.update(listing.shards, listing.time)
        self.lineage.forget(listing.shards, keep=self._in_use)
        self.schedule.want_children(self.lineage)
        self._reopen_closed(now)
        self._reopen_ended(asked_at)
        self._find_ready()
        for shard_id in list(self._childless):
            if self.is_closed(shard_id):  # the listing shows its children, if any
                self._children_listed(shard_id, [], listing.time)

    def _refuse_anew(self, listing: Listing) -> None:
        """Raises StreamError where the stream was created again: no position holds in it."""
        if self.losses.report_if_anew("stream that was read", self.listing.created, listing):
            raise StreamError(
                f"{self.arn} was created again, as by an emulator that restarts: start again, to "
                "read it from its trim horizon"
            )

    def _reopen_closed(self, now: float) -> None:
        """Restarts shards that were left open and have closed since: their ends have to be read."""
        for shard in self.lineage.unfinished:
            if self._has_closed_since(shard):
                if shard.id not in self._in_use:
                    shard.status = ShardStatus.WAITING
                else:  # its former reader's records are not all delivered
                    self.schedule.settle_at(now + TIMING.late_child_seconds_max)

    def _reopen_ended(self, asked_at: float) -> None:
        """Restarts finished shards that a listing still shows as open: one odd answer ended them.

        Listings may lag behind a shard's end, but not by that much. A service that shows closed
        shards as open forever has them read again ever more seldom.
        """
        known = self.lineage.shards
        self._finished_at = {
            name: at
            for name, at in self._finished_at.items()
            if name in known and not self.lineage.children(name)
        }
        shown_open = {each.id for each in self.listing.shards} - self._closed_at.keys()
        again = [] if self.has_ended else [each for each in self._finished_at if each in shown_open]
        for name in again:
            wait = TIMING.listed_seconds * 2 ** known[name].reopened
            if asked_at >= self._finished_at[name] + wait and name not in self._in_use:
                del self._finished_at[name]
                known[name].reopen()
                text = "its iterators have ended, but listings still show it as open: reading on"
                if known[name].unlogged(Notice(text)):
                    logger.warning(f"Shard {name}: {text}", extra=self.about(known[name]))

    def _find_ready(self) -> None:
        """Finds the shards that may be read, among all.

        A parent that only its child names has to be listed first, as its own parent may have to be
        read before it. It is gone if its child is old, or if no listing shows it for a minute.
        """
        listed_at, since = self.schedule.listed_at, self._unlisted_since
        now = min(self.listing.time, datetime.fromtimestamp(self._clock.time(), UTC))
        unlisted = [shard for shard in self.lineage.ready() if not shard.expected]
        self._unlisted_since = {each.id: since.get(each.id, listed_at) for each in unlisted}
        for shard in unlisted:
            opened = [opened_at(each.id) or now for each in self.lineage.children(shard.id)]
            if min(opened, default=now) < now - timedelta(seconds=_UNLISTED_SECONDS):
                shard.finish()
            elif listed_at >= self._unlisted_since[shard.id] + _UNLISTED_SECONDS:
                shard.finish()
                text = "only its child names it, and no listing shows it: it counts as gone"
                logger.warning(f"Shard {shard.id}: {text}", extra=self.about(shard))
            else:
                self.schedule.want_in(TIMING.late_child_seconds_max)
        self._ready = {shard.id: shard for shard in self.lineage.ready() if shard.expected}

    def _has_closed_since(self, shard: TrackedShard) -> bool:
        """True for a shard that was left open, and whose end has to be read now."""
        is_left = shard.status is ShardStatus.LEFT_OPEN and not shard.past_end
        return is_left and self.is_closed(shard.id)

    def _ask_for_late_children(self) -> None:
        """Requests the children of just finished, resumed shards: the listing may lack them."""
        for shard in list(self.lineage.shards.values()):
            if shard.status is ShardStatus.FINISHED and self._may_have_more_children(shard.id):
                self._ask_for_children(shard)

    def _ask_for_children(self, shard: TrackedShard) -> None:
        """Requests a finished shard's children, unless the last listing shows them."""
        if self.is_closed(shard.id):
            self._children_listed(shard.id, [], self.listing.time)
        else:
            self._childless[shard.id] = None

    def _may_have_more_children(self, shard_id: str, listed: datetime | None = None) -> bool:
        """True if the children listed at that time may lack one; by default, the last listing's."""
        children, listed = self.lineage.children(shard_id), listed or self.listing.time
        return not children or any(is_young(each.id, listed) for each in children)

    def _listing_failed(self, error: WatcherError) -> None:
        self.schedule.on_failure()
        failures = self.schedule.failures
        self._listing_errors.on_error(self.arn, ReadFailed(str(error), failures, kind_of(error)))
        # An error that took long by itself is logged the first time.
        if worth_logging(failures, 1 if kind_of(error) is ErrorKind.OVERDUE else 2):
            logger.warning(f"Can't list shards, trying again: {error}", extra=self.about())

    def _children_listed(self, shard_id: str, listed: list[Shard], time: datetime) -> None:
        """Handles a finished shard's children, which thus need not wait for the next listing."""
        self._asked_at.pop(shard_id, None)
        self._childless.pop(shard_id, None)
        if listed and not self.lineage.children(shard_id):
            self.lineage.update(listed, self.listing.time)
        children = self.lineage.children(shard_id)
        self._ready |= {child.id: child for child in children}
        more = self._may_have_more_children(shard_id, time)
        closed_at = self._closed_at.get(shard_id, self._clock.monotonic())
        self.schedule.on_finished(
            shard_id, closed_at=closed_at, is_alone=not children, may_have_more=more
        )
        self.schedule.want_children(self.lineage)

    # Shards to start, and their readers' messages

    def take_ready(self) -> list[TrackedShard]:
        """Returns the shards that may be read now, and marks them as running."""
        ready, self._ready = self._ready.values(), {}
        started = [shard for shard in ready if self.lineage.is_ready(shard)]
        for shard in started:
            shard.status = ShardStatus.RUNNING
        return started

    def take_reopened(self) -> list[TrackedShard]:
        """Returns the shards that were left open while in use, and have closed since.

        Marks them as running: their readers have to reach their ends.
        """
        closed = [
            shard
            for shard in self.lineage.unfinished
            if self._has_closed_since(shard) and shard.id in self._in_use
        ]
        for shard in closed:
            shard.status = ShardStatus.RUNNING
        return closed

    def on_message(self, shard: TrackedShard, message: Message) -> Meaning:
        """Interprets a message of a shard's reader; this is the one place that does.

        The caller delivers pages, moves the shard's position behind delivered records, and acts on
        an end. Raises DataLossError, and DeniedError or
        UnexpectedAnswerError where the reading has to end.
        """
        match message:
            case Page():
                shard.on_records()
            case IteratorGranted(time):
                self._on_iterator(shard, time)
            case Loss():
                self.losses.on_loss(shard, message)
            case ReadFailed() | Notice():
                self._on_failure(shard, message)
                return None
            case ReaderEnded():
                self.read_errors.forget_seconds()
                return self._on_end(shard, message)
        return message

    def _on_iterator(self, shard: TrackedShard, time: datetime) -> None:
        """Handles a reader's first iterator; `time` is the service's."""
        self.read_errors.on_answer()
        if not self.has_listed:
            self._note_time(time)
        self.losses.report_if_waited_past_retention(shard, time)
        # A restart or a resume of an idle shard continues here, not at a new LATEST.
        shard.hold_latest(time)

    def _on_failure(self, shard: TrackedShard, message: ReadFailed | Notice) -> None:
        """Handles a reader's repeated failure or a notice, and logs it if it is new."""
        if isinstance(message, ReadFailed):
            self.restart(shard)  # "latest" is not the first successful read
            self.read_errors.on_error(shard.id, message)
        text = shard.unlogged(message)
        if text and (subject := self.read_errors.subject(shard.id, message)):
            logger.warning(f"{subject}: {text}", extra=self.about(shard))

    def restart(self, shard: TrackedShard) -> Position:
        """Returns the start position of a shard whose reader died, or could not start."""
        # It may have had no iterator, but "latest" means the start of the reading.
        shard.hold_latest(self.began_at)
        return shard.position

    def _on_end(self, shard: TrackedShard, message: ReaderEnded) -> ShardEnd | ReadAgain:
        """Decides whether the end of a shard's reader is the shard's, or the one asked for.

        The iterators of a closed shard end by themselves. Any other end needs a listing: only that
        shows whether the shard is gone, or has been closed.
        """
        if message.closed and message.gone is None:
            return ShardEnd.CLOSED
        if message.anew is not None:
            self.losses.on_loss(shard, message.anew)
            return ReadAgain(0.0)
        shard.past_end = message.past_end
        if not (message.past_end or self.has_listed or self.is_gone):
            if self.schedule.failures:
                return self._again
            self.schedule.want_in(0)
            return ReadAgain(0.0)
        if message.gone is not None:
            return self._on_gone(shard, message.gone)
        return self._on_caught_up(shard, message)

    def _on_gone(self, shard: TrackedShard, gone: Loss) -> ShardEnd | ReadAgain:
        """Reports the loss of a shard that the service no longer knows, unless it is listed."""
        is_over = self.is_gone or self.is_closed(shard.id)
        if not is_over and self.listing.is_open(shard.id):
            # Its further records would be lost, unless the whole stream is gone.
            self.schedule.want_in(0)
            shard.refusals += 1
            self._on_failure(shard, ReadFailed(gone.reason, shard.refusals))
            return self._again
        self.losses.on_loss(shard, gone)
        return ShardEnd.CLOSED

    def _on_caught_up(self, shard: TrackedShard, message: ReaderEnded) -> ShardEnd | ReadAgain:
        """Leaves an open shard that is read up to the requested end; reads on in a closed one."""
        is_closed = self.is_closed(shard.id)
        is_proven = message.past_end or (message.proven and not is_closed)
        if not is_proven and (is_closed or not self._confirm_settled_listing()):
            return self._again
        shard.status = ShardStatus.LEFT_OPEN
        if not is_proven:  # a later listing may show that it was closed
            self.schedule.settle_at(self._clock.monotonic())
        logger.debug(f"Left open: {shard.id}: {message.reason}", extra=self.about(shard))
        return ShardEnd.LEFT_OPEN

    def is_closed(self, shard_id: str) -> bool:
        """True if a shard is known to get no more records."""
        return shard_id in self._closed_at or bool(self.lineage.children(shard_id))

    def _confirm_settled_listing(self) -> bool:
        """Returns True if the last listing shows all shards that were closed at the start.

        Else it requests another one.
        """
        settled = self._began + TIMING.listed_seconds
        if self.schedule.listed_at >= settled:
            return True
        self.schedule.want_in(settled - self._clock.monotonic())
        return False

    def finish(self, shard: TrackedShard) -> None:
        """Notes that all of a shard is delivered, so that its children may start."""
        shard.finish()
        self._finished_at[shard.id] = self._clock.monotonic()
        self._ready |= {child.id: child for child in self.lineage.children(shard.id)}
        self._ask_for_children(shard)

    # The end of the stream

    @property
    def has_ended(self) -> bool:
        """True if the stream gets no more records."""
        return self.is_gone or self.listing.status == "DISABLED"

    @property
    def none_open_since(self) -> float:
        """The (monotonic) time since which no shard of an enabled stream is left to be read.

        Infinite where one is.
        """
        if self.has_ended or not self._finished_at or self.lineage.unfinished:
            return math.inf
        return max(self._finished_at.values())

    @property
    def ended_how(self) -> str:
        """The word for the end of a stream in messages."""
        return "gone" if self.is_gone else "disabled"

    @property
    def left_open_count(self) -> int:
        """The number of shards that were left open at the requested end, and may have more."""
        return sum(each.status is ShardStatus.LEFT_OPEN for each in self.lineage.shards.values())

    @property
    def is_over(self) -> bool:
        """True if the stream gets no more records beyond those of the shards being read."""
        return self.has_ended and not self.left_open_count

    def log_left_open(self, end: datetime | None = None) -> None:
        """Logs that shards were left open, and the time up to which they were read."""
        if count := self.left_open_count:
            are = "is" if count == 1 else "are"
            now = f"now ({(self.began_at + CLOCKS_APART).astimezone():%H:%M:%S})"
            upto = now if end is None else f"{end.astimezone():%Y-%m-%d %H:%M:%S}"
            text = (
                f"{counted(count, 'shard')} of {self.listing.table} {are} open; read up to {upto}"
            )
            logger.info(text, extra=self.about())

    def confirm_exhausted(self) -> bool:
        """Returns True if no shard waits to start, and no further child can appear.

        Requests a listing where only that can tell.
        """
        if not self.has_listed or self.lineage.ready() or self._childless:
            return False
        settled = self.schedule.settled_at
        if self.schedule.listed_at < settled and not self.is_gone:
            if not self.schedule.failures:
                self.schedule.want_in(settled - self._clock.monotonic())
            return False
        return True

    # Time, and errors

    def _note_time(self, time: datetime) -> None:
        self._time, self._time_noted_at = time, self._clock.boottime()

    @property
    def now(self) -> datetime:
        """The time by the service's clock; by ours before the first answer."""
        # Also counts the time in which the machine slept.
        return self._time + timedelta(seconds=self._clock.boottime() - self._time_noted_at)

    def seconds_refused(self, *, is_reading: bool) -> float:
        """Returns the seconds for which reads or listings were refused, with no read since."""
        both = self.read_errors, self._listing_errors
        for each in both if is_reading else ():
            each.forget_seconds()
        return max(each.count_seconds() for each in both)

    @property
    def last_error(self) -> str:
        """The error of the last refused read, or else of a listing."""
        return self.read_errors.last or self._listing_errors.last

    def about(self, shard: TrackedShard | None = None) -> dict[str, str]:
        """Returns a log record's extra fields: the stream and the shard."""
        about = {"stream": self.arn}
        return about if shard is None else {**about, "shard": shard.id}
