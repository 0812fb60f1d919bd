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
from watcher.stores.dynamodb_lease import Lease

_SEEDS = 8


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("watcher").setLevel(logging.CRITICAL)


def test_no_seed_breaks_what_is_promised_at_a_takeover() -> None:
    outcomes = [play_standby(seed) for seed in range(_SEEDS)]
    assert [outcome for outcome in outcomes if outcome.complaints] == []
    checked = sum((outcome.checked for outcome in outcomes), Counter[str]())
    injected = sum((outcome.injected for outcome in outcomes), Counter[str]())
    assert checked["takeovers"] >= _SEEDS / 2
    assert {"kill", "pause", "cut", "outage", "rotate"} <= injected.keys()


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


def edited(method: Any, old: str, new: str) -> Any:
    """The method with a small edit."""
    text = textwrap.dedent(inspect.getsource(method))
    assert text.count(old) == 1, text
    found: dict[str, Any] = {}
    exec(text.replace(old, new), method.__globals__, found)
    return found[method.__name__]


WRONG: dict[str, tuple[Any, str, str]] = {
    "delivers without looking": (Lease.check, "< self._valid_until:", "< self._valid_until + 1e9:"),
    "counts from the answer": (
        Lease.write,
        "self._have(mine, began)",
        "self._have(mine, began + 9)",
    ),
    "takes over too early": (Lease._is_free, "+ _MARGIN_SECONDS", "- 4"),
    "takes no answer for the table's": (Lease.write, "if error.answered:", "if True:"),
    "bridges what has run out": (Lease._bridge, "if began < self._valid_until:", "if True:"),
    "writes over anything": (Item.replace, "return False", "pass"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_lease_that_is_wrong_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, old, new = WRONG[name]
    owner = Item if name == "writes over anything" else Lease
    monkeypatch.setattr(owner, method.__name__, edited(method, old, new))
    assert any(play_standby(seed).complaints for seed in range(45, 150))
