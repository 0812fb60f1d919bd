"""Redaction beside the table of outputs: who refuses it, what it finds, who else gets the items."""

from __future__ import annotations

import pickle
import re
import shlex
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import Simulator
from tests.support import program, trails
from tests.support.hand_clock import HandClock
from tests.support.pages import PAGES
from tests.support.secret import (
    EVERYTHING,
    KEY,
    SECRET,
    refuse_traces,
    secret_item,
)
from tests.support.trails import deliver, role
from watcher import Record, Stream, as_of, history, watch
from watcher.errors import UsageError

pytestmark = pytest.mark.proof

WATCH = "--from", "trim-horizon", "--no-follow"
REFUSED = [
    ("undo", "orders", "--from", "2h"),
    ("verify", "orders", "--with", "copy.jsonl"),
    ("replicate", "orders", "--to", "other", "--checkpoint", "there"),
]


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


@pytest.mark.parametrize("command", REFUSED, ids=lambda each: each[0])
def test_who_can_not_redact_refuses_to(
    command: tuple[str, ...], there: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Typed, and as a default."""
    status, out, err = run(*command, "--redact", "pk=hash")
    assert (status, out) == (2, "")
    assert err.startswith("error: --redact: ") and err.count("\n") == 1, err
    Path("watcher.toml").write_text('redact = ["pk=hash"]\n')
    monkeypatch.setenv("WATCHER_CONFIG", "watcher.toml")
    status, out, err = run(*command)
    assert (status, out) == (2, "")
    assert "--redact: " in err and "watcher.toml" in err, err


def test_a_topic_gets_nothing_of_it(there: Simulator) -> None:
    kafka = pytest.importorskip("confluent_kafka")
    cluster = kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = cluster.list_topics(timeout=60).brokers.values()
    place = f"{broker.host}:{broker.port}"
    command = ("watch", "orders", *WATCH, "--kafka", f"{place}/changes", "-v")
    status, out, err = run(*command, *EVERYTHING)
    assert status == 0, err
    reader = kafka.Consumer(
        {"bootstrap.servers": place, "group.id": "all", "auto.offset.reset": "earliest"}
    )
    reader.subscribe(["changes"])
    got: list[Any] = []
    while len(got) < 2:
        got += reader.consume(2 - len(got), timeout=60)
    reader.close()
    assert b"seen-2" in got[1].value()
    refuse_traces(out.encode(), err.encode())
    refuse_traces(*(part for each in got for part in (each.key(), each.value())))
    refuse_traces(*(repr(each.headers()).encode() for each in got))


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
    assert not Path("there.json").exists()
    status, _, err = run(*command, "--checkpoint", "there.json", "--redact", "plain")
    assert status == 0, err
    with pytest.raises(UsageError, match="position of a snapshot"):
        pulled(snapshot=True, redact="pk=hash")


@pytest.mark.parametrize("more", [(), ("--history",)], ids=["last", "every"])
def test_a_mirror_has_nothing_of_it(
    more: tuple[str, ...], there: Simulator, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    command = "mirror", "orders", "--to", "mirrored", "--once", *more
    with Simulator(table="orders", clock=lambda: time.time() - 60) as shop:
        place = "--endpoint-url", shop.endpoint
        put(shop, 1)
        assert run(*command, *place, *EVERYTHING)[0] == 0
        put(shop, 2)
        shop.advance(5)
        status, out, err = run(*command, *place, *EVERYTHING)
        assert status == 0, err
        rows = deltalake.DeltaTable("mirrored").to_pyarrow_table().to_pylist()
        assert len(rows) == (2 if more else 1) and "seen-2" in repr(rows)
        assert {len(row["pk"]) for row in rows} == {32}
        written = [path.read_bytes() for path in Path("mirrored").rglob("*") if path.is_file()]
        refuse_traces(repr(rows).encode(), out.encode(), err.encode(), *written)
        for other in ("pk=hash", "pk=hash,v=keep-type"):
            status, _, err = run(*command, *place, "--redact", other)
            assert (status, err.count("was created with other rules or another key")) == (2, 1), err
        status, _, err = run("verify", "orders", "--with", "mirrored", *place)
        assert (status, err.count("its values are redacted")) == (2, 1), err
        command = *command[:3], "another", *command[4:]
        for merging in ("pk", "pk=drop", "*=keep-type"):
            status, _, err = run(*command, *place, "--redact", merging)
            assert (status, err) == (
                2,
                "error: --redact: a mirror needs the items' keys: use pk=hash\n",
            )


def test_what_the_page_shows_works(
    there: Simulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = re.findall(r"^\$ python -m watcher (.*--redact.*)", PAGES["security.md"], re.MULTILINE)
    assert len(lines) == 2
    private = {"email": {"S": "ada@example.com"}, "card": {"M": {"number": {"S": "4242"}}}}
    now = time.time()
    with Simulator(table="orders", key_names=("PK", "SK"), clock=lambda: now - 60) as shop:
        shop.put({"PK": {"S": "user-1"}, "SK": {"S": "order-1"}, **private})
        monkeypatch.setenv("AWS_ENDPOINT_URL", shop.endpoint)
        for words in map(shlex.split, lines):
            status, out, err = run(*words)
            assert status == 0 and out, err
            kept = {"PK=hash" in " ".join(words): "user-1", "email" in " ".join(words): "ada@"}
            assert not any(text in out for is_hidden, text in kept.items() if is_hidden)
