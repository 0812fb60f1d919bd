"""The status line on a real terminal: it never touches the data, and leaves nothing behind."""

import re
import sys

import pytest

from tests.simulator import Simulator
from tests.support.terminal import Terminal

pytestmark = pytest.mark.proof
SHARDS = 2

WATCHER = (sys.executable, "-m", "watcher")
DATA = re.compile(r"\[[^]]+\] - (INSERT|MODIFY|REMOVE) - pk=\S+")
STATUS = re.compile(r"\d+ shards? open, \d+ finished \| [\d,]+ records? \| [\d,]+/s \| lag \d+ s.*")


def watching(sim: Simulator, *options: str, **more: int) -> Terminal:
    return Terminal(*WATCHER, "orders", "--print-summary", *options, env=sim.environment, **more)


def has_status(terminal: Terminal) -> bool:
    """Whether it is shown, beneath whatever is there once the shards are being read."""
    shown = terminal.shown
    begun = any(line.startswith("Watching") for line in shown)
    return begun and STATUS.fullmatch(shown[-1]) is not None


def data(terminal: Terminal) -> list[str]:
    return [line for line in terminal.shown if DATA.fullmatch(line)]


def is_log(line: str) -> bool:
    return line.startswith(("Starting watcher", "Watching ", "Finished shard", "Done: ", "warning"))


def test_no_line_of_data_or_log_is_torn_while_the_status_is_shown(sim: Simulator) -> None:
    with watching(sim) as terminal:
        terminal.wait_for(lambda: has_status(terminal))
        for number in range(4):
            sim.bulk(200, keys=7)
            sim.rotate()
            count = 200 * (number + 1)
            terminal.wait_for(lambda: len(data(terminal)) == count)  # noqa: B023
            terminal.wait_for(lambda: has_status(terminal))
        terminal.press(b"\x03")
        assert terminal.end() == 0
        shown = terminal.shown
        assert [line for line in shown if not DATA.fullmatch(line) and not is_log(line)] == []
        assert len(data(terminal)) == 800
        assert shown[-1].startswith("Done: 800 records")
        assert terminal.screen.cursor.x == 0 and not terminal.screen.cursor.hidden
