"""Real processes for the workers, as cheap as the machine allows."""

from __future__ import annotations

import gc
import os
from multiprocessing import Pipe
from multiprocessing.process import BaseProcess

from watcher import forks
from watcher.engine import open_files, worker
from watcher.engine.orders import Order, Orders, Work
from watcher.engine.shared_queue import Writer
from watcher.engine.workers import Process
from watcher.record.selection import Selection
from watcher.service.client import StreamsClient
from watcher.service.connect import for_worker
from watcher.service.login import own_credentials
from watcher.service.names import place_of, region_in
from watcher.service.tally import Board

# Files of botocore's; a handler may change the folder that their names begin in.
_FILES = ("AWS_CA_BUNDLE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "REQUESTS_CA_BUNDLE")


class Forked:
    """Starts them; what is not `wanted` they may leave out.

    With `with_threads`, beside threads that are to come.
    """

    def __init__(self, wanted: Selection | None = None, *, with_threads: bool = False) -> None:
        self._wanted = wanted
        self._context = forks.processes(with_threads=with_threads)
        files = {name: os.environ.get(name, "") for name in _FILES}
        self._files = {
            name: os.path.abspath(file)
            for name, file in files.items()
            if file and not file.startswith("~")
        }
        # By place, since each takes a tenth of a second, and the memory of a session. Never used in
        # this process: a socket that is open can't be shared with a fork.
        self._clients: dict[str, StreamsClient] = {}

    def __call__(self, name: str, work: Work, writer: Writer, board: Board) -> Process:
        """Start one that will do this work first."""
        credentials = own_credentials(work.connection, region_in(work.arn))
        shared = credentials.share()
        credentials.settle()
        is_fork = self._context.get_start_method() == "fork"
        place = place_of(work.arn)
        if place not in self._clients and is_fork:
            self._clients[place] = for_worker(work.connection, work.arn, shared)
        reading, writing = Pipe(duplex=False)
        orders = Orders(writing)
        process: BaseProcess = self._context.Process(  # type: ignore[attr-defined]
            target=worker.run,
            args=(reading, writer, board, self._clients, shared, self._wanted),
            kwargs={} if is_fork else {"environment": {**os.environ, **self._files}},
            name=f"watcher {name}",
            daemon=True,
        )
        # Else the first garbage collection in a child copies every page that it looks at.
        gc.freeze()
        try:
            open_files.refuse_scarce(writing.fileno())
            forks.start(process)
        except BaseException:
            orders.close()
            raise
        finally:
            gc.unfreeze()
            reading.close()
        return WorkerProcess(process, orders)


class WorkerProcess:
    """A process, and the pipe through which it gets its orders."""

    def __init__(self, process: BaseProcess, orders: Orders) -> None:
        self._process = process
        self._orders = orders
        self.join, self.kill, self.terminate = process.join, process.kill, process.terminate

    @property
    def exitcode(self) -> int | None:
        """See `Process`."""
        return self._process.exitcode

    def give(self, order: Order) -> None:
        """See `Process`."""
        self._orders.give(order)

    def dismiss(self) -> None:
        """See `Process`."""
        self._orders.close()
