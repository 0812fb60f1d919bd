"""Handler workers: processes that run the handlers' own code; all promises stay in the manager."""

from __future__ import annotations

import functools
import logging
import os
import pickle
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe, reduction
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawArray
from multiprocessing.util import Finalize
from typing import NamedTuple

from watcher import process_start
from watcher.aws.model import ShardKey
from watcher.clock import CLOCK
from watcher.delivery import output
from watcher.delivery.batches import Batches
from watcher.delivery.failures import SentError, which_of
from watcher.delivery.handler import Handler
from watcher.delivery.handler_process import (
    PLACE_BITS,
    Answer,
    Call,
    Close,
    MakeHandler,
    Part,
    Reap,
    Request,
    StartWorker,
    progress_of,
    start_workers,
)
from watcher.delivery.reloading import Reloading
from watcher.delivery.timing import HANDLER_WORKER_TIMING
from watcher.errors import HandlerError, UsageError
from watcher.records.page import RecordPage
from watcher.records.record import Record
from watcher.records.redaction import Redaction
from watcher.shutdown import Overdue

logger = logging.getLogger("watcher")

_LEAVE_OUT = "leave out --handlers-in workers"

_NOT_BEGUN = 1 << PLACE_BITS
"""The shared progress before a call: no handler's place, and not the 0 of a call that is over."""


class WorkersError(HandlerError):
    """No failure of a record: the watch ends, whatever the policy."""


class HandlerWorkers:
    """Up to `size` processes, started on demand, for shards that each stay with one of them.

    Every shard's records are handled in one process, one after the other. `handlers` stand for
    the given ones in this process: their calls run in a worker.
    """

    def __init__(
        self, handlers: Sequence[Handler], size: int, redaction: Redaction | None = None
    ) -> None:
        """Raises UsageError for handlers that can't run in another process, or if none starts."""
        for each in handlers:
            _refuse_unfit(each)
        self.size = size
        self.takes_pages = not any(isinstance(each, Batches) for each in handlers)
        """True where all handlers take one record after the other, so that pages can be sent."""
        self.handlers = [self._stand_in(each, place) for place, each in enumerate(handlers)]
        self._redaction = redaction
        progress = RawArray("Q", size)
        self._starter = _Starter(progress, [_maker(each) for each in handlers], redaction)
        cells = memoryview(progress).cast("B").cast("Q")
        buffers = any(each.has_buffers for each in handlers)
        self._workers = [
            _Worker(number, self._starter, cells[number : number + 1], buffers=buffers)
            for number in range(size)
        ]
        self._places: dict[ShardKey, int] = {}
        self._placing = threading.Lock()

    def place(self, shard_key: ShardKey) -> int:
        """Returns the number of a shard's worker: first the one with the fewest shards."""
        with self._placing:
            if shard_key not in self._places:
                counts = Counter(self._places.values())
                self._places[shard_key] = min(range(self.size), key=counts.__getitem__)
            return self._places[shard_key]

    def forget(self, shard_key: ShardKey) -> None:
        """Ends the shard's stay with its worker: all its records are handled."""
        with self._placing:
            self._places.pop(shard_key, None)

    def deliver(
        self,
        page: RecordPage,
        begin: int,
        upto: int,
        *,
        is_fenced: bool = False,
        is_timed: bool = False,
        on_wait: Callable[[int], object] = lambda index: None,
    ) -> Answer:
        """Delivers records `begin:upto` of a page to all handlers, for a fraction of a second.

        It ends behind a failure. With `is_fenced`, no record starts long after this call. Calls
        `on_wait` with the index of the record in hand, if it takes long. Raises
        WorkersError, OutputClosed.
        """
        worker = self._workers[self.place(page.shard_key)]
        not_after = {}
        if is_fenced:
            not_after["not_after"] = CLOCK.boottime() + HANDLER_WORKER_TIMING.fence_seconds
        part = Part(begin, upto, None, is_timed=is_timed, **not_after)
        with worker.lock:
            answer = worker.deliver(page, part, on_wait)
        self._take(answer)
        return answer

    def _call(self, place: int, records: Sequence[Record]) -> int:
        """Calls a handler; returns the number of processed records, if it takes batches.

        Raises the handler's error; Overdue, WorkersError, OutputClosed.
        """
        shard_key = records[0].shard_key
        raws = [bytes(record.raw) for record in records]
        worker = self._workers[self.place(shard_key)]
        with worker.lock:
            answer = worker.call(Call(place, shard_key, raws))
        self._take(answer)
        if answer.is_interrupted:
            name = self.handlers[place].name
            raise Overdue(f"Interrupted: handler {name} was still processing {which_of(records)}")
        if answer.failed is not None:
            raise answer.failed[1].error()
        return answer.result

    def _handle(self, place: int, record: Record) -> None:
        self._call(place, [record])

    def _take(self, answer: Answer) -> None:
        """Prints what the handlers have printed, and raises what ends the watch."""
        if self._redaction is not None:
            self._redaction.found.update(answer.redacted)
        if answer.printed:
            output.write(answer.printed)
        if answer.flush_failed is not None:
            place, error = answer.flush_failed
            name = self.handlers[place].name
            text = f"handler {name} failed to flush: {error.kind}: {error.text}"
            text += "; stopped before what it has kept back"
            raise WorkersError(text, handler=name)

    # The end

    def interrupt(self) -> None:
        """Breaks off the handlers that have a record: there is no time left for them."""
        for worker in self._workers:
            worker.interrupt()

    def _close(self, place: int) -> None:
        """Closes a handler in each process that is not busy. Raises the first error."""
        idle = [each for each in self._workers if each.pid and each.lock.acquire(blocking=False)]
        try:
            for worker in idle:
                worker.send(Close(place))
            answers = [worker.answer() for worker in idle]
        finally:
            for worker in idle:
                worker.lock.release()
        for answer in answers:
            self._take(answer)
        for answer in answers:
            if answer.failed is not None:
                raise answer.failed[1].error()

    def end(self) -> None:
        """Ends all processes."""
        for worker in self._workers:
            worker.disconnect()
        self._starter.end()

    def _stand_in(self, handler: Handler, place: int) -> Handler:
        close = functools.partial(self._close, place)
        if isinstance(handler, Batches):
            batches = handler.through(functools.partial(self._call, place))
            batches.close = close
            return batches
        return Handler(handler.name, functools.partial(self._handle, place), close)


def _refuse_unfit(handler: Handler) -> None:
    if handler.shares:
        flag = "--" + handler.name.replace("_", "-")
        text = f"{flag} writes {handler.shares}, which several processes can't share: {_LEAVE_OUT}"
        raise UsageError(text)
    if type(handler) not in (Handler, Batches):
        what = "--reload" if isinstance(handler, Reloading) else f"handler {handler.name}"
        raise UsageError(f"{what} needs the manager's process: {_LEAVE_OUT}")


def _maker(handler: Handler) -> MakeHandler:
    return handler.load or functools.partial(_itself, handler)


def _itself(handler: Handler) -> Handler:
    return handler


class _Ended(Exception):
    """A worker has ended; the text says how."""


class _Crash(NamedTuple):
    """The record that a worker had in hand as it ended, behind records to deliver again."""

    page: RecordPage
    at: int
    failed: tuple[int, SentError]


class _Worker:
    """A process for handlers, started when it is needed, and again after its end.

    `lock` is held during each request.
    """

    def __init__(
        self, number: int, starter: _Starter, progress: memoryview[int], *, buffers: bool
    ) -> None:
        """With `buffers`, what was handled since the last answer is lost with the process."""
        self.lock = threading.Lock()
        self.pid = 0
        """The running process; 0: none."""
        self._number = number
        self._starter = starter
        self._progress = progress
        self._buffers = buffers
        self._connection: Connection | None = None
        self._page: RecordPage | None = None
        """The page that the process has."""
        self._crash: _Crash | None = None
        self._deaths = 0

    def deliver(self, page: RecordPage, part: Part, on_wait: Callable[[int], object]) -> Answer:
        """See `HandlerWorkers`."""
        crash = self._crash if self._crash is not None and self._crash.page is page else None
        if crash is not None:
            if crash.at == part.begin:
                self._crash = None
                return Answer(part.begin, failed=crash.failed)
            part = part._replace(upto=min(part.upto, crash.at))
        self._start()
        if self._page is not page:
            part = part._replace(page=(page.shard_key, page.indexes))
        self._progress[0] = part.begin << PLACE_BITS
        try:
            self.send(part, None if part.page is None else page.body)
            answer = self._received(on_wait)
        except _Ended as ended:
            return self._after_end(page, part.begin, str(ended))
        self._page, self._deaths = page, 0
        return answer

    def _after_end(self, page: RecordPage, begin: int, how: str) -> Answer:
        """Returns what the process did before its end: the record in hand counts as failed."""
        index, place = divmod(self._progress[0], 1 << PLACE_BITS)
        failed = (place - 1, _ended_error(how)) if place else None
        if failed is None:
            self._count_death(how)
        if self._buffers and index > begin:
            self._crash = failed and _Crash(page, index, failed)
            return Answer(begin)
        return progress_of(page, begin, index)._replace(failed=failed)

    def _count_death(self, how: str) -> None:
        """Raises WorkersError after several in a row: the next process would end, too."""
        self._deaths += 1
        if self._deaths >= HANDLER_WORKER_TIMING.deaths_max:
            raise WorkersError(f"handler workers end without a record in hand: the last {how}")

    def call(self, call: Call) -> Answer:
        """Makes a call; the process's end counts as the handler's failure, unless it came first."""
        while True:
            self._start()
            self._progress[0] = _NOT_BEGUN
            try:
                self.send(call)
                answer = self._received()
            except _Ended as ended:
                if self._progress[0] != _NOT_BEGUN:
                    return Answer(failed=(call.place, _ended_error(str(ended))))
                self._count_death(str(ended))
            else:
                self._deaths = 0
                return answer

    def send(self, request: Request, body: bytes | None = None) -> None:
        """Sends a request. Raises _Ended where it is no answer's turn."""
        assert self._connection is not None
        try:
            self._connection.send(request)
            if body is not None:
                self._connection.send_bytes(body)
        except OSError:
            if not isinstance(request, Close):  # `answer` tells
                raise self._ended() from None

    def answer(self) -> Answer:
        """Returns the answer to a `Close`."""
        try:
            return self._received()
        except _Ended as ended:
            return Answer(failed=(0, _ended_error(str(ended))))

    def _received(self, on_wait: Callable[[int], object] = lambda index: None) -> Answer:
        """Returns the answer to a request; prints what comes before it. Raises as `_take`."""
        trouble: Exception | None = None
        while isinstance(received := self._message(on_wait), str):
            try:
                output.write(received)
            except (output.OutputClosed, HandlerError) as error:
                trouble = error  # not now: the answer is still to come
        if trouble is not None:
            raise trouble
        return received

    def _message(self, on_wait: Callable[[int], object]) -> Answer | str:
        assert self._connection is not None
        try:
            while not self._connection.poll(HANDLER_WORKER_TIMING.look_seconds):
                index, place = divmod(self._progress[0], 1 << PLACE_BITS)
                if place:  # else it is about to answer
                    on_wait(index)
            received: Answer | str = self._connection.recv()
        except (EOFError, OSError):
            raise self._ended() from None
        return received

    def _start(self) -> None:
        if self._connection is None:
            self.pid, self._connection = self._starter.start(self._number)

    def _ended(self) -> _Ended:
        """Returns how the process has ended, and logs it."""
        pid = self.pid
        self.disconnect()
        self._page = None
        how = self._starter.reap(pid)
        logger.warning(f"A handler worker {how}: another one continues")
        return _Ended(how)

    def interrupt(self) -> None:
        """Interrupts the handler, if the process is busy."""
        if self.pid and self.lock.locked():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGALRM)

    def disconnect(self) -> None:
        """Closes the connection: the process ends behind its work in hand."""
        self.pid = 0
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _ended_error(how: str) -> SentError:
    return SentError("ProcessEnded", f"the handler's process {how}")


class _Starter:
    """The process that forks workers: this one has threads, beside which a fork is unsafe."""

    def __init__(
        self, progress: object, makers: Sequence[MakeHandler], redaction: Redaction | None
    ) -> None:
        self._lock = threading.Lock()
        self._control, theirs = Pipe()
        process_start.in_forked_child(self._control.close)
        # Before multiprocessing waits, at the program's end, for a process of a watch in a thread.
        self._disconnect = Finalize(None, self._control.close, exitpriority=0)
        context, environment = process_start.processes(), None
        if context.get_start_method() != "fork":
            _refuse_unsendable(makers)
            environment = {**os.environ}
        process: BaseProcess = context.Process(  # type: ignore[attr-defined]
            target=start_workers,
            args=(theirs, progress, makers),
            kwargs={"redaction": redaction, "environment": environment},
            name="watcher handlers",
        )
        try:
            process_start.start(process)
        except OSError as error:
            reason = process_start.failed_start(error)
            raise UsageError(f"can't start a process: {reason}; {_LEAVE_OUT}") from error
        self._process = process
        theirs.close()

    def start(self, number: int) -> tuple[int, Connection]:
        """Returns the process id and the connection of a new worker, which has its handlers.

        Raises WorkersError.
        """
        ours, theirs = Pipe()
        pid = self._asked(StartWorker(number), theirs.fileno())
        theirs.close()
        if pid < 0:
            text = process_start.failed_start(OSError(-pid, os.strerror(-pid)))
            raise WorkersError(f"can't start a handler worker: {text}")
        try:
            trouble: str = ours.recv()
        except (EOFError, OSError):
            trouble = f"a handler worker {self.reap(pid)} while it loaded the handlers"
        if trouble:
            raise WorkersError(trouble)
        return pid, ours

    def reap(self, pid: int) -> str:
        """Returns how a process has ended, such as "was killed by SIGKILL"."""
        code = os.waitstatus_to_exitcode(self._asked(Reap(pid)))
        if code >= 0:
            return f"ended with exit status {code}"
        return f"was killed by {signal.Signals(-code).name}"

    def _asked(self, request: StartWorker | Reap, descriptor: int | None = None) -> int:
        try:
            with self._lock:
                self._control.send(request)
                if descriptor is not None:
                    assert self._process.pid is not None
                    reduction.send_handle(self._control, descriptor, self._process.pid)
                answer: int = self._control.recv()
                return answer
        except (EOFError, OSError) as error:
            raise WorkersError("the process that starts handler workers has ended") from error

    def end(self) -> None:
        """Ends it, behind its workers."""
        self._disconnect()
        self._process.join(2 * HANDLER_WORKER_TIMING.end_seconds)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _refuse_unsendable(makers: Sequence[MakeHandler]) -> None:
    """Raises UsageError for a handler that can't be sent to a process that is no fork."""
    for maker in makers:
        try:
            is_sendable = b"__main__" not in pickle.dumps(maker)
        except (pickle.PicklingError, AttributeError, TypeError):
            is_sendable = False
        if not is_sendable:
            name = maker().name
            raise UsageError(
                f"{name} can't be sent to another process, as this one has threads or can't fork: "
                "give a function of an imported module, or a handler's name",
                "handlers_in",
            )
