"""`undo`: the plan, the writing, its last line and exit status, and taking it back."""

import re
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import Simulator
from tests.support import program
from tests.support.hand_clock import HandClock
from tests.support.program import told


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Simulator]:
    """Good items, a bad deployment half an hour ago, and one change since."""
    ahead = 1260
    monkeypatch.setattr("watcher.time_machine.sources.CLOCK", HandClock())
    monkeypatch.chdir(tmp_path)
    with Simulator(table="orders", clock=lambda: time.time() - ahead) as made:
        made.set_environment(monkeypatch.setenv)
        for key in ("a", "b", "c"):
            made.put({"pk": {"S": key}, "v": {"N": "1"}, "set": {"SS": ["x", "y"]}})
        made.advance(600)
        made.put({"pk": {"S": "a"}, "v": {"N": "2"}, "set": {"SS": ["x"]}})
        made.remove("b")
        made.put({"pk": {"S": "new"}})
        made.put({"pk": {"S": "c"}, "v": {"N": "2"}})
        made.advance(600)
        made.put({"pk": {"S": "c"}, "v": {"N": "3"}})
        made.advance(60)
        yield made


def at(simulator: Simulator, minutes: float) -> str:
    return datetime.fromtimestamp(simulator.now - 60 * minutes, UTC).isoformat()


def run(*words: str) -> tuple[int, list[str], str]:
    done = program.run("undo", *words, env={})
    return done.status, done.out, done.err[-1]


def plan(simulator: Simulator) -> str:
    """Makes a plan of the bad deployment; returns its file."""
    interval = "--from", at(simulator, 12), "--until", at(simulator, 10.5)
    told(0, "undo", "orders", *interval, "--plan", "plan.jsonl")
    return "plan.jsonl"


def items(simulator: Simulator) -> dict[str, Any]:
    found = simulator.client("dynamodb").scan(TableName="orders")["Items"]
    return {item["pk"]["S"]: item for item in found}


def test_the_plan_the_writing_and_the_way_back(simulator: Simulator, tmp_path: Path) -> None:
    before = items(simulator)
    interval = "--from", at(simulator, 12), "--until", at(simulator, 10.5)
    done = told(0, "undo", "orders", *interval)
    assert done.out == [
        "MODIFY pk=a",
        "  ~ set: +'y'",
        "  ~ v: 2 -> 1",
        "INSERT pk=b",
        "  + set: {'x', 'y'}",
        "  + v: 1",
        "REMOVE pk=new",
        "CONFLICT pk=c: it was changed since",
        "  + set: {'x', 'y'}",
        "  ~ v: 3 -> 1",
    ]
    (path,) = (each.name for each in tmp_path.iterdir())
    assert re.fullmatch(r"undo-orders-\d{8}T\d{6}Z\.jsonl", path)
    undoes, planned = done.err[-2:]
    assert undoes.startswith("Undoes the changes of orders from 20")
    assert undoes.endswith(", both seconds included")
    assert planned == (
        "Plan: 3 items (1 INSERT, 1 MODIFY, 1 REMOVE), 3 write units, 1 conflict; nothing was "
        f"written; to do it: python -m watcher undo --apply {path}"
    )
    assert items(simulator) == before
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600

    status, out, last = run("--apply", path)
    assert (status, out) == (1, ["CONFLICT pk=c: it was changed since"])
    back = "to take it back: python -m watcher undo"
    assert last == f"restored 3, conflicts 1; {back} --revert {path}"
    values = {key: item["v"]["N"] for key, item in items(simulator).items()}
    assert values == {"a": "1", "b": "1", "c": "3"}

    status, out, last = run("--apply", path)
    assert (status, last) == (1, "restored 0, conflicts 1, 3 kept")
    assert out[0] == "KEPT   pk=a: it is as it was before"

    assert run("--revert", path)[0] == 0
    (reverting,) = tmp_path.glob("*.back.jsonl")
    status, _, last = run("--apply", str(reverting))
    assert (status, last[:23]) == (0, "restored 3, conflicts 0")
    assert last.endswith(f"{back} --apply {tmp_path / path}")
    assert items(simulator) == before


def test_the_next_command_is_printed_as_this_one_was_called(
    simulator: Simulator, tmp_path: Path
) -> None:
    words = ["-m", "watcher", "undo", "orders", "--from", at(simulator, 12)]
    words += ["--region", "us-east-1", "--plan", "a plan.jsonl"]
    planned = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    printed = planned.stderr.partition("to do it: ")[2]
    assert printed.startswith(f"{sys.executable} -m watcher undo --region us-east-1 --apply ")
    applied = subprocess.run(["bash", "-c", printed], capture_output=True, text=True, check=False)
    assert applied.returncode == 0, applied.stderr


def test_nothing_to_undo_leaves_no_plan(simulator: Simulator, tmp_path: Path) -> None:
    words = "orders", "--from", at(simulator, 12), "--key", "pk=nobody"
    last = "Plan: 0 items, 0 write units, 0 conflicts; nothing to do"
    assert run(*words) == (0, [], last)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name a stream, or a plan with --apply or --revert"),
        (["orders"], "--from: give the time of the first change to undo"),
        (["orders", "--from", "10m", "--until", "20m"], "it is before the beginning"),
        (["orders", "--from", "15m", "--plan", "PLAN"], "it already exists"),
        (["--apply", "OTHER"], "OTHER is not an undo plan"),
        (["--revert", "none.jsonl"], "can't read none.jsonl: No such file or directory"),
        (["orders", "--from", "1h", "--only", "put"], 'unknown kind "put"'),
        (["orders", "--from", "15m", "--write-limit", "5"], "--write-limit: use it with --apply"),
        (["orders", "--from", "15m", "--plan", "no/such"], "--plan no/such: can't write: No"),
        (["--apply", "PLAN", "--write-limit", "0"], "--write-limit 0: give more than 0"),
        (["--revert", "PLAN"], " wrote nothing"),
        (["--apply", "x", "--from", "1h"], "--from: a plan is applied or reverted as a whole"),
        (["orders", "--apply", "x"], "--apply: orders is in the plan already: give only the"),
        (["orders", "--from", "1h", "--apply"], "--apply: give a value (PLAN)"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, simulator: Simulator) -> None:
    Path("OTHER").write_text("{}\n")
    words = [plan(simulator) if word == "PLAN" else word for word in words]
    assert message in told(2, "undo", *words).err[-1]


def test_what_writes_has_to_be_typed(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHER_FROM", "100m")
    assert "give the time of the first change" in told(2, "undo", "orders").said
    monkeypatch.setenv("WATCHER_APPLY", "plan.jsonl")
    assert "--apply: type it; it is from WATCHER_APPLY" in told(2, "undo").said


def test_what_was_written_before_a_refusal_is_said(simulator: Simulator) -> None:
    denied = {"auth_error": "AccessDeniedException", "auth_operations": ("PutItem",)}
    words = "--apply", plan(simulator)
    with simulator.faulty(**denied):
        status, _, last = run(*words)
    assert status == 3
    assert "the role needs dynamodb:PutItem on" in last
    assert last.endswith("restored 1, conflicts 1 so far; run the same command to continue")
    assert "new" not in items(simulator)
    assert run(*words)[2].startswith("restored 2, conflicts 1")
