"""Two and three watches of one checkpoint; scripts/proofs has 2,000 seeds of them, and mutants."""

from __future__ import annotations

import pytest

from tests.simulation.run import play
from tests.simulation.scheduler import Trace

_SEEDS = 8


@pytest.mark.proof
def test_whoever_is_killed_is_followed_in_time() -> None:
    """Where nothing else happens within those seconds, which is seldom so in other seeds."""
    outcomes = [play(seed, "standby", {"events": ["kill"]}) for seed in range(_SEEDS)]
    assert [outcome for outcome in outcomes if outcome.complaints] == []
    checked = [outcome.checked["takeovers in time"] for outcome in outcomes]
    assert sum(checked) > _SEEDS / 3  # the others' kill hits one that stands by


def test_a_seed_is_the_same_run_each_time() -> None:
    first, second = Trace(keep=False), Trace(keep=False)
    assert not play(3, "standby", trace=first).complaints
    play(3, "standby", trace=second)
    assert first.digest == second.digest
