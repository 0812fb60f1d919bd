"""How often somebody looks for a next record before there is said to be none now."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from watcher.clock import Clock
from watcher.reading.puller import Puller

# A shard's turn comes sooner than that, also where it is read less than once a second, and where
# that is just being learnt.
_TURN_SECONDS = 2.5
# What other shards may bring is not to wait for it.
_STEP_SECONDS = 0.05
_LEAST_SECONDS = 0.01


def looks(pullers: Collection[Puller], clock: Clock) -> Iterator[bool]:
    """Whether to look at all shards at once, each time; the end says that there is nothing now.

    That can't be said of a shard that may have more, and that the service lets be read only so
    often: its turn is waited for.
    """
    yield False
    yield True
    until = clock.monotonic() + _TURN_SECONDS
    while (wait := min(each.turn_in for each in pullers)) <= until - clock.monotonic():
        clock.sleep(min(max(wait, _LEAST_SECONDS), _STEP_SECONDS))
        yield False
