"""The soak finds what it looks for, and a short one is clean; `scripts/soak` is the rest."""

from collections import Counter
from pathlib import Path

import pytest

from tests.soak.samples import Sample, growth
from tests.soak.soak import Soak
from tests.soak.watch import Account

pytestmark = pytest.mark.proof


@pytest.mark.parametrize(
    ("numbers", "faults"),
    [
        ("12345", {}),
        ("12335", {"repeated": 1, "missing, or out of order": 1}),
        ("1324", {"missing, or out of order": 1, "repeated": 1}),
        ("2345", {"missing, or out of order": 1}),
    ],
)
def test_what_is_left_out_swapped_or_repeated_is_found(
    numbers: str, faults: dict[str, int]
) -> None:
    account = Account()
    for number in numbers:
        account.take("a", int(number))
    assert +account.faults == Counter(faults)


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


def test_a_few_seconds_of_it_are_clean(tmp_path: Path) -> None:
    outcome = Soak(2.5, rate=200, seed=1, folder=tmp_path).run()
    assert outcome.is_good, (outcome.faults, outcome.complaints)
    assert outcome.written > 100 and outcome.done.total() >= 7
