"""Records to observers, and what happens when one of them fails."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from watcher import process_start
from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.delivery import output
from watcher.delivery.coroutines import Coroutines
from watcher.delivery.failures import FailurePolicy, GivenUp
from watcher.delivery.handler import Failure, Handler
from watcher.delivery.output import OutputClosed
from watcher.delivery.shutdown import Overdue, Shutdown
from watcher.errors import HandlerError, LeaseLostError
from watcher.records.page import RecordPage
from watcher.records.record import Record
from watcher.retry import backoff

logger = logging.getLogger("watcher")

_LOOK_UP_SECONDS = 0.1


class Dispatcher:
    """Hands each record to each observer, one after the other.

    An observer's failure follows `on_error` and never keeps a record from another observer.
    `before_retry` is called before what has failed is tried again, which may take long. Once
    `shutdown` was requested, what is pending is not tried again; later nothing is, and whatever is
    at work may raise Overdue. `check` raises where nothing may be delivered any more.
    With `in_threads`, several deliver at once, each of them records of other shards.
    Raises UsageError for a file that can't be written.
    """

    def __init__(
        self,
        observers: Sequence[Handler],
        on_error: FailurePolicy,
        shutdown: Shutdown | None = None,
        clock: Clock = CLOCK,
        before_retry: Callable[[], object] = lambda: None,
        check: Callable[[], object] | None = None,
        *,
        in_threads: bool = False,
    ) -> None:
        self.shutdown = shutdown or Shutdown(clock=clock)
        self._observers = observers
        self._on_error = on_error
        self._given_up = GivenUp(on_error, clock)
        # Who waits in a thread keeps nobody else.
        self._before_retry = (lambda: None) if in_threads else before_retry
        self._check = check
        self._clock = clock
        self._calls = [(observer.handle, observer) for observer in observers]
        self._coroutines = Coroutines(aside=in_threads)
        self._failing = threading.Lock()
        for observer in observers:
            observer.finish = self._coroutines.finish
        # Where several print, their lines take turns, record by record.
        self._take = observers[0].handle_page if len(observers) == 1 else None
        self._begun: set[str] = set()
        self._is_closing = False
        self._output_closed = False
        # A child that an observer forks, and that comes back here, must not deliver as well.
        process_start.in_child(self._leave)
        self.failed: Counter[str] = Counter({observer.name: 0 for observer in observers})
        """How many records each observer has failed on, retries not counted."""
        self._failed_to_close = 0
        self.tried_at: dict[ShardKey, float] = {}
        """When (monotonic) an observer that has failed on a shard's records was tried again."""

    @property
    def failures(self) -> int:
        """How many times an observer has failed, on a record or as it was closed."""
        return self.failed.total() + self._failed_to_close

    def processed(self, delivered: int) -> dict[str, int]:
        """How many of so many records each observer has neither failed on nor still to settle."""
        counts: Counter[str] = Counter()
        for observer in self._observers:
            counts[observer.name] += delivered - sum(observer.waiting().values())
        return {name: max(0, count - self.failed[name]) for name, count in counts.items()}

    def deliver(self, record: Record) -> None:
        """Call every observer. Raises HandlerError under `stop`, OutputClosed."""
        fatal: HandlerError | None = None
        if self._check is not None:
            self._check()
        for call, observer in self._calls:
            try:
                if (answer := call(record)) is not None:
                    self._coroutines.finish(answer)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                try:
                    self._follow(observer, [record], error)
                except HandlerError as stop:
                    fatal = stop
        if fatal is not None:
            raise fatal

    @property
    def takes_pages(self) -> bool:
        """Whether `deliver_page` may do something."""
        return self._take is not None and self._check is None  # which is asked for each record

    def deliver_page(self, page: RecordPage) -> bool:
        """A shortcut for `deliver`; False where each record is to be delivered by itself.

        That is also how it shows on which of them an observer fails. Raises OutputClosed.
        """
        if self._take is None or not self.takes_pages:
            return False
        try:
            return self._take(page)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._end_if_output_is_closed(error)
            return False

    # Failures: the one place where a policy is applied

    def _follow(self, observer: Handler, records: Sequence[Record], error: BaseException) -> None:
        """Have what has failed tried again, until it goes well or is given up.

        What an observer raises by itself is a failure on the records given. Raises as `deliver`.
        """
        for times in itertools.count(1):
            if not isinstance(error, Failure):
                pause = backoff(times) if times <= self._on_error.retries else None
                error = Failure(records, error, pause)
            records = error.records
            self._end_if_output_is_closed(error.error)
            with self.shutdown.may_interrupt(False):
                if error.retry_in is None:
                    with self._failing:
                        self.failed[observer.name] += len(records)
                        self._given_up.take(observer.name, records, error.error)
                else:
                    self._before_retry()
            retry_in, origin = error.retry_in, records[0].origin
            if retry_in is not None and not self._wait(retry_in, observer, origin):
                return
            if self._check is not None:
                self._check()
            self.tried_at[origin] = self._clock.monotonic()
            try:
                observer.resume(error, given_up=error.retry_in is None)
                self.tried_at.pop(origin, None)
                return
            except KeyboardInterrupt:
                raise
            except BaseException as another:
                error = another

    def _end_if_output_is_closed(self, error: BaseException) -> None:
        """Raise OutputClosed where it is no failure: nobody reads what the observer prints."""
        if output.caused(error):
            self._output_closed = True
            raise OutputClosed from error

    def _wait(self, seconds: float, observer: Handler, origin: ShardKey) -> bool:
        """Wait before a retry; False where there is none, as the watch is to end.

        What the observer holds as pending is left to the next run at once; a record that it does
        not hold only when it is late, by raising Overdue.
        """
        end = self._clock.monotonic() + seconds
        while not ((self._is_closing or self.shutdown.requested) and observer.pending(origin)):
            if self.shutdown.poll() and not self.shutdown.has_time_for_more:
                raise Overdue
            left = end - self._clock.monotonic()
            if left <= 0:
                return True
            self._clock.sleep(min(left, _LOOK_UP_SECONDS))
        return False

    def _let(self, observer: Handler, step: Callable[[], None]) -> None:
        """Let an observer do what is its turn, whatever fails meanwhile. Raises as `deliver`."""
        # Where nothing waits it takes no lease: neither one that a standby has not, nor a late one.
        if self._check is not None and observer.waiting():
            self._check()
        with self.shutdown.may_interrupt():
            while True:
                try:
                    return step()
                except Failure as failure:
                    self._follow(observer, failure.records, failure)

    # What observers have not settled yet

    def start_stream(self, arn: str) -> None:
        """Records of this stream are to come."""
        if arn not in self._begun:
            self._begun.add(arn)
            for observer in self._observers:
                observer.begin(arn)

    def page_end(self, origin: ShardKey) -> None:
        """A shard's records at hand have been delivered. Raises as `deliver`."""
        for observer in self._observers:
            self._let(observer, functools.partial(observer.page_end, origin))

    def tick(self, origin: ShardKey | None = None) -> None:
        """Time has passed: something of a shard (or of all) may have waited long enough.

        Raises as `deliver`.
        """
        self.log_repeats()
        for observer in self._observers:
            self._let(observer, functools.partial(observer.tick, origin))

    def drain(self, origin: ShardKey | None = None) -> None:
        """Let what was delivered of a shard (or of all) wait no longer, unless it is late.

        Raises as `deliver`.
        """
        for observer in self._observers:
            if not self.shutdown.has_time_for_more:
                return
            self._let(observer, functools.partial(observer.drain, origin))

    def pending(self, origin: ShardKey) -> str | None:
        """The first of a shard's delivered records that some observer has not settled yet."""
        numbers = [observer.pending(origin) for observer in self._observers]
        return min((number for number in numbers if number), key=int, default=None)

    @property
    def left(self) -> int:
        """How many delivered records wait for an observer (the slowest) to settle them."""
        return max((sum(each.waiting().values()) for each in self._observers), default=0)

    def flush(self) -> None:
        """Bring out what observers have printed, and what they keep back.

        Raises OutputClosed, HandlerError (a full disk).
        """
        with self.shutdown.may_interrupt():
            output.flush()
            for observer in self._observers:
                try:
                    observer.flush()
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    text = f"observer {observer.name} failed to flush: {type(error).__name__}"
                    text += f": {error}; stopped before what it has kept back"
                    raise HandlerError(text, observer=observer.name) from error

    def log_repeats(self) -> None:
        """Say what has not been said of failures, where that is due."""
        if self._given_up.repeats:
            with self._failing:
                self._given_up.tell_if_due()

    def cancel(self) -> None:
        """There is no time left for what is at work in other threads, as far as it can be ended."""
        self._coroutines.cancel()

    def close(self) -> None:
        """Call the observers' `close`, each whatever became of the others.

        Raises HandlerError under `stop` where one failed.
        """
        self._is_closing = True
        for observer in self._observers:
            self._settle_last(observer)
        failed = ""
        for observer in self._observers:
            try:
                with self.shutdown.may_interrupt():
                    observer.finish(observer.close())
            except Overdue:
                logger.warning(f"observer {observer.name} was still closing, and is left so")
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                if isinstance(error, BrokenPipeError) and output.caused(error):
                    continue
                self._failed_to_close += 1
                what = f"{type(error).__name__}: {error}"
                failed = f"observer {observer.name} failed to close: {what}"
                logger.error(failed, extra={"observer": observer.name})
        try:
            with self.shutdown.may_interrupt():
                self._coroutines.close()
        except Overdue:
            logger.warning("An observer's task goes on though it was cancelled, and is left so")
        self._given_up.close()
        # What `close` has printed; whoever has the last word on standard output says what is wrong.
        with (
            contextlib.suppress(OutputClosed, HandlerError, Overdue),
            self.shutdown.may_interrupt(),
        ):
            output.flush()
        if failed and self._on_error.policy == "stop":
            raise HandlerError(failed)

    def _settle_last(self, observer: Handler) -> None:
        try:
            if self.shutdown.has_time_for_more:
                self._let(observer, observer.drain)
        except HandlerError as error:
            logger.error(str(error))
        except (OutputClosed, Overdue, LeaseLostError):
            pass
        if self._output_closed:
            return
        for origin, count in observer.waiting().items():
            logger.warning(
                f"observer {observer.name} has not processed {count} records of {origin.shard_id}; "
                "a checkpoint stays before them"
            )

    def _leave(self) -> None:
        self._calls[:] = [(_end_child, observer) for observer in self._observers]
        self._take = None


def _end_child(record: Record) -> None:
    os._exit(0)
