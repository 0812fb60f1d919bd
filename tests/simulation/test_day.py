"""Days of a large table: nothing lost, nothing that grows."""

from __future__ import annotations

import pytest

from tests.simulation.day import SHARDS, Day, play_day
from tests.simulation.watch import PLACES

pytestmark = pytest.mark.proof

# A day's generations are listed, and one more is on its way out.
_GENERATIONS = 8
_CELLS = 13


@pytest.fixture(scope="module")
def days() -> Day:
    """Three of them."""
    return play_day(days=3)


def test_days_of_200_shards_rotating_every_four_hours_lose_nothing(days: Day) -> None:
    assert days.judge.complaints == []
    assert len(days.judge.shards()) == (3 * 6 + 1) * SHARDS
    assert sum(len(shard.numbers) for shard in days.judge.shards()) > 3 * 2000


def test_what_the_program_collects_does_not_grow_from_day_to_day(days: Day) -> None:
    assert len(days.sizes[".streams._watched[].coordinator.lineage.shards"]) == 18
    assert {name: sizes for name, sizes in days.sizes.items() if max(sizes) > _most(name)} == {}


def _most(name: str) -> int:
    if name.endswith("._memory"):  # of the board: as large as it was made
        return PLACES * _CELLS
    is_listed = ".lineage." in name or name.endswith(".coordinator._closed_at")
    return (_GENERATIONS if is_listed else 1) * SHARDS
