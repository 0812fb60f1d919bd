"""A day, and two of them, of a large table: nothing lost, nothing that grows."""

from __future__ import annotations

from tests.simulation.day import SHARDS, play_day
from tests.simulation.watch import PLACES

# A day's generations are listed, and one more is on its way out.
_GENERATIONS = 8
_CELLS = 13


def test_a_day_of_200_shards_rotating_every_four_hours_loses_nothing() -> None:
    day = play_day()
    assert day.judge.complaints == []
    assert len(day.judge.shards()) == 7 * SHARDS
    assert sum(len(shard.numbers) for shard in day.judge.shards()) > 2000


def test_what_the_program_collects_does_not_grow_from_day_to_day() -> None:
    day = play_day(days=3)
    assert day.judge.complaints == []
    assert len(day.sizes[".streams._followed[].coordinator.lineage.shards"]) == 18
    assert {name: sizes for name, sizes in day.sizes.items() if max(sizes) > _most(name)} == {}


def _most(name: str) -> int:
    if name.endswith("._memory"):  # of the board: as large as it was made
        return PLACES * _CELLS
    is_listed = ".lineage." in name or name.endswith(".coordinator._closed")
    return (_GENERATIONS if is_listed else 1) * SHARDS
