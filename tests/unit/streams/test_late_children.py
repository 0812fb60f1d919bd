"""For how long a finished shard's child is waited for."""

from __future__ import annotations

from datetime import timedelta

from tests.support.hand_clock import HandClock
from tests.support.times import NOON
from watcher.aws.model import Shard, TrimHorizon
from watcher.streams.lineage import Lineage
from watcher.streams.listing_schedule import LateChildren, is_young


def test_a_child_is_missing_for_five_seconds_or_until_it_is_listed() -> None:
    clock, lineage = HandClock(), Lineage(TrimHorizon())
    lineage.update([Shard("a"), Shard("b")])
    late = LateChildren(clock)
    for name in ("a", "b"):
        late.on_finished(name, closed_at=clock.monotonic(), is_alone=True, may_have_more=True)
    assert late.are_missing(lineage)
    lineage.update([Shard("c", "a")])
    assert late.are_missing(lineage), "that of b"
    clock.sleep(5)
    assert not late.are_missing(lineage)
    assert late.settled_at == clock.monotonic()


def test_listings_follow_ever_later() -> None:
    late = LateChildren(HandClock())
    assert [late.delay() for _ in range(4)] == [0.25, 0.5, 1.0, 1.0]


def test_a_sibling_of_a_young_shard_may_not_be_listed_yet() -> None:
    name = f"shardId-{int(NOON.timestamp() * 1000):020d}-0"
    assert is_young(name, NOON + timedelta(seconds=4))
    assert not is_young(name, NOON + timedelta(seconds=5))
