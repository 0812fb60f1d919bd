"""What is redacted is in no row that the source gives, and in nothing that a job writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet

from tests.simulator import Simulator
from tests.spark.conftest import Run, options
from tests.support.secret import EVERYTHING, KEY, SECRET, refuse_traces, secret_item

pytestmark = [pytest.mark.spark, pytest.mark.proof]

FAILING = """  # fail


def handle(record):
    raise ValueError(record, record.new, record.old, bytes(record.raw))
"""


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the job's own process; Spark's Pythons have the key that the session began with."""
    monkeypatch.setenv("WATCHER_REDACT_KEY", KEY)


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(shards=1) as simulator:
        for number in (1, 2):
            simulator.put(secret_item(number))
        simulator.advance(2)
        yield simulator


@pytest.mark.parametrize(
    "more",
    [{"changedAttributes": "true"}, {"imageFormat": "dynamodb-json"}, {"wireRecords": "true"}],
    ids=lambda each: "-".join(each),
)
def test_no_row_has_any_of_it(more: dict[str, str], spark: Any, sim: Simulator) -> None:
    given = options(sim, redact=EVERYTHING[1], **more)
    rows = spark.read.format("dynamodb_streams").options(**given).load().collect()
    text = repr(rows)
    assert len(rows) == 2 and "seen-1" in text
    refuse_traces(text.encode())


def test_nor_has_what_a_job_writes_or_prints(command: Run, sim: Simulator, tmp_path: Path) -> None:
    place = ["--endpoint-url", sim.endpoint, "--region", "us-east-1"]
    redact = EVERYTHING
    lake = tmp_path / "lake"
    done = command("archive", sim.stream_arn, "--to", str(lake), "--once", *place, *redact)
    assert done.status == 0, done.err
    rows = [pyarrow.parquet.read_table(each).to_pylist() for each in lake.rglob("*.parquet")]
    assert "seen-1" in repr(rows)
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    refuse_traces(repr(rows).encode(), *written, done.out.encode(), done.err.encode())
    sql = "SELECT keys, new_image, old_image, changed_attributes FROM changes"
    done = command("query", sim.stream_arn, sql, *place, *redact)
    assert done.status == 0 and "seen-1" in done.out, done.err
    refuse_traces(done.out.encode(), done.err.encode())


@pytest.mark.parametrize("handler", ["--print-json", "--failing"])
def test_nor_has_what_handlers_get_on_executors(
    handler: str, command: Run, sim: Simulator, tmp_path: Path
) -> None:
    (tmp_path / "failing.py").write_text(FAILING.lstrip())
    letters = tmp_path / "letters"
    words = ["--engine", "spark", "--from", "trim-horizon", "--no-follow", handler]
    words += ["--endpoint-url", sim.endpoint, "--region", "us-east-1", "--handlers", str(tmp_path)]
    words += ["--on-error", f"dead-letter:{letters}", "--key", f"pk={SECRET}"]
    done = command(sim.stream_arn, *words, *EVERYTHING)
    assert done.status == 0, done.err
    written = letters.read_bytes() if letters.exists() else b""
    assert b"seen-1" in done.out.encode() + written
    refuse_traces(done.out.encode(), done.err.encode(), written)
