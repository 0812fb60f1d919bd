"""Virtual time: one heap of what is due, and the one synchronous actor that lets it pass."""

from __future__ import annotations

import hashlib
import heapq
import itertools
import random
import re
from collections.abc import Callable

from watcher.clock import Clock

EPOCH = 1_750_000_000.0
_MOST_CALLS_AT_A_MOMENT = 100_000
_MOST_EVENTS_AT_A_MOMENT = 20_000
_NAMES = re.compile(r"shardId-\d{20}-[0-9a-f]{8}|\b\d{21,22}\b")


class Killed(BaseException):
    """kill -9: whatever the program still does, nothing comes of it."""


class Stalled(BaseException):
    """Somebody works for ever while no time passes."""


class Trace:
    """What happened, a line each, in names that a person can follow; or only its hash."""

    def __init__(self, *, keep: bool) -> None:
        self.keep = keep
        self.lines: list[str] = []
        self._shards: dict[str, str] = {}
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        """The same for two runs exactly where the same has happened in both."""
        return self._hash.hexdigest()[:16]

    def line(self, now: float, actor: str, text: str) -> None:
        self._hash.update(f"{now!r} {actor} {text}\n".encode())
        if self.keep:
            named = _NAMES.sub(self._short, f"{actor:14} {text}")
            self.lines.append(f"{now:12.3f}  {named}")

    def _short(self, found: re.Match[str]) -> str:
        """A name for a shard's id or a sequence number."""
        if found[0].isdigit():
            return f"#{(int(found[0]) // 1000) % 100_000}"
        return self._shards.setdefault(found[0], f"S{len(self._shards)}")


class Scheduler:
    """What is due and when. The same seed gives the same order, also of what is due at once."""

    def __init__(self, seed: int, trace: Trace | None) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self.trace = trace
        self.skew = 0.0  # what the machine's wall clock is off
        self.slept = 0.0  # for how long the machine was suspended, or off
        self.blocked: list[Callable[[], None]] = []  # what waits for room in a pipe
        self.pipes_changed = False  # whether a pipe may have become readable since it was looked at
        self._events: list[tuple[float, float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._at_this_moment = 0
        self._stood_still = 0.0

    def tell(self, actor: str, text: str) -> None:
        if self.trace is not None:
            self.trace.line(self.now, actor, text)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do this so many seconds from now; what is due at once comes in an order by chance."""
        event = (self.now + seconds, self.rng.random(), next(self._order), action)
        heapq.heappush(self._events, event)

    def step(self, until: float) -> bool:
        """Let time pass up to the next thing due, and do it; False where none is due by then."""
        if not self._events or self._events[0][0] > until:
            self._move(until)
            return False
        moment, _, _, action = heapq.heappop(self._events)
        self._move(moment)
        action()
        return True

    def run_until(self, moment: float) -> None:
        while self.step(moment):
            pass

    def stand_still(self, seconds: float) -> None:
        """The whole machine is stopped so long: what is due meanwhile comes late."""
        self.now += seconds
        self._stood_still += seconds

    @property
    def awake(self) -> float:
        """Seconds in which anything could have happened."""
        return self.now - self._stood_still

    def unblock(self) -> None:
        waiting, self.blocked = self.blocked, []
        for action in waiting:
            self.after(0.0, action)

    def _move(self, moment: float) -> None:
        if moment > self.now:
            self.now = moment
            self._at_this_moment = 0
            return
        self._at_this_moment += 1
        if self._at_this_moment > _MOST_EVENTS_AT_A_MOMENT:
            raise Stalled(f"more than {_MOST_EVENTS_AT_A_MOMENT} events, and no time passes")


class VirtualClock(Clock):
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def monotonic(self) -> float:
        return self._scheduler.now

    def boottime(self) -> float:
        return self.monotonic() + self._scheduler.slept

    def time(self) -> float:
        return EPOCH + self._scheduler.now + self._scheduler.skew

    def sleep(self, seconds: float) -> None:
        raise AssertionError("only the program's main thread waits")


class Life(VirtualClock):
    """One run of the program, from its start to its end, as its main thread sees time.

    Whatever the thread does outside of itself asks here first: where the run was killed, that
    raises, for ever, so that no `finally` saves or delivers anything.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self.killed = False
        self.waits: Callable[[float], bool] = lambda seconds: False
        """Where another thread than the main one would wait, this does, and answers True."""
        self._calls = 0
        self._last = -1.0

    def check(self) -> None:
        """Raise where the program is dead, or turns in a circle."""
        if self.killed:
            raise Killed
        now = self._scheduler.now
        if now != self._last:
            self._last, self._calls = now, 0
        self._calls += 1
        if self._calls > _MOST_CALLS_AT_A_MOMENT:
            raise Stalled("the program works for ever while no time passes")

    def monotonic(self) -> float:
        self.check()
        return self._scheduler.now

    def sleep(self, seconds: float) -> None:
        self.check()
        if not self.waits(seconds):
            self._scheduler.run_until(self._scheduler.now + seconds)
        self.check()
