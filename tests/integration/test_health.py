"""`/livez` and `/readyz`: a real program, stopped, hung and refused, and what its probes say."""

import fnmatch
import http.client
import os
import re
import signal
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.test_metrics import url, worker
from tests.simulator import Simulator
from tests.support.eventually import eventually
from tests.support.program import Program

pytestmark = pytest.mark.proof
SHARDS = 2

HANGS = '''"""Hang at one key."""
import time
def handle(record):
    while record["dynamodb"]["Keys"]["pk"]["S"] == "hang":
        time.sleep(0.01)
'''
# In place of a minute; before anything of the program is imported. With one second, a slow machine
# lets a shard look late at the moment when a handler hangs, and the last figures keep that line.
SOON = """import watcher.observability.heartbeat as heartbeat
heartbeat.LATE_SECONDS = 2.0
"""


class Answer(NamedTuple):
    status: int
    text: str


@pytest.fixture
def environment(sim: Simulator, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "sitecustomize.py").write_text(SOON)
    (tmp_path / "hang.py").write_text(HANGS)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    return {**sim.environment, "PYTHONPATH": path}


def watching(environment: dict[str, str], tmp_path: Path, *options: str) -> Program:
    own = ("--handlers", str(tmp_path), "--hang", "--poll-max", "0.2", "--metrics-port", "0")
    return Program("orders", *own, *options, env=environment)


def ask(program: Program, path: str, method: str = "GET") -> Answer:
    host = url(program).removeprefix("http://").removesuffix("/metrics")
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request(method, path)
    answer = connection.getresponse()
    found = Answer(answer.status, answer.read().decode())
    connection.close()
    return found


def wait_for(program: Program, path: str, status: int, text: str = "") -> None:
    """Until it answers this, with a text like that, whatever it says before."""

    def answers() -> bool:
        found = ask(program, path)
        said = re.sub(r"for \d+ s|shardId-[\w-]+", "…", found.text)
        return found.status == status and fnmatch.fnmatch(said, text or "*")

    eventually(answers, told=lambda: ask(program, path))


def test_probes_of_a_program_that_is_stopped_hung_and_refused(
    sim: Simulator, environment: dict[str, str], tmp_path: Path
) -> None:
    with watching(environment, tmp_path) as program:
        wait_for(program, "/readyz", 200, "ok\n")
        wait_for(program, "/livez", 200, "ok\n")

        stopped = worker(program)
        os.kill(stopped, signal.SIGSTOP)
        told = "shard … of orders: no read has come to an end, …\n"
        wait_for(program, "/livez", 503, told)
        wait_for(program, "/readyz", 503, told)
        os.kill(stopped, signal.SIGCONT)
        wait_for(program, "/livez", 200)
        wait_for(program, "/readyz", 200)

        os.kill(program.process.pid, signal.SIGSTOP)
        wait_for(program, "/livez", 503, "the watch's loop has stood …\n*")
        os.kill(program.process.pid, signal.SIGCONT)
        wait_for(program, "/livez", 200)

        sim.set_faults(throttle_rate=1.0)
        # Not at any moment: a try may take longer than the second that stands for a minute here.
        wait_for(program, "/readyz", 503, "*no read was answered*")
        wait_for(program, "/livez", 200)
        sim.set_faults(throttle_rate=0.0)
        wait_for(program, "/readyz", 200)

        sim.write("hang")
        wait_for(program, "/livez", 503, "a handler (hang) has stood …\n")
        assert ask(program, "/readyz", "HEAD") == (503, "")
        program.process.kill()
