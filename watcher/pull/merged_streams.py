"""Pulls several streams in one program; an error of one of them does not stop the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter, methodcaller

from watcher.aws.lister import Lister
from watcher.aws.model import CachedListing, Latest, Position, Service
from watcher.clock import Clock
from watcher.errors import NoAnswerYetError, StreamError
from watcher.pull.merged_shards import MergedShards
from watcher.records.record import Record
from watcher.streams.checkpoint_format import Token
from watcher.streams.persistent_errors import StreamRetry
from watcher.streams.start_times import LatestMoment

START_SECONDS = 10.0
"""The longest time that a stream without a listing delays the others' start."""
_START_CHECK_SECONDS = 0.1
"""The delay between checks of the streams that are being listed."""
_ALLOWED_SECONDS = 2.5
"""The longest wait for a throttled shard that may have more records."""
_LEAST_STEP_SECONDS = 0.01
"""The shortest wait: clocks are no finer."""
_STEP_SECONDS = 0.05
"""The longest time that a throttled shard delays other shards' records."""

StartPosition = Position | Token
_time = itemgetter(0)


class MergedStreams:
    """A reader for each of the `services` (by their streams' ARNs), merged by creation time.

    `new_reader` makes a reader. With `in_threads`, several streams are listed in threads, so that
    one that hangs delays no other.
    """

    def __init__(
        self,
        services: Mapping[str, Service],
        new_reader: Callable[[Service, str, StartPosition], MergedShards],
        clock: Clock,
        *,
        in_threads: bool,
    ) -> None:
        self.starts: dict[str, StartPosition] = {}
        """The position or token at which each stream starts."""
        self.started: dict[str, MergedShards] = {}
        """The readers of the streams that have started."""
        self._services = services
        self._new_reader = new_reader
        self._clock = clock
        self._retries: dict[str, StreamRetry] = {}
        self._missed_latest = set[str]()
        self._is_answered = threading.Event()
        self._in_background: dict[Service, Lister] = {}
        if in_threads and len(services) > 1:
            for each in set(services.values()):
                self._in_background[each] = Lister(each, self._is_answered.set)

    @property
    def errors(self) -> dict[str, StreamError]:
        """The errors of streams that can't be read at the moment, by their ARNs."""
        return {arn: each.error for arn, each in self._retries.items() if each.error}

    def start(self, starts: Mapping[str, StartPosition]) -> None:
        """Starts or restarts all streams at these positions.

        Raises StreamError if none can start.
        """
        self.starts, self.started = dict(starts), {}
        self._retries = {arn: StreamRetry(self._clock) for arn in self._services}
        self._latest = LatestMoment(self._clock)
        self._missed_latest.clear()
        until = self._clock.monotonic() + START_SECONDS
        pending = list(starts)
        while pending:
            self._is_answered.clear()
            for arn in pending:
                self.attempt(arn, lambda reader: None)
            tried = {*self.started, *self.errors}
            pending = [arn for arn in pending if arn not in tried]
            if self.started and self._clock.monotonic() >= until:
                break
            if pending:
                self._is_answered.wait(_START_CHECK_SECONDS)
        for arn in pending:
            late = f"not listed yet, after {START_SECONDS:g} s; it begins then"
            self._retries[arn].note(arn, StreamError(late))
            self._keep_latest(arn)
        self._raise_if_all_fail()

    def pop(self) -> Record | None:
        """Returns the next record of all streams; None when there is nothing now.

        Raises StreamError where no stream can be read.
        """
        if (record := self.pop_buffered(is_poll_due=lambda: True)) is not None:
            return record
        for at_once in self._polls():
            self.poll(at_once=at_once)
            if (record := self.pop_buffered(is_poll_due=lambda: False)) is not None:
                return record
        return None

    @property
    def _only(self) -> MergedShards | None:
        """The reader of the only stream: nothing has to be merged."""
        return next(iter(self.started.values()), None) if len(self._services) == 1 else None

    def _polls(self) -> Iterator[bool]:
        """Yields for each poll whether it reads all shards at once, until there is nothing now.

        A throttled shard that may have more records leaves that open: the polls wait for its next
        read.
        """
        yield False
        yield True
        until = self._clock.monotonic() + _ALLOWED_SECONDS
        while (wait := self._allowed_in()) <= until - self._clock.monotonic():
            self._clock.sleep(min(max(wait, _LEAST_STEP_SECONDS), _STEP_SECONDS))
            yield False

    def _allowed_in(self) -> float:
        return min(each.allowed_in for each in self.started.values())

    def poll(self, *, at_once: bool = False) -> None:
        """Looks for records of all streams, which are read side by side."""
        if len(self._services) > 1:
            self._attempt_all(methodcaller("start_reads", at_once=at_once))
        self._attempt_all(methodcaller("poll", at_once=at_once))
        self._raise_if_all_fail()

    def pop_buffered(self, *, is_poll_due: Callable[[], bool]) -> Record | None:
        """Returns the next buffered record.

        None without one, or if a poll is due and a stream without any may have an earlier one.
        """
        if (only := self._only) is not None:
            return None if only.next_at is None else only.pop()
        times = [(each.next_at, each) for each in self.started.values()]
        ready = [(time, each) for time, each in times if time is not None]
        if not ready or (len(ready) < len(times) and is_poll_due()):
            return None
        return min(ready, key=_time)[1].pop()

    @property
    def has_buffered(self) -> bool:
        """True if a record is buffered."""
        return any(each.next_at is not None for each in self.started.values())

    @property
    def left_out(self) -> int:
        """The number of records that a filter left out."""
        return sum(each.left_out for each in list(self.started.values()))

    @property
    def tokens(self) -> list[Token]:
        """The token of each stream; before a stream's start, the one that it starts from."""
        waiting = (start for arn, start in self.starts.items() if arn not in self.started)
        unread = [start for start in waiting if isinstance(start, Token)]
        return [*(each.token for each in self.started.values()), *unread]

    def read_all(self) -> None:
        """Reads each shard without buffered records once; see `MergedShards`."""
        self._attempt_all(methodcaller("read_all"))

    def _attempt_all(self, step: Callable[[MergedShards], object]) -> None:
        for arn in self._services:
            self.attempt(arn, step)

    def attempt(self, arn: str, step: Callable[[MergedShards], object]) -> None:
        """Makes a step of a stream, started if need be; an error pauses this stream alone."""
        if self._retries[arn].is_paused:
            return
        try:
            if arn not in self.started:
                self.started[arn] = self._new_reader(self._listed(arn), arn, self.starts[arn])
            step(self.started[arn])
        except NoAnswerYetError:
            return
        except StreamError as error:
            if len(self._services) == 1:
                raise
            self._retries[arn].on_error(arn, error)
            self._keep_latest(arn)
        else:
            self._retries[arn].on_success(arn)

    def _listed(self, arn: str) -> Service:
        """Returns the service of a stream that is about to start.

        Raises NoAnswerYetError, StreamError.
        """
        service = self._services[arn]
        if (in_background := self._in_background.get(service)) is None:
            return service
        listing = in_background.list_shards(arn)
        if arn in self._missed_latest:  # by the service's clock, which refuses a future time
            self.starts[arn] = self._latest.in_stream(listing)
        return CachedListing(service, listing)

    def _keep_latest(self, arn: str) -> None:
        if arn not in self.started and isinstance(self.starts[arn], Latest):
            self.starts[arn] = self._latest.here  # the moment of this failure, not of the next try
            self._missed_latest.add(arn)

    def _raise_if_all_fail(self) -> None:
        if len(errors := self.errors) == len(self._services):
            raise next(iter(errors.values()))
