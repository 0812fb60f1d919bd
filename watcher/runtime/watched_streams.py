"""The streams of a watch: watched, removed, and joining ones."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from watcher.clock import CLOCK, Clock
from watcher.delivery.dispatcher import Dispatcher
from watcher.errors import StreamError, UsageError
from watcher.formatting.text import counted
from watcher.observability.watch_stats import Totals
from watcher.options import WatchOptions
from watcher.runtime.stats import StatsCollector, StreamStats
from watcher.runtime.stream_discovery import StreamDiscovery
from watcher.runtime.tail import Tail
from watcher.runtime.watched_stream import WatchedStream
from watcher.runtime.workers import Workers
from watcher.streams.checkpoint_format import Token
from watcher.streams.lineage import RETENTION, ShardStatus, TrackedShard
from watcher.streams.messages import ReaderCrashed

logger = logging.getLogger("watcher")

FORGOTTEN_SECONDS = RETENTION.total_seconds() + 3600
"""The time after which a removed stream holds no readable record."""
# The time after which a listing that hangs makes room for the next.
_START_HANGS_SECONDS = 1.0
# Of shards that can't be read up to their ends, so many are named.
_SHOWN_SHARDS = 3


class WatchedStreams:
    """The streams of a watch; `alone` if it can never have more than one.

    `missing` holds the errors of names without a stream.
    """

    def __init__(
        self,
        watched: Iterable[WatchedStream],
        discoveries: Sequence[StreamDiscovery] = (),
        missing: Mapping[str, StreamError] | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self._watched = {stream.arn: stream for stream in watched}
        self._discoveries = discoveries
        self._to_start = dict.fromkeys(self._watched.values())
        """The streams whose first listing is still to come, in its order."""
        self._to_retry: dict[WatchedStream, None] = {}
        """The streams whose first listing has failed."""
        self._asked_at: dict[WatchedStream, float] = {}
        """The time (monotonic) of each stream's first unanswered request for its listing."""
        self._has_logged_watching = False
        self._removed: list[WatchedStream] = []
        self._forgotten_losses = 0
        self._unwatched_tokens: list[Token] = []
        """The checkpoint's tokens of streams that are not watched."""
        self._missing = dict(missing or {})
        self.alone = not discoveries and not missing and len(self._watched) == 1
        self._clock = clock
        self._looked_at = -math.inf
        self._share_listings()

    def __iter__(self) -> Iterator[WatchedStream]:
        """Iterates over a copy of the watched streams: they may leave or move on meanwhile."""
        return iter(list(self._watched.values()))

    def __len__(self) -> int:
        return len(self._watched)

    def get(self, arn: str) -> WatchedStream | None:
        """Returns the stream with this ARN; None if it was removed."""
        return self._watched.get(arn)

    def _all(self) -> list[WatchedStream]:
        return [*self, *self._removed]

    # The checkpoint

    def check_checkpoint(self, stored: Sequence[Token], name: str) -> None:
        """Raises UsageError where a checkpoint belongs to another stream."""
        if not (self.alone and len(stored) == 1):
            return
        for stream in self:
            if not stream.matches(stored[0]):
                text = f"it belongs to {stored[0].stream_arn}, not to {stream.arn}; "
                text += "choose another file, or name that stream (or its table)"
                raise UsageError(text, "checkpoint", name)

    def resume(self, stored: Sequence[Token], name: str) -> None:
        """Starts the streams at these tokens. Raises UsageError for another stream's."""
        self.check_checkpoint(stored, name)
        unclaimed = list(stored)
        resumed, fresh = [], []
        for stream in self:
            if token := next(filter(stream.matches, unclaimed), None):
                unclaimed.remove(token)
                old_arn = stream.arn
                stream.resume(token)
                self.on_moved(stream, old_arn)
                resumed.append(token.stream_arn)
            elif stored:
                fresh.append(stream.arn)
        self._log_resumed(resumed, fresh, name)
        # By the service's time of the last save: our clock may be off.
        newest = max((token.saved_at for token in stored if token.saved_at), default=None)
        self._unwatched_tokens = [
            token
            for token in unclaimed
            if not (newest and token.saved_at and newest - token.saved_at > RETENTION)
        ]
        if unclaimed:
            names = ", ".join(token.stream_arn for token in unclaimed)
            logger.info(f"{name} holds streams that are not watched now, and keeps them: {names}")

    def _log_resumed(self, resumed: Sequence[str], fresh: Sequence[str], name: str) -> None:
        for arns, text in (
            (resumed, f"Resuming {{}} from {name}"),
            (fresh, f"{name} holds no position in {{}}: begins at --from"),
        ):
            if arns:
                which = arns[0] if len(arns) == 1 else counted(len(arns), "stream")
                logger.info(text.format(which))

    def tokens(self, dispatcher: Dispatcher) -> list[Token]:
        """Returns the tokens of all streams, removed ones included while they may be of use."""
        oldest = self._clock.monotonic() - FORGOTTEN_SECONDS
        if len(self._removed) > 1 or self._watched:  # else it is the only token to save
            for stream in [each for each in self._removed if each.removed_at <= oldest]:
                self._removed.remove(stream)
                self._forgotten_losses += len(stream.losses.lines)  # a counter never falls
        found = [stream.token(dispatcher) for stream in self._all()]
        return [*filter(None, found), *self._unwatched_tokens]

    # The start

    def start_tail(self, options: WatchOptions, must_stop: Callable[[], bool]) -> Tail | None:
        """Starts the streams at the last changes, for `--tail`; None if more than these follows.

        A position from the checkpoint takes precedence.
        """
        fresh = [stream for stream in self if not stream.is_resumed]
        if options.tail is None or not fresh:
            return None
        tail = Tail(options.tail, options.record_filter, must_stop, self._clock)
        tail.begin(fresh)
        return tail if options.is_bounded and len(fresh) == len(self) else None

    def to_start(self) -> Iterator[WatchedStream]:
        """Yields the streams that need a first listing, also again after a failed one.

        The caller calls `on_first_answer` once it has come. It goes on to the next stream once this
        one has started, or hangs: a fork waits for each thread that still makes calls.
        """
        for stream in list(self._to_retry):
            if not stream.retry.is_paused:
                yield stream
        for stream in list(self._to_start):
            asked_at = self._asked_at.setdefault(stream, self._clock.monotonic())
            yield stream
            hangs_at = asked_at + _START_HANGS_SECONDS
            if stream in self._asked_at and self._clock.monotonic() < hangs_at:
                return

    def on_first_answer(self, stream: WatchedStream) -> None:
        """Notes that a first listing has succeeded or failed.

        Raises StreamError where all failed.
        """
        if stream not in self._to_start:  # a retry
            return
        del self._to_start[stream]
        self._asked_at.pop(stream, None)
        if not (self._to_start or any(each.has_started for each in self._all())):
            self.raise_error()

    def log_if_all_reading(self, stream: WatchedStream, workers: Workers) -> None:
        """Logs, once, that all shards are being read; this stream's were the last."""
        if self._has_logged_watching or self._to_start or not workers.are_all_reading():
            return
        self._has_logged_watching = True
        several = len(self) > 1
        which = f"{len(self)} streams" if several else stream.name
        about = None if several else stream.coordinator.about()
        logger.info(f"Watching {counted(len(workers), 'shard')} of {which}", extra=about)

    # Joining, moving on and leaving

    @property
    def may_join(self) -> bool:
        """True if further streams may join."""
        return bool(self._discoveries)

    @property
    def searches_fail_since(self) -> float:
        """The (monotonic) time since which the region's streams can't be listed; infinite: can."""
        return min((each.failing_since for each in self._discoveries), default=math.inf)

    def join_discovered(self) -> None:
        """Adds the newly found streams, to be started.

        A removed stream, and a watched table's next stream, do not join.
        """
        if not (found := [stream for each in self._discoveries for stream in each.find()]):
            return
        removed = {stream.arn for stream in self._removed}
        for stream in found:
            if stream.arn in removed or any(each.is_same_table(stream.arn) for each in self):
                continue
            if token := next(filter(stream.matches, self._unwatched_tokens), None):
                self._unwatched_tokens.remove(token)
                stream.resume(token)
            self._missing.pop(stream.table, None)
            logger.info(f"{stream.table} joins the watch", extra={"stream": stream.arn})
            self._watched[stream.arn] = stream
            self._to_start[stream] = None
        self._share_listings()

    def on_moved(self, stream: WatchedStream, old_arn: str) -> None:
        """Notes that a table's next stream has replaced the one with this ARN."""
        if stream.arn != old_arn and self._watched.get(old_arn) is stream:
            del self._watched[old_arn]
            self._watched[stream.arn] = stream

    def remove(self, stream: WatchedStream) -> None:
        """Removes a stream that has ended."""
        del self._watched[stream.arn]
        self._to_retry.pop(stream, None)
        stream.removed_at = self._clock.monotonic()
        self._removed.append(stream)
        self._share_listings()

    def _share_listings(self) -> None:
        """Tells each stream how many share DescribeStream's limit."""
        for stream in self:
            stream.stream_count = len(self._watched)

    # Errors of one of several

    def is_paused(self, stream: WatchedStream) -> bool:
        """True while a stream is not to be listed or read: before its start, or after a failure."""
        awaits_start = stream in self._to_start or stream in self._to_retry
        return awaits_start or stream.retry.is_paused

    def on_error(self, stream: WatchedStream, error: StreamError, *, reading: bool = False) -> None:
        """Pauses a stream that can't be listed, or whose `reading` is refused; the others go on.

        Raises the error where there are no others, or where none of them has worked before.
        """
        if self.alone:
            raise error
        stream.retry.on_error(stream.arn, error)
        if not stream.has_started:
            self._to_retry[stream] = None
        if reading:
            stream.refused_at = self._clock.monotonic()
            if not any(map(self._may_be_read, self._all())):
                self.raise_error()

    @staticmethod
    def _may_be_read(stream: WatchedStream) -> bool:
        return not stream.retry.failures or stream.coordinator.read_errors.has_worked

    def on_reader_crashed(
        self, stream: WatchedStream, shard: TrackedShard, message: ReaderCrashed
    ) -> None:
        """Handles the end of a reader that failed."""
        if message.fatal:
            self.on_error(stream, StreamError(message.text), reading=True)
            return
        about = stream.coordinator.about(shard)
        logger.debug(message.text, extra=about)
        last_line = message.text.strip().splitlines()[-1]
        logger.warning(f"Shard {shard.id}: {last_line}", extra=about)

    def on_reader_started(self, stream: WatchedStream) -> None:
        """Notes that a shard of a stream has an iterator: its reads are no longer refused."""
        stream.refused_at = None

    def on_listed(self, stream: WatchedStream, stats: StatsCollector) -> None:
        """Notes a successful listing; after a refused read, only a successful read counts."""
        since = stream.refused_at
        if since is None or stats.is_read(stream.arn, since):
            self.on_recovered(stream)

    def on_recovered(self, stream: WatchedStream) -> None:
        """Notes that a stream can be listed and read again."""
        stream.retry.on_success(stream.arn)
        stream.refused_at = None
        self._to_retry.pop(stream, None)

    def are_refused_for(self, seconds: float, stats: StatsCollector) -> bool:
        """True if what is read up to now was refused for `seconds`, and nothing was read since."""
        is_reading = stats.queued > 0 or any(stats.is_read(s.arn, self._looked_at) for s in self)
        self._looked_at = self._clock.monotonic()
        bounded = [stream.coordinator for stream in self if stream.bounded_at]
        refused = [each.seconds_refused(is_reading=is_reading) for each in bounded]
        return max(refused, default=0.0) >= seconds

    @property
    def last_refusal(self) -> str:
        """The error of a refused read; "" where none was refused."""
        return next(filter(None, (stream.coordinator.read_errors.last for stream in self)), "")

    @property
    def rest_text(self) -> str:
        """Why the rest can't be read, and which shards have one."""
        reason = next(filter(None, (stream.coordinator.last_error for stream in self)), "")
        unread = [
            shard.id
            for stream in self
            for shard in stream.coordinator.lineage.unfinished
            if shard.status is not ShardStatus.LEFT_OPEN
        ]
        shown = ", ".join(unread[:_SHOWN_SHARDS]) + ", …" * (len(unread) > _SHOWN_SHARDS)
        rest = f"the rest of {counted(len(unread), 'shard')}: {shown}" if unread else "later shards"
        return f"{reason}; unread: {rest}"

    def raise_error(self, totals: Totals | None = None) -> None:
        """Raises StreamError for unreadable streams, with the totals of the others."""
        errors = [each.retry.error for each in self._all() if each.retry.error]
        if not (errors := [*self._missing.values(), *errors]):
            return
        error = errors[0]
        if len(errors) > 1:
            texts = "; ".join(dict.fromkeys(map(str, errors)))
            error = StreamError(f"{counted(len(errors), 'stream')} could not be read: {texts}")
        error.totals = None if self.alone else totals
        raise error

    # Figures

    @property
    def loss_count(self) -> int:
        """The number of logged losses."""
        return self._forgotten_losses + sum(len(each.losses.lines) for each in self._all())

    def stats(self) -> list[StreamStats]:
        """Returns each stream's part of the figures."""
        return [stream.stats() for stream in self._all()]
