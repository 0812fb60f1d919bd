"""The worker processes: started, assigned shards, replaced after a death, and reaped."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Set

import msgspec

from watcher.aws.counters import Counters, SharedCounters
from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.errors import ResourceError, WatcherError
from watcher.formatting.text import counted
from watcher.process_start import failed_start
from watcher.retry import Backoff, worth_logging
from watcher.runtime.processes import WorkerProcess
from watcher.runtime.protocol import (
    CredentialsRefused,
    MessageQueue,
    MessageWriter,
    Pause,
    ReadShard,
    ShardAssignment,
    ShardClosed,
)
from watcher.streams.messages import Message, ReaderCrashed, ReaderEnded

logger = logging.getLogger("watcher")

PROCESSES = 64
"""The largest number of processes; further shards share them."""
# The number of full shards from which their workers' other shards wait, too.
_MOST_FULL = 128
# The delays before a dead worker's shard is started again.
_START_BACKOFF = Backoff()
# The age from which a worker's death starts a new row of deaths.
_LONG_LIFE_SECONDS = 60.0
# The number of workers in a row that die at their start before the watch gives up.
_DEATHS_AT_START = 3
# The delay before another process is tried after the system has refused one.
_NO_MORE_PROCESSES_SECONDS = 60.0
# The delay between checks for new credentials, which reach workers minutes ahead of need.
_CREDENTIALS_SECONDS = 1.0


StartProcess = Callable[[str, ShardAssignment, MessageWriter, SharedCounters], WorkerProcess]
"""Starts a process with this name and first shard; raises OSError where none can be started."""


class _Assignment(msgspec.Struct):
    """The reading of one shard by successive workers; times are monotonic seconds."""

    worker: _Worker | None = None
    """The worker that reads it; None: it is to be started again."""
    has_iterator: bool = False
    since: float = 0.0
    deaths: int = 0
    """The number of deaths in a row, each after a short life."""
    due_at: float = 0.0
    """The time of its next start."""
    exitcode: int | None = None
    """The exit code of its last worker, if it has ended."""
    reads_again: float | None = None
    """The delay of the next reader where its reader, not its worker, ended before the shard."""


class _Worker(msgspec.Struct, eq=False):
    """A process and its shards."""

    name: str
    process: WorkerProcess
    shards: dict[ShardKey, None]
    """The shards, in the order of their assignment."""


class Workers:
    """Reads shards in processes: one for each, and beyond `processes` several shards in each.

    `receive` returns their messages; `counters` hold their counts.
    """

    def __init__(
        self,
        queue: MessageQueue,
        start: StartProcess,
        clock: Clock = CLOCK,
        *,
        processes: int = PROCESSES,
        counters: SharedCounters | None = None,
    ) -> None:
        self.queue = queue
        self.counters = counters or SharedCounters()
        self._start = start
        self._clock = clock
        self._max_processes = processes
        self._no_more_until = 0.0
        self._has_started = False
        self._assignments: dict[ShardKey, _Assignment] = {}
        self._workers: dict[str, _Worker] = {}
        self._dead: dict[ShardKey, None] = {}  # in the order of their deaths
        self._ended: deque[ShardKey] = deque()  # readers whose end `receive` has yet to report
        self._early: dict[str, tuple[ShardKey, Message]] = {}
        """The message for a full shard that each of these workers has sent, and now waits."""
        self.deaths = 0
        """The number of readings that ended by a worker's death, or a reader's failure."""
        self._have_read = False
        self._stopping = False
        self._credentials_due = clock.monotonic() + _CREDENTIALS_SECONDS

    def __contains__(self, shard_key: object) -> bool:
        """True for a shard that is being read, or will be again."""
        return shard_key in self._assignments

    def __len__(self) -> int:
        return len(self._assignments)

    # Starting

    def start(self, assignment: ShardAssignment, counters: Counters) -> None:
        """Assigns a shard to a worker; where none can start, the shard is due later.

        Raises ResourceError where no process can be started at all.
        """
        shard_key = assignment.shard_key
        reading = self._assignments.setdefault(shard_key, _Assignment())
        self._dead.pop(shard_key, None)
        try:
            worker = self._choose_worker(assignment)
            with contextlib.suppress(BrokenPipeError):  # it is dead: `receive` will report that
                worker.process.send(ReadShard(assignment, counters.slot))
        except OSError as error:
            is_server_s = isinstance(error, ConnectionError)  # the next start runs another server
            if not self._has_started and (reading.deaths or not is_server_s):
                raise ResourceError(f"can't start a worker: {failed_start(error)}") from error
            self._start_later(shard_key, reading)
            if worth_logging(reading.deaths, from_failure=1):
                text = f"Can't start a worker for shard {assignment.shard_id}: "
                about = {"stream": assignment.arn, "shard": assignment.shard_id}
                logger.warning(text + failed_start(error), extra=about)
            return
        self._has_started = True
        worker.shards[shard_key] = None
        reading.worker, reading.since = worker, self._clock.monotonic()

    def _choose_worker(self, assignment: ShardAssignment) -> _Worker:
        """Returns a new worker, or the one with the fewest shards. Raises OSError."""
        busy = [worker for worker in self._workers.values() if worker.shards]
        no_more = busy and self._clock.monotonic() < self._no_more_until
        if len(busy) < self._max_processes and not no_more:
            try:
                return self._start_worker(assignment)
            except OSError as error:  # too many processes, or open files
                if not busy:
                    raise
                if not self._no_more_until:
                    count, why = counted(len(busy), "process"), error.strerror or str(error)
                    logger.warning(f"No more than {count} can be started: {why}; shards share them")
                pause = _NO_MORE_PROCESSES_SECONDS
                self._no_more_until = self._clock.monotonic() + pause
        return min(busy, key=lambda worker: len(worker.shards))

    def _start_worker(self, assignment: ShardAssignment) -> _Worker:
        name = assignment.shard_id
        while name in self._workers:
            name += "'"
        writer = self.queue.writer(name)
        try:
            process = self._start(name, assignment, writer, self.counters)
        except OSError:
            self.queue.remove(name)
            raise
        finally:
            writer.close()
        self._workers[name] = worker = _Worker(name, process, {})
        return worker

    def _start_later(self, shard_key: ShardKey, reading: _Assignment) -> None:
        """Schedules another start, later after each immediate death."""
        reading.deaths += 1
        self._start_in(shard_key, reading, _START_BACKOFF.after(reading.deaths))

    def _start_in(self, shard_key: ShardKey, reading: _Assignment, seconds: float) -> None:
        reading.worker, reading.has_iterator = None, False
        self._dead[shard_key] = None
        reading.due_at = self._clock.monotonic() + seconds

    def to_restart(self) -> list[ShardKey]:
        """Returns the shards whose next start is due."""
        now = self._clock.monotonic()
        return [shard_key for shard_key in self._dead if self._assignments[shard_key].due_at <= now]

    # Messages from the workers

    def receive(
        self, timeout: float, full: Set[ShardKey] = frozenset()
    ) -> tuple[ShardKey, Message | None] | None:
        """Returns a shard and a message of its reader, or None instead: the reader has ended.

        A shard that is `full` has to wait, and so has its worker, once it has sent more of it: the
        worker's other shards wait for no slow handler, unless many are full. Returns None where
        nothing has come, after `timeout` seconds or `queue.wake()`.
        """
        if self._clock.monotonic() >= self._credentials_due:
            self._refresh_credentials()
        if self._ended:
            return self._ended.popleft(), None
        for name, (shard_key, message) in self._early.items():
            if shard_key not in full:
                del self._early[name]
                return self._received(shard_key, message)
        match self.queue.receive(timeout, {*self._early, *self._held(full)}):
            case None:
                return None
            case (_, CredentialsRefused(access_key)):
                self._refresh_credentials(access_key)
                return None
            case (str() as name, _):
                self._reap(self._workers.pop(name))
                return (self._ended.popleft(), None) if self._ended else None
            case (ShardKey() as shard_key, message):
                if shard_key in full and (worker := self._worker_of(shard_key)):
                    self._early[worker.name] = shard_key, message
                    return None
                return self._received(shard_key, message)

    def _held(self, full: Set[ShardKey]) -> Iterator[str]:
        """Yields the workers of full shards that have no other shard, or all: memory is bounded."""
        for shard_key in full:
            worker = self._worker_of(shard_key)
            if worker and (len(worker.shards) == 1 or len(full) >= _MOST_FULL):
                yield worker.name

    def _received(self, shard_key: ShardKey, message: Message) -> tuple[ShardKey, Message]:
        if isinstance(message, ReaderEnded | ReaderCrashed):
            self._release(shard_key)
        return shard_key, message

    def _refresh_credentials(self, refused: str = "") -> None:
        self._credentials_due = self._clock.monotonic() + _CREDENTIALS_SECONDS
        for worker in self._workers.values():
            with contextlib.suppress(OSError):  # its pipe is full: it gets them later
                worker.process.refresh_credentials(refused)

    def _release(self, shard_key: ShardKey) -> None:
        """Ends a shard's assignment to its worker; a worker without shards ends."""
        worker = self._assignments[shard_key].worker
        self._ended.append(shard_key)
        if worker is not None:
            worker.shards.pop(shard_key, None)
            if not worker.shards:
                worker.process.close()

    def _reap(self, worker: _Worker) -> None:
        """Collects a worker whose pipe has ended, and frees its shards."""
        worker.process.join()
        worker.process.close()
        code = worker.process.exitcode
        self._ended.extend(worker.shards)
        for shard_key in worker.shards:
            self._assignments[shard_key].exitcode = code
        if worker.shards and not self._stopping:
            how = f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"
            self._log_death(worker, how)

    def _log_death(self, worker: _Worker, how: str) -> None:
        shard_key, *others = worker.shards
        about = {"stream": shard_key.stream}
        if others:
            text = f"of {len(worker.shards)} shards ended ({how}); starting them"
        else:
            text = f"of shard {shard_key.shard_id} ended ({how}); starting it"
            about["shard"] = shard_key.shard_id
        logger.warning(f"The worker {text} again where delivery stands", extra=about)

    def has_unread(self, shard_key: ShardKey) -> bool:
        """True if the shard's worker has sent a message, or its end, that was not received yet."""
        worker = self._worker_of(shard_key)
        return worker is not None and self.queue.has_unread(worker.name)

    def are_all_reading(self) -> bool:
        """True if there are shards, and each has an iterator."""
        return bool(self) and all(each.has_iterator for each in self._assignments.values())

    # Events

    def on_started(self, shard_key: ShardKey) -> None:
        """Notes that a shard has an iterator."""
        self._assignments[shard_key].has_iterator = True
        self._have_read = True

    def on_page(self, shard_key: ShardKey) -> None:
        """Notes a sign of life of a worker."""
        self._assignments[shard_key].deaths = 0

    def on_read_again(self, shard_key: ShardKey, seconds: float) -> None:
        """Notes that a shard's reader ends before the shard does; another goes on after a delay."""
        self._assignments[shard_key].reads_again = seconds

    def on_ended(self, shard_key: ShardKey, *, restart: bool) -> None:
        """Notes that a shard's reader has ended; with `restart`, schedules another one.

        Raises WatcherError where no process can run.
        """
        reading = self._assignments[shard_key]
        if not restart:
            del self._assignments[shard_key]
            return
        if reading.reads_again is not None:
            self._start_in(shard_key, reading, reading.reads_again)
            reading.reads_again = None
            return
        self.deaths += 1
        at_start = not (self._have_read or reading.has_iterator) and reading.exitcode == 1
        if self._clock.monotonic() - reading.since > _LONG_LIFE_SECONDS:
            reading.deaths = 0
        self._start_later(shard_key, reading)
        if at_start and reading.deaths >= _DEATHS_AT_START:
            raise WatcherError(
                "the shards' processes end as soon as they start: see their own output"
            )

    # Commands to the workers

    def on_shard_closed(self, shard_key: ShardKey) -> None:
        """Tells the shard's worker that it gets no more records."""
        if (worker := self._worker_of(shard_key)) is not None and shard_key in worker.shards:
            with contextlib.suppress(OSError):  # it reads to the end anyway, only later
                worker.process.send(ShardClosed(shard_key.stream, shard_key.shard_id))

    def pause_reading(self, shard_key: ShardKey) -> None:
        """Tells the shard's worker not to read it for a moment."""
        if (worker := self._worker_of(shard_key)) is not None:
            with contextlib.suppress(OSError):  # its records wait in the pipe
                worker.process.send(Pause(shard_key.stream, shard_key.shard_id))

    def _worker_of(self, shard_key: ShardKey) -> _Worker | None:
        reading = self._assignments.get(shard_key)
        return None if reading is None else reading.worker

    # The end

    def stop(self) -> None:
        """Ends all workers by SIGTERM, and starts no more; sent messages can still be received."""
        self._stopping = True
        for shard_key in self._dead:
            del self._assignments[shard_key]
        self._dead.clear()
        for worker in self._workers.values():
            worker.process.terminate()

    def kill(self) -> None:
        """Ends all workers by SIGKILL, and closes the queue."""
        processes = [worker.process for worker in self._workers.values()]
        for process in processes:
            process.kill()
        self.queue.close()
        for process in processes:
            process.join()
            process.close()
