"""The process of a handler worker: runs handlers' own code, and tells how far it has come."""

from __future__ import annotations

import errno
import gc
import io
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from ctypes import Array, c_uint64
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import NamedTuple, TypeAlias

from watcher import process_start
from watcher.aws.model import ShardKey
from watcher.clock import CLOCK
from watcher.delivery.batches import Batches
from watcher.delivery.coroutines import Coroutines
from watcher.delivery.failures import SentError
from watcher.delivery.handler import Handler
from watcher.delivery.timing import HANDLER_WORKER_TIMING
from watcher.errors import UsageError
from watcher.observability.watch_stats import Durations
from watcher.records.page import RecordPage
from watcher.records.record import Record
from watcher.records.redaction import Redaction
from watcher.shutdown import Overdue

MakeHandler: TypeAlias = Callable[[], Handler]

PLACE_BITS = 16
"""The bits for a handler's place in the shared progress; the others have the record's index."""


class Part(NamedTuple):
    """A request: deliver the records `begin:upto` of a page, as many as fit into the time."""

    begin: int
    upto: int
    page: tuple[ShardKey, Sequence[int]] | None
    """A page's shard and its records' indexes; its body follows. None: the same page as before."""
    not_after: float = math.inf
    """The time (boottime) after which no record may start: the lease was checked before."""
    is_timed: bool = False


class Call(NamedTuple):
    """A request: call one handler with these records, for a batch or a retry."""

    place: int
    shard_key: ShardKey
    raws: Sequence[bytes]


class Close(NamedTuple):
    """A request: close one handler."""

    place: int


Request: TypeAlias = Part | Call | Close


class Answer(NamedTuple):
    """The answer to a request."""

    done: int = 0
    """The index of the page's first record that not all handlers have handled."""
    number: str = ""
    """The sequence number of the last record handled for this request …"""
    created: float | None = None
    """… its creation time …"""
    kinds: dict[str, int] = {}  # noqa: RUF012 (nobody changes it)
    """… and the kinds of all of them."""
    result: int = 0
    """The number of records that a batch's call has processed."""
    failed: tuple[int, SentError] | None = None
    """The place of the handler that has failed on the record `done`, and its error."""
    flush_failed: tuple[int, SentError] | None = None
    is_interrupted: bool = False
    printed: str = ""
    """What the handlers have printed."""
    durations: Sequence[Durations] = ()
    redacted: frozenset[str] = frozenset()
    """The rules of the redaction that have matched so far."""


class StartWorker(NamedTuple):
    """A request to the starter: start a worker with this number; its connection follows."""

    number: int


class Reap(NamedTuple):
    """A request to the starter: wait for the end of this process."""

    pid: int


# The starter


def start_workers(
    control: Connection,
    progress: Array[c_uint64],
    makers: Sequence[MakeHandler],
    *,
    redaction: Redaction | None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Forks handler workers on request until the control connection ends.

    It has one thread and no connections of its own, so that a fork is safe at any time.
    `environment` is that of `process_start.take_environment`.
    """
    process_start.end_with_parent()
    process_start.take_environment(environment)
    gc.freeze()  # a worker's first collection would copy all that it visits
    leave_signals_to_the_manager()
    cells = memoryview(progress).cast("B").cast("Q")
    running: set[int] = set()
    while True:
        try:
            request = control.recv()
        except EOFError:
            break
        if isinstance(request, Reap):
            running.discard(request.pid)
            control.send(os.waitpid(request.pid, 0)[1])
            continue
        descriptor = reduction.recv_handle(control)
        try:
            pid = os.fork()
        except OSError as error:
            pid = -(error.errno or errno.EAGAIN)
        if not pid:
            control.close()
            cell = cells[request.number : request.number + 1]
            _run(Connection(descriptor), cell, makers, redaction)
        os.close(descriptor)
        if pid > 0:
            running.add(pid)
        control.send(pid)
    _end(running)


def _end(running: set[int]) -> None:
    """Waits a moment for the workers' end, which follows that of their connections."""
    until = time.monotonic() + HANDLER_WORKER_TIMING.end_seconds
    while running and time.monotonic() < until:
        with suppress(ChildProcessError):
            running.discard(os.waitpid(-1, os.WNOHANG)[0])
        time.sleep(0.005)
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def leave_signals_to_the_manager() -> None:
    """Ignores what ends a watch, and may go to the whole group: the record in hand is completed."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            # Not SIG_IGN: a program that a handler starts would inherit it, and not be ended.
            signal.signal(number, _go_on)
    if callable(signal.getsignal(signal.SIGTSTP)):  # see runtime/worker.py
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)


def _go_on(number: int, frame: object) -> None:
    pass


# A worker


def _run(
    connection: Connection,
    progress: memoryview[int],
    makers: Sequence[MakeHandler],
    redaction: Redaction | None,
) -> None:
    """Runs a forked worker to its end."""
    status = 1
    try:
        process_start.end_with_parent()
        printed = sys.stdout = Printed(connection)
        worker = _Worker([make() for make in makers], progress, redaction, printed)
        signal.signal(signal.SIGALRM, worker.interrupt)
        connection.send("")
        worker.serve(connection)
        status = 0
    except UsageError as error:
        connection.send(str(error))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        status = 0  # the manager has gone
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


class Printed(io.TextIOWrapper):
    """Standard output of a worker: the manager prints it, so that lines of several stay whole.

    An answer takes it there, or `flush` while a request is served.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.is_serving = False
        """True while the manager waits for an answer."""
        self._thread = threading.get_ident()
        self._kept = io.BytesIO()
        self._out = sys.__stdout__
        super().__init__(self._kept, "utf-8", "backslashreplace", write_through=True)

    def isatty(self) -> bool:
        """Returns True if the manager prints to a terminal."""
        return self._out is not None and not self._out.closed and self._out.isatty()

    def fileno(self) -> int:
        """Returns the descriptor of the process's standard output."""
        return 1

    def flush(self) -> None:
        """Sends what was printed."""
        if self.is_serving and threading.get_ident() == self._thread and (text := self.take()):
            self._connection.send(text)

    def take(self) -> str:
        """Returns what was printed since the last call."""
        if not self._kept.tell():
            return ""
        text = self._kept.getvalue().decode("utf-8", "replace")
        self._kept.seek(0)
        self._kept.truncate()
        return text


class _Worker:
    """Serves the manager's requests, one after the other."""

    def __init__(
        self,
        handlers: Sequence[Handler],
        progress: memoryview[int],
        redaction: Redaction | None,
        printed: Printed,
    ) -> None:
        self._handlers = handlers
        self._progress = progress
        self._redaction = redaction
        self._printed = printed
        self._coroutines = Coroutines()
        self._durations = [Durations() for _ in handlers]
        self._calls = [handler.handle for handler in handlers]
        self._timed_calls = list(map(self._timed, self._calls, self._durations))
        self._streams: set[str] = set()
        self._page = RecordPage(b"", ShardKey("", ""), ())
        for handler in handlers:
            handler.finish = self._coroutines.finish

    def interrupt(self, number: int, frame: object) -> None:
        """Breaks off the handler that has a record: the time of the stop is over."""
        if self._progress[0] % (1 << PLACE_BITS):
            raise Overdue

    def serve(self, connection: Connection) -> None:
        """Answers requests until the manager closes the connection."""
        try:
            while True:
                try:
                    request: Request = connection.recv()
                except EOFError:
                    return
                if isinstance(request, Part) and request.page is not None:
                    shard_key, indexes = request.page
                    body = connection.recv_bytes()
                    self._page = RecordPage(body, shard_key, indexes, self._redaction)
                self._printed.is_serving = True
                answer = self._answered(request)
                self._printed.is_serving = False
                connection.send(answer._replace(printed=self._printed.take()))
        finally:
            self._coroutines.close()

    def _answered(self, request: Request) -> Answer:
        match request:
            case Part():
                answer = self._deliver(request)
            case Call(place, shard_key, raws):
                page = RecordPage(
                    b'{"Records":[%b]}' % b",".join(raws), shard_key, range(len(raws))
                )
                answer = self._call(place, list(page))
            case Close(place):
                handler = self._handlers[place]
                answer = self._attempted(place, lambda: handler.finish(handler.close()))
        if not isinstance(request, Close):
            answer = answer._replace(flush_failed=self._flush())
        redacted = frozenset() if self._redaction is None else frozenset(self._redaction.found)
        return answer._replace(redacted=redacted)

    def _begin(self, arn: str) -> None:
        if arn not in self._streams:
            self._streams.add(arn)
            for handler in self._handlers:
                handler.begin(arn)

    def _deliver(self, part: Part) -> Answer:
        self._begin(self._page.shard_key.stream)
        done, failed = part.begin, None
        seconds = min(HANDLER_WORKER_TIMING.part_seconds, part.not_after - CLOCK.boottime())
        if seconds > 0:
            calls = self._timed_calls if part.is_timed else self._calls
            until = CLOCK.monotonic() + seconds
            done, failed = self._run_handlers(calls, part, until)
        answer = progress_of(self._page, part.begin, done)
        if failed is not None:
            place, error = failed
            is_interrupted = isinstance(error, Overdue)
            sent = (place, SentError.of(error))
            answer = answer._replace(failed=sent, is_interrupted=is_interrupted)
        if part.is_timed:
            answer = answer._replace(durations=self._taken_durations())
        return answer

    def _run_handlers(
        self, calls: Sequence[Callable[[Record], object]], part: Part, until: float
    ) -> tuple[int, tuple[int, BaseException] | None]:
        """Calls all handlers with one record after the other, until one fails or time is up.

        What is noted before each call stays if this process is killed.
        """
        progress, monotonic, finish = self._progress, CLOCK.monotonic, self._coroutines.finish
        index = part.begin
        for record in self._page[part.begin : part.upto]:
            for place, call in enumerate(calls):
                progress[0] = (index << PLACE_BITS) + place + 1
                try:
                    if (answer := call(record)) is not None:
                        finish(answer)
                except BaseException as error:
                    progress[0] = index << PLACE_BITS
                    return index, (place, error)
            index += 1
            progress[0] = index << PLACE_BITS
            if monotonic() >= until:
                break
        return index, None

    def _call(self, place: int, records: Sequence[Record]) -> Answer:
        handler, finish = self._handlers[place], self._coroutines.finish
        self._begin(records[0].stream)
        if isinstance(handler, Batches):
            return self._attempted(place, lambda: handler.call(records))
        return self._attempted(place, lambda: [finish(handler.handle(each)) for each in records])

    def _attempted(self, place: int, call: Callable[[], object]) -> Answer:
        self._progress[0] = place + 1
        try:
            result = call()
        except BaseException as error:
            is_interrupted = isinstance(error, Overdue)
            return Answer(failed=(place, SentError.of(error)), is_interrupted=is_interrupted)
        finally:
            self._progress[0] = 0
        return Answer(result=result if isinstance(result, int) else 0)

    def _flush(self) -> tuple[int, SentError] | None:
        for place, handler in enumerate(self._handlers):
            try:
                handler.flush()
            except BaseException as error:
                return place, SentError.of(error)
        return None

    def _timed(
        self, call: Callable[[Record], object], durations: Durations
    ) -> Callable[[Record], object]:
        monotonic, finish = CLOCK.monotonic, self._coroutines.finish

        def timed(record: Record) -> None:
            began = monotonic()
            try:
                if (answer := call(record)) is not None:
                    finish(answer)
            finally:
                durations.add(monotonic() - began)

        return timed

    def _taken_durations(self) -> list[Durations]:
        taken = [Durations(list(each.counts), each.seconds) for each in self._durations]
        for each in self._durations:
            each.counts[:] = [0] * len(each.counts)
            each.seconds = 0.0
        return taken


def progress_of(page: RecordPage, begin: int, done: int) -> Answer:
    """Returns the answer for the records `begin:done`, which all handlers have handled."""
    if done == begin:
        return Answer(done)
    wires = page[begin:done].wire_records
    last = wires[-1].dynamodb
    kinds = Counter(wire.eventName or "" for wire in wires)
    return Answer(done, last.SequenceNumber, last.ApproximateCreationDateTime, dict(kinds))
