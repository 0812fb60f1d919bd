"""Workers' processes as actors: the real readers and pipes, and a fate drawn by chance."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import math
import os
import selectors
from collections import deque
from collections.abc import Callable
from functools import partial
from multiprocessing import Pipe
from typing import Any

from tests.simulation.scheduler import Life, Scheduler, VirtualClock
from watcher.aws.model import ShardKey
from watcher.runtime.protocol import (
    Command,
    CommandReader,
    CommandWriter,
    Pause,
    ReadShard,
    ShardClosed,
    frame,
)
from watcher.runtime.worker import AssignedShard, ReadScheduler
from watcher.streams.messages import Message, Page, ReaderCrashed

_FORK_SECONDS = 0.005
_BREATH = 0.002
# What is less may be lost when it is added to the time: a clock of floats would stand.
_LEAST_SECONDS = 1e-6
_SET_PIPE_SIZE = getattr(fcntl, "F_SETPIPE_SZ", 1031)


class SimulatedWorker:
    """One process: a worker's readers, driven as its threads do, and its ends of two pipes.

    It can be killed between any two messages and in the middle of one, stopped and continued.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        name: str,
        pipe: int,
        pipe_bytes: int,
        reading: Callable[[SimulatedWorker, ReadShard], AssignedShard],
    ) -> None:
        self.exitcode: int | None = None
        self.name = name
        self.delay = 0.0
        """How long the service has kept the shard waiting that is being read just now."""
        self._scheduler = scheduler
        self._reading = reading
        self._readers = ReadScheduler(VirtualClock(scheduler))
        self._planned = math.inf
        self._pipe = os.dup(pipe)
        os.set_blocking(self._pipe, False)
        fcntl.fcntl(self._pipe, _SET_PIPE_SIZE, pipe_bytes)
        self._told, telling = Pipe(duplex=False)
        self._commands = CommandReader(self._told)
        self._telling = CommandWriter(telling)
        self._to_send: deque[tuple[AssignedShard, Message | None]] = deque()
        self._is_sending = False
        self._unsent = b""
        self._stopped = False
        self._missed: list[Callable[[], None]] = []
        self._torn_at: int | None = None
        self._terminated = False

    # Its own life

    def wait(self, seconds: float) -> None:
        self.delay += seconds

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        def act() -> None:
            if self.exitcode is not None:
                return
            if self._stopped:
                self._missed.append(action)
                return
            action()

        self._scheduler.after(seconds, act)

    def _listen(self) -> None:
        for command in self._commands.receive(0):
            match command:
                case ReadShard():
                    self._readers.add(self._reading(self, command))
                case ShardClosed() | Pause():
                    self._readers.obey(command)
        self._look()

    def _look(self) -> None:
        """Read those whose turn has come; their answers come each in its own time."""
        while (reading := self._readers.next()) is not None:
            self.delay = 0.0
            answer = partial(self._take, reading, reading.read())
            self._later(self.delay, answer)
        wait = max(self._readers.due_in, _LEAST_SECONDS)
        due = self._scheduler.now + wait
        if due != self._planned:
            self._planned = due
            self._later(wait, partial(self._look_again, due))

    def _look_again(self, planned: float) -> None:
        """As planned, unless another time was meanwhile."""
        if planned == self._planned:
            self._look()

    def _take(self, reading: AssignedShard, messages: list[Message]) -> None:
        for message in messages:
            if isinstance(message, ReaderCrashed) and not message.fatal:
                raise AssertionError(message.text)
        self._readers.answered(reading)
        self._to_send += [(reading, message) for message in messages]
        self._to_send.append((reading, None))
        if not self._is_sending:
            self._is_sending = True
            self._send_next()

    def _send_next(self) -> None:
        while self._to_send:
            reading, message = self._to_send.popleft()
            if message is not None:
                self._send(reading.shard_key, message)
                return
            self._readers.done(reading)
        self._is_sending = False
        self._look()

    def _send(self, shard_key: ShardKey, message: Message) -> None:
        if self._scheduler.trace is not None:
            self._scheduler.tell(self.name, f"sends {_described(message)} of {shard_key.shard_id}")
        self._unsent = b"".join(frame(shard_key, message))
        self._write()

    def _write(self) -> None:
        if self._torn_at is not None:
            torn = self._unsent[: min(self._torn_at, len(self._unsent) - 1)]
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                self._put(torn)
            self._scheduler.tell(self.name, f"dies after {len(torn)} bytes of a message")
            self._end(-9)
            return
        while self._unsent:
            try:
                sent = self._put(self._unsent)
            except BlockingIOError:
                self._scheduler.blocked.append(self._guarded(self._write))
                return
            except BrokenPipeError:
                self._end(0)
                return
            self._unsent = self._unsent[sent:]
        # Now and then the others get a turn between two messages.
        self._later(_BREATH if self._scheduler.rng.random() < 0.3 else 0.0, self._send_next)

    def _guarded(self, action: Callable[[], None]) -> Callable[[], None]:
        return lambda: self._later(0.0, action)

    def _put(self, data: bytes) -> int:
        try:
            sent = os.write(self._pipe, data)
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno == errno.EAGAIN:
                raise BlockingIOError from None
            raise
        self._scheduler.pipes_changed = True
        return sent

    def _end(self, code: int) -> None:
        if self.exitcode is not None:
            return
        self.exitcode = code
        os.close(self._pipe)
        self._told.close()
        self._scheduler.pipes_changed = True
        self._scheduler.tell(self.name, f"has ended ({code})")

    # What others do to it

    @property
    def is_alive(self) -> bool:
        return self.exitcode is None

    def refresh_credentials(self, refused: str = "") -> None:
        """There are none here."""

    def send(self, command: Command) -> None:
        self._telling.send(command)
        self._later(_FORK_SECONDS, self._listen)

    def close(self) -> None:
        self._telling.close()
        self._later(0.0, lambda: self._end(0))

    def kill(self) -> None:
        self._end(-9)

    def terminate(self) -> None:
        """SIGTERM, which a worker takes for its end at any point."""
        self._terminated = True
        if not self._stopped:
            self._end(-15)

    def join(self, timeout: float | None = None) -> None:
        """Only called once it has ended, or was killed."""
        if self.exitcode is None and timeout is None:
            raise AssertionError(f"{self.name}: joined while it lives")

    def tear(self, after: int) -> None:
        """Kill it in the middle of its next message, after so many bytes of it."""
        self._torn_at = after

    def stop(self) -> None:
        self._stopped = True

    def go_on(self) -> None:
        self._stopped = False
        if self._terminated:
            self._end(-15)
        missed, self._missed = self._missed, []
        for action in missed:
            self._later(0.0, action)


class PipeSelector:
    """What the queue waits with: time passes until a pipe is readable, or for so long.

    Of several that are readable none is always the first.
    """

    def __init__(self, scheduler: Scheduler, life: Life) -> None:
        self._scheduler = scheduler
        self._life = life
        self._inner = selectors.PollSelector()
        self._order: dict[int, int] = {}
        self._count = itertools.count()

    def register(self, fd: int, events: int, data: Any = None) -> selectors.SelectorKey:
        self._scheduler.pipes_changed = True
        # Not by their numbers, which depend on what else this process has open.
        self._order.pop(fd, None)
        self._order[fd] = next(self._count)
        return self._inner.register(fd, events, data)

    def unregister(self, fd: int) -> selectors.SelectorKey:
        return self._inner.unregister(fd)

    def close(self) -> None:
        self._inner.close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        scheduler = self._scheduler
        self._life.check()
        scheduler.unblock()
        end = scheduler.now + (timeout or 0.0)
        while True:
            if scheduler.pipes_changed:
                if ready := self._inner.select(0):
                    ready.sort(key=lambda each: self._order[each[0].fd])
                    scheduler.rng.shuffle(ready)
                    return ready
                scheduler.pipes_changed = False
            due = scheduler.step(end)
            self._life.check()
            if not due:
                return []


def _described(message: Message) -> str:
    if isinstance(message, Page):
        count = message.stop - message.start
        return f"a page of {count} up to {message.last_sequence_number}"
    return str(message)
