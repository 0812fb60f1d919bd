"""Runs a watch in every kind of program that may hold one; `scripts/hosts` installs them.

Each host reads the same stream of 100 changes, with a split in it, and each change must come once.
"""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.simulator import Simulator
from tests.support.eventually import eventually

pytestmark = pytest.mark.proof

ROOT = Path(__file__).parents[2]
CHANGES = 100
EACH = f"{CHANGES} {CHANGES}\n"

FOLLOW = """
from watcher import Watch, watch


def changes(**options):
    seen = []
    watch("orders", seen.append, start="trim_horizon", **options)
    numbers = {(record.shard_id, record.sequence_number) for record in seen}
    assert len(seen) == len(numbers)
    return len(seen)


def run():
    return changes(follow=False), changes(follow=False, concurrency=4)
"""
WSGI = """
import os
import threading

from watcher import watch

seen, stop = [], threading.Event()


def follow():
    watch("orders", seen.append, start="trim_horizon", stop=stop)


def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {len(seen)}".encode()]
"""
GUNICORN = """
import threading

bind, workers = "127.0.0.1:{port}", 2


def post_worker_init(worker):
    import wsgi

    threading.Thread(target=wsgi.follow).start()


def worker_exit(server, worker):
    import wsgi

    wsgi.stop.set()
"""


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    with Simulator(table="orders", shards=3) as simulator:
        simulator.bulk(60, keys=20)
        simulator.split()
        simulator.bulk(CHANGES - 60, keys=20)
        yield simulator


@pytest.fixture
def place(tmp_path: Path, sim: Simulator, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {"follow": FOLLOW, "wsgi": WSGI}.items():
        (tmp_path / f"{name}.py").write_text(text)
    for name, value in sim.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str, program: str = "", seconds: float = 60) -> str:
    """What a program prints; it has to end well, and complain of nothing."""
    done = subprocess.run(
        [sys.executable, *words],
        input=program,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Error" not in done.stderr and "Warning" not in done.stderr, done.stderr
    return done.stdout


# Without a guard: a worker that ran the program's own file would begin another watch.
UNGUARDED = "from follow import run\nprint(*run())\n"


def test_a_program_on_standard_input_in_the_development_mode(place: Path) -> None:
    assert run("-W", "error", "-X", "dev", "-", program=UNGUARDED) == EACH


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_pool(place: Path, method: str) -> None:
    text = "import multiprocessing\nfrom follow import run\n"
    text += "if __name__ == '__main__':\n"
    text += f"    with multiprocessing.get_context('{method}').Pool(1) as pool:\n"
    text += "        print(*pool.apply(run))\n"
    (place / "program.py").write_text(text)
    assert run("program.py") == EACH


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_task_group_of_an_event_loop(place: Path, loop: str) -> None:
    text = """
import asyncio

import LOOP

from follow import Watch, run


async def main():
    seen = []
    async with asyncio.TaskGroup() as tasks:
        thread = tasks.create_task(asyncio.to_thread(run))
        async with Watch("orders", seen.append, start="trim_horizon", max_records=100) as watch:
            while watch.wait(0) is None:
                await asyncio.sleep(0.01)
    print(len(seen), *thread.result())


LOOP.run(main())
"""
    assert run("-", program=text.replace("LOOP", loop)) == f"{CHANGES} {EACH}"


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that is ended in order, and leaves no process behind."""
    made = subprocess.Popen([sys.executable, *words], start_new_session=True)
    try:
        yield made
        made.terminate()
        assert made.wait(60) is not None
        eventually(lambda: not _members(made.pid))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(made.pid, signal.SIGKILL)
        made.wait()


def _members(group: int) -> list[str]:
    """The processes of a group."""
    found = subprocess.run(["pgrep", "-g", str(group)], capture_output=True, text=True, check=False)
    return found.stdout.split()


def answered(port: int) -> tuple[str, int]:
    """The process that has answered, and how many changes it has seen."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
            pid, count = answer.read().decode().split()
    except OSError:
        return "", 0
    return pid, int(count)


def wait_for_workers(port: int, count: int, other_than: frozenset[str] = frozenset()) -> set[str]:
    """The processes that have seen every change, once so many have."""
    whole: set[str] = set()

    def asked() -> bool:
        pid, seen = answered(port)
        assert seen <= CHANGES
        if seen == CHANGES and pid not in other_than:
            whole.add(pid)
        return len(whole) >= count

    eventually(asked)
    return whole


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize("kind", ["sync", "gevent"])
def test_workers_of_gunicorn_of_which_one_is_killed(place: Path, kind: str) -> None:
    port = free_port()
    (place / "gunicorn.conf.py").write_text(GUNICORN.format(port=port))
    with started("-m", "gunicorn", "wsgi:app", "-k", kind):
        whole = wait_for_workers(port, 2)
        os.kill(int(min(whole)), signal.SIGKILL)
        wait_for_workers(port, 2, frozenset([min(whole)]))
