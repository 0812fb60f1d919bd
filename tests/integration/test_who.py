"""Every block of docs/who.md runs as it is written."""

import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.simulator import Simulator
from tests.support import pages, trails
from tests.support.hand_clock import HandClock
from tests.support.trails import Event, deliver, role
from watcher.cli import main

CONSOLE = pages.of_kind("console", pages.PAGES["who.md"])
PROGRAMS = pages.of_kind("python", pages.PAGES["who.md"])
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d")
NOW = re.compile(r"^NOW    \S+", re.MULTILINE)


def moment(text: str) -> float:
    return datetime.fromisoformat(f"2026-11-22T{text}Z").timestamp()


AGENT = "Boto3/1.43.2 md/Botocore#1.43.2 ua/2.0 os/linux#6.1"


def call(by: str, second: float, key: dict[str, str]) -> Event:
    session, address, agent = {
        "api": ("i-0ab1", "203.0.113.7", AGENT),
        "release-112": ("ci-8841", "203.0.113.9", "[aws-cli/2.31.0 md/awscrt#0.27]"),
    }[by]
    who = role(by, session)
    return trails.put(second, key=key, by=who, sourceIPAddress=address, userAgent=agent)


@pytest.fixture(autouse=True)
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Simulator]:
    """An order that costs nothing for two minutes, and four ways to know who did it."""
    monkeypatch.setattr("watcher.time_machine.sources.CLOCK", HandClock())
    monkeypatch.chdir(tmp_path)
    ada = {"PK": "ada", "SK": "order-7"}
    bob = {"PK": "bob", "SK": "order-2"}
    writes = [
        ("19:14:02", bob, 70, []),
        ("20:14:02", ada, 110, ["api"]),
        ("20:24:05", ada, 0, ["release-112"]),
        ("20:24:06", bob, 0, ["release-112"]),
        ("20:26:12", ada, 5, ["api", "release-112"]),
        ("20:30:40", ada, 6, []),
    ]
    root = tmp_path / "trail"
    now = moment(writes[0][0])
    began = now
    with Simulator(table="orders", key_names=("PK", "SK"), clock=lambda: began) as simulator:
        for name, value in simulator.environment.items():
            monkeypatch.setenv(name, value)
        for text, key, total, callers in writes:
            simulator.advance(moment(text) - now)
            now = moment(text)
            wire = {name: {"S": value} for name, value in key.items()}
            simulator.put({**wire, "total": {"N": str(total)}})
            events = [call(by, now, key) for by in callers]
            # So that the hour has a file, as it has where anybody calls anything.
            deliver(root, now + 300, *events, trails.put(now, key={"PK": "x", "SK": "y"}))
        simulator.advance(moment("22:14:02") - now)
        yield simulator


def printed(block: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What a block's command prints, on stdout and on stderr, with its times in UTC."""
    command = block.splitlines()[0].removeprefix("$ python -m watcher ")
    assert main(shlex.split(command)) == 0
    out, err = (STAMP.sub(_in_utc, text) for text in capsys.readouterr())
    return NOW.sub("NOW    2026-11-22T22:14:02+00:00", out), err


def _in_utc(stamp: re.Match[str]) -> str:
    return datetime.fromisoformat(stamp[0]).astimezone(UTC).isoformat()


@pytest.mark.parametrize("block", CONSOLE)
def test_a_command_prints_what_the_page_shows(
    block: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = printed(block, capsys)
    assert out == block.partition("\n")[2]


@pytest.mark.parametrize("text", PROGRAMS)
def test_a_program_works_as_written(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(text, "docs/who.md", "exec"), {})
    assert "certain role/release-112" in capsys.readouterr().out
