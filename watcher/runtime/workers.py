"""The workers: started, given shards to read, replaced after a death, and reaped."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

from watcher.aws.counters import Counters, SharedCounters
from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.errors import WatcherError
from watcher.formatting.text import counted
from watcher.retry import backoff, worth_logging
from watcher.runtime.protocol import (
    Command,
    CredentialsRefused,
    Pause,
    PollNow,
    Queue,
    ReadShard,
    ShardAssignment,
    ShardClosed,
    Writer,
)
from watcher.streams.messages import Failed, Finished, Message, Page

logger = logging.getLogger("watcher")

PROCESSES = 64
"""So many processes at most: from there on they read several shards each."""
# A process that lived so long did not die of what killed the ones before.
_LONG_LIFE_SECONDS = 60.0
_DEATHS_AT_BIRTH = 3
# Where there can be no more processes, another try is worth it after so long.
_TIGHT_SECONDS = 60.0
# Hurried shards are read often for twice as long.
_HURRY_SECONDS = 30.0
# Workers get new credentials within so long: minutes ahead of the end of the others.
_CREDENTIALS_SECONDS = 1.0
_COUNT_SECONDS = 0.2
_LOOK_SECONDS = 0.01


class Process(Protocol):
    """A worker's process, seen from outside."""

    @property
    def exitcode(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""

    def give(self, order: Command) -> None:
        """Tell it. Raises OSError where it does not listen."""

    def refresh_credentials(self, refused: str = "") -> None:
        """Give it the newest credentials, if it has others. Raises OSError as `give`.

        Those of the access key `refused` were refused by the service: they are renewed, if they are
        the newest.
        """

    def dismiss(self) -> None:
        """There is nothing more to tell it: it may end."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""

    def terminate(self) -> None:
        """End it by SIGTERM."""

    def kill(self) -> None:
        """End it by SIGKILL."""


StartProcess = Callable[[str, ShardAssignment, Writer, SharedCounters], Process]
"""Starts a process of this name, for this work first; raises OSError where there can be no more."""


class AssignmentState(Enum):
    """Where the reading of a shard stands."""

    STARTING = "has no iterator yet"
    READING = "reads"
    DEAD = "is to be started again"


class _Assignment(msgspec.Struct):
    """The reading of one shard, by one worker after the other; times are monotonic seconds."""

    life: AssignmentState = AssignmentState.DEAD
    worker: _Worker | None = None
    since: float = 0.0
    deaths: int = 0
    """In a row, each after a short life."""
    due: float = 0.0
    """When it is to be started again."""
    exitcode: int | None = None
    """How the last worker has ended, if it has."""


class _Worker(msgspec.Struct, eq=False):
    """A process, and the shards that it reads."""

    name: str
    process: Process
    shards: dict[ShardKey, None]
    """In the order in which they were given to it."""


class Workers:
    """Reads shards in processes: one for each, up to a number of `processes`, then together.

    What they say comes out of `receive`; what they count lies on `board`.
    """

    def __init__(
        self,
        queue: Queue,
        start: StartProcess,
        clock: Clock = CLOCK,
        *,
        processes: int = PROCESSES,
        board: SharedCounters | None = None,
    ) -> None:
        self.queue = queue
        self.board = board or SharedCounters()
        self._start = start
        self._clock = clock
        self._most = processes
        self._tight_until = 0.0
        self._failures = 0
        self._runs: dict[ShardKey, _Assignment] = {}
        self._workers: dict[str, _Worker] = {}
        self._dead: dict[ShardKey, None] = {}  # in the order of their deaths
        self._over: deque[ShardKey] = deque()  # whose reading has ended, and who is to hear of it
        self._hurried: dict[str, float] = {}
        self._have_read = False
        self._stopping = False
        self._credentials_due = clock.monotonic() + _CREDENTIALS_SECONDS

    def __contains__(self, origin: object) -> bool:
        """Whether the shard is being read, or is to be again."""
        return origin in self._runs

    def __len__(self) -> int:
        return len(self._runs)

    # Starting

    def start(self, work: ShardAssignment, tally: Counters) -> None:
        """Have a shard read; where that can't be, it is due later."""
        run = self._runs.setdefault(work.origin, _Assignment())
        self._dead.pop(work.origin, None)
        try:
            worker = self._place(work)
            with contextlib.suppress(BrokenPipeError):  # it is dead: that is about to be heard
                worker.process.give(ReadShard(work, tally.place))
        except OSError as error:
            self._say_why_not(work, error)
            self._start_later(work.origin, run)
            return
        self._failures = 0
        worker.shards[work.origin] = None
        run.worker, run.life, run.since = worker, AssignmentState.STARTING, self._clock.monotonic()

    def _say_why_not(self, work: ShardAssignment, error: OSError) -> None:
        self._failures += 1
        if worth_logging(self._failures, unsaid=1):
            text = f"Can't start a process for shard {work.shard_id}: {error.strerror}"
            logger.warning(text, extra={"stream": work.arn, "shard": work.shard_id})

    def _place(self, work: ShardAssignment) -> _Worker:
        """A new process, or the one with the fewest shards. Raises OSError."""
        busy = [worker for worker in self._workers.values() if worker.shards]
        is_tight = busy and self._clock.monotonic() < self._tight_until
        if len(busy) < self._most and not is_tight:
            try:
                return self._new(work)
            except OSError as error:  # too many processes, or open files
                if not busy:
                    raise
                if not self._tight_until:
                    count, why = counted(len(busy), "process"), error.strerror
                    logger.warning(f"No more than {count} can be started: {why}; shards share them")
                self._tight_until = self._clock.monotonic() + _TIGHT_SECONDS
        return min(busy, key=lambda worker: len(worker.shards))

    def _new(self, work: ShardAssignment) -> _Worker:
        name = work.shard_id
        while name in self._workers:
            name += "'"
        writer = self.queue.writer(name)
        try:
            self._workers[name] = _Worker(name, self._start(name, work, writer, self.board), {})
        except OSError:
            self.queue.drop(name)
            raise
        finally:
            writer.close()
        return self._workers[name]

    def _start_later(self, origin: ShardKey, run: _Assignment) -> None:
        """The later, the more often it died at once."""
        run.life, run.worker = AssignmentState.DEAD, None
        self._dead[origin] = None
        run.deaths += 1
        run.due = self._clock.monotonic() + backoff(run.deaths)

    def to_restart(self) -> list[ShardKey]:
        """The shards whose next start is due."""
        now = self._clock.monotonic()
        return [origin for origin in self._dead if self._runs[origin].due <= now]

    # What they say

    def receive(self, timeout: float) -> tuple[ShardKey, Message | None] | None:
        """A shard and what its reader says; None instead: it is not being read any more.

        None where there is nothing to hear, after `timeout` seconds or `queue.wake()`.
        """
        if self._clock.monotonic() >= self._credentials_due:
            self._refresh_credentials()
        if self._over:
            return self._over.popleft(), None
        match self.queue.receive(timeout):
            case None:
                return None
            case (_, CredentialsRefused(access_key)):
                self._refresh_credentials(access_key)
                return None
            case (str() as name, _):
                self._reap(self._workers.pop(name))
                return (self._over.popleft(), None) if self._over else None
            case (ShardKey() as origin, message):
                if isinstance(message, Finished | Failed):
                    self._leave(origin)
                return origin, message

    def _refresh_credentials(self, refused: str = "") -> None:
        self._credentials_due = self._clock.monotonic() + _CREDENTIALS_SECONDS
        for worker in self._workers.values():
            with contextlib.suppress(OSError):  # it does not listen just now, and gets them later
                worker.process.refresh_credentials(refused)

    def _leave(self, origin: ShardKey) -> None:
        """Its worker reads this shard no longer; one that reads none has done its work."""
        worker = self._runs[origin].worker
        self._over.append(origin)
        if worker is not None:
            worker.shards.pop(origin, None)
            if not worker.shards:
                worker.process.dismiss()

    def _reap(self, worker: _Worker) -> None:
        """Its pipe has come to its end."""
        worker.process.join()
        worker.process.dismiss()
        code = worker.process.exitcode
        self._over.extend(worker.shards)
        for origin in worker.shards:
            self._runs[origin].exitcode = code
        if worker.shards and not self._stopping:
            how = f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"
            self._tell(worker, how)

    def _tell(self, worker: _Worker, how: str) -> None:
        origin, *others = worker.shards
        about = {"stream": origin.stream}
        if others:
            text = f"of {len(worker.shards)} shards ended ({how}); starting them"
        else:
            text = f"of shard {origin.shard_id} ended ({how}); starting it"
            about["shard"] = origin.shard_id
        logger.warning(f"The process {text} again where delivery stands", extra=about)

    def reads(self, origin: ShardKey) -> None:
        """Note that it has an iterator."""
        self._runs[origin].life = AssignmentState.READING
        self._have_read = True

    def all_read(self) -> bool:
        """Whether there are shards, and each has an iterator."""
        runs = self._runs.values()
        return bool(runs) and all(run.life is AssignmentState.READING for run in runs)

    def waits_for_us(self, origin: ShardKey) -> bool:
        """Whether what its worker has sent, or its end, is still to be received."""
        worker = self._runs[origin].worker if origin in self._runs else None
        return worker is not None and self.queue.holds(worker.name)

    def delivers(self, origin: ShardKey) -> None:
        """Note that it does not die at once, and has the other shards of its stream hurry."""
        self._runs[origin].deaths = 0
        now = self._clock.monotonic()
        if now >= self._hurried.get(origin.stream, 0.0):
            self._hurried[origin.stream] = now + _HURRY_SECONDS
            for worker in self._workers.values():
                with contextlib.suppress(OSError):  # it does not listen just now
                    worker.process.give(PollNow(origin.stream))

    def close(self, origin: ShardKey) -> None:
        """Tell the process of a shard that it gets no more records."""
        for worker in self._workers.values():
            if origin in worker.shards:
                with contextlib.suppress(OSError):  # it reads to the end all the same, only slower
                    worker.process.give(ShardClosed(origin.stream, origin.shard_id))

    def rest(self, origin: ShardKey) -> None:
        """Tell the process of a shard that it need not be read for a while."""
        worker = self._runs[origin].worker if origin in self._runs else None
        if worker is not None:
            with contextlib.suppress(OSError):  # what it reads waits in its pipe
                worker.process.give(Pause(origin.stream, origin.shard_id))

    def ended(self, origin: ShardKey, *, for_good: bool) -> None:
        """Its reading's end was heard; unless `for_good`, it is due again.

        Raises WatcherError where processes can't live here at all.
        """
        run = self._runs[origin]
        if for_good:
            del self._runs[origin]
            return
        at_birth = (
            run.life is AssignmentState.STARTING and run.exitcode == 1 and not self._have_read
        )
        if self._clock.monotonic() - run.since > _LONG_LIFE_SECONDS:
            run.deaths = 0
        self._start_later(origin, run)
        if at_birth and run.deaths >= _DEATHS_AT_BIRTH:
            raise WatcherError(
                "the shards' processes end as they start; a program with threads, or not on "
                "Linux, has to call watch() under `if __name__ == '__main__':`"
            )

    # The end

    def stop(self) -> None:
        """Ask all to end; no more are started."""
        self._stopping = True
        for origin in self._dead:
            del self._runs[origin]
        self._dead.clear()
        for worker in self._workers.values():
            worker.process.terminate()

    def unread(self) -> int:
        """End all, and count the records that they have sent and nobody has received."""
        self.stop()
        count = 0
        deadline = self._clock.monotonic() + _COUNT_SECONDS
        while self and self._clock.monotonic() < deadline:
            match self.receive(_LOOK_SECONDS):
                case (_, Page() as page):
                    count += page.count
                case (origin, None):
                    self.ended(origin, for_good=True)
        return count

    def end(self) -> None:
        """End all, at once."""
        processes = [worker.process for worker in self._workers.values()]
        for process in processes:
            process.kill()
        self.queue.close()
        for process in processes:
            process.join()
            process.dismiss()
