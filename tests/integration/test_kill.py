"""Processes killed, stopped and starved, the network gone, observers that misbehave."""

import os
import signal
from pathlib import Path

import pytest

from tests.simulator import Simulator, judge
from tests.support.eventually import eventually
from tests.support.processes import children, memory_of
from tests.support.program import Program, numbers


def watching(sim: Simulator, *arguments: str, cwd: Path | None = None) -> Program:
    program = Program("orders", *arguments, env=sim.environment, cwd=cwd)
    program.wait_for_status("Watching")
    return program


def only_child(program: Program) -> int:
    (child,) = children(program.process.pid)
    return child


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_an_idle_shard_whose_process_is_killed_misses_nothing(sim: Simulator) -> None:
    with watching(sim, "-pj") as program:
        os.kill(only_child(program), signal.SIGKILL)
        sim.bulk(100)  # while nobody reads
        program.wait_for_lines(100)
        assert program.end() == 0
    assert not any(judge(sim.records, numbers(program)))
    assert program.err[-1].endswith("1 restart")


def test_shard_processes_die_with_the_program_even_when_stopped(
    sim: Simulator, tmp_path: Path
) -> None:
    checkpoint = str(tmp_path / "c.json")
    with watching(sim, "-pj", "--checkpoint", checkpoint) as program:
        child = only_child(program)
        os.kill(child, signal.SIGSTOP)
        program.process.kill()
        eventually(lambda: not is_running(child))
        program.wait()
    # … and the lock with them.
    with watching(sim, "-pj", "--checkpoint", checkpoint) as program:
        assert program.end() == 0


def test_all_asleep_for_longer_than_an_iterator_lives(sim: Simulator) -> None:
    with watching(sim, "-pj", "--poll-max", "0.1") as program:
        sim.bulk(50)
        program.wait_for_lines(50)
        os.killpg(program.process.pid, signal.SIGSTOP)
        sim.bulk(50)
        sim.advance(3600)
        os.killpg(program.process.pid, signal.SIGCONT)
        sim.bulk(50)
        program.wait_for_lines(150)
        assert program.end() == 0
    assert not any(judge(sim.records, numbers(program)))


def test_a_network_that_is_gone_for_a_while(sim: Simulator) -> None:
    with watching(sim, "-pj", "--poll-max", "0.1") as program:
        with sim.faulty(reset_rate=1.0):
            sim.bulk(50)
            sim.rotate()
            sim.bulk(50)
            program.wait_for_status("failures in a row")
        program.wait_for_lines(100)
        assert program.end() == 0
    assert not any(judge(sim.records, numbers(program)))


def test_a_second_program_on_one_checkpoint_is_refused(sim: Simulator, tmp_path: Path) -> None:
    checkpoint = ("--checkpoint", str(tmp_path / "c.json"))
    with watching(sim, *checkpoint) as first:
        with Program("orders", *checkpoint, env=sim.environment) as second:
            assert second.wait() == 2
        assert "another watch uses it" in second.err[-1]
        assert first.end() == 0


SLOW = """
import os, time
begun = []
def handle(record):
    begun.append(record)
    print(record.sequence_number, flush=True)
    while len(begun) == 2 and not os.path.exists("told to end"):
        time.sleep(0.01)
    time.sleep(0.5 if len(begun) == 2 else 0.0)
"""


def handler(folder: Path, text: str, name: str = "mine") -> tuple[str, ...]:
    (folder / f"{name}.py").write_text(text)
    return ("--handlers", str(folder), f"--{name}")


def of_handler(lines: list[str]) -> list[str]:
    """But for what --print-json prints."""
    return [line for line in lines if not line.startswith("{")]


@pytest.mark.parametrize(
    ("number", "slow", "options"),
    [
        (signal.SIGTERM, SLOW, []),
        pytest.param(signal.SIGHUP, SLOW, ["--concurrency", "2"], marks=pytest.mark.proof),
        pytest.param(signal.SIGINT, SLOW, ["--print-json"], marks=pytest.mark.proof),
    ],
    ids=["alone", "concurrent", "two observers"],
)
def test_a_slow_observer_gets_the_record_in_hand_and_nothing_behind_it(
    sim: Simulator, tmp_path: Path, number: signal.Signals, slow: str, options: list[str]
) -> None:
    """A second run has the rest, each record once."""
    checkpoint = ("--checkpoint", str(tmp_path / "c.json"))
    sim.bulk(1000)
    with Program(
        *("orders", "--from", "trim-horizon", *checkpoint, *handler(tmp_path, slow), *options),
        *("--stop-timeout", "60"),
        env=sim.environment,
        cwd=tmp_path,
    ) as program:
        program.wait_for(lambda: len(of_handler(program.out)) == 2)
        program.tell(number)
        (tmp_path / "told to end").touch()
        assert program.wait() == 0
    out = of_handler(program.out)
    assert len(out) == 2, "what comes behind the record in hand is left to the next run"
    assert "--print-json" not in options or len(program.out) == 2 * len(out)
    left = 1000 - len(out)
    assert f"Stopping: {left} records left unread" in program.err[-2]
    assert program.err[-1].startswith(f"Done: {len(out)} record")
    with watching(sim, "-pj", *checkpoint) as second:
        second.wait_for_lines(left)
        assert second.end() == 0
    assert not any(judge(sim.records, [*out, *numbers(second)]))


STUCK = """
import time
def handle(record):
    print(record.sequence_number, flush=True)
    time.sleep(3600)
"""


def test_a_second_signal_ends_it_at_once(sim: Simulator, tmp_path: Path) -> None:
    sim.bulk(1000)
    with Program(
        *("orders", "--from", "trim-horizon"), *handler(tmp_path, STUCK), env=sim.environment
    ) as program:
        program.wait_for_lines(1)
        program.process.send_signal(signal.SIGINT)
        assert program.end(signal.SIGTERM) == 128 + signal.SIGTERM


MISBEHAVING = {
    "forking": "import os\ndef handle(record):\n    if os.fork() == 0:\n"
    "        return  # the child comes back into the program\n    os.wait()\n",
    "exiting": "import sys\ndef handle(record):\n    sys.exit(1)\n",
    "closing": "import sys\ndef handle(record):\n    sys.stdout.close()\n",
    "printing": "def handle(record):\n    print('x' * 10, end='')\n",
}


def test_handlers_that_misbehave_hurt_only_themselves(sim: Simulator, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    note = (
        f"out = open({str(seen)!r}, 'a', buffering=1)\n"
        "def handle(record):\n    print(record.sequence_number, file=out)\n"
    )
    chosen = [handler(tmp_path, text, name)[-1] for name, text in MISBEHAVING.items()]
    with watching(sim, *chosen, *handler(tmp_path, note, "note")) as program:
        for _ in range(3):
            sim.bulk(20)
            sim.rotate()
        eventually(
            lambda: seen.exists() and len(seen.read_text().split()) >= len(sim.records),
            told=lambda: program.err,
        )
        assert program.end() == 0
    assert not any(judge(sim.records, seen.read_text().split()))


def test_a_slow_observer_keeps_memory_flat_over_a_large_backlog(tmp_path: Path) -> None:
    slow = (
        "import time\ncount = 0\ndef handle(record):\n    global count\n    count += 1\n"
        "    if count % 1000 == 0:\n        print(count, flush=True)\n        time.sleep(0.1)\n"
    )
    with Simulator(table="orders", shards=4) as sim:
        sim.bulk(200_000, size=200)
        # A Python of its own: what a fork shares with the tests would count for nothing.
        env = {**sim.environment, "PYTHONHASHSEED": "0"}
        with Program(
            *("orders", "--from", "trim-horizon", *handler(tmp_path, slow)), env=env
        ) as program:

            def megabytes() -> float:
                pid = program.process.pid
                return sum(map(memory_of, [pid, *children(pid)]))

            program.wait_for_lines(10)
            early = megabytes()
            program.wait_for_lines(60)
            late = megabytes()
            program.process.kill()
    assert late < early * 1.3 + 10
    assert 50 < late < 250
