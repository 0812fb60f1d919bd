"""Starts the workers: in processes, as cheaply as the machine allows, or in threads."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import resource
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
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
    CommandWriter,
    MessageWriter,
    NewCredentials,
    ShardAssignment,
)
from watcher.runtime.worker import Worker

# The longest wait for the end of a worker in a thread, which a call may hold up.
_THREAD_END_SECONDS = 1.0
# Descriptors kept for connections, checkpoints and handlers.
_RESERVED_DESCRIPTORS = 32


def refuse_scarce(descriptor: int) -> None:
    """Raises OSError if this descriptor, the newest, leaves too few for the rest of the program."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptor >= soft - min(_RESERVED_DESCRIPTORS, soft // 4):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


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


class WorkerStarter:
    """Starts workers in processes, which drop most of what the filter rejects.

    With `beside_threads` they start in a way that is safe while the program runs threads. Workers
    `in_threads` of this program share its clients; `close` closes their connections.

    The manager loads new credentials for all of them: a slow load delays no shard.
    """

    def __init__(
        self,
        connection: AwsConfig,
        record_filter: RecordFilter | None = None,
        *,
        beside_threads: bool = False,
        in_threads: bool = False,
    ) -> None:
        self._connection = connection
        self._record_filter = record_filter
        self._context: BaseContext | None = None
        if not in_threads:
            self._context = process_start.processes(with_threads=beside_threads)
        # A copy: a handler may change the environment later.
        self._environment = {**os.environ, **dict(Environment.now().variables)}
        # One per region and account: each takes 0.1 s, and a session's memory. With processes,
        # never used in this one: a fork can't share an open socket.
        self._clients: dict[str, StreamsClient] = {}
        self._lock = threading.Lock()
        self._credentials: WorkerCredentials | None = None

    def __call__(
        self,
        name: str,
        assignment: ShardAssignment,
        writer: MessageWriter,
        counters: SharedCounters,
    ) -> WorkerProcess:
        """Starts a worker whose first shard is this one. Raises OSError."""
        own = own_credentials(self._connection, region_in(assignment.arn))
        keys = own.newest()
        if self._credentials is None:
            self._credentials = WorkerCredentials(keys)
            self._credentials.on_refusal = own.were_refused
        reading, writing = Pipe(duplex=False)
        commands = CommandWriter(writing)
        name = f"watcher {name}"
        process: BaseProcess | WorkerThread
        try:
            refuse_scarce(writing.fileno())
            if self._context is None:
                process = WorkerThread(
                    name,
                    writer.copy(),
                    commands,
                    partial(
                        Worker.serve,
                        commands=reading,
                        counters=counters,
                        client=self._client,
                        credentials=self._credentials,
                        record_filter=self._record_filter,
                    ),
                )
            else:
                own.wait_for_thread()
                self._credentials.take(keys)
                process = self._process(name, assignment.arn, reading, writer, counters)
        except BaseException:
            reading.close()
            commands.close()
            raise
        return WorkerProcess(process, commands, own, keys)

    def _process(
        self,
        name: str,
        arn: str,
        reading: Connection,
        writer: MessageWriter,
        counters: SharedCounters,
    ) -> BaseProcess:
        assert self._context is not None
        is_fork = self._context.get_start_method() == "fork"
        if is_fork:
            self._client(arn)
        process: BaseProcess = self._context.Process(  # type: ignore[attr-defined]
            target=worker.run,
            args=(reading, writer, counters, self._connection, self._clients),
            kwargs={
                "credentials": self._credentials,
                "record_filter": self._record_filter,
                "environment": None if is_fork else self._environment,
            },
            name=name,
            daemon=True,
        )
        with _frozen_objects():
            process_start.start(process)
        reading.close()
        return process

    def _client(self, arn: str) -> StreamsClient:
        with self._lock:
            if (place := place_of(arn)) not in self._clients:
                self._clients[place] = for_worker(self._connection, arn, self._credentials)
            return self._clients[place]

    def close(self) -> None:
        """Closes the clients' connections, after the workers' end."""
        for each in self._clients.values():
            each.close()


class WorkerProcess:
    """A process, or a thread in place of one, and the pipe for its commands.

    `keys` are those of the program's `credentials` at its start.
    """

    def __init__(
        self,
        process: BaseProcess | WorkerThread,
        commands: CommandWriter,
        credentials: OwnCredentials,
        keys: Keys,
    ) -> None:
        self._credentials = credentials
        self._keys = keys
        self._process = process
        self._commands = commands
        self.join, self.kill, self.terminate = process.join, process.kill, process.terminate
        self.send, self.close = commands.send, commands.close

    @property
    def exitcode(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.exitcode

    def refresh_credentials(self, refused: str = "") -> None:
        """Sends the newest credentials, if it has others. Raises OSError as `send`.

        `refused` is the access key of credentials that the service refused: they are renewed, if
        they are the newest.
        """
        self._credentials.were_refused(refused)
        if (keys := self._credentials.newest()) != self._keys:
            self.send(NewCredentials(keys))
            self._keys = keys


class WorkerThread:
    """A worker in threads of this program, as a process that ends with its commands.

    Raises OSError where it can't start.
    """

    def __init__(
        self,
        name: str,
        writer: MessageWriter,
        commands: CommandWriter,
        serve: Callable[[Worker], None],
    ) -> None:
        self._commands = commands
        self._serve = serve
        self._status = 0
        self._worker = Worker(writer, end=self._fail)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._worker.close()
            raise OSError(errno.EAGAIN, str(error)) from error

    def _run(self) -> None:
        process_start.leave_signals_to_main()
        try:
            self._serve(self._worker)
        except BaseException:
            self._status = 1
            traceback.print_exc()
        finally:
            self._worker.close()

    def _fail(self, status: int) -> None:
        """Ends the messages: a thread can't go on."""
        self._status = status
        self._worker.close()

    @property
    def exitcode(self) -> int | None:
        """None while it runs; 1 after a failure."""
        return None if self._thread.is_alive() else self._status

    def terminate(self) -> None:
        """Ends the commands: it ends after its reads."""
        self._commands.close()

    kill = terminate

    def join(self, timeout: float | None = None) -> None:
        """Ends it and waits; leaves behind what a call holds up."""
        self.terminate()
        self._thread.join(_THREAD_END_SECONDS if timeout is None else timeout)
