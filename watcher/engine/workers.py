"""The shards' processes: started, started again after a death, and reaped."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

from watcher import forks
from watcher.backoff import backoff
from watcher.clock import CLOCK, Clock
from watcher.engine import worker
from watcher.engine.shared_queue import Queue, Writer
from watcher.engine.worker import Work
from watcher.errors import WatcherError
from watcher.reading.messages import Page
from watcher.record.origin import Origin
from watcher.service.client import StreamsClient
from watcher.service.connect import for_worker
from watcher.service.login import own_credentials
from watcher.service.names import region_in
from watcher.service.tally import Tally

logger = logging.getLogger("watcher")

# A process that lived so long did not die of what killed the ones before.
_LONG_LIFE_SECONDS = 60.0
_DEATHS_AT_BIRTH = 3
_COUNT_SECONDS = 0.2
_LOOK_SECONDS = 0.01


class Process(Protocol):
    """What is needed of a `multiprocessing.Process`."""

    @property
    def exitcode(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""

    def terminate(self) -> None:
        """End it by SIGTERM."""

    def kill(self) -> None:
        """End it by SIGKILL."""


Start = Callable[[Work, Writer, Tally], Process]
"""Starts a process for a shard; raises OSError where there can be no more of them."""


class Life(Enum):
    """Where the process of a shard stands."""

    STARTING = "has no iterator yet"
    READING = "reads"
    DEAD = "is to be started again"


class _Run(msgspec.Struct):
    """The processes of one shard, one after the other; times are monotonic seconds."""

    life: Life = Life.DEAD
    process: Process | None = None
    since: float = 0.0
    deaths: int = 0
    """In a row, each after a short life."""
    due: float = 0.0
    """When the next one is to be started."""


class Workers:
    """One process for each shard that is being read; what they say comes out of `queue`."""

    def __init__(self, queue: Queue, start: Start, clock: Clock = CLOCK) -> None:
        self.queue = queue
        self._start = start
        self._clock = clock
        self._runs: dict[Origin, _Run] = {}
        self._have_read = False

    def __contains__(self, origin: object) -> bool:
        """Whether the shard has a process, or is to get another."""
        return origin in self._runs

    def __len__(self) -> int:
        return len(self._runs)

    def start(self, work: Work, tally: Tally) -> None:
        """Start a shard's process; where that can't be, it is due later."""
        run = self._runs.setdefault(work.origin, _Run())
        writer = self.queue.writer(work.origin)
        try:
            run.process = self._start(work, writer, tally)
        except OSError as error:  # too many processes, or open files
            self.queue.drop(work.origin)
            text = f"Can't start a process for shard {work.shard_id}: {error.strerror}"
            logger.warning(text, extra={"stream": work.arn, "shard": work.shard_id})
            self._start_later(run)
            return
        finally:
            writer.close()
        run.life, run.since = Life.STARTING, self._clock.monotonic()

    def _start_later(self, run: _Run) -> None:
        """The later, the more often it died at once."""
        run.life, run.process = Life.DEAD, None
        run.deaths += 1
        run.due = self._clock.monotonic() + backoff(run.deaths)

    def to_restart(self) -> list[Origin]:
        """The shards whose next process is due."""
        now = self._clock.monotonic()
        return [
            origin for origin, run in self._runs.items() if run.life is Life.DEAD and run.due <= now
        ]

    def reads(self, origin: Origin) -> bool:
        """Note that it has an iterator; whether all have one, for the first time."""
        self._runs[origin].life = Life.READING
        if self._have_read or any(run.life is not Life.READING for run in self._runs.values()):
            return False
        self._have_read = True
        return True

    def delivers(self, origin: Origin) -> None:
        """Note that it does not die at once."""
        self._runs[origin].deaths = 0

    def ended(self, origin: Origin, *, for_good: bool) -> str:
        """The end of its writer was seen: reap it; unless `for_good`, another one is due.

        How it ended, in words. Raises WatcherError where processes can't live here at all.
        """
        run = self._runs[origin]
        assert run.process is not None
        run.process.join()
        code = run.process.exitcode
        if for_good:
            del self._runs[origin]
        else:
            at_birth = run.life is Life.STARTING and code == 1 and not self._have_read
            if self._clock.monotonic() - run.since > _LONG_LIFE_SECONDS:
                run.deaths = 0
            self._start_later(run)
            if at_birth and run.deaths >= _DEATHS_AT_BIRTH:
                raise WatcherError(
                    "the shards' processes end as they start; a program with threads, or not on "
                    "Linux, has to call watch() under `if __name__ == '__main__':`"
                )
        return f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"

    def stop(self) -> None:
        """Ask all to end; no more are started."""
        for origin, run in list(self._runs.items()):
            if run.process is None:
                del self._runs[origin]
            else:
                run.process.terminate()

    def unread(self) -> int:
        """End all, and count the records that they have sent and nobody has received."""
        self.stop()
        count = 0
        deadline = self._clock.monotonic() + _COUNT_SECONDS
        while self and self._clock.monotonic() < deadline:
            match self.queue.receive(_LOOK_SECONDS):
                case (_, Page() as page):
                    count += page.last - page.first
                case (name, None):
                    self.ended(name, for_good=True)
        return count

    def end(self) -> None:
        """End all, at once."""
        processes = [run.process for run in self._runs.values() if run.process is not None]
        for process in processes:
            process.kill()
        self.queue.close()
        for process in processes:
            process.join()


class Forked:
    """Starts real processes, as cheaply as the machine allows."""

    def __init__(self) -> None:
        self._context = forks.processes()
        # By stream. Never used in this process: a socket that is open can't be shared with a fork.
        self._clients: dict[str, StreamsClient] = {}

    def __call__(self, work: Work, writer: Writer, tally: Tally) -> Process:
        """Start one."""
        arn = work.arn
        credentials = own_credentials(work.connection, region_in(arn))
        shared = credentials.share()
        credentials.settle()
        if arn not in self._clients and self._context.get_start_method() == "fork":
            self._clients[arn] = for_worker(work.connection, arn, shared)
        client = self._clients.get(arn)
        process: Process = self._context.Process(  # type: ignore[attr-defined]
            target=worker.run,
            args=(work, writer, tally, client, None if client else shared),
            name=f"watcher {work.shard_id}",
            daemon=True,
        )
        # Else the first garbage collection in a child copies every page that it looks at.
        gc.freeze()
        try:
            process.start()  # type: ignore[attr-defined]
        finally:
            gc.unfreeze()
        return process
