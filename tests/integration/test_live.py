"""The live view on a terminal, over a real watch."""

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulator import Simulator
from tests.support.terminal import Terminal

pytestmark = pytest.mark.proof

WATCH = [sys.executable, "-m", "watcher", "orders", "--from", "trim-horizon", "--live"]


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    with Simulator(table="orders", shards=2) as simulator:
        simulator.bulk(30, keys=3)
        yield simulator


def sees(terminal: Terminal, text: str) -> None:
    terminal.wait_for(lambda: any(text in line for line in terminal.shown))


def test_it_ends_where_its_terminal_is_gone(sim: Simulator, tmp_path: Path) -> None:
    checkpoint = tmp_path / "state.json"
    with Terminal(*WATCH, "--checkpoint", str(checkpoint), env=sim.environment) as terminal:
        sees(terminal, "30 changes")
        terminal.hang_up()
        assert terminal.end() == 128 + signal.SIGHUP
    shards = json.loads(checkpoint.read_text())["shards"]
    assert [each["iterator_type"] for each in shards] == ["after_sequence"] * 2
