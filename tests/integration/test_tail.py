"""`watch(tail=N)`: exactly the last N changes, and then all that come."""

from pathlib import Path
from typing import Any

import pytest

from tests.simulator import Simulator, judge
from watcher import watch
from watcher.runtime import tail

SHARDS = 4


def see(sim: Simulator, count: int, **settings: Any) -> list[str]:
    """The numbers of what comes."""
    seen: list[str] = []
    settings = {"follow": False, **settings}
    observe = settings.pop("observe", lambda record: None)

    def note(record: Any) -> None:
        seen.append(record.sequence_number)
        observe(record)

    watch("orders", [note], tail=count, region="us-east-1", endpoint_url=sim.endpoint, **settings)
    return seen


def spread(sim: Simulator, count: int) -> None:
    """Changes over all shards, each in a second of its own."""
    for number in range(count):
        sim.write(f"key-{number % 13}")
        sim.advance(1)


def test_what_comes_meanwhile_and_later_follows_once(sim: Simulator) -> None:
    spread(sim, 20)
    more = iter(range(12))

    def go_on(record: Any) -> None:
        if next(more, None) is not None:
            sim.write("key-1")

    seen = see(sim, 6, follow=True, max_records=18, observe=go_on)
    assert not any(judge(sim.records[-18:], seen))


def test_without_following_what_comes_meanwhile_is_not_among_them(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    spread(sim, 20)
    found, before = tail.Tail.begin, sim.records

    def begin(self: tail.Tail, streams: Any) -> None:
        found(self, streams)
        spread(sim, 5)

    monkeypatch.setattr(tail.Tail, "begin", begin)
    assert not any(judge(before[-6:], see(sim, 6)))


@pytest.mark.proof
@pytest.mark.parametrize("count", [3, 12, 25, 40])
def test_over_rotations_and_splits_the_order_of_each_item_is_kept(
    sim: Simulator, count: int
) -> None:
    for _ in range(3):
        spread(sim, 10)
        for shard in sim.open_shards:
            sim.rotate(shard)
        sim.rotate(sim.open_shards[0])  # one that stays empty
        sim.split(sim.open_shards[0])
    assert not any(judge(sim.records[-count:], see(sim, count)))


def test_a_checkpoint_that_exists_goes_before_it(sim: Simulator, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    spread(sim, 10)
    first = see(sim, 4, checkpoint=file, max_records=1)
    rest = see(sim, 2, checkpoint=file)
    assert not any(judge(sim.records[-4:], first + rest))
