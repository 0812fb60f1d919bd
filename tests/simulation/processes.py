"""Shard processes as actors: the real reader and the real pipes, and a fate drawn by chance."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import selectors
from collections.abc import Callable, Iterator
from typing import Any

from tests.simulation.scheduler import Life, Scheduler
from watcher.engine.shared_queue import frame
from watcher.errors import StreamError
from watcher.reading.messages import Failed, Message, Page

_FORK_SECONDS = 0.005
_BREATH = 0.002
_SET_PIPE_SIZE = getattr(fcntl, "F_SETPIPE_SZ", 1031)


class ShardProcess:
    """One process: the steps of a worker, taken one by one, and its end of a pipe.

    It can be killed between any two steps and in the middle of a message, stopped and continued.
    """

    def __init__(self, scheduler: Scheduler, name: str, pipe: int, pipe_bytes: int) -> None:
        self.exitcode: int | None = None
        self.name = name
        self.delay = 0.0
        """How long the service has kept it waiting since its last step."""
        self._scheduler = scheduler
        self._steps: Iterator[Message | float] = iter(())
        self._pipe = os.dup(pipe)
        os.set_blocking(self._pipe, False)
        fcntl.fcntl(self._pipe, _SET_PIPE_SIZE, pipe_bytes)
        self._unsent = b""
        self._stopped = False
        self._missed: Callable[[], None] | None = None
        self._torn_at: int | None = None
        self._terminated = False

    # Its own life

    def begin(self, steps: Iterator[Message | float]) -> None:
        """Start it: it takes a moment until the first step."""
        self._steps = steps
        self._later(_FORK_SECONDS, self._step)

    def wait(self, seconds: float) -> None:
        """The service takes its time; the answer comes so much later."""
        self.delay += seconds

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        def act() -> None:
            if self.exitcode is not None:
                return
            if self._stopped:
                self._missed = action
                return
            action()

        self._scheduler.after(seconds, act)

    def _step(self) -> None:
        try:
            step = next(self._steps)
        except StopIteration:
            self._end(0)
            return
        except StreamError as error:  # as the real one's `run` does
            step = Failed(str(error), fatal=True)
        delay, self.delay = self.delay, 0.0
        if isinstance(step, float | int):
            self._later(delay + step, self._step)
        elif delay:
            self._later(delay, lambda: self._send(step))
        else:
            self._send(step)

    def _send(self, message: Message) -> None:
        if self._scheduler.trace is not None:
            self._scheduler.tell(self.name, f"sends {_described(message)}")
        self._unsent = b"".join(frame(message))
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
        self._later(_BREATH if self._scheduler.rng.random() < 0.3 else 0.0, self._step)

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
        self._steps = iter(())
        self._scheduler.pipes_changed = True
        self._scheduler.tell(self.name, f"has ended ({code})")

    # What others do to it

    @property
    def is_alive(self) -> bool:
        return self.exitcode is None

    def kill(self) -> None:
        """SIGKILL."""
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
        """SIGSTOP."""
        self._stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        self._stopped = False
        if self._terminated:
            self._end(-15)
        if self._missed is not None:
            missed, self._missed = self._missed, None
            self._later(0.0, missed)


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
        count = message.last - message.first
        return f"a page of {count} up to {message.last_sequence_number}"
    return str(message)
