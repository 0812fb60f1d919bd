"""Adapts the rate of reads to the share of AWS's limit that other readers leave.

AWS allows about five GetRecords a second on a shard to all its readers together; a Lambda function
takes four of them. A reader is not limited before its first throttled read: most shards have reads
to spare, and emulators, without such a limit, give far more than five pages a second of a backlog.
After that the rate grows a little with each successful read, and shrinks by a share with each
throttled one, as TCP adapts to a network.

The constants aim at few throttled reads (below 5 %) and at least nine tenths of the available rate,
whether that is one or five reads a second: a tenth less after each throttled read, recovered in
forty reads. Well above the last limit the steps grow, as another reader may have left. After some
minutes at the largest rate without a throttled read, the limit is lifted.
"""

from __future__ import annotations

import math

from watcher.clock import Clock
from watcher.retry import Backoff

_READS_PER_SECOND_MAX = 5.0
"""The reads that AWS allows to all readers of a shard together."""
_ABOVE_LIMIT = 1.05
"""The multiple of the last limit from which the rate grows faster.

Another reader may have left.
"""
_STEP_GROWTH = 1.1
"""The growth of each step above that."""
_READS_UNTIL_FREE = 1500
"""The number of reads without a throttled one after which the limit is lifted."""
_READS_PER_SECOND_FIRST = 2.5
"""The rate after the first throttled read."""
_THROTTLED_SHARE = 0.9
"""The share of the rate that is left after a throttled read."""
_THROTTLED_AGAIN_SHARE = 0.5
"""The share that is left after a second throttled read in a row."""
_READS_PER_SECOND_MIN = 0.8
"""The slowest rate, however many other readers there are."""
_READS_TO_RECOVER = 40
"""The number of reads in which the rate climbs back to the last limit."""
_THROTTLED_SECONDS_MAX = 10.0
"""The longest delay between throttled reads in a row."""


class AdaptiveRateLimit:
    """The rate limit of one reader."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rate: float | None = None  # reads a second; None: no limit
        self._limit = _READS_PER_SECOND_MAX
        self._step = 0.0
        self._since_throttled = 0
        self.throttled_in_a_row = 0
        """The number of throttled reads in a row."""
        self._began = 0.0

    @property
    def allowed(self) -> float:
        """The allowed reads a second; infinite without a limit."""
        return math.inf if self._rate is None else self._rate

    def on_read(self) -> None:
        """Notes that a read begins now."""
        self._began = self._clock.monotonic()

    def on_success(self) -> None:
        """Notes that the read succeeded."""
        self.throttled_in_a_row = 0
        if self._rate is None:
            return
        self._since_throttled += 1
        self._rate = min(self._rate + self._step, _READS_PER_SECOND_MAX)
        if self._rate > self._limit * _ABOVE_LIMIT:
            self._step *= _STEP_GROWTH
        if self._since_throttled >= _READS_UNTIL_FREE and self._rate == _READS_PER_SECOND_MAX:
            self._rate = None

    def on_throttled(self) -> None:
        """Notes that the read was throttled."""
        self.throttled_in_a_row += 1
        if self._rate is None:
            self._rate = _READS_PER_SECOND_FIRST
        else:
            self._limit = self._rate
            share = _THROTTLED_SHARE if self._since_throttled else _THROTTLED_AGAIN_SHARE
            self._rate = max(self._rate * share, _READS_PER_SECOND_MIN)
        self._step = self._limit * (1 - _THROTTLED_SHARE) / _READS_TO_RECOVER
        self._since_throttled = 0

    def delay(self) -> float:
        """Returns the seconds until the next read may begin: more after each throttled one."""
        if self._rate is None:
            return 0.0
        interval = 1 / self._rate
        if self.throttled_in_a_row > 1:
            longest = _THROTTLED_SECONDS_MAX
            growing = Backoff(first_seconds=interval, longest_seconds=longest)
            interval = growing.after(self.throttled_in_a_row)
        return max(0.0, self._began + interval - self._clock.monotonic())
