"""The chaos run finds what it looks for, and a short one is clean; `scripts/chaos` is the rest."""

from __future__ import annotations

import pytest

from tests import chaos
from tests.chaos import Run, Verdict, judge_runs, run_seed
from tests.simulator import Written

pytestmark = pytest.mark.proof

WRITTEN = [Written("s", str(100 + n), f"k{n % 2}", n // 2 + 1) for n in range(6)]


def run(numbers: list[int], *, killed: bool = True, age: float = 0.0) -> Run:
    """A run that delivered all its records `age` seconds before it ended."""
    return Run([str(100 + n) for n in numbers], [0.0] * len(numbers), age, killed)


def judged(*runs: Run) -> Verdict:
    verdict = Verdict(0, "", 0.0, len(WRITTEN))
    judge_runs(WRITTEN, runs, verdict)
    return verdict


def test_a_clean_run_is_good() -> None:
    assert judged(run([0, 1, 2, 3, 4, 5])).is_good


def test_a_lost_record_is_found() -> None:
    assert judged(run([0, 1, 2, 4, 5])).lost == 1


def test_a_record_repeated_by_the_same_run_is_found() -> None:
    assert judged(run([0, 1, 2, 1, 3, 4, 5])).repeated_within == 1


def test_a_change_after_a_later_one_of_the_same_item_is_found() -> None:
    assert judged(run([0, 3, 1, 2, 4, 5])).out_of_order == 1
    # Changes of different items may come in any order.
    assert judged(run([1, 0, 3, 2, 5, 4])).is_good


def test_a_restart_may_repeat_what_was_delivered_just_before_the_kill() -> None:
    verdict = judged(run([0, 1, 2, 3], age=0.5), run([2, 3, 4, 5]))
    assert verdict.is_good and verdict.repeated == 2
    too_old = chaos.CHECKPOINT_INTERVAL + 1
    assert judged(run([0, 1, 2, 3], age=too_old), run([2, 3, 4, 5])).repeated_too_much == 2


def test_a_program_that_slept_could_not_save() -> None:
    slept = run([0, 1, 2, 3], age=4.0)
    slept.sleeps.append((0.5, 3.7))
    assert judged(slept, run([2, 3, 4, 5])).is_good
    slept.ended += 3.0
    assert judged(slept, run([2, 3, 4, 5])).repeated_too_much == 2


def test_a_restart_after_a_regular_end_may_repeat_nothing() -> None:
    assert judged(run([0, 1, 2, 3], killed=False), run([3, 4, 5])).repeated_too_much == 1


def test_a_record_that_nobody_wrote_is_found() -> None:
    assert judged(run([0, 1, 2, 3, 4, 5, 6])).unknown == 1


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [7, 18])
def test_a_short_chaos_loses_repeats_and_swaps_nothing(seed: int) -> None:
    verdict = run_seed(seed, 6_000)
    assert verdict.is_good, chaos.describe(verdict)
    assert verdict.written == 6_000
