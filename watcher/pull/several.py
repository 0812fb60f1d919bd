"""Several streams that are pulled by one program: what is wrong with one of them is its own."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta

from watcher.aws.arns import table_name
from watcher.aws.background import BackgroundService, CachedListing
from watcher.aws.model import CLOCKS_APART, AtTime, Latest, Position, Service
from watcher.aws.retry import RetryingAtStart
from watcher.clock import Clock, no_later
from watcher.errors import CredentialsError, NoAnswerYetError, StreamError
from watcher.pull.merged import MergedReader
from watcher.streams.token import Token

# A shard's turn comes sooner than that, also where it is read less than once a second, and where
# that is just being learnt.
_TURN_SECONDS = 2.5
# What other shards may bring is not to wait for it.
_STEP_SECONDS = 0.05
_LEAST_SECONDS = 0.01


def poll_schedule(pullers: Collection[MergedReader], clock: Clock) -> Iterator[bool]:
    """Whether to look at all shards at once, each time; the end says that there is nothing now.

    That can't be said of a shard that may have more, and that the service lets be read only so
    often: its turn is waited for.
    """
    yield False
    yield True
    until = clock.monotonic() + _TURN_SECONDS
    while (wait := min(each.turn_in for each in pullers)) <= until - clock.monotonic():
        clock.sleep(min(max(wait, _LEAST_SECONDS), _STEP_SECONDS))
        yield False


logger = logging.getLogger("watcher")

# So long a stream of several rests that can't be read.
_REST_SECONDS = 30.0
# So long one of several may take until it is listed; then the others are read without it.
_BEGIN_SECONDS = 10.0
_LOOK_SECONDS = 0.1

StartPosition = Position | Token


class MergedReaders:
    """A puller for each of the `services` (by their streams' ARNs), which `make` makes.

    With `aside`, those of several streams are listed in threads: one that hangs keeps no other.
    """

    def __init__(
        self,
        services: Mapping[str, Service],
        make: Callable[[Service, str, StartPosition], MergedReader],
        clock: Clock,
        *,
        aside: bool,
    ) -> None:
        self.errors: dict[str, StreamError] = {}
        """Of several, why some can't be read just now."""
        self.starts: dict[str, StartPosition] = {}
        """Where each begins, or was to begin."""
        self.made: dict[str, MergedReader] = {}
        """Those that have begun."""
        self._services = services
        self._make = make
        self._clock = clock
        self._rests: dict[str, float] = {}
        self._news = threading.Event()
        self._asides: dict[Service, BackgroundService] = {}
        if aside and len(services) > 1:
            for each in set(services.values()):
                self._asides[each] = BackgroundService(
                    RetryingAtStart(each), self._news.set, fresh=math.inf
                )

    def begin(self, starts: dict[str, StartPosition]) -> None:
        """Have all of them begin here. Raises StreamError where none can."""
        self.starts, self.made, self._rests = starts, {}, {}
        self._began = self._clock.time(), self._clock.boottime()
        self._latest = AtTime(datetime.fromtimestamp(int(self._began[0]), UTC) - CLOCKS_APART)
        until = self._clock.monotonic() + _BEGIN_SECONDS
        asked = list(starts)
        while asked:
            self._news.clear()
            for arn in asked:
                self.let(arn, lambda puller: None)
            asked = [arn for arn in asked if not (arn in self.made or arn in self._rests)]
            if self.made and self._clock.monotonic() >= until:
                break
            if asked:
                self._news.wait(_LOOK_SECONDS)
        for arn in asked:
            late = (
                f"{table_name(arn)} is not listed yet, after {_BEGIN_SECONDS:g} s; it begins then"
            )
            self._failed(arn, StreamError(late))
        self.raise_if_all_fail()

    def let(self, arn: str, step: Callable[[MergedReader], float | None]) -> float | None:
        """Let a stream do something; what is wrong with one of several is its own."""
        if self._clock.monotonic() < self._rests.get(arn, -math.inf):
            return None
        try:
            if arn not in self.made:
                self.made[arn] = self._make(self._listed(arn), arn, self.starts[arn])
            found = step(self.made[arn])
        except NoAnswerYetError:
            return None
        except StreamError as error:
            if len(self._services) == 1 or isinstance(error, CredentialsError):
                raise
            self._failed(arn, error)
            self._rests[arn] = self._clock.monotonic() + _REST_SECONDS
            return None
        self.errors.pop(arn, None)
        return found

    def _listed(self, arn: str) -> Service:
        """The service of a stream that is about to begin. Raises StillAskingError, StreamError."""
        service = self._services[arn]
        if (aside := self._asides.get(service)) is None:
            return service
        listing = aside.listing(arn)
        if self.starts[arn] is self._latest:  # a time to come, by the service's clock, is refused
            ours, since = self._began
            passed = timedelta(seconds=self._clock.boottime() - since)
            self.starts[arn] = AtTime(no_later(listing.time - passed, ours) - CLOCKS_APART)
        return CachedListing(service, listing)

    def _failed(self, arn: str, error: StreamError) -> None:
        if arn not in self.errors:
            logger.error(f"{error}; the other streams are read on", extra={"stream": arn})
        self.errors[arn] = error
        if arn not in self.made and isinstance(self.starts[arn], Latest):
            self.starts[arn] = self._latest  # not when it can be read again

    def raise_if_all_fail(self) -> None:
        """Raise StreamError where there is no stream that can be read."""
        if len(self.errors) == len(self._services):
            raise next(iter(self.errors.values()))
