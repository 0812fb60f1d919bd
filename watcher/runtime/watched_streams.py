"""The streams of a watch: which are followed, which have left it, and which may join."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.errors import CredentialsError, StreamError, UsageError
from watcher.formatting.text import counted
from watcher.observability.watch_stats import Totals
from watcher.options import WatchOptions
from watcher.retry import backoff
from watcher.runtime.stats import StatsCollector, StreamStats
from watcher.runtime.stream_discovery import StreamDiscovery
from watcher.runtime.tail import Tail
from watcher.runtime.watched_stream import WatchedStream
from watcher.runtime.workers import Workers
from watcher.streams.lineage import RETENTION, TrackedShard
from watcher.streams.messages import Failed
from watcher.streams.token import Token

logger = logging.getLogger("watcher")

# A watch of many begins for a while, as DescribeStream is limited: it is said that it gets on.
_FIRST_NEWS_SECONDS = 5.0
_NEWS_SECONDS = 10.0
# A line each is a comfort of few streams, and a wall of many.
_FEW = 20
_LOOK_SECONDS = 0.1
# As long as `BackgroundService` waits for one listing before it asks for another.
_HANGS_SECONDS = 1.0
# A stream that is refused may be allowed again: somebody may have mended a policy.
_AGAIN_SECONDS = 30.0
_AGAIN_SECONDS_MAX = 300.0
# By then nothing of a stream that has left can be read again.
_FORGOTTEN_SECONDS = RETENTION.total_seconds() + 3600


class WatchedStreams:
    """The streams of a watch; one that is `alone` for good is the watch itself.

    `missing` says of names that no stream was found for why that is so.
    """

    def __init__(
        self,
        followed: Iterable[WatchedStream],
        newcomers: Sequence[StreamDiscovery] = (),
        missing: Mapping[str, StreamError] | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self._followed = {stream.arn: stream for stream in followed}
        self._newcomers = newcomers
        self._to_begin = dict.fromkeys(self._followed.values())
        """Those whose first listing is still to come, in its order."""
        self._asked: dict[WatchedStream, float] = {}
        """Of these, since when (monotonic) each that was asked for has no answer."""
        self._look_due = -math.inf
        self._news_due = clock.monotonic() + _FIRST_NEWS_SECONDS
        self._are_watched = False
        """Whether it was said that all shards of all of them are being read."""
        self._left: list[WatchedStream] = []
        self._kept: list[Token] = []
        """What a checkpoint holds of streams that are not followed."""
        self._rest_until: dict[WatchedStream, float] = {}
        self._unread_since: dict[WatchedStream, float] = {}
        self._errors = dict(missing or {})
        """Why a stream can't be read, by its ARN, or by the name that it was asked for by."""
        self.alone = not newcomers and not missing and len(self._followed) == 1
        self._clock = clock
        self._share()

    def __iter__(self) -> Iterator[WatchedStream]:
        """Those that are followed; some may leave or be renamed meanwhile."""
        return iter(list(self._followed.values()))

    def __len__(self) -> int:
        return len(self._followed)

    def get(self, arn: str) -> WatchedStream | None:
        """The one that reads this stream; None if it has left."""
        return self._followed.get(arn)

    @property
    def awaits_more(self) -> bool:
        """Whether others may join."""
        return bool(self._newcomers)

    def _share(self) -> None:
        """DescribeStream's limit is for all of them together."""
        for stream in self:
            stream.sharers = len(self._followed)

    # The checkpoint

    def resume(self, stored: Sequence[Token], name: str) -> None:
        """Begin where these tokens stand. Raises UsageError where they are of another stream."""
        self.refuse(stored, name)
        left = list(stored)
        resumed, fresh = [], []
        for stream in self:
            if token := next(filter(stream.is_of, left), None):
                left.remove(token)
                self._resume(stream, token)
                resumed.append(token.stream_arn)
            elif stored:
                fresh.append(stream.arn)
        for arn in resumed if len(resumed) <= _FEW else ():
            logger.info(f"Resuming from {name}", extra={"stream": arn})
        for arn in fresh if len(fresh) <= _FEW else ():
            logger.info(f"{name} holds nothing of {arn}: it begins as --from says")
        if len(resumed) > _FEW:
            logger.info(f"Resuming {len(resumed):,} streams from {name}")
        if len(fresh) > _FEW:
            logger.info(
                f"{name} holds nothing of {len(fresh):,} streams: they begin as --from says"
            )
        # By the service's time of the last save: ours may be off.
        newest = max((token.saved_at for token in stored if token.saved_at), default=None)
        self._kept = [
            token
            for token in left
            if not (newest and token.saved_at and newest - token.saved_at > RETENTION)
        ]
        if left:
            names = ", ".join(token.stream_arn for token in left)
            logger.info(f"{name} holds streams that are not watched now, and keeps them: {names}")

    def refuse(self, stored: Sequence[Token], name: str) -> None:
        """Raise UsageError where what is stored is another stream's."""
        if not (self.alone and len(stored) == 1):
            return
        for stream in self:
            if not stream.is_of(stored[0]):
                text = f"it is of {stored[0].stream_arn}, not of {stream.arn}; "
                text += "choose another file, or name that stream (or its table)"
                raise UsageError(text, "checkpoint", name)

    def _resume(self, stream: WatchedStream, token: Token) -> None:
        arn = stream.arn
        stream.resume(token)
        self.renamed(arn, stream)

    def at_tail(self, settings: WatchOptions, is_ending: Callable[[], bool]) -> Tail | None:
        """Begin with the last changes alone, where that is asked for; None if more is delivered.

        What a checkpoint holds goes before it.
        """
        fresh = [stream for stream in self if not stream.is_resumed]
        if settings.tail is None or not fresh:
            return None
        tail = Tail(settings.tail, settings.record_filter, is_ending, self._clock)
        tail.begin(fresh)
        return None if settings.follows or len(fresh) < len(self) else tail

    def tokens(self, unsettled: Callable[[ShardKey], str | None]) -> list[Token]:
        """Where all of them stand; also those that have left, as long as there is any use in it."""
        oldest = self._clock.monotonic() - _FORGOTTEN_SECONDS
        if len(self._left) > 1 or self._followed:  # else it is all that there is to store
            self._left = [stream for stream in self._left if stream.left_at > oldest]
        found = [stream.token(unsettled) for stream in (*self, *self._left)]
        return [*filter(None, found), *self._kept]

    # Coming and going

    def to_begin(self) -> Iterator[WatchedStream]:
        """Those whose first listing is to be made, in its order; `begun` is to follow.

        The next one once that has begun, or hangs: each fork waits for a thread that has more to
        ask. Of many that hang, ten times a second: else each message would wait for a look at all.
        """
        if len(self._asked) > _FEW and self._clock.monotonic() < self._look_due:
            return
        self._look_due = self._clock.monotonic() + _LOOK_SECONDS
        for stream in list(self._to_begin):
            asked = self._asked.setdefault(stream, self._clock.monotonic())
            yield stream
            if stream in self._asked and self._clock.monotonic() < asked + _HANGS_SECONDS:
                return

    def begun(self, stream: WatchedStream) -> None:
        """Its first listing was made, or refused. Raises StreamError where all were."""
        del self._to_begin[stream]
        self._asked.pop(stream, None)
        if not self._to_begin:
            if not any(each.has_begun for each in (*self, *self._left)):
                self.raise_error()
        elif not self._are_watched and self._clock.monotonic() >= self._news_due:
            self._news_due = self._clock.monotonic() + _NEWS_SECONDS
            count = sum(each.has_begun for each in self)
            text = f"Watching {count} of {len(self)} streams so far, each from its listing on"
            logger.info(text)

    def renamed(self, arn: str, stream: WatchedStream) -> None:
        """What was followed under this ARN is another stream of its table now."""
        if stream.arn != arn and self._followed.get(arn) is stream:
            del self._followed[arn]
            self._followed[stream.arn] = stream

    def leave(self, stream: WatchedStream) -> None:
        """Nothing more is to be read of it."""
        del self._followed[stream.arn]
        stream.left_at = self._clock.monotonic()
        self._left.append(stream)
        self._share()

    def let_join(self) -> None:
        """Take in those that join now, to be begun."""
        if not (new := [stream for each in self._newcomers for stream in each.look()]):
            return
        left = {stream.arn for stream in self._left}
        for stream in new:
            if stream.arn in left or any(each.is_same_table(stream.arn) for each in self):
                continue
            if token := next(filter(stream.is_of, self._kept), None):
                self._kept.remove(token)
                stream.resume(token)
            self._errors.pop(stream.table, None)
            logger.info(f"{stream.table} joins the watch", extra={"stream": stream.arn})
            self._followed[stream.arn] = stream
            self._to_begin[stream] = None
        self._share()

    # The trouble of one of several

    def in_trouble(
        self, stream: WatchedStream, error: StreamError, *, reading: bool = False
    ) -> None:
        """It can't be listed, or `reading` is refused; the others go on.

        Raises it where there are none, or where none of them has worked before.
        """
        if self.alone or isinstance(error, CredentialsError):
            raise error
        now = self._clock.monotonic()
        if now >= self._rest_until.get(stream, now):  # else it is the same, of another shard
            stream.failures += 1
            pause = backoff(stream.failures, _AGAIN_SECONDS, _AGAIN_SECONDS_MAX)
            self._rest_until[stream] = now + pause
        if reading:
            self._unread_since[stream] = now
        if stream.arn not in self._errors:
            text = f"{stream.table}: {error}; the other streams are watched on"
            logger.error(text, extra={"stream": stream.arn})
        self._errors[stream.arn] = error
        if reading and not any(map(self._may_be_read, (*self, *self._left))):
            self.raise_error()

    @staticmethod
    def _may_be_read(stream: WatchedStream) -> bool:
        return not stream.failures or stream.coordinator.refusals.has_worked

    def on_failed(self, stream: WatchedStream, shard: TrackedShard, message: Failed) -> None:
        """Takes in that a shard's reader can't go on."""
        if message.fatal:
            self.in_trouble(stream, StreamError(message.text), reading=True)
            return
        about = stream.coordinator.about(shard)
        logger.debug(message.text, extra=about)
        last_line = message.text.strip().splitlines()[-1]
        logger.warning(f"Shard {shard.id}: {last_line}", extra=about)

    def rests(self, stream: WatchedStream) -> bool:
        """Whether it is to be left alone for a while, or until it is begun."""
        rest_until = self._rest_until.get(stream, -math.inf)
        return stream in self._to_begin or self._clock.monotonic() < rest_until

    def reads(self, stream: WatchedStream) -> None:
        """One of its shards has an iterator."""
        self._unread_since.pop(stream, None)

    def listed(self, stream: WatchedStream, figures: StatsCollector) -> None:
        """It was listed: where a read was refused, that alone mends nothing."""
        since = self._unread_since.get(stream)
        if since is None or figures.is_read(stream.arn, since):
            self.works(stream)

    def works(self, stream: WatchedStream) -> None:
        """What was wrong with it is over."""
        if stream.failures:
            stream.failures = 0
            self.reads(stream)
            if self._errors.pop(stream.arn, None):
                text = f"{stream.table} can be read again"
                logger.info(text, extra={"stream": stream.arn})

    def were_refused(self, seconds: float) -> bool:
        """Whether one of them is to end, and no read of it has been answered for so long."""
        return any(
            stream.until and stream.coordinator.refusals.seconds() >= seconds for stream in self
        )

    def say_if_watched(self, stream: WatchedStream, workers: Workers) -> None:
        """Once: that all of their shards are being read, of which one of this stream's was last."""
        if self._are_watched or self._to_begin or not workers.are_all_reading():
            return
        self._are_watched = True
        several = len(self) > 1
        which = f"{len(self)} streams" if several else stream.name
        about = None if several else stream.coordinator.about()
        logger.info(f"Watching {counted(len(workers), 'shard')} of {which}", extra=about)

    # What became of them

    @property
    def last_refusal(self) -> str:
        """Why a read of one of them was refused; empty where none was."""
        return next(filter(None, (stream.coordinator.refusals.last for stream in self)), "")

    @property
    def losses(self) -> int:
        """How many losses were said."""
        return sum(len(stream.losses.lines) for stream in (*self, *self._left))

    def standings(self) -> list[StreamStats]:
        """For the figures."""
        return [stream.standing() for stream in (*self, *self._left)]

    def raise_error(self, totals: Totals | None = None) -> None:
        """Raise StreamError where some could not be read, with what was done of the others."""
        if not self._errors:
            return
        error, *more = self._errors.values()
        if more:
            texts = "; ".join(dict.fromkeys(map(str, self._errors.values())))
            error = StreamError(
                f"{counted(len(self._errors), 'stream')} could not be read: {texts}"
            )
        error.totals = None if self.alone else totals
        raise error
