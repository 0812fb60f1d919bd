"""One stream that a watch follows: its coordinator and positions, and what comes after its end."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta

from watcher.aws.arns import table_name, table_of
from watcher.aws.model import (
    CLOCKS_APART,
    AtTime,
    CachedListing,
    Latest,
    Listing,
    Position,
    Service,
    ShardKey,
    TrimHorizon,
)
from watcher.aws.retry import retry_at_start
from watcher.clock import CLOCK, Clock, no_later
from watcher.errors import NoAnswerYetError, ServiceError, StreamError, StreamGoneError
from watcher.options import WatchOptions
from watcher.pull import executor
from watcher.pull.calls import CallPool
from watcher.pull.merged import MergedReader
from watcher.pull.shard_pool import PullOptions
from watcher.pull.table_snapshot import Items, TableSnapshot
from watcher.runtime.protocol import ShardAssignment
from watcher.runtime.stats import StreamStats
from watcher.streams import token as tokens
from watcher.streams.coordinator import Coordinator
from watcher.streams.lineage import TrackedShard
from watcher.streams.losses import Losses
from watcher.streams.token import Token, TokenSnapshot

logger = logging.getLogger("watcher")

_LOOK_SECONDS = 5.0
# From a stream's disabling to the next one's enabling (another view type takes both).
_WAIT_SECONDS = 60.0


class StreamSuccessor:
    """Looks for the stream that took an ended one's place.

    A watch `of_table` goes on there, and with `wait` looks for a minute; a watch of one stream
    only names it.
    """

    def __init__(self, of_table: bool, wait: bool, clock: Clock = CLOCK) -> None:
        self.of_table = of_table
        self._wait = of_table and wait
        self._clock = clock
        self._since: float | None = None
        self._due = 0.0

    def newest(self, service: Service, arn: str, table: str = "") -> str | None:
        """The ARN of another, newer stream of the table; None if there is none.

        `table` is its name, for a stream whose ARN has no table in it.
        """
        try:
            # By its ARN: a name would be of our own account, whoever's stream this is.
            its_table = table_of(arn)
            newest = service.latest_stream(table or arn if its_table == arn else its_table)
        except (ServiceError, StreamError) as error:
            logger.debug(f"No new stream: {error}")
            return None
        return newest if newest != arn else None

    def after(self, service: Service, arn: str, ended: str, table: str = "") -> str | None:
        """What to do after a stream: the ARN to go on with, "" to end, None to ask again later.

        `ended` says how it ended, in a word.
        """
        now, about = self._clock.monotonic(), {"stream": arn}
        stream = f"The stream of {table}" if table else "The stream"
        if self._since is None:
            self._since = now
            if self._wait:
                text = f"{stream} is {ended}; looking for a new one of its table"
                logger.info(text, extra=about)
        elif now < self._due:
            return None
        try:
            new = self.newest(service, arn, table)
        except NoAnswerYetError:
            return None
        self._due = now + _LOOK_SECONDS
        if new and self.of_table:
            self._since = None
            return new
        if self._wait and now - self._since < _WAIT_SECONDS:
            return None
        logger.info(f"{stream} is {ended}: nothing more will come", extra=about)
        if new:
            logger.info(f"Its table has a new one: python -m watcher {new} --from trim-horizon")
        return ""


_FEW = 4
_FEW_STREAMS = 20


class WatchedStream:
    """A stream, or with `of_table` a table's stream and those that take its place.

    `first` is the service for the beginning, which may wait; `service` the one for the loop, which
    must not keep the delivery waiting. Where others are delivered meanwhile, `aside` is to make the
    first listing: it comes once it is asked for again.
    """

    def __init__(
        self,
        arn: str,
        settings: WatchOptions,
        *,
        first: Service,
        service: Service,
        aside: Service | None = None,
        of_table: bool = False,
        start: Position | None = None,
        items: Items | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self.service = service
        self.of_table = of_table
        self.sharers = 1
        """How many streams there are that are listed in turn, with this one."""
        self.losses = Losses(is_error=settings.fail_on_data_loss, clock=clock)
        self.failures = 0
        """How often in a row it could not be listed or read, while others are followed."""
        self.left_at = math.inf
        """When (monotonic) it has left the watch."""
        self.reading: set[str] = set()
        """The shards that a worker reads, or is to read again."""
        self._closed: set[str] = set()  # of these
        self.snapshot: TableSnapshot | None = None
        """The items that are handed over, where that is asked for."""
        self._items = items
        self._settings = settings
        self._start = start or settings.position
        self._began = clock.time(), clock.boottime()
        self._first = first
        self._begins = aside or first
        self._clock = clock
        self._next_stream = StreamSuccessor(of_table, settings.follows, clock)
        self.until: datetime | None = None
        """Up to when it is read; None: without an end."""
        self._stored: Token | None = None
        """What it resumes from, until it has begun."""
        self.coordinator = self._new_coordinator(arn, self._start)

    def _new_coordinator(
        self, arn: str, start: Position, resumed: Iterable[TrackedShard] | None = None
    ) -> Coordinator:
        return Coordinator(
            arn, start, resumed, losses=self.losses, in_use=self.reading, clock=self._clock
        )

    @property
    def arn(self) -> str:
        """The stream that is being read now."""
        return self.coordinator.arn

    @property
    def has_begun(self) -> bool:
        """Whether its shards were listed."""
        return self.coordinator.listing.pages > 0

    @property
    def name(self) -> str:
        """The table's name, or else the stream's ARN."""
        return self.coordinator.listing.table or self.arn

    @property
    def table(self) -> str:
        """The table's name, as its ARN has it."""
        return table_name(self.arn)

    def is_same_table(self, arn: str) -> bool:
        """Whether another stream of this table will have its turn, or has it."""
        return arn == self.arn or (self.of_table and table_of(arn) == table_of(self.arn))

    def origin(self, shard: TrackedShard) -> ShardKey:
        """What a shard of it is called among those of all streams."""
        return ShardKey(self.arn, shard.id)

    # The beginning

    def is_of(self, token: Token) -> bool:
        """Whether a stored token is of this stream, or of the table's former one."""
        if token.stream_arn == self.arn:
            return True
        return self.of_table and table_of(token.stream_arn) == table_of(self.arn)

    def resume(self, token: Token) -> None:
        """Begin where this token stands. Raises UsageError for a broken one."""
        # Of a table's former stream what is left comes first; the watch then goes on to the new.
        resumed = tokens.resume(token, self._clock.now())
        self.coordinator = self._new_coordinator(token.stream_arn, self._start, resumed)
        self._stored = token

    @property
    def is_resumed(self) -> bool:
        """Whether it begins where a token stands."""
        return self._stored is not None

    def pulled(
        self,
        window: timedelta | None,
        calls: CallPool,
        sharers: int,
        known: Listing | None = None,
    ) -> MergedReader:
        """What reads it from so long ago (None: from its horizon) up to now, before it begins.

        `sharers` are read so at the same time, with this one. Where it is `known` from a moment
        ago, it is not listed again, but read up to then. Raises StreamError.
        """
        start: Position = TrimHorizon()
        if window is not None:
            now = datetime.fromtimestamp(int(self._clock.time()), UTC)
            start = AtTime(now - window)
        losses = Losses(clock=self._clock)
        return MergedReader(
            self._first if known is None else CachedListing(self._first, known),
            self.arn,
            start,
            losses=losses,
            calls=calls,
            clock=self._clock,
            options=PullOptions(stream_count=sharers, up_to_now=True),
        )

    def begin(self) -> None:
        """Make the first listing. Raises StreamError, DataLossError."""
        token = self._stored
        if self.failures and token is None and isinstance(self._start, Latest):
            # "Latest" is the moment when the watch began.
            listing = retry_at_start(lambda: self._begins.listing(self.arn), self._clock)
            self.coordinator = self._new_coordinator(self.arn, AtTime(self._began_at(listing)))
            self._begins = CachedListing(self._begins, listing)
        self.coordinator.schedule.sharers = self.sharers
        try:
            executor.begin(self.coordinator, self._begins, self._clock)
        except StreamGoneError as error:
            new = self._next_stream.newest(self._begins, self.arn) if token else None
            if new is None:
                raise
            self.move_on(new, str(error))
            executor.begin(self.coordinator, self._begins, self._clock)
        self._begins = self.service  # whoever begins again does so while others are delivered
        listing = self.coordinator.listing
        self.losses.say_if_begins_late(listing)
        policy, saved_at = self._settings.on_stale, token.saved_at if token else None
        anew = self.losses.begins_anew(policy, "checkpoint", saved_at, listing)
        self._begin_snapshot(None if token is None else token.snapshot, anew=anew)
        if not self._settings.follows:
            self.until = self.coordinator.written_at
        if not listing.shards:
            logger.info("The stream has no shards yet", extra=self.coordinator.about())

    def _began_at(self, listing: Listing) -> datetime:
        """Not after the watch began, by the service's clock or by ours: a time to come is refused.

        From the trim horizon on all before it would then be left out.
        """
        ours, since = self._began
        passed = timedelta(seconds=self._clock.boottime() - since)
        return no_later(listing.time - passed, ours) - CLOCKS_APART

    def _begin_snapshot(self, stored: TokenSnapshot | None, *, anew: bool) -> None:
        """Of a finished one a checkpoint says so: it is not made again."""
        if self._items is not None and (self._settings.snapshot or anew):
            self.snapshot = TableSnapshot(
                self.arn, self._items, None if anew else stored, self._clock
            )

    @property
    def snapshot_is_due(self) -> bool:
        """Whether there are items to read: all that is changed from now on has to be read, too."""
        unread = self.snapshot is not None and not self.snapshot.is_done
        return unread and not self.coordinator.lineage.awaits_latest

    # Shards and their processes

    def refresh(self, before: Callable[[], object]) -> None:
        """Makes the stream's requests that are due. Raises StreamError, DataLossError."""
        self.service.tend()
        self.coordinator.schedule.sharers = self.sharers
        executor.refresh(self.coordinator, self.service, before)

    def to_begin(self) -> list[TrackedShard]:
        """The shards whose turn has come; from now on they count as being read."""
        shards = self.coordinator.to_start()
        self.reading.update(shard.id for shard in shards)
        self._say_begun(shards)
        return shards

    def _say_begun(self, shards: Sequence[TrackedShard]) -> None:
        """A line each is a comfort of few shards, and a wall of many."""
        if len(shards) > _FEW:
            several = f"{len(shards):,} shards, {shards[0].id} to {shards[-1].id}"
            logger.info(f"Starting watchers for {several}")
        are_few = len(shards) <= _FEW and self.sharers <= _FEW_STREAMS
        level = logging.INFO if are_few else logging.DEBUG
        for each in shards:
            text = f"Starting watcher for shard: {each.id}"
            logger.log(level, text, extra=self.coordinator.about(each))

    def newly_closed(self) -> list[ShardKey]:
        """The shards being read that are known to get no more records, each once."""
        closed = {shard_id for shard_id in self.reading if self.coordinator.is_closed(shard_id)}
        new, self._closed = closed - self._closed, closed
        return [ShardKey(self.arn, shard_id) for shard_id in sorted(new)]

    def work(self, shard: TrackedShard) -> ShardAssignment:
        """What the worker of a shard has to do."""
        return ShardAssignment(
            connection=self._settings.connection,
            arn=self.arn,
            shard_id=shard.id,
            position=shard.position,
            until=self.until,
            end=self._settings.end,
            poll_max=self._settings.poll_max_seconds,
            closed=self.coordinator.is_closed(shard.id),
            latest=self.coordinator.began_at,
        )

    # The end

    def after(self) -> str | None:
        """What comes after this stream: None while it lasts, "" if it is over, or a new one's ARN.

        With a new one `move_on` is to be called.
        """
        coordinator = self.coordinator
        if self.snapshot is not None and not self.snapshot.stored().done:
            return None
        if self.failures and not self._settings.follows:
            return None if self.reading else ""
        if self.reading or not coordinator.is_settled():
            return None
        if not coordinator.has_ended or coordinator.left:
            if self._settings.follows:
                return None
            coordinator.log_left(self._settings.end)
            return ""
        return self._next_stream.after(
            self.service, self.arn, self._ended, coordinator.listing.table
        )

    @property
    def _ended(self) -> str:
        return "gone" if self.coordinator.is_gone else "disabled"

    def move_on(self, arn: str, reason: str = "") -> None:
        """From a table's old stream to its new one, from its beginning. Raises DataLossError."""
        logger.info(f"Going on with the table's new stream: {arn}")
        old, reason = self.arn, reason or f"stream {self.arn} is {self._ended}"
        self.coordinator = self._new_coordinator(arn, TrimHorizon(), [])
        self._stored = self._made()
        self.losses.say(f"between the table's streams {old} and {arn}", reason)

    # Where it stands

    def standing(self) -> StreamStats:
        """For the figures."""
        now = self.coordinator.now.timestamp()
        return StreamStats(self.arn, self.coordinator.lineage, now, self.service.tally, self.until)

    def token(self, unsettled: Callable[[ShardKey], str | None]) -> Token | None:
        """Where it stands; a shard stays before its first record that is not settled yet.

        None where it has not begun.
        """
        if not self.has_begun:
            return self._stored
        token = self._made()
        for shard in token.shards:
            if number := unsettled(ShardKey(self.arn, shard.shard_id)):
                shard.hold(number)
        if self.snapshot is not None:
            token.snapshot = self.snapshot.stored(unsettled(self.snapshot.origin))
        elif self._stored is not None:
            token.snapshot = self._stored.snapshot
        return token

    def _made(self) -> Token:
        coordinator = self.coordinator
        return tokens.make(
            coordinator.arn, coordinator.lineage, coordinator.listing.time, coordinator.began_at
        )
