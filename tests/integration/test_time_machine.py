"""The incident and the programs of docs/time-machine.md run as written: the story of a night."""

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulator import Simulator
from tests.support import pages, trails
from tests.support.hand_clock import HandClock
from tests.support.trails import deliver, role
from watcher.cli import main

PAGE = pages.PAGES["time-machine.md"]
_INCIDENT = PAGE.partition("## An incident")[2].partition("\n## ")[0]
COMMANDS = re.findall(r"^\$ python -m watcher (.*)", _INCIDENT, re.MULTILINE)
PROGRAMS = pages.of_kind("python", PAGE)


@pytest.fixture(autouse=True)
def night(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Simulator]:
    """A release half an hour ago made twenty orders cost nothing; one was mended by hand."""
    began = time.time() - 3 * 3600
    monkeypatch.setattr("watcher.time_machine.sources.CLOCK", HandClock())
    monkeypatch.chdir(tmp_path)
    with Simulator(table="orders", key_names=("PK", "SK"), clock=lambda: began) as simulator:
        for name, value in simulator.environment.items():
            monkeypatch.setenv(name, value)
        for number in range(30):
            put(simulator, number, str(100 + 10 * number))
        simulator.advance(2.5 * 3600)
        for number in range(20):
            put(simulator, number, "0", by={"S": "release-112"})
        simulator.advance(0.25 * 3600)
        put(simulator, 3, "33")
        simulator.advance(600)
        put(simulator, 900, "250")
        simulator.advance(300)
        for number in range(20):
            tell_who(tmp_path, began + 2.5 * 3600, number)
        yield simulator


def tell_who(folder: Path, second: float, number: int) -> None:
    """What CloudTrail knows of the release."""
    key = {"PK": f"user-{number}", "SK": f"order-{number}"}
    deliver(folder, second + 300, trails.put(second, key=key, by=role("release-112", "ci-8841")))


def put(simulator: Simulator, number: int, total: str, **more: dict[str, str]) -> None:
    key = {"PK": {"S": f"user-{number}"}, "SK": {"S": f"order-{number}"}}
    simulator.put({**key, "total": {"N": total}, **more})


def test_from_alarm_to_undone_in_five_commands(
    night: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(COMMANDS) == 8
    said = []
    for command in COMMANDS:
        status = main(shlex.split(command))
        assert status == (1 if command.startswith(("undo --apply", "verify")) else 0)
        said.append(capsys.readouterr())
    count, history, as_of, plan, applied, who, _, proof = said
    assert "20" in count.out
    assert "~ total: 170 -> 0" in history.out
    assert as_of.out == '{"PK":"user-7","SK":"order-7","total":170}\n'
    assert plan.err.endswith(
        "Plan: 19 items (19 MODIFY), 19 write units, 1 conflict; nothing was written; "
        "to do it: python -m watcher undo --apply plan.jsonl\n"
    )
    assert applied.out == "CONFLICT PK=user-3, SK=order-3: it was changed since\n"
    assert applied.err.endswith(
        "restored 19, conflicts 1; to take it back: python -m watcher undo --revert plan.jsonl\n"
    )
    (head, *_) = who.out.splitlines()
    assert head.endswith("   by role/release-112 (session ci-8841, 203.0.113.9, Boto3)   certain")
    head, *differences = proof.out.splitlines()
    assert head.endswith(" = before.jsonl: 31 items, 2 differ")
    assert [re.sub(r"change [^)]*\)", "change …", line) for line in differences] == [
        "  PK=user-3, SK=order-3   total: 130 there, 33 here   change … is missing there",
        "  PK=user-900, SK=order-900   only here   change … is missing there",
    ]
    items = night.client("dynamodb").scan(TableName="orders")["Items"]
    totals = {item["PK"]["S"]: item["total"]["N"] for item in items}
    assert totals == {
        "user-900": "250",
        **{f"user-{n}": "33" if n == 3 else str(100 + 10 * n) for n in range(30)},
    }


@pytest.mark.parametrize("text", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_works_as_written(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(text, "docs/time-machine.md", "exec"), {})
    out = capsys.readouterr().out
    assert "19 write units, 1 conflicts" in out
    assert "restored" in out
