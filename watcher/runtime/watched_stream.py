"""One stream of a watch: its start, its shards, its end, and its token."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from watcher.aws.arns import table_name, table_of
from watcher.aws.discovery import newer_stream
from watcher.aws.model import (
    CLOCKS_APART,
    AtTime,
    Latest,
    Listing,
    Position,
    Service,
    ShardKey,
    TrimHorizon,
)
from watcher.aws.retry import first_listing, retry_at_start
from watcher.aws.tables import MOST_SEGMENTS, ReadPace
from watcher.call_pool import CallPool
from watcher.clock import CLOCK, Clock, no_later
from watcher.delivery.dispatcher import Dispatcher
from watcher.errors import CredentialsError, StreamError, StreamGoneError, UsageError
from watcher.options import WatchOptions
from watcher.pull.stream_successor import SUCCESSOR_WAIT_SECONDS, StreamEnd, SuccessorSearch
from watcher.pull.table_snapshot import Items, TableSnapshot
from watcher.runtime.protocol import ShardAssignment
from watcher.runtime.stats import StreamStats
from watcher.streams import checkpoint_format
from watcher.streams.checkpoint_format import Token, TokenSnapshot
from watcher.streams.coordinator import Coordinator
from watcher.streams.lineage import TrackedShard
from watcher.streams.losses import Losses
from watcher.streams.timing import TIMING

logger = logging.getLogger("watcher")

# Up to these numbers, each shard's start is logged.
_FEW = 4
_FEW_STREAMS = 20
_PAST_SECONDS = 5.0


class LatestMoment:
    """The time at which a reader asked for "latest", for streams that are listed only later.

    Its positions are never after that time by either clock: no later record is missed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._time, self._boottime = clock.time(), clock.boottime()

    @property
    def is_past(self) -> bool:
        """True once "latest" at a stream would leave out records of some seconds."""
        return self._clock.boottime() - self._boottime > _PAST_SECONDS

    def in_stream(self, listing: Listing) -> AtTime:
        """Returns the position of that time, by the service's clock at a later listing."""
        # The clock that also runs while the machine sleeps.
        passed = timedelta(seconds=self._clock.boottime() - self._boottime)
        return AtTime(no_later(listing.time - passed, self._time) - CLOCKS_APART)


class StreamRetry:
    """The error of one of several streams: it pauses this stream alone, longer each time."""

    def __init__(self, clock: Clock) -> None:
        self.error: StreamError | None = None
        """The error for which it can't be read; None: it can."""
        self.failures = 0
        """The number of failures in a row."""
        self._clock = clock
        self._due = -math.inf

    @property
    def is_paused(self) -> bool:
        """True while it is not listed or read, after a failure."""
        return self._clock.monotonic() < self._due

    def on_error(self, arn: str, error: StreamError) -> None:
        """Pauses the stream. Raises CredentialsError, as the other streams have it too."""
        if isinstance(error, CredentialsError):
            raise error
        if not self.is_paused:  # else it is the same error of another shard
            self.failures += 1
            delay = TIMING.stream_backoff.after(self.failures)
            self._due = self._clock.monotonic() + delay
        if self.error is None:
            text = f"{table_name(arn)}: {error}; the other streams continue"
            logger.error(text, extra={"stream": arn})
        self.error = error

    def on_success(self, arn: str) -> None:
        """Notes that the stream can be read."""
        if self.failures:
            logger.info(f"{table_name(arn)} can be read again", extra={"stream": arn})
        self.failures, self.error = 0, None


class WatchedStream:
    """A stream, or with `of_table` a table's stream and its successors.

    The loop calls `service`, which must not delay delivery. `first_service` makes the first
    listing: it may wait, or where other streams are delivered meanwhile, answer a later call.
    """

    def __init__(
        self,
        arn: str,
        options: WatchOptions,
        *,
        service: Service,
        first_service: Service | None = None,
        of_table: bool = False,
        start: Position | None = None,
        items: Items | None = None,
        latest: LatestMoment | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self.service = service
        self.of_table = of_table
        self.stream_count = 1
        """The number of streams that share DescribeStream's limit, with this one."""
        self.losses = Losses(is_error=options.fail_on_data_loss, clock=clock)
        self.retry = StreamRetry(clock)
        """Its error, while other streams are watched."""
        self.refused_at: float | None = None
        """The time (monotonic) of the last refused read since which none has succeeded."""
        self.removed_at = math.inf
        """The time (monotonic) of its removal from the watch."""
        self.assigned: set[str] = set()
        """The shards that a worker reads, or will read again."""
        self.snapshot: TableSnapshot | None = None
        """The snapshot of the table's items."""
        self._calls = CallPool(threads=items is not None and items.in_threads, most=MOST_SEGMENTS)
        self._known_closed: set[str] = set()  # of those that are assigned
        self._items = items
        self._options = options
        self.shard_level = logging.DEBUG if options.is_bounded else logging.INFO
        """The level of a line about one shard: a run that ends soon has others that matter."""
        self._start = start or options.position
        self._latest = latest or LatestMoment(clock)
        self.first_service = first_service or service
        self._clock = clock
        waits = of_table and not options.is_bounded
        self.successor = SuccessorSearch(
            of_table=of_table,
            wait_seconds=SUCCESSOR_WAIT_SECONDS if waits else 0.0,
            clock=clock,
        )
        """What looks for its table's next stream, once it has ended."""
        self.bounded_at: datetime | None = None
        """The time up to which it is read; None: no end."""
        self._stored: Token | None = None
        """The token from which it resumes, until it has started."""
        self.coordinator = self._new_coordinator(arn, self._start)

    def _new_coordinator(
        self,
        arn: str,
        start: Position,
        resumed: Iterable[TrackedShard] | None = None,
        since: datetime | None = None,
    ) -> Coordinator:
        return Coordinator(
            arn,
            start,
            resumed,
            since=since,
            losses=self.losses,
            in_use=self.assigned,
            clock=self._clock,
        )

    @property
    def arn(self) -> str:
        """The ARN of the stream that is being read."""
        return self.coordinator.arn

    @property
    def has_started(self) -> bool:
        """True once its shards were listed."""
        return self.coordinator.has_listed

    @property
    def name(self) -> str:
        """The table's name, or else the stream's ARN."""
        return self.coordinator.listing.table or self.arn

    @property
    def table(self) -> str:
        """The table's name, as its ARN has it."""
        return table_name(self.arn)

    def is_same_table(self, arn: str) -> bool:
        """True for this stream, and for one that it would move on to."""
        return arn == self.arn or (self.of_table and table_of(arn) == table_of(self.arn))

    def shard_key(self, shard: TrackedShard) -> ShardKey:
        """Returns a shard's key among the shards of all streams."""
        return ShardKey(self.arn, shard.id)

    def shard(self, shard_key: ShardKey) -> TrackedShard:
        """Returns the stream's shard with this key."""
        return self.coordinator.lineage.shards[shard_key.shard_id]

    # The start

    def matches(self, token: Token) -> bool:
        """True for a stored token of this stream, or of the table's former one."""
        if token.stream_arn == self.arn:
            return True
        return self.of_table and table_of(token.stream_arn) == table_of(self.arn)

    def resume(self, token: Token) -> None:
        """Starts at this token's positions. Raises UsageError for a broken token."""
        # The rest of the table's former stream comes first; the watch then moves on to the new one.
        resumed = checkpoint_format.resume(token, self._clock.now())
        self.coordinator = self._new_coordinator(
            token.stream_arn, self._start, resumed, token.stream_since
        )
        self._stored = token

    @property
    def is_resumed(self) -> bool:
        """True if it starts at a token's positions."""
        return self._stored is not None

    def _refuse_view(self, view_type: str) -> None:
        """Raises UsageError for a filter of images that the stream lacks; one of several warns."""
        try:
            if (record_filter := self._options.record_filter) is not None:
                record_filter.refuse_view(view_type)
        except UsageError as error:
            if self.stream_count == 1:
                raise
            logger.warning(f"{self.table}: {error}", extra=self.coordinator.about())

    def start(self) -> None:
        """Makes the first listing. Raises StreamError, DataLossError."""
        token = self._stored
        try:
            listing = self._listed()
        except StreamGoneError as error:
            if token is None or (new := self._newest()) is None:
                raise
            self.move_on(new, str(error))
            listing = self._listed()
        # "Latest" means the moment of the watch's begin: to list all tags may take minutes.
        is_late = self.retry.failures or self._latest.is_past
        if is_late and token is None and isinstance(self._start, Latest):
            self.coordinator = self._new_coordinator(self.arn, self._latest.in_stream(listing))
        self.coordinator.schedule.stream_count = self.stream_count
        self._refuse_view(listing.view_type)
        policy = self._options.on_stale
        restarts = self.losses.restarts_snapshot(policy, "checkpoint", token, listing)
        self.coordinator.start(listing)
        self.first_service = self.service  # for a second start, while others are delivered
        self.losses.warn_if_starting_late(listing)
        self._start_snapshot(None if token is None else token.snapshot, restarts=restarts)
        if self._options.is_bounded:
            self.bounded_at = self.coordinator.written_at
        if not listing.shards:
            logger.info("The stream has no shards yet", extra=self.coordinator.about())

    def _listed(self) -> Listing:
        return first_listing(self.first_service, self.arn)

    def _newest(self) -> str | None:
        return retry_at_start(lambda: newer_stream(self.first_service, self.arn), self._clock)

    def _start_snapshot(self, stored: TokenSnapshot | None, *, restarts: bool) -> None:
        """Creates the snapshot; one that the checkpoint holds as finished only if it `restarts`."""
        options = self._options
        if self._items is not None and (options.snapshot or restarts):
            self.snapshot = TableSnapshot(
                self.arn,
                self._items,
                None if restarts else stored,
                self._clock,
                redaction=None if options.checkpoint is None else options.redaction,
                pace=ReadPace(options.read_limit, self._clock),
                calls=self._calls,
            )

    def end_scan(self) -> None:
        """Ends the threads that have read the items."""
        self._calls.close()

    @property
    def snapshot_is_due(self) -> bool:
        """True if items are to be read, and every change from now on will be read too."""
        unread = self.snapshot is not None and not self.snapshot.is_done
        return unread and not self.coordinator.lineage.awaits_latest

    # Shards and their processes

    @property
    def is_due(self) -> bool:
        """True if `refresh` may make a request."""
        return self.coordinator.due_in() <= 0

    def refresh(self) -> None:
        """Makes the stream's requests that are due. Raises StreamError, DataLossError."""
        self.service.renew_expiring()
        self.coordinator.schedule.stream_count = self.stream_count
        self.coordinator.refresh(self.service)

    def take_ready_shards(self) -> list[TrackedShard]:
        """Returns the shards that may be read now, and marks them as assigned."""
        shards = self.coordinator.take_ready()
        self.assigned.update(shard.id for shard in shards)
        self._log_starting(shards)
        return shards

    def _log_starting(self, shards: Sequence[TrackedShard]) -> None:
        if len(shards) > _FEW:
            several = f"{len(shards):,} shards, {shards[0].id} to {shards[-1].id}"
            logger.log(self.shard_level, f"Starting watchers for {several}")
        are_few = len(shards) <= _FEW and self.stream_count <= _FEW_STREAMS
        level = self.shard_level if are_few else logging.DEBUG
        for each in shards:
            text = f"Starting watcher for shard: {each.id}"
            logger.log(level, text, extra=self.coordinator.about(each))

    def take_newly_closed(self) -> list[ShardKey]:
        """Returns the assigned shards that get no more records, each once."""
        closed = {shard_id for shard_id in self.assigned if self.coordinator.is_closed(shard_id)}
        new, self._known_closed = closed - self._known_closed, closed
        return [ShardKey(self.arn, shard_id) for shard_id in sorted(new)]

    def assignment(self, shard: TrackedShard) -> ShardAssignment:
        """Returns a shard's assignment for a worker."""
        return ShardAssignment(
            arn=self.arn,
            shard_id=shard.id,
            position=shard.position,
            bounded_at=self.bounded_at,
            end=self._options.end,
            poll_max=self._options.poll_max_seconds,
            closed=self.coordinator.is_closed(shard.id),
            latest=self.coordinator.began_at,
            created=shard.created,
        )

    # The end

    def find_end(self) -> StreamEnd | None:
        """Returns the stream's end; None while more records may come.

        With a successor, the caller then calls `move_on`.
        """
        coordinator, is_bounded = self.coordinator, self._options.is_bounded
        if self.snapshot is not None and not self.snapshot.stored().done:
            return None
        if self.retry.failures and is_bounded:
            return None if self.assigned else StreamEnd()
        if self.assigned or not coordinator.confirm_exhausted():
            return None
        if not coordinator.is_over:
            if not is_bounded:
                return None
            coordinator.log_left_open(self._options.end)
            return StreamEnd()
        return self.successor.search(self.service, coordinator)

    def move_on(self, arn: str, reason: str = "") -> None:
        """Goes on with the table's new stream, from its trim horizon. Raises DataLossError."""
        logger.info(f"Continuing with the table's new stream: {arn}")
        old, reason = self.arn, reason or f"stream {self.arn} is {self.coordinator.ended_how}"
        stored = None if self.has_started else self._stored
        read_at = self.coordinator.listing.time if stored is None else stored.saved_at
        self.coordinator = self._new_coordinator(arn, TrimHorizon(), [])
        self._stored = self._current_token()
        # Until its first listing, also of a later run, that shows whether its first records are
        # older than the retention.
        self._stored.created, self._stored.saved_at = self._stored.saved_at, read_at
        self.losses.report_gap(old, arn, reason)

    # Its state

    def stats(self) -> StreamStats:
        """Returns the stream's part of the figures."""
        now = self.coordinator.now.timestamp()
        return StreamStats(
            self.arn,
            self.coordinator.lineage,
            now,
            self.service.counters,
            None if self.snapshot is None else self.snapshot.share,
        )

    def token(self, dispatcher: Dispatcher) -> Token | None:
        """Returns its positions; a shard's stays before its first record that a handler holds back.

        Before the start that is the token from which it resumes, or None.
        """
        if not self.has_started:
            return self._stored
        token = self._current_token()
        for shard in token.shards:
            if number := dispatcher.first_pending(ShardKey(self.arn, shard.shard_id)):
                shard.hold(number)
        if self.snapshot is None:
            token.snapshot = None if self._stored is None else self._stored.snapshot
            return token
        token.snapshot = self.snapshot.stored(dispatcher.first_pending(self.snapshot.shard_key))
        return token

    def _current_token(self) -> Token:
        coordinator = self.coordinator
        return checkpoint_format.make(
            coordinator.arn,
            coordinator.lineage,
            coordinator.listing.time,
            coordinator.began_at,
            coordinator.listing.created,
        )
