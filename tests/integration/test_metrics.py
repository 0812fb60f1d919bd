"""`--metrics-port`: a real scrape of the real program, while the service throttles and splits."""

import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.simulator import Simulator
from tests.support.eventually import eventually
from tests.support.program import Program

SHARDS = 2

Series = dict[tuple[str, str], float]


def watching(sim: Simulator, *options: str, port: str = "0") -> Program:
    return Program("orders", "--metrics-port", port, *options, env=sim.environment)


def url(program: Program) -> str:
    program.wait_for_status("Metrics: ")
    (line,) = [line for line in program.err if line.startswith("Metrics: ")]
    return line.removeprefix("Metrics: ")


def scrape(address: str) -> Series:
    """Each series' value, by its name and its label's value."""
    with urllib.request.urlopen(address, timeout=60) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    assert all(family.documentation for family in families)
    series = [sample for family in families for sample in family.samples]
    found = {(each.name, "".join(each.labels.values())): each.value for each in series}
    assert len(found) == len(series), "no series twice"
    return found


def wait_for(address: str, condition: Callable[[Series], bool]) -> Series:
    found: Series = {}

    def holds() -> bool:
        found.clear()
        found.update(scrape(address))
        return condition(found)

    eventually(holds, told=lambda: found)
    return found


def is_open(address: str) -> bool:
    try:
        scrape(address)
    except OSError:
        return False
    return True


def test_a_scrape_tells_what_the_watch_has_done(sim: Simulator, tmp_path: Path) -> None:
    (tmp_path / "picky.py").write_text(
        '"""Picky."""\ndef handle(record):\n    assert record["eventName"] != "REMOVE"\n'
    )
    sim.bulk(300, keys=20, remove_every=10)
    options = ("--from", "trim-horizon", "--print-summary", "--handlers", str(tmp_path), "--picky")
    with watching(sim, *options) as program:
        address = url(program)
        sim.set_faults(throttle_rate=0.3)
        parent = sim.split()[0]
        sim.bulk(200, keys=20)
        program.wait_for_lines(500)
        sim.set_faults(throttle_rate=0.0)
        found = wait_for(
            address,
            lambda now: (
                now["watcher_handler_records_total", "print_summaryorders"] == 500
                and now["watcher_shards", "finished"] == 1
                and not any(
                    value for (name, _), value in now.items() if name.endswith("lag_seconds")
                )
            ),
        )
        removed = sum("REMOVE" in line for line in program.out)
        assert removed > 10
        assert found["watcher_records_total", "REMOVEorders"] == removed
        assert (
            sum(value for (name, _), value in found.items() if name == "watcher_records_total")
            == 500
        )
        assert found["watcher_handler_failures_total", "pickyorders"] == removed
        assert found["watcher_handler_records_total", "pickyorders"] == 500 - removed
        assert found["watcher_shards", "open"] == 3
        open_shards = {label for name, label in found if name == "watcher_shard_lag_seconds"}
        assert open_shards == {f"{shard}orders" for shard in sim.open_shards}
        assert parent in sim.open_shards
        assert found["watcher_queue_records", ""] == 0
        assert found["watcher_throttles_total", ""] > 0
        assert program.end() == 0


def worker(program: Program) -> int:
    """The process of one shard: the exporter is the first child, the shards' come after it."""
    pid = program.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[-1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_exporter_ends_with_the_manager_however_that_ends(sim: Simulator, number: int) -> None:
    with watching(sim) as program:
        address = url(program)
        program.wait_for_status("Watching")
        assert is_open(address)
        program.process.send_signal(number)
        program.process.wait(60)
        eventually(lambda: not is_open(address))
        # Nothing of ours has the program's output open any more.
        assert program.wait() in (0, -number)
