"""Starts the workers: in processes, as cheaply as the machine allows, or in threads."""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import os
import resource
import threading
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.process import BaseProcess

from watcher import process_start
from watcher.aws.arns import place_of, region_in
from watcher.aws.client import StreamsClient
from watcher.aws.config import AwsConfig, Environment
from watcher.aws.connect import for_worker
from watcher.aws.counters import SharedCounters
from watcher.aws.credentials import Keys, OwnCredentials, WorkerCredentials, own_credentials
from watcher.records.filters import RecordFilter
from watcher.runtime import worker
from watcher.runtime.protocol import (
    Command,
    CommandWriter,
    MessageWriter,
    NewCredentials,
    ShardAssignment,
)
from watcher.runtime.timing import WORKERS_TIMING
from watcher.runtime.worker import WorkerThreads
from watcher.runtime.workers import Process

# Descriptors kept for connections, checkpoints and handlers.
_RESERVED_DESCRIPTORS = 32


def refuse_scarce(descriptor: int) -> None:
    """Raises OSError if this descriptor, the newest, leaves too few for the rest of the program."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptor >= soft - min(_RESERVED_DESCRIPTORS, soft // 4):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@contextlib.contextmanager
def raised_open_files() -> Iterator[None]:
    """Raises the limit of open files to the system's maximum while the block runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # On macOS the hard limit may be infinite, which the kernel refuses.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def _frozen_objects() -> Iterator[None]:
    """Hides all objects from the garbage collector while a child is forked.

    Otherwise, the child's first collection would copy every page of memory that it visits.
    """
    is_ours = not gc.get_freeze_count()  # a host program may have frozen its own objects
    if is_ours:
        gc.freeze()
    try:
        yield
    finally:
        if is_ours:
            gc.unfreeze()


class ProcessStarter:
    """Starts the workers' processes, which drop most of what the filter rejects.

    With `with_threads` they start in a way that is safe while the program runs threads.
    """

    def __init__(
        self,
        connection: AwsConfig,
        record_filter: RecordFilter | None = None,
        *,
        with_threads: bool = False,
    ) -> None:
        self._connection = connection
        self._record_filter = record_filter
        self._context = process_start.processes(with_threads=with_threads)
        # A copy: a handler may change the environment later.
        self._environment = {**os.environ, **dict(Environment.now().variables)}
        # One per region and account: each takes 0.1 s, and a session's memory. Never used in this
        # process: a fork can't share an open socket.
        self._clients: dict[str, StreamsClient] = {}
        self._credentials: WorkerCredentials | None = None

    def __call__(
        self,
        name: str,
        assignment: ShardAssignment,
        writer: MessageWriter,
        counters: SharedCounters,
    ) -> Process:
        """Starts a process whose first shard is this one. Raises OSError."""
        connection, arn = self._connection, assignment.arn
        credentials = own_credentials(connection, region_in(arn))
        keys = credentials.newest()
        credentials.wait_for_thread()
        if self._credentials is None:
            self._credentials = WorkerCredentials(keys)
        self._credentials.take(keys)
        is_fork = self._context.get_start_method() == "fork"
        place = place_of(arn)
        if place not in self._clients and is_fork:
            self._clients[place] = for_worker(connection, arn, self._credentials)
        reading, writing = Pipe(duplex=False)
        commands = CommandWriter(writing)
        process: BaseProcess = self._context.Process(  # type: ignore[attr-defined]
            target=worker.run,
            args=(reading, writer, counters, self._connection, self._clients),
            kwargs={
                "credentials": self._credentials,
                "record_filter": self._record_filter,
                "environment": None if is_fork else self._environment,
            },
            name=f"watcher {name}",
            daemon=True,
        )
        try:
            refuse_scarce(writing.fileno())
            with _frozen_objects():
                process_start.start(process)
        except BaseException:
            commands.close()
            raise
        finally:
            reading.close()
        return WorkerProcess(process, commands, credentials=credentials, keys=keys)


class WorkerProcess:
    """A process, or a thread in place of one, and the pipe for its commands."""

    def __init__(
        self,
        process: BaseProcess | WorkerThread,
        commands: CommandWriter,
        *,
        credentials: OwnCredentials,
        keys: Keys,
    ) -> None:
        """`keys` are those of the program's `credentials` at the process's start."""
        self._credentials = credentials
        self._keys = keys
        self._process = process
        self._commands = commands
        self.join, self.kill, self.terminate = process.join, process.kill, process.terminate

    @property
    def exitcode(self) -> int | None:
        """See `Process`."""
        return self._process.exitcode

    def send(self, command: Command) -> None:
        """See `Process`."""
        self._commands.send(command)

    def refresh_credentials(self, refused: str = "") -> None:
        """See `Process`."""
        self._commands.send_rest()
        self._credentials.were_refused(refused)
        if (keys := self._credentials.newest()) != self._keys:
            self.send(NewCredentials(keys))
            self._keys = keys

    def close(self) -> None:
        """See `Process`."""
        self._commands.close()


class ThreadStarter:
    """Starts the workers in threads of this program, which share clients and their credentials.

    The manager loads new credentials, as for processes: a slow load delays no shard. `close` closes
    the clients' connections.
    """

    def __init__(self, connection: AwsConfig, record_filter: RecordFilter | None = None) -> None:
        self._connection = connection
        self._record_filter = record_filter
        self._clients: dict[str, StreamsClient] = {}  # one per region and account
        self._lock = threading.Lock()
        self._credentials: WorkerCredentials | None = None

    def __call__(
        self,
        name: str,
        assignment: ShardAssignment,
        writer: MessageWriter,
        counters: SharedCounters,
    ) -> Process:
        """Starts a worker whose first shard is this one. Raises OSError."""
        credentials = own_credentials(self._connection, region_in(assignment.arn))
        keys = credentials.newest()
        if self._credentials is None:
            self._credentials = WorkerCredentials(keys)
            self._credentials.on_refusal = credentials.were_refused
        reading, writing = Pipe(duplex=False)
        commands = CommandWriter(writing)
        threads = WorkerThreads(writer.copy(), end=lambda status: thread.fail(status))
        serve = functools.partial(
            worker.serve,
            reading,
            threads,
            counters,
            self._client,
            credentials=self._credentials,
            record_filter=self._record_filter,
        )
        thread = WorkerThread(name, serve, threads, commands)
        try:
            refuse_scarce(writing.fileno())
            thread.start()
        except BaseException:
            commands.close()
            threads.close()
            raise
        return WorkerProcess(thread, commands, credentials=credentials, keys=keys)

    def _client(self, assignment: ShardAssignment) -> StreamsClient:
        place = place_of(assignment.arn)
        with self._lock:
            if place not in self._clients:
                self._clients[place] = for_worker(
                    self._connection, assignment.arn, self._credentials
                )
            return self._clients[place]

    def close(self) -> None:
        """Closes the clients' connections, after the workers' end."""
        for each in self._clients.values():
            each.close()


class WorkerThread:
    """A worker in threads of this program, as a process that ends with its commands."""

    def __init__(
        self,
        name: str,
        serve: Callable[[], None],
        threads: WorkerThreads,
        commands: CommandWriter,
    ) -> None:
        self._serve = serve
        self._threads = threads
        self._commands = commands
        self._status = 0
        self._thread = threading.Thread(target=self._run, name=f"watcher {name}", daemon=True)

    def start(self) -> None:
        """Starts it. Raises OSError."""
        try:
            self._thread.start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, str(error)) from error

    def _run(self) -> None:
        process_start.leave_signals_to_main()
        try:
            self._serve()
        except BaseException:
            self._status = 1
            traceback.print_exc()
        finally:
            self._threads.close()

    def fail(self, status: int) -> None:
        """Ends the messages: a thread can't go on."""
        self._status = status
        self._threads.close()

    @property
    def exitcode(self) -> int | None:
        """See `Process`."""
        return None if self._thread.is_alive() else self._status

    def terminate(self) -> None:
        """See `Process`."""
        self._commands.close()

    kill = terminate

    def join(self, timeout: float | None = None) -> None:
        """See `Process`; ends it first, and leaves behind what a call holds up."""
        self.terminate()
        self._thread.join(WORKERS_TIMING.thread_end_seconds if timeout is None else timeout)
