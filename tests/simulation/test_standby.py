"""Two and three watches of one checkpoint, seed by seed; and that a broken lease is seen."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from tests.simulation.mutations.edits import (
    Change,
    argument,
    attribute,
    condition,
    instead,
    recompiled,
)
from tests.simulation.scheduler import Trace
from tests.simulation.standby import Item, play_standby
from watcher.stores.lease import Lease

_SEEDS = 8


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("watcher").setLevel(logging.CRITICAL)


@pytest.mark.proof
def test_no_seed_breaks_what_is_promised_at_a_takeover() -> None:
    outcomes = [play_standby(seed) for seed in range(_SEEDS)]
    assert [outcome for outcome in outcomes if outcome.complaints] == []
    checked = sum((outcome.checked for outcome in outcomes), Counter[str]())
    injected = sum((outcome.injected for outcome in outcomes), Counter[str]())
    assert checked["takeovers"] >= _SEEDS / 2
    assert {"kill", "pause", "cut", "outage", "rotate"} <= injected.keys()


@pytest.mark.proof
def test_whoever_is_killed_is_followed_in_time() -> None:
    """Where nothing else happens within those seconds, which is seldom so in the seeds above."""
    outcomes = [play_standby(seed, events=["kill"]) for seed in range(_SEEDS)]
    assert [outcome for outcome in outcomes if outcome.complaints] == []
    checked = sum((outcome.checked for outcome in outcomes), Counter[str]())
    assert checked["takeovers in time"] > _SEEDS / 3  # the others' kill hits one that stands by


def test_a_seed_is_the_same_run_each_time() -> None:
    first, second = Trace(keep=False), Trace(keep=False)
    play_standby(3, first)
    play_standby(3, second)
    assert first.digest == second.digest


WRONG: dict[str, tuple[type, str, Change]] = {
    "delivers without looking": (
        Lease,
        "raise_unless_held",
        condition("_valid_until", becomes="{left} < {right} + 1e9", nth=0),
    ),
    "counts from the answer": (Lease, "write", argument("_on_written", 1, becomes="{it} + 9")),
    "takes over too early": (
        Lease,
        "_is_free",
        attribute("seconds", becomes="{it} - 4 - self._timing.margin_seconds"),
    ),
    "takes no answer for the table's": (Lease, "write", condition("answered", becomes="True")),
    "extends what has run out": (Lease, "_extend", condition("_valid_until", becomes="True")),
    "writes over anything": (Item, "replace", instead("return", nth=0, do="pass")),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_lease_that_is_wrong_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, method, change = WRONG[name]
    monkeypatch.setattr(owner, method, recompiled(vars(owner)[method], change))
    assert any(play_standby(seed).complaints for seed in range(45, 150))
