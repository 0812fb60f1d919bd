"""Threads that handle records, in virtual time: only one of all runs, until it waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

from tests.simulation.scheduler import Killed, Life, Scheduler
from watcher.delivery.concurrent import HandlerPool

_Work = Callable[[], Iterator[None]]

# Between two records another hand, or the manager, may have its turn.
_BREATHS = (0.0, 0.0, 0.001, 0.02)


class SimulatedHandlerPool(HandlerPool):
    """Some threads that take turns with the program's main one: what one seed does, it does again.

    While one of them runs, the scheduler waits; where it would wait itself, it gives the turn back.
    """

    def __init__(self, scheduler: Scheduler, life: Life, count: int) -> None:
        self.size = count
        self.scheduler = scheduler
        self._life = life
        self._works: deque[_Work] = deque()
        self._idle: list[_Hand] = []
        self._all: list[_Hand] = []
        life.waits = self.waits

    def submit(self, work: _Work) -> None:
        if self._life.killed:
            return
        self._works.append(work)
        if self._idle:
            self._idle.pop().wake(0.0)
        elif len(self._all) < self.size:
            self._all.append(_Hand(self, len(self._all)))
            self._all[-1].wake(0.0)

    def close(self) -> None:
        """See `HandlerPool`: they end with the run."""

    def waits(self, seconds: float) -> bool:
        for hand in self._all:
            if hand.is_this_thread:
                hand.wait(seconds)
                return True
        return False

    def end(self) -> None:
        """The run is over; whatever they still do, nothing comes of it."""
        for hand in self._all:
            hand.end()

    def next_work(self, hand: _Hand) -> _Work:
        """What is to be done next; the hand waits for that. Raises Killed at the end of the run."""
        self.check()  # who was killed in the middle of a work may have kept that to itself
        while not self._works:
            self._idle.append(hand)
            hand.give_back()
        return self._works.popleft()

    def breath(self) -> float:
        return self.scheduler.rng.choice(_BREATHS)

    def check(self) -> None:
        if self._life.killed:
            raise Killed


class _Hand:
    def __init__(self, pool: SimulatedHandlerPool, number: int) -> None:
        self._pool = pool
        self._mine = threading.Semaphore(0)
        self._theirs = threading.Semaphore(0)
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name=f"hand {number}", daemon=True)
        self._thread.start()

    @property
    def is_this_thread(self) -> bool:
        return threading.current_thread() is self._thread

    # From the scheduler's thread, or another hand's

    def wake(self, seconds: float) -> None:
        self._pool.scheduler.after(seconds, self._go)

    def _go(self) -> None:
        if not self._is_over:
            self._mine.release()
            self._theirs.acquire()
            self._pool.scheduler.pipes_changed = True

    def end(self) -> None:
        """The run was killed, or is over: it is woken once more, to raise Killed."""
        if not self._is_over:
            self._mine.release()
            self._thread.join()

    # In the thread itself

    def give_back(self) -> None:
        """Whose turn it is, is the scheduler's to say."""
        self._theirs.release()
        self._mine.acquire()
        self._pool.check()

    def wait(self, seconds: float) -> None:
        self._pool.check()  # a handler's policy may have taken a kill for a failure
        self.wake(seconds)
        self.give_back()

    def _run(self) -> None:
        self._mine.acquire()
        try:
            self._pool.check()
            while True:
                for _ in self._pool.next_work(self)():
                    self.wait(self._pool.breath())
        except Killed:
            pass
        finally:
            self._is_over = True
            self._theirs.release()
