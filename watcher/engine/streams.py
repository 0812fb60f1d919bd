"""The streams of a watch: which are followed, which have left it, and which may join."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from watcher.backoff import backoff
from watcher.clock import CLOCK, Clock
from watcher.engine.figures import Standing
from watcher.engine.followed import Followed
from watcher.engine.newcomers import Newcomers
from watcher.errors import StreamError, UsageError
from watcher.printing.plural import counted
from watcher.reading.lineage import RETENTION
from watcher.reading.token import Token
from watcher.record.origin import Origin

logger = logging.getLogger("watcher")

# A stream that is refused may be allowed again: somebody may have mended a policy.
_AGAIN_SECONDS = 30.0
_AGAIN_SECONDS_MAX = 300.0
# A token is the service's time, which ours may be ahead of.
_FORGOTTEN = RETENTION + timedelta(hours=1)


class Streams:
    """The streams of a watch; one that is `alone` for good is the watch itself.

    `missing` says of names that no stream was found for why that is so.
    """

    def __init__(
        self,
        followed: Iterable[Followed],
        newcomers: Newcomers | None = None,
        missing: Mapping[str, StreamError] | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self._followed = {stream.arn: stream for stream in followed}
        self._newcomers = newcomers
        self._left: list[Followed] = []
        self._kept: list[Token] = []
        """What a checkpoint holds of streams that are not followed."""
        self._errors = dict(missing or {})
        """Why a stream can't be read, by its ARN, or by the name that it was asked for by."""
        self._again: dict[str, tuple[int, float]] = {}
        """How often one with an error was tried, and when (monotonic) it is again."""
        self.alone = newcomers is None and not missing and len(self._followed) == 1
        self._clock = clock
        self._share()

    def __iter__(self) -> Iterator[Followed]:
        """Those that are followed; some may leave or be renamed meanwhile."""
        return iter(list(self._followed.values()))

    def __len__(self) -> int:
        return len(self._followed)

    def get(self, arn: str) -> Followed | None:
        """The one that reads this stream; None if it has left."""
        return self._followed.get(arn)

    @property
    def awaits_more(self) -> bool:
        """Whether others may join."""
        return self._newcomers is not None or bool(self._again)

    def _share(self) -> None:
        """DescribeStream's limit is for all of them together."""
        for stream in self:
            stream.sharers = len(self._followed)

    # The checkpoint

    def resume(self, stored: Sequence[Token], name: str) -> None:
        """Begin where these tokens stand. Raises UsageError where they are of another stream."""
        left = list(stored)
        for stream in self:
            if token := next(filter(stream.is_of, left), None):
                left.remove(token)
                self._resume(stream, token)
                logger.info(f"Resuming from {name}", extra={"stream": token.stream_arn})
            elif self.alone and len(stored) == 1:
                text = f"it is of {stored[0].stream_arn}, not of {stream.arn}; "
                text += "choose another file, or name that stream (or its table)"
                raise UsageError(text, "checkpoint", name)
            elif stored:
                logger.info(f"{name} holds nothing of {stream.arn}: it begins as --from says")
        self._kept = left
        if left:
            names = ", ".join(token.stream_arn for token in left)
            logger.info(f"{name} holds streams that are not watched now, and keeps them: {names}")

    def _resume(self, stream: Followed, token: Token) -> None:
        arn = stream.arn
        stream.resume(token)
        self.renamed(arn, stream)

    def tokens(self, unsettled: Callable[[Origin], str | None]) -> list[Token]:
        """Where all of them stand; also those that have left, as long as there is any use in it."""
        oldest = datetime.fromtimestamp(self._clock.time(), UTC) - _FORGOTTEN
        followed, left = (
            [token for stream in group if (token := stream.token(unsettled))]
            for group in (self, self._left)
        )
        others = (*left, *self._kept)
        return followed + [each for each in others if not each.saved_at or each.saved_at > oldest]

    # Coming and going

    def renamed(self, arn: str, stream: Followed) -> None:
        """What was followed under this ARN is another stream of its table now."""
        if stream.arn != arn and self._followed.get(arn) is stream:
            del self._followed[arn]
            self._followed[stream.arn] = stream

    def leave(self, stream: Followed, error: StreamError | None = None) -> None:
        """Nothing more is read of it: it is over, or (with an error) can't be read just now."""
        del self._followed[stream.arn]
        self._left.append(stream)
        self._share()
        if error is None:
            self._again.pop(stream.arn, None)
            return
        times, _ = self._again.get(stream.arn, (0, 0.0))
        pause = backoff(times + 1, _AGAIN_SECONDS, _AGAIN_SECONDS_MAX)
        self._again[stream.arn] = times + 1, self._clock.monotonic() + pause
        if stream.arn not in self._errors:
            others = f"the others go on, and it is tried again in {_AGAIN_SECONDS:.0f} s"
            logger.error(f"{stream.name}: {error}; {others}", extra={"stream": stream.arn})
        self._errors[stream.arn] = error

    def joining(self, unsettled: Callable[[Origin], str | None]) -> list[Followed]:
        """Those that join now, to be begun: new ones, and those that are to be tried again."""
        found = [*self._to_try_again(unsettled), *self._new()]
        for stream in found:
            self._followed[stream.arn] = stream
        if found:
            self._share()
        return found

    def _to_try_again(self, unsettled: Callable[[Origin], str | None]) -> Iterator[Followed]:
        now = self._clock.monotonic()
        for stream in list(self._left):
            if stream.arn in self._again and self._again[stream.arn][1] <= now:
                self._left.remove(stream)
                stream.begin_again(unsettled)
                yield stream

    def _new(self) -> Iterator[Followed]:
        if self._newcomers is None:
            return
        known = {stream.arn for stream in self._left}
        for stream in self._newcomers.look():
            if stream.arn in known or any(each.is_same_table(stream.arn) for each in self):
                continue
            if token := next(filter(stream.is_of, self._kept), None):
                self._kept.remove(token)
                stream.resume(token)
            self._errors.pop(stream.table, None)
            logger.info(f"{stream.table} joins the watch", extra={"stream": stream.arn})
            yield stream

    def begun(self, stream: Followed) -> None:
        """It can be read: what was wrong with it is over."""
        if self._errors.pop(stream.arn, None):
            logger.info(f"{stream.name} can be read again", extra={"stream": stream.arn})
        self._again.pop(stream.arn, None)

    # What became of them

    @property
    def losses(self) -> int:
        """How many losses were said."""
        return sum(len(stream.losses.lines) for stream in (*self, *self._left))

    def standings(self) -> list[Standing]:
        """For the figures."""
        return [stream.standing() for stream in (*self, *self._left)]

    def raise_error(self) -> None:
        """Raise StreamError where some could not be read."""
        if len(self._errors) == 1:
            raise next(iter(self._errors.values()))
        if self._errors:
            texts = "; ".join(map(str, self._errors.values()))
            raise StreamError(f"{counted(len(self._errors), 'stream')} could not be read: {texts}")
