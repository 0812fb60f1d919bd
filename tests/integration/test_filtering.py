"""Filters, keys and kinds through the real command line."""

import json
import multiprocessing.forkserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulator import Simulator
from tests.support.program import run
from watcher import watch

ALL = ("orders", "--from", "trim-horizon", "--no-follow")


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    """Items a, b and c: put, changed with another total, and a removed."""
    with Simulator(table="orders") as simulator:
        for total, key in enumerate("abc", 1):
            simulator.put({"pk": {"S": key}, "total": {"N": str(total)}})
        for total, key in enumerate("abc", 10):
            simulator.modify(key, {"total": {"N": str(total)}})
        simulator.remove("a")
        yield simulator


def test_what_is_filtered_out_is_counted_apart_and_moves_the_checkpoint(
    sim: Simulator, tmp_path: Path
) -> None:
    (tmp_path / "b.json").write_text('{"dynamodb": {"Keys": {"pk": {"S": ["b"]}}}}')
    options = [*ALL, "-pj", "--filter", "@b.json", "--checkpoint", "state.json"]
    first = run(*options, "--max-records", "1", env=sim.environment, cwd=tmp_path)
    assert [json.loads(line)["eventName"] for line in first.out] == ["INSERT"]
    assert first.err[-1].startswith("Done: 1 record (1 INSERT)")
    rest = run(*options, env=sim.environment, cwd=tmp_path)
    assert [json.loads(line)["eventName"] for line in rest.out] == ["MODIFY"]
    assert rest.err[-1] == "Done: 1 record (1 MODIFY), 4 filtered out, 1 shard"
    last = run(*options, env=sim.environment, cwd=tmp_path)
    assert last.err[-1] == "Done: 0 records, 1 shard"


def test_a_program_with_threads_filters_too_and_its_variables_count_as_they_are_now(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workers are Python's fork server's, which may have begun long before."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    multiprocessing.forkserver.ensure_running()
    for name, value in sim.environment.items():
        monkeypatch.setenv(name, value)
    seen: list[str] = []
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait)
    thread.start()
    try:
        watch(
            "orders",
            [lambda record: seen.append(record.event_name + record.key["pk"])],
            start="trim_horizon",
            follow=False,
            only="modify",
            filters=[{"dynamodb": {"NewImage": {"total": {"N": [12]}}}}],
        )
    finally:
        is_over.set()
        thread.join()
    assert seen == ["MODIFYc"]
