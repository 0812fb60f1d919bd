"""Calls the handlers with each record, and applies the failure policy where one fails."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from watcher import process_start
from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.delivery import output
from watcher.delivery.callables import check_answer
from watcher.delivery.failures import FailedRecordSink, FailureLog, FailurePolicy, which_of
from watcher.delivery.handler import Failure, Handler
from watcher.delivery.output import OutputClosed
from watcher.delivery.retries import Retries
from watcher.errors import HandlerError, LeaseLostError, error_text
from watcher.records.page import RecordPage
from watcher.records.record import Record
from watcher.shutdown import Overdue, Shutdown

logger = logging.getLogger("watcher")

_POLL_SECONDS = 0.1
"""The delay between checks, before a retry, whether the watch stops."""


class Dispatcher:
    """Hands each record to each handler, one after the other.

    A handler's failure follows `on_error`, and never keeps a record from another handler. After a
    request of `shutdown`, pending records are not retried; once it is overdue, nothing is, and
    running handlers may raise Overdue. `check` raises where delivery is no longer allowed (a lost
    lease). With `in_threads`, several threads deliver, each of them records of other shards;
    otherwise the one thread calls `before_retry`, which can save what was delivered before, and
    `during_wait` several times a second while it waits. Raises UsageError for a dead-letter
    file that can't be written.
    """

    def __init__(
        self,
        handlers: Sequence[Handler],
        on_error: FailurePolicy,
        *,
        shutdown: Shutdown | None = None,
        clock: Clock = CLOCK,
        check: Callable[[], object] | None = None,
        before_retry: Callable[[], object] = lambda: None,
        during_wait: Callable[[], object] = lambda: None,
        in_threads: bool = False,
    ) -> None:
        self.shutdown = shutdown or Shutdown(clock=clock)
        self._handlers = handlers
        self._on_error = on_error
        self.failure_log = FailureLog(clock)
        self.given_up = FailedRecordSink(on_error, self.failure_log)
        """Takes the records that a handler has finally failed on."""
        self.retries = Retries(on_error, self.failure_log, clock)
        """The current retries."""
        self._before_retry = before_retry
        self.during_wait = during_wait
        """What is due while the loop's thread waits for a retry, or for the last records."""
        self._in_threads = in_threads
        self._check = check
        self._clock = clock
        self._calls = [(handler.handle, handler) for handler in handlers]
        # With several handlers, their output alternates record by record.
        self._handle_page = handlers[0].handle_page if len(handlers) == 1 else None
        self._is_closing = False
        self._output_closed = False
        # A child process that a handler forks, and that returns here, must not deliver too.
        process_start.in_forked_child(self._stop_in_child)
        self.failed: Counter[tuple[str, str]] = Counter()
        """The number of records that failed, without retries, by table and handler."""
        self._counting = threading.Lock()
        self._failed_to_close = 0

    @property
    def failures(self) -> int:
        """The number of handlers' failures, on records and in `close`."""
        return self.failed.total() + self._failed_to_close

    @property
    def unhandled(self) -> int:
        """The number of failed records that are in no dead letter."""
        return self.failed.total() - self.given_up.dead_letter_count

    def processed(self, delivered: Mapping[str, int]) -> dict[tuple[str, str], int]:
        """Returns the number of processed records of each table and handler.

        `delivered` has the delivered ones of each table; those failed or waiting in batches don't
        count.
        """
        counts: Counter[tuple[str, str]] = Counter()
        for handler in self._handlers:
            for table, count in delivered.items():
                counts[table, handler.name] += count
            for shard_key, count in handler.waiting().items():
                counts[shard_key.table, handler.name] -= count
        return {key: max(0, count - self.failed[key]) for key, count in counts.items()}

    @property
    def names(self) -> list[str]:
        """The handlers' names."""
        return [handler.name for handler in self._handlers]

    def deliver(self, record: Record) -> None:
        """Calls every handler. Raises HandlerError under `stop`, OutputClosed.

        They share the record: a copy for each would cost more than the delivery. After a failure,
        the next ones get it as it came, without any handler's changes.
        """
        fatal: HandlerError | None = None
        if self._check is not None:
            self._check()
        for call, handler in self._calls:
            try:
                if (answer := call(record)) is not None:
                    check_answer(answer)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                record = record.as_it_came()
                try:
                    self._apply_policy(handler, [record], error)
                except HandlerError as stop:
                    fatal = stop
        if fatal is not None:
            raise fatal

    @property
    def takes_pages(self) -> bool:
        """True where `deliver_page` may be used; with a lease, each record needs its own check."""
        return self._handle_page is not None and self._check is None

    def deliver_page(self, page: RecordPage) -> bool:
        """Delivers a page in one call; False where each record has to be delivered separately.

        Also returns False after a failure, so that `deliver` finds the failed record. Raises
        OutputClosed.
        """
        if self._handle_page is None or not self.takes_pages:
            return False
        try:
            return self._handle_page(page)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._end_if_output_is_closed(error)
            name = self._handlers[0].name
            logger.debug(f"{name} can't take the page, it gets each record: {error_text(error)}")
            return False

    # Failures: the one place where a policy is applied

    def _apply_policy(
        self, handler: Handler, records: Sequence[Record], error: BaseException
    ) -> None:
        """Retries the failed records until the handler succeeds or they are given up.

        An error other than Failure counts as a failure on these records. Raises as `deliver`.
        """
        while True:
            failure = error if isinstance(error, Failure) else Failure(records, error)
            records = failure.records
            self._end_if_output_is_closed(failure.error)
            with self.shutdown.may_interrupt(False):
                pause = self._pause_or_give_up(handler.name, failure)
            if pause is not None and not self._wait(pause, handler, failure):
                return
            if self._check is not None:
                self._check()
            try:
                handler.go_on(failure, given_up=pause is None)
                return self.retries.succeeded(records[0].shard_key)
            except KeyboardInterrupt:
                raise
            except BaseException as another:
                error = another

    def _pause_or_give_up(self, handler: str, failure: Failure) -> float | None:
        """Returns the seconds until the next retry; None once the records are given up."""
        pause = self.retries.next_in(handler, failure)
        if pause is None:
            table = failure.records[0].shard_key.table
            with self._counting:
                self.failed[table, handler] += len(failure.records)
            self.given_up.take(handler, failure.records, failure.error)
        elif not self._in_threads:
            self._before_retry()
        return pause

    def _end_if_output_is_closed(self, error: BaseException) -> None:
        """Raises OutputClosed where the error only means that the reader of stdout has gone."""
        if output.caused(error):
            self._output_closed = True
            raise OutputClosed from error

    def _wait(self, seconds: float, handler: Handler, failure: Failure) -> bool:
        """Waits before a retry; returns False where the watch stops and the retry is left out.

        Records that the handler holds as pending are left to the next run at once. A record that it
        does not hold is abandoned, by raising Overdue, only when time is short.
        """
        shard_key = failure.records[0].shard_key
        retry = self.retries.under_way[shard_key]
        end = self._clock.monotonic() + seconds
        while not (
            (self._is_closing or self.shutdown.requested) and handler.first_pending(shard_key)
        ):
            retry.alive_at = self._clock.monotonic()
            left = end - retry.alive_at
            is_short = not self.shutdown.has_time_for_more or left > self.shutdown.seconds_left
            if self.shutdown.must_stop() and is_short:
                records = which_of(failure.records)
                raise Overdue(
                    f"handler {handler.name} still fails on {records}, which is not handled"
                )
            if left <= 0:
                return True
            self._clock.sleep(min(left, _POLL_SECONDS))
            if not self._in_threads:  # in threads, only its own shard waits
                with self.shutdown.may_interrupt(False):
                    self.during_wait()
        return False

    def _run_step(self, handler: Handler, step: Callable[[], None]) -> None:
        """Runs a handler's step on the records that it holds. Raises as `deliver`."""
        # A step without records needs no lease: a standby, or a late watch, has none.
        if self._check is not None and handler.waiting():
            self._check()
        with self.shutdown.may_interrupt():
            while True:
                try:
                    return step()
                except Failure as failure:
                    self._apply_policy(handler, failure.records, failure)

    # Records that handlers hold unprocessed

    def page_end(self, shard_key: ShardKey) -> None:
        """Tells the handlers that a shard's page is delivered. Raises as `deliver`."""
        for handler in self._handlers:
            self._run_step(handler, functools.partial(handler.page_end, shard_key))

    def tick(self, shard_key: ShardKey | None = None) -> None:
        """Has handlers process the batches, of a shard or of all, whose window has passed.

        Raises as `deliver`.
        """
        self.failure_log.log_repeats_if_due()
        for handler in self._handlers:
            self._run_step(handler, functools.partial(handler.tick, shard_key))

    def drain(self, shard_key: ShardKey | None = None) -> None:
        """Has handlers process all records that they hold of a shard (or of all).

        Stops when time is short. Raises as `deliver`.
        """
        for handler in self._handlers:
            if not self.shutdown.has_time_for_more:
                return
            self._run_step(handler, functools.partial(handler.drain, shard_key))

    def first_pending(self, shard_key: ShardKey) -> str | None:
        """Returns the number of a shard's first record that some handler has not processed."""
        numbers = [handler.first_pending(shard_key) for handler in self._handlers]
        return min((number for number in numbers if number), key=int, default=None)

    @property
    def pending_count(self) -> int:
        """The number of delivered records that the slowest handler has not processed."""
        return max((sum(each.waiting().values()) for each in self._handlers), default=0)

    def flush(self) -> None:
        """Flushes standard output and the handlers' buffers.

        Raises OutputClosed, HandlerError (a full disk).
        """
        with self.shutdown.may_interrupt():
            output.flush()
            for handler in self._handlers:
                try:
                    handler.flush()
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    text = f"handler {handler.name} failed to flush: {type(error).__name__}"
                    text += f": {error_text(error)}; stopped before what it has kept back"
                    raise HandlerError(text, handler=handler.name) from error

    def close(self) -> None:
        """Calls each handler's `close`, even if another's fails.

        Raises HandlerError under `stop` where one failed.
        """
        self._is_closing = True
        for handler in self._handlers:
            self._drain_last(handler)
        failed = [text for handler in self._handlers if (text := self._close_handler(handler))]
        self.failure_log.log_repeats()
        self.given_up.close()
        # The handlers' last output; the program's own last flush reports an error.
        with suppress(OutputClosed, HandlerError, Overdue), self.shutdown.may_interrupt():
            output.flush()
        if failed and self._on_error.then == "stop":
            raise HandlerError(failed[-1])

    def _close_handler(self, handler: Handler) -> str:
        """Closes a handler; returns the text of its failure, if it fails."""
        try:
            with self.shutdown.may_interrupt():
                check_answer(handler.close())
        except Overdue:
            logger.warning(f"handler {handler.name} did not finish closing")
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if not (isinstance(error, BrokenPipeError) and output.caused(error)):
                self._failed_to_close += 1
                what = f"{type(error).__name__}: {error_text(error)}"
                failed = f"handler {handler.name} failed to close: {what}"
                logger.error(failed, extra={"handler": handler.name})
                return failed
        return ""

    def _drain_last(self, handler: Handler) -> None:
        try:
            if self.shutdown.has_time_for_more:
                self._run_step(handler, handler.drain)
        except HandlerError as error:
            logger.error(str(error))
        except (OutputClosed, Overdue, LeaseLostError):
            pass
        if self._output_closed:
            return
        for shard_key, count in handler.waiting().items():
            logger.warning(
                f"handler {handler.name} has not processed {count} records of "
                f"{shard_key.shard_id}; a checkpoint stays before them"
            )

    def _stop_in_child(self) -> None:
        self._calls[:] = [(_end_child, handler) for handler in self._handlers]
        self._handle_page = None


def _end_child(record: Record) -> None:
    os._exit(0)
