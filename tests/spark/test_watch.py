"""`--engine spark`: the watch's handlers on the executors, through the real command line."""

import io
import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.simulator import Simulator, judge
from tests.spark.conftest import Done, Run
from tests.support.hostile_text import HOSTILE, refuse_steering
from watcher.aws.config import AwsConfig
from watcher.delivery.failures import FailurePolicy
from watcher.errors import HandlerError
from watcher.files import WholeFile
from watcher.shutdown import Shutdown
from watcher.spark.handler_tasks import HandlersTask
from watcher.spark.jobs.watch import BatchDelivery

pytestmark = pytest.mark.spark

TALLY = """  # count

import os

counts = []


def handle(record):
    counts.append(record.sequence_number)


def close():
    print("closed", os.getpid(), len(counts))
"""

FAILING = """  # fail


def handle(record):
    print(record.event_name)
    if record.event_name == "REMOVE":
        raise ValueError("no removals")


def close():
    raise OSError("can't close")
"""

FLAKY = """  # fail twice on each record

tries = {}


def handle(record):
    number = record.sequence_number
    tries[number] = tries.get(number, 0) + 1
    if tries[number] < 3:
        raise ValueError("not yet")
    print(number)
"""


def watch(command: Run, sim: Simulator, *more: str) -> Done:
    place = ["--endpoint-url", sim.endpoint, "--region", "us-east-1", "--engine", "spark"]
    return command(sim.stream_arn, *place, "--from", "trim-horizon", "--no-follow", *more)


def handlers(folder: Path, **texts: str) -> list[str]:
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text.lstrip())
    return ["--handlers", str(folder)]


def test_handlers_run_on_executors_in_order(command: Run, sim: Simulator) -> None:
    sim.bulk(500, keys=10)
    sim.split()
    sim.bulk(300, keys=10)
    sim.advance(2)

    done = watch(command, sim, "--print-json")

    numbers = [json.loads(line)["dynamodb"]["SequenceNumber"] for line in done.out.splitlines()]
    assert judge(sim.records, numbers) == ([], [], [], [])
    assert "Done: 800 changes" in done.err


@pytest.mark.proof
def test_each_process_closes_its_handlers_once_at_the_end(
    command: Run, sim: Simulator, tmp_path: Path
) -> None:
    sim.bulk(200, keys=10)
    sim.rotate("all")
    sim.bulk(100, keys=10)
    sim.advance(2)

    done = watch(command, sim, *handlers(tmp_path, counters=TALLY), "--counters")

    closed = [line.split() for line in done.out.splitlines()]
    assert all(word == "closed" for word, _, _ in closed)
    assert len({pid for _, pid, _ in closed}) == len(closed)
    assert sum(int(count) for _, _, count in closed) == 300


def test_a_handler_that_fails_stops_the_query_where_that_is_asked_for(
    command: Run, sim: Simulator, tmp_path: Path
) -> None:
    sim.bulk(5)
    sim.advance(2)
    options = [*handlers(tmp_path, failing=FAILING), "--failing", "--on-error", "stop"]

    not_closed = watch(command, sim, *options)
    sim.bulk(20, keys=1, remove_every=2)
    sim.advance(2)
    stopped = watch(command, sim, *options)

    assert not_closed.status == stopped.status == 1
    assert not_closed.err.splitlines()[-1] == (
        "error: handler failing failed to close: OSError: can't close"
    )
    assert "error: handler failing failed on record" in stopped.err.splitlines()[-1]
    printed = stopped.out.split()
    assert "INSERT" in printed[: printed.index("REMOVE")], "what came before it is out"
    assert printed.count("REMOVE") == 1, "and it is not tried again by Spark"


@pytest.mark.proof
def test_with_a_checkpoint_a_handler_that_fails_is_tried_again_until_it_succeeds(
    command: Run, sim: Simulator, tmp_path: Path
) -> None:
    sim.bulk(12)
    sim.advance(2)
    options = [*handlers(tmp_path, flaky=FLAKY), "--flaky"]

    lost = watch(command, sim, *options)
    kept = watch(command, sim, *options, "--checkpoint", str(tmp_path / "state"))

    assert lost.out == ""
    assert lost.err.splitlines()[-1].endswith("12 NOT HANDLED (see --on-error)")
    assert judge(sim.records, kept.out.split()) == ([], [], [], [])
    assert (lost.status, kept.status) == (1, 0) and "NOT HANDLED" not in kept.err


def test_conditions_that_nothing_matches_are_said(command: Run, sim: Simulator) -> None:
    sim.bulk(5)
    sim.advance(2)
    ended = watch(command, sim, "-ps", "--where", "pkk > 100").err
    assert "0 of 5 changes matched; none has pkk (pk?)" in ended


@pytest.mark.proof
def test_filters_and_colours_are_those_of_the_watch(
    command: Run, sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim.bulk(40, keys=4, remove_every=5)
    sim.put({"pk": {"S": HOSTILE}, HOSTILE: {"S": HOSTILE}})
    sim.advance(2)

    only = watch(command, sim, "-ps", "--only", "remove", "--color", "always")
    key = watch(command, sim, "-ps", "--key", "pk=k1", "--utc")
    kept = watch(command, sim, "-ps", "--filter", '{"eventName": ["INSERT"]}')
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    forms = [f"--print-{form}" for form in ("summary", "json", "diff", "record", "table", "csv")]
    terminal = watch(command, sim, *forms, "--only", "insert")

    assert re.findall(r"\x1b\[31m *(\w+)", only.out) == ["REMOVE"] * len(only.out.splitlines())
    assert len(key.out.splitlines()) == 10 and "+00:00" in key.out
    assert {line.split(" - ")[1].strip() for line in kept.out.splitlines()} == {"INSERT"}
    assert "\x1b" not in kept.out
    assert "\x1b[32m" in terminal.out, "on a terminal it is in colours"
    assert terminal.out.count("hidden") >= len(forms)
    refuse_steering(terminal.out)
    refuse_steering(terminal.err)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--max-records", "5"], "--max-records: not for --engine spark: use --no-follow"),
        (["--poll-max", "2"], "--poll-max: not for --engine spark: leave --engine out"),
        (["--lambda", "app.handler"], "--lambda is not for --engine spark"),
        (["--on-error", "shrug"], "--on-error: can't read 'shrug': use log, stop"),
        (["--from", "soon"], "--from: can't read 'soon' as a position"),
        (["--where", "old.v > 1"], "--where: old.v: the stream's view type is NEW_IMAGE"),
    ],
)
def test_what_cannot_work_here_is_refused(
    command: Run, sim: Simulator, options: list[str], text: str
) -> None:
    if "--where" in options:
        sim.enable_new_stream(1, "NEW_IMAGE")
    done = watch(command, sim, *options)

    assert done.status == 2
    assert done.err.splitlines()[-1].startswith(f"error: {text}")


def test_a_checkpoint_of_the_watch_is_refused(command: Run, sim: Simulator, tmp_path: Path) -> None:
    place = tmp_path / "state.json"
    place.write_text('{"stream_arn": "", "active": [], "shards": []}')

    done = watch(command, sim, "--checkpoint", str(place))

    assert done.status == 2
    assert done.err.splitlines()[-1] == (
        f"error: --checkpoint {place}: on Spark it is a folder: choose another"
    )


def test_output_that_cannot_be_written_fails_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark then does it again, in the next run."""
    task = HandlersTask(list, FailurePolicy.parse("log", AwsConfig()), is_terminal=False)
    batches = BatchDelivery(task, Shutdown(0.0))
    with WholeFile("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(full)))
        with pytest.raises(HandlerError, match="standard output: No space left on device"):
            batches.print(b"printed\n")
        full.is_given_up = True
