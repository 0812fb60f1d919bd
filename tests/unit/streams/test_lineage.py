"""Which shards are ready, running and finished. The simulation plays whole histories of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import hypothesis.strategies as st
from hypothesis import given

from watcher.aws.model import AfterSequence, Latest, Position, Shard, TrimHorizon
from watcher.streams.lineage import Lineage, ShardStatus, TrackedShard

Drawing = Mapping[int, Sequence[int]]


def drawn(drawing: Drawing) -> list[Shard]:
    """Shards as a listing shows them: `{0: [1, 2]}` is shard 0 with its children 1 and 2."""
    parents = {child: parent for parent, children in drawing.items() for child in children}
    names = sorted({*drawing, *parents})
    return [Shard(str(name), _text(parents.get(name))) for name in names]


def _text(name: int | None) -> str | None:
    return None if name is None else str(name)


def watched(drawing: Drawing, start: Position | None = None) -> Lineage:
    lineage = Lineage(start or TrimHorizon())
    lineage.update(drawn(drawing))
    return lineage


def ready(lineage: Lineage) -> list[int]:
    return sorted(int(shard.id) for shard in lineage.ready())


def finish(lineage: Lineage, *names: int) -> None:
    for name in names:
        lineage.shards[str(name)].status = ShardStatus.FINISHED


def test_latest_begins_with_the_shards_that_have_no_child() -> None:
    lineage = watched({0: [1], 1: [2, 3], 4: []}, Latest())
    assert ready(lineage) == [2, 3, 4]


def test_at_latest_an_unlisted_parent_is_past() -> None:
    lineage = Lineage(Latest())
    lineage.update([Shard("2", parent="1")])
    assert ready(lineage) == [2]
    lineage.update([Shard("1", parent="0"), Shard("2", parent="1"), Shard("0")])
    assert ready(lineage) == [2]


def test_at_latest_what_looks_closed_is_past_though_no_child_of_it_is_listed_yet() -> None:
    lineage = Lineage(Latest())
    lineage.update([Shard("1", end="9"), Shard("4", parent="2")])
    assert ready(lineage) == [4]
    lineage.update([Shard("2", parent="1", end="19"), Shard("3", parent="1")])
    assert ready(lineage) == [3, 4]
    assert lineage.shards["3"].position == TrimHorizon()


def test_a_child_waits_for_its_parent_also_where_a_listing_shows_it_first() -> None:
    lineage = Lineage(TrimHorizon())
    lineage.update([Shard("1", parent="0")])
    lineage.update([Shard("0"), Shard("1", parent="0")])
    assert ready(lineage) == [0]
    finish(lineage, 0)
    assert ready(lineage) == [1]


def test_a_finished_shard_is_forgotten_once_it_left_the_listing_and_its_child_began() -> None:
    lineage = watched({0: [1]})
    finish(lineage, 0)
    lineage.forget([Shard("1", "0")])
    assert "0" in lineage.shards
    lineage.shards["1"].status = ShardStatus.RUNNING
    lineage.forget([Shard("1", "0")])
    assert "0" not in lineage.shards


def test_a_finished_shard_whose_process_still_runs_is_kept() -> None:
    lineage = watched({0: [1]})
    finish(lineage, 0, 1)
    lineage.forget([Shard("1", "0")], keep={"0"})
    assert "0" in lineage.shards


def test_a_days_rotations_leave_no_more_than_the_listing() -> None:
    lineage = watched({0: []})
    for name in range(1, 2000):
        lineage.shards[str(name - 1)].status = ShardStatus.FINISHED
        lineage.update([Shard(str(name - 1), _text(name - 2 if name > 1 else None))])
        lineage.update([Shard(str(name), str(name - 1))])
        lineage.shards[str(name)].status = ShardStatus.RUNNING
        lineage.forget([Shard(str(name), str(name - 1))])
        assert len(lineage.shards) <= 2


def test_a_record_that_comes_late_moves_no_position_back() -> None:
    shard = TrackedShard("a", None, AfterSequence("9"))
    for number, position in (("10", "10"), ("9", "10"), ("11", "11")):
        shard.move_behind(number)
        assert shard.position == AfterSequence(position)


def test_a_circle_that_closes_in_a_later_listing_is_none() -> None:
    lineage = Lineage(TrimHorizon())
    lineage.update([Shard("a"), Shard("b", "a")])
    lineage.update([Shard("a", "b")])
    assert [shard.id for shard in lineage.ready()] == ["a"]


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh")),
    st.sampled_from([Latest(), TrimHorizon()]),
)
def test_whatever_is_listed_every_shard_gets_its_turn(
    parents: dict[str, str], start: Position
) -> None:
    """Circles, too."""
    lineage = Lineage(start)
    lineage.update([Shard(name, parent) for name, parent in parents.items()])
    while lineage.unfinished:
        ready = lineage.ready()
        assert ready, "all of them wait"
        for shard in ready:
            shard.status = ShardStatus.FINISHED
