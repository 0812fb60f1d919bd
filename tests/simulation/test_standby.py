"""Two and three watches of one checkpoint, seed by seed; and that a broken lease is seen."""

from __future__ import annotations

import inspect
import logging
import textwrap
from collections import Counter
from typing import Any

import pytest

from tests.simulation.scheduler import Trace
from tests.simulation.standby import Item, play_standby
from watcher.stores.lease import Lease

_SEEDS = 8


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("watcher").setLevel(logging.CRITICAL)


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


WRONG: dict[str, tuple[type, str, str, str]] = {
    "delivers without looking": (
        Lease,
        "raise_unless_held",
        "if self._clock.boottime() < self._valid_until:",
        "if self._clock.boottime() < self._valid_until + 1e9:",
    ),
    "counts from the answer": (
        Lease,
        "write",
        "self._on_written(record, began)",
        "self._on_written(record, began + 9)",
    ),
    "takes over too early": (
        Lease,
        "_is_free",
        "record.seconds + _MARGIN_SECONDS",
        "record.seconds - 4",
    ),
    "takes no answer for the table's": (Lease, "write", "if error.answered:", "if True:"),
    "extends what has run out": (Lease, "_extend", "if began < self._valid_until:", "if True:"),
    "writes over anything": (Item, "replace", "return False", "pass"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_lease_that_is_wrong_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, method, old, new = WRONG[name]
    function = vars(owner)[method]
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1
    found: dict[str, Any] = {}
    exec(source.replace(old, new), function.__globals__, found)
    monkeypatch.setattr(owner, method, found[method])
    assert any(play_standby(seed).complaints for seed in range(45, 150))
