"""`replay`: dead letters go to handlers again."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.support.program import Program, told
from tests.support.wire import record, wire
from watcher import lambda_function
from watcher.cli import main
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.handler import Handler
from watcher.records.record import Record


def failed(path: Path, *observers: Handler) -> Path:
    """Records 1, 2 and 3, on which they have failed."""
    dispatcher = Dispatcher(observers, FailurePolicy.parse(f"dead-letter:{path}"))
    for number in (1, 2, 3):
        dispatcher.deliver(record(number))
    dispatcher.drain()
    dispatcher.close()
    return path


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    def fail(record: Record) -> None:
        raise ValueError("no")

    return failed(tmp_path / "dead.jsonl", Handler("first", fail), Handler("second", fail))


def handler(folder: Path, body: str) -> list[str]:
    (folder / "mine.py").write_text(f"def handle(record):\n    {body}\n")
    return ["--handlers", str(folder), "--mine"]


def test_what_two_batches_failed_on_is_handed_over_once(tmp_path: Path) -> None:
    batched = [lambda_function(lambda *_: 1 / 0) for _ in range(2)]
    for each, name in zip(batched, ("first", "second"), strict=True):
        each.name = name
    path = failed(tmp_path / "dead.jsonl", *batched)
    assert len(path.read_text().splitlines()) == 6
    printed = told(0, "replay", str(path), "--print-json")
    assert [json.loads(line) for line in printed.out] == [wire(n) for n in (1, 2, 3)]
    assert printed.err[-1] == "Done: 3 replayed, 0 failed, 0 unreadable"


def test_a_batch_has_the_arn_of_its_own_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dead.jsonl"
    with path.open("w") as file:
        for number, stream in ((1, "arn:a"), (2, "arn:a"), (3, "arn:b")):
            letter = {"record": wire(number), "shard_id": "s", "stream": stream}
            file.write(json.dumps(letter) + "\n")
    (tmp_path / "app_of_arns.py").write_text(
        "def handler(event, context):\n"
        "    print(*[each['eventSourceARN'] for each in event['Records']])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert told(0, "replay", str(path), "--lambda", "app_of_arns.handler").out == [
        "arn:a arn:a",
        "arn:b",
    ]


@pytest.mark.parametrize(("ends", "done"), [(True, "1 replayed"), (False, "0 replayed")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_lets_the_record_in_hand_be_finished_in_time(
    letters: Path, tmp_path: Path, ends: bool, done: str, number: signal.Signals
) -> None:
    work = (
        "import os, time",
        "print('begun', flush=True)",
        "while not os.path.exists('go on'): time.sleep(0.01)",
        "print('done')",
    )
    arguments = [*handler(tmp_path, "\n    ".join(work)), "--stop-timeout", "60" if ends else "2"]
    with Program("replay", str(letters), *arguments, env={}, cwd=tmp_path) as program:
        program.wait_for_lines(1)
        program.tell(number)
        if ends:
            (tmp_path / "go on").touch()
        assert program.wait() == 128 + number
    assert program.out == (["begun", "done"] if ends else ["begun"])
    assert program.err[-1] == f"Ended early: {done}, 0 failed, 0 unreadable"


def test_a_line_that_is_cut_off_is_named_and_the_rest_replayed(letters: Path) -> None:
    lines = letters.read_bytes().splitlines(keepends=True)
    letters.write_bytes(lines[0] + lines[2][:40] + b"\n" + b"\xff\n[1]\n" + lines[4])
    printed = told(1, "replay", str(letters), "--print-json")
    assert len(printed.out) == 2
    assert "line 2 is neither a dead letter nor a record" in printed.said
    assert printed.err[-1] == "Done: 2 replayed, 0 failed, 3 unreadable"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["none.jsonl", "--print-json"], "can't read none.jsonl: No such file"),
        (["s3://lake/changes", "--print-json"], "can't read s3://lake/changes: give a file on"),
        ([".", "--print-json"], "can't read .: give a file on this machine: dead letters, or"),
        (["letters"], "choose the handlers"),
        (["letters", "--print-json", "--on-error", "dead-letter:letters"], "choose another place"),
    ],
)
def test_what_cannot_be_replayed_is_a_usage_error(
    letters: Path, arguments: list[str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(letters.parent)
    letters.rename("letters")
    assert text in told(2, "replay", *arguments).said


def test_filters_mean_what_they_mean_for_a_watch(letters: Path) -> None:
    pattern = '{"dynamodb": {"NewImage": {"n": {"N": [{"numeric": [">", 1]}]}}}}'
    printed = told(0, "replay", str(letters), "--print-json", "--filter", pattern)
    assert [json.loads(line) for line in printed.out] == [wire(n) for n in (2, 3)]
    assert "Done: 2 replayed, 1 filtered out, 0 failed" in printed.err[-1]
    assert main(["replay", str(letters), "--print-json", "--only", "x"]) == 2


def test_a_lambda_function_makes_its_clients_in_the_region_and_of_the_profile(
    letters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.chdir(letters.parent)
    monkeypatch.syspath_prepend(letters.parent)
    (letters.parent / "where.py").write_text(
        "import os\nwhere = os.environ['AWS_REGION'], os.environ['AWS_PROFILE']\n"
        "def handler(event, context):\n    print(*where)\n"
    )
    options = "--region", "eu-west-1", "--profile", "there"
    done = told(0, "replay", str(letters), "--lambda", "where.handler", *options)
    assert done.out == ["eu-west-1 there"]
