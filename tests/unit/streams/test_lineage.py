"""Which shards are ready, running and finished: drawn by hand, and by hypothesis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.times import NOON
from watcher.aws.model import Latest, Position, Shard, TrimHorizon
from watcher.clock import CLOCK
from watcher.streams import checkpoint_format
from watcher.streams.lineage import Lineage, ShardStatus

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


class Service:
    """The truth: shards that are hidden at first, then listed, and at last gone."""

    def __init__(self) -> None:
        self.parents: dict[int, int | None] = {}
        self.open: set[int] = set()
        self.hidden: set[int] = set()
        self.gone: set[int] = set()

    def add(self, parent: int | None, *, hidden: bool) -> int:
        name = len(self.parents)
        self.parents[name] = parent
        self.open.add(name)
        if hidden:
            self.hidden.add(name)
        return name

    def listing(self) -> list[Shard]:
        return [
            Shard(str(name), _text(parent))
            for name, parent in self.parents.items()
            if name not in self.hidden and name not in self.gone
        ]

    def ancestors(self, name: int) -> list[int]:
        parent = self.parents[name]
        return [] if parent is None else [parent, *self.ancestors(parent)]


class AnyHistory(RuleBasedStateMachine):
    """Splits, listings that lag, shards that vanish, deaths and resumes: in any order.

    Reading is "begun" and "read"; a death goes back to what a token said. What must hold: nothing
    is read before its parent, nothing twice, and in the end all that was not gone was read.
    """

    @initialize(start=st.sampled_from([TrimHorizon(), Latest()]), shards=st.integers(1, 3))
    def begin(self, start: Position, shards: int) -> None:
        self.service = Service()
        self.start = start
        for _ in range(shards):
            self.service.add(None, hidden=False)
        self.lineage = Lineage(start)
        self.required: set[int] | None = None
        self.read: set[int] = set()
        self.token: tuple[bytes, set[int]] | None = None

    # The service

    @rule(data=st.data(), into=st.integers(1, 3))
    def split(self, data: st.DataObject, into: int) -> None:
        if len(self.service.parents) > 40:
            return
        parent = data.draw(st.sampled_from(sorted(self.service.open)))
        self.service.open.remove(parent)
        for _ in range(into):
            child = self.service.add(parent, hidden=data.draw(st.booleans()))
            if self.required is not None:
                self.required.add(child)

    @precondition(lambda self: self.service.hidden)
    @rule(data=st.data())
    def list_a_hidden_one(self, data: st.DataObject) -> None:
        self.service.hidden.remove(data.draw(st.sampled_from(sorted(self.service.hidden))))

    @rule()
    def retention_takes_the_oldest(self) -> None:
        closed = [name for name in self.service.parents if name not in self.service.open]
        for name in closed:
            if name not in self.service.gone:
                self.service.gone.add(name)
                return

    # The watch

    @rule()
    def look_at_the_listing(self) -> None:
        if self.required is None:
            is_latest = isinstance(self.start, Latest)
            names = self.service.open if is_latest else set(self.service.parents)
            self.required = set(names) - self.service.gone
        listing = self.service.listing()
        self.lineage.update(listing)
        self.lineage.forget(listing)

    @rule(data=st.data())
    def look_for_children(self, data: st.DataObject) -> None:
        finished = [
            shard.id
            for shard in self.lineage.shards.values()
            if shard.status is ShardStatus.FINISHED
        ]
        if finished and self.required is not None:
            parent = data.draw(st.sampled_from(finished))
            self.lineage.update(s for s in self.service.listing() if s.parent == parent)

    @rule()
    def begin_what_is_ready(self) -> None:
        for shard in self.lineage.ready():
            name = int(shard.id)
            if name in self.service.gone:
                shard.status = ShardStatus.FINISHED
            elif shard.expected:  # see reading/unlisted.py for the others
                shard.status = ShardStatus.RUNNING
                self.check_order(name)

    def check_order(self, name: int) -> None:
        assert name not in self.read, f"{name} is read again"
        for ancestor in self.service.ancestors(name):
            if self.required and ancestor in self.required and ancestor not in self.service.gone:
                assert ancestor in self.read, f"{name} before {ancestor}"

    @rule(data=st.data())
    def read_one_to_its_end(self, data: st.DataObject) -> None:
        running = [s for s in self.lineage.shards.values() if s.status is ShardStatus.RUNNING]
        over = [s for s in running if int(s.id) not in self.service.open]
        if over:
            shard = data.draw(st.sampled_from(over))
            shard.status = ShardStatus.FINISHED
            self.read.add(int(shard.id))

    @precondition(lambda self: self.required is not None)
    @rule()
    def save(self) -> None:
        token = checkpoint_format.make("arn", self.lineage, NOON)
        self.token = checkpoint_format.encode_all([token]), set(self.read)

    @precondition(lambda self: self.token)
    @rule()
    def die_and_resume(self) -> None:
        assert self.token is not None
        raw, read = self.token
        self.lineage = Lineage(
            self.start, checkpoint_format.resume(checkpoint_format.from_json(raw), CLOCK.now())
        )
        self.read = set(read)

    @invariant()
    def nothing_stays_tracked_for_ever(self) -> None:
        if hasattr(self, "lineage"):
            assert len(self.lineage.shards) <= len(self.service.parents)

    def teardown(self) -> None:
        if not hasattr(self, "service"):
            return
        self.service.hidden.clear()
        self.look_at_the_listing()
        for _ in range(3 * len(self.service.parents) + 3):
            self.look_at_the_listing()
            self.begin_what_is_ready()
            for shard in self.lineage.shards.values():
                if shard.status is ShardStatus.RUNNING:
                    shard.status = ShardStatus.FINISHED
                    self.read.add(int(shard.id))
        assert self.required is not None
        assert self.required - self.read - self.service.gone == set()


AnyHistory.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.mark.timeout(200)
class TestAnyHistory(AnyHistory.TestCase):  # type: ignore[misc,valid-type]
    """Run by pytest under this name."""


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
