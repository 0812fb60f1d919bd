"""SIGTERM to a job at work: it ends soon and well, and the next start goes on where it was."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.query import StreamingQuery

from tests.integration.conftest import fresh_dynamodb_local
from tests.simulator import Simulator, judge
from tests.spark.conftest import PATIENCE, Run
from tests.spark.test_archive import check
from tests.support.program import Program
from watcher.spark.jobs.archive import ArchiveFolder
from watcher.spark.jobs.watch import BatchDelivery

__all__ = ["fresh_dynamodb_local"]  # a fixture

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
SOON = 120.0
"""What hangs is to fail by then: a job's first batches take some seconds, on Spark as it runs."""


@contextmanager
def sigterm(condition: Callable[[], object]) -> Iterator[None]:
    """To this process, as soon as that holds: what the command line runs in has a session.

    Not while nobody handles it, a moment before the job does or after: it would end the tests.
    """
    late: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: late.append(number))
    nobody = signal.getsignal(signal.SIGTERM)
    over = threading.Event()
    sent: list[bool] = []

    def is_handled() -> bool:
        return signal.getsignal(signal.SIGTERM) is not nobody

    def send() -> None:
        due = time.monotonic() + SOON
        while not (holds := condition() and is_handled()) and time.monotonic() < due:
            if over.wait(0.02):
                return
        sent.append(bool(holds))  # where it does not hold, the job would go on for ever
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGTERM, before)
    assert sent and not late, "the job had ended before"
    assert sent == [True], f"what SIGTERM waits for has not come within {SOON:g} s"


def here(sim: Simulator, *more: str) -> list[str]:
    place = ["--endpoint-url", sim.endpoint, "--region", "us-east-1"]
    return [sim.stream_arn, *place, "--from", "trim-horizon", *more]


def test_an_archive_goes_on_exactly(command: Run, sim: Simulator, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    archive = ["archive", *here(sim, "--to", str(lake), "--max-records-per-trigger", "500")]
    sim.bulk(4000, keys=20)
    sim.advance(2)
    with sigterm(lambda: list(tmp_path.glob("lake.checkpoint/offsets/2"))):
        stopped = command(*archive, "--once")
    assert stopped.status == 128 + signal.SIGTERM, "a cron job does not take it for finished"
    last = stopped.err.splitlines()[-1]
    assert last.startswith("warning: Stopped early: ")
    assert last.endswith("; run the same command to continue")
    again = command(*archive, "--once")

    assert again.status == 0
    check(lake, sim)


@pytest.mark.proof
def test_a_batch_that_is_cut_off_is_completed_at_the_next_start(
    command: Run, sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files were in by then, and only Spark did not know."""
    begun, cut = threading.Event(), threading.Event()
    append = ArchiveFolder.append

    def cut_off(self: ArchiveFolder, rows: Any, number: int, *more: str) -> None:
        append(self, rows, number, *more)
        if number == 0 or cut.is_set():  # that one is empty; the next run
            return
        begun.set()
        assert cut.wait(SOON)
        raise RuntimeError("cut off")  # by now Spark commits nothing

    monkeypatch.setattr(ArchiveFolder, "append", cut_off)
    stop = StreamingQuery.stop

    def stop_it(query: StreamingQuery) -> None:
        cut.set()
        stop(query)

    monkeypatch.setattr(StreamingQuery, "stop", stop_it)
    sim.bulk(70, keys=20)
    sim.advance(2)
    to = tmp_path / "la[k]e"
    archive = ["archive", *here(sim, "--to", str(to))]
    with sigterm(begun.is_set):
        first = command(*archive, "--every", "100ms", "--stop-timeout", "0.1")
    again = command(*archive, "--once")

    assert [line for line in first.err.splitlines() if "cut off" in line] == [
        "warning: The micro-batch at work was cut off after 0.1 s: a start on the same "
        "checkpoint completes it; --stop-timeout gives it longer"
    ]
    assert first.err.splitlines()[-1].startswith("Done: 0 changes in ")
    assert again.status == 0
    check(to, sim)


NOTE = """  # note

import time


def handle(record):
    with open("{lines}", "a") as file:
        file.write(record.sequence_number + "\\n")
    time.sleep(0.002)


def close():
    open("{lines}.closed", "a").close()
"""


@pytest.mark.proof
def test_handlers_finish_their_batch_are_closed_and_go_on(
    command: Run, sim: Simulator, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    (tmp_path / "note.py").write_text(NOTE.lstrip().format(lines=lines))
    watch = here(sim, "--engine", "spark", "--checkpoint", str(tmp_path / "state"))
    watch += ["--handlers", str(tmp_path), "--note"]
    sim.bulk(300, keys=5)
    with sigterm(lambda: lines.exists() and lines.stat().st_size):
        stopped = command(*watch)
    closed = (tmp_path / "lines.closed").exists()
    sim.bulk(100, keys=5)
    sim.advance(2)
    again = command(*watch, "--no-follow")

    assert (stopped.status, again.status) == (0, 0), stopped.err + again.err
    assert closed, stopped.err
    numbers = lines.read_text().splitlines()
    assert judge(sim.records, numbers) == ([], [], [], [])


@pytest.mark.proof
def test_a_planner_that_still_lists_shards_keeps_no_signal_waiting(
    command: Run, sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is at work then, and no handler is loaded: there is nothing to close."""
    closings: list[Any] = []
    monkeypatch.setattr(BatchDelivery, "close", closings.append)
    sim.set_faults(endless_listing=True)
    with sigterm(lambda: sim.calls["DescribeStream"] > 3):
        stopped = command(*here(sim, "--engine", "spark", "--stop-timeout", "60"))

    assert stopped.status == 0
    assert "cut off" not in stopped.err
    assert closings == []


@pytest.mark.proof
def test_a_signal_to_the_whole_group_is_a_quiet_end(sim: Simulator, tmp_path: Path) -> None:
    """As a terminal or a service manager sends it: Spark's JVM gets it too."""
    sim.bulk(50, keys=5)
    sim.advance(2)
    lake = tmp_path / "lake"
    archive = ["archive", *here(sim, "--to", str(lake), "--every", "100ms"), "--master", "local[2]"]
    with Program(*archive, env={}) as program:
        program.wait_for(lambda: bool(list(tmp_path.glob("lake.checkpoint/commits/1"))), PATIENCE)
        os.killpg(program.process.pid, signal.SIGTERM)

        assert program.wait(PATIENCE) == 0, program.err
        assert program.err[-1].startswith("Done: ")
        assert "Traceback" not in "".join(program.err)
