"""`undo`: the plan, the writing, its last line and exit status, and taking it back."""

import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import Simulator
from tests.support.hand_clock import HandClock
from tests.support.terminal import Terminal
from watcher.cli import main


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Simulator]:
    """Good items, a bad deployment half an hour ago, and one change since."""
    began = int(time.time()) - 7200
    monkeypatch.setattr("watcher.time_machine.sources.CLOCK", HandClock())
    monkeypatch.chdir(tmp_path)
    with Simulator(table="orders", clock=lambda: began) as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
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


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str], str]:
    status = main(["undo", *words])
    out, err = capsys.readouterr()
    return status, out.splitlines(), err.splitlines()[-1]


def items(simulator: Simulator) -> dict[str, Any]:
    found = simulator.client("dynamodb").scan(TableName="orders")["Items"]
    return {item["pk"]["S"]: item for item in found}


def test_the_plan_the_writing_and_the_way_back(
    simulator: Simulator, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = items(simulator)
    interval = "--from", at(simulator, 12), "--until", at(simulator, 10.5)
    status, out, last = run(capsys, "orders", *interval)
    assert status == 0
    assert out == [
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
    assert last == (
        "Plan: 3 items (1 INSERT, 1 MODIFY, 1 REMOVE), 3 write units, 1 conflict; nothing was "
        "written: --apply does it"
    )
    assert items(simulator) == before
    assert list(tmp_path.iterdir()) == []

    status, out, last = run(capsys, "orders", *interval, "--apply")
    assert (status, last) == (1, "restored 3, conflicts 1")
    assert out == ["CONFLICT pk=c: it was changed since"]
    assert {key: item.get("v") for key, item in items(simulator).items()} == {
        "a": {"N": "1"},
        "b": {"N": "1"},
        "c": {"N": "3"},
    }

    status, out, last = run(capsys, "orders", *interval, "--apply")
    assert (status, last) == (1, "restored 0, conflicts 1")

    (log,) = tmp_path.iterdir()
    status, _, last = run(capsys, "--log", str(log), "--apply")
    assert (status, last) == (0, "restored 3, conflicts 0")
    assert items(simulator) == before


def test_the_plan_and_what_has_become_of_it_as_json(
    simulator: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "orders", "--from", at(simulator, 12), "--until", at(simulator, 10.5), "-o", "json"
    assert main(["undo", *words]) == 0
    plan = {row["key"]["pk"]["S"]: row for row in json.loads(capsys.readouterr().out)}
    kinds = {"a": "MODIFY", "b": "INSERT", "c": "MODIFY", "new": "REMOVE"}
    assert {key: row["kind"] for key, row in plan.items()} == kinds
    assert plan["b"]["now"] is None and plan["b"]["before"]["set"] == {"SS": ["x", "y"]}
    assert plan["c"]["conflict"] == "it was changed since" and plan["a"]["conflict"] is None
    assert (plan["a"]["changes"], plan["a"]["write_units"]) == (1, 1)
    assert main(["undo", *words, "--apply"]) == 1
    done = json.loads(capsys.readouterr().out)
    outcomes = {row["key"]["pk"]["S"]: row["outcome"] for row in done}
    assert outcomes == {"a": "restored", "b": "restored", "c": "conflict", "new": "restored"}


def test_conflicts_are_asked_about_on_a_terminal_and_put_back_by_a_yes(
    simulator: Simulator,
) -> None:
    words = "orders", "--from", at(simulator, 12), "--until", at(simulator, 10.5)
    command = sys.executable, "-m", "watcher", "undo", *words, "--apply", "--force-conflicts"
    with Terminal(*command, env=simulator.environment) as terminal:
        terminal.wait_for(lambda: b"[y/N]" in terminal.written)
        assert "CONFLICT pk=c: it was changed since" in terminal.shown
        assert "Put back 1 item that others have changed since? [y/N]" in terminal.shown[-1]
        terminal.press(b"y\n")
        assert terminal.end() == 0
        assert "restored 4, conflicts 0" in terminal.shown[-1]
    assert items(simulator)["c"]["v"] == {"N": "1"}


def test_nothing_to_undo_leaves_no_log(
    simulator: Simulator, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = "orders", "--from", at(simulator, 12), "--key", "pk=nobody", "--apply"
    assert run(capsys, *words) == (0, [], "restored 0, conflicts 0")
    assert list(tmp_path.iterdir()) == []


def test_without_a_yes_conflicts_stay(
    simulator: Simulator, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "orders", "--from", at(simulator, 12), "--until", at(simulator, 10.5)
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdin, "readline", lambda: "\n", raising=False)
    status, _, last = run(capsys, *words, "--apply", "--force-conflicts")
    assert (status, last) == (1, "restored 3, conflicts 1")
    assert items(simulator)["c"]["v"] == {"N": "3"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name a stream, or with --log the undo that is to be taken back"),
        (["orders"], "--from: give the time of the first change that is to be undone"),
        (["orders", "--from", "2099-01-01"], "is in the future"),
        (["orders", "--from", "40h"], "is before what orders holds, which begins"),
        (["orders", "--from", "100m", "--key", "v=5"], "--key v: no such key attribute; the table"),
        (["orders", "--from", "1h", "--force-conflicts"], "it asks, which takes a terminal"),
        (["orders", "--from", "1h", "--only", "put"], 'unknown kind "put"'),
        (["orders", "--from", "100m", "--apply", "--rate", "0"], "--rate 0: give more than 0"),
        (["--log", "none.jsonl"], "--log none.jsonl: can't read: No such file or directory"),
        (["--log", "x", "--from", "1h"], "--from: a log is taken back as a whole"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], message: str, simulator: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["undo", *words]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_a_role_that_may_not_write_is_told_what_it_takes(
    simulator: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    denied = {
        "auth_error": "AccessDeniedException",
        "auth_operations": ("PutItem", "DeleteItem"),
    }
    before = items(simulator)
    with simulator.faulty(**denied):
        words = "orders", "--from", at(simulator, 12), "--key", "pk=a"
        assert run(capsys, *words)[0] == 0
        status, _, last = run(capsys, *words, "--apply")
    assert status == 3
    assert "no permission" in last and "the role needs dynamodb:PutItem on" in last
    assert items(simulator) == before


def test_what_writes_has_to_be_typed(
    simulator: Simulator, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHER_FROM", "100m")
    assert main(["undo", "orders"]) == 2
    assert "give the time of the first change" in capsys.readouterr().err
    monkeypatch.setenv("WATCHER_APPLY", "1")
    assert main(["undo", "orders", "--from", "100m"]) == 2
    assert "--apply: it has to be typed; it is from WATCHER_APPLY" in capsys.readouterr().err


def test_what_was_written_before_a_refusal_is_said(
    simulator: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    denied = {"auth_error": "AccessDeniedException", "auth_operations": ("PutItem",)}
    words = "orders", "--from", at(simulator, 12), "--until", at(simulator, 10.5), "--apply"
    with simulator.faulty(**denied):
        status, _, last = run(capsys, *words)
    assert status == 3
    assert "the role needs dynamodb:PutItem on" in last
    assert last.endswith("restored 1, conflicts 1 until then: go on with the same command")
    assert "new" not in items(simulator)
    assert run(capsys, *words)[2].startswith("restored 2, conflicts 1")


def test_a_log_that_can_t_be_written_is_not_announced(
    simulator: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "orders", "--from", at(simulator, 12), "--key", "pk=a", "--log", "no/such.jsonl"
    assert main(["undo", *words, "--apply"]) == 2
    err = capsys.readouterr().err
    assert "can't write: No such file" in err and "The log is" not in err
