"""Redaction beside the table of outputs: who refuses it, what it finds, who else gets the items."""

import pickle
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import Simulator
from tests.support import program, trails
from tests.support.hand_clock import HandClock
from tests.support.secret import EVERYTHING, KEY, SECRET, refuse_traces, secret_item
from tests.support.trails import deliver, role
from watcher import Record, Stream, as_of, history, watch
from watcher.errors import UsageError

pytestmark = pytest.mark.proof

WATCH = "--from", "trim-horizon", "--no-follow"


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    now = time.time()
    with Simulator(table="orders", clock=lambda: now - 600) as simulator:
        put(simulator, 1)
        simulator.advance(120)
        put(simulator, 2)
        simulator.advance(480)
        yield simulator


def put(simulator: Simulator, number: int) -> None:
    simulator.put(secret_item(number))


@pytest.fixture
def there(sim: Simulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Simulator:
    monkeypatch.setattr("watcher.time_machine.sources.CLOCK", HandClock())
    monkeypatch.chdir(tmp_path)
    for name, value in sim.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WATCHER_REDACT_KEY", KEY)
    key = {"pk": SECRET}
    deliver(tmp_path, sim.now - 500, trails.put(sim.now - 600, key=key, by=role("api", "i-1")))
    return sim


def run(*command: str) -> tuple[int, str, str]:
    ran = program.run(*command, env={})
    return ran.status, "".join(f"{line}\n" for line in ran.out), "".join(f"{e}\n" for e in ran.err)


def at(simulator: Simulator) -> str:
    """A moment between the two changes, as a time."""
    return datetime.fromtimestamp(simulator.now - 540, UTC).isoformat()


def pulled(**options: Any) -> list[Record]:
    with Stream("orders", "trim_horizon", **options) as stream:
        found = []
        while record := next(stream):
            found.append(record)
        return found


def test_a_program_sees_nothing_of_it(there: Simulator) -> None:
    rules = EVERYTHING[1]
    got: list[Record] = []
    watch("orders", [got.append], start="trim_horizon", follow=False, redact=rules)
    got += pulled(redact=rules)
    got += pulled(redact=rules, key={"pk": SECRET}, grep=SECRET)
    found = history("orders", key={"pk": SECRET}, redact=rules)
    got += found
    assert len(got) == 8
    items = list(as_of("orders", at=at(there), redact=rules))
    shown = [*map(repr, got), repr(items), repr((found.now, found.now_wire, found.key))]
    for record in got:
        assert record.new is not None and record.new["plain"].startswith("seen")
        shown += [repr(each) for each in (record.key, record.new, record.old, record.changes)]
        refuse_traces(bytes(record.raw), pickle.dumps(record))
    refuse_traces(*(text.encode() for text in shown))


def test_a_snapshots_key_is_in_no_checkpoint(there: Simulator) -> None:
    command = "watch", "orders", "--snapshot", "--no-follow", "--print-json"
    status, _, err = run(*command, "--checkpoint", "there.json", "--redact", "pk=hash")
    assert status == 2 and "the position of a snapshot is an item's key" in err
    refuse_traces(Path("there.json").read_bytes() if Path("there.json").exists() else b"")
    status, _, err = run(*command, "--checkpoint", "there.json", "--redact", "plain")
    assert status == 0, err
    with pytest.raises(UsageError, match="position of a snapshot"):
        pulled(snapshot=True, redact="pk=hash")
