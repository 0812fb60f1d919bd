"""The soak finds what it looks for, and a short one is clean; `scripts/soak` is the rest."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.soak.account import SAVED_SECONDS, Account, Run
from tests.soak.samples import Sample, growth
from tests.soak.soak import Soak

pytestmark = pytest.mark.proof


def account(*runs: tuple[Run, str, float]) -> Account:
    """Each run delivers these changes of one item, all at once."""
    made = Account()
    for run, numbers, moment in runs:
        for number in numbers:
            made.take(run, "a", int(number), moment)
    return made


@pytest.mark.parametrize(
    ("numbers", "faults"),
    [
        ("12345", {}),
        ("12335", {"repeated within a run": 1, "missing, or out of order": 1}),
        ("1245", {"missing, or out of order": 1}),
        ("1324", {"missing, or out of order": 1, "repeated within a run": 1}),
        ("2345", {"missing, or out of order": 1}),
    ],
)
def test_what_one_run_leaves_out_swaps_or_repeats_is_found(
    numbers: str, faults: dict[str, int]
) -> None:
    assert +account((Run(), numbers, 0.0)).faults == Counter(faults)


@pytest.mark.parametrize(
    ("cut_off", "too_much"),
    [(0.5, 0), (SAVED_SECONDS + 1, 2), (None, 2)],
)
def test_a_run_may_repeat_what_was_delivered_just_before_a_kill(
    cut_off: float | None, too_much: int
) -> None:
    made = account((Run(cut_off=cut_off), "1234", 0.0), (Run(), "345", 10.0))
    assert made.repeated == 2
    assert made.faults["repeated too much"] == too_much
    assert made.faults.total() == too_much
    assert made.lost(Counter(a=7)) == 2


def test_one_that_has_lost_its_lease_may_deliver_what_was_in_its_hands() -> None:
    paused = Run(cut_off=0.0, superseded=True)
    assert account((paused, "1", 1.0)).faults.total() == 0
    paused = Run(cut_off=0.0, superseded=True)
    assert account((paused, "23", 1.0)).faults.total() == 1


def samples(an_hour: float) -> list[Sample]:
    """Two hours that begin with a rise, and have something else in every tenth sample."""
    return [
        Sample(each / 60, 30 + min(each, 10) + an_hour * each / 60 + 9 * (each % 10 == 0), *rest)
        for each in range(120)
        for rest in [(80.0, 6, 20, 1)]
    ]


@pytest.mark.parametrize(("an_hour", "too_much"), [(0.0, False), (1.0, False), (3.0, True)])
def test_what_grows_is_told_from_what_varies(an_hour: float, too_much: bool) -> None:
    found = {each.name: each for each in growth(samples(an_hour))}
    assert found["manager"].an_hour == pytest.approx(an_hour, abs=0.1)
    assert [name for name, each in found.items() if each.too_much] == ["manager"] * too_much
    assert growth(samples(an_hour)[:5]) == []


def test_a_few_seconds_of_it_are_clean(tmp_path: Path) -> None:
    outcome = Soak(2.5, rate=200, seed=1, folder=tmp_path, say=print).run()
    assert outcome.is_good, (outcome.faults, outcome.complaints)
    assert outcome.written > 100
    assert outcome.takeovers["SIGTERM"], "one took over"
