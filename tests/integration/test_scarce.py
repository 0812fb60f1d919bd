"""Where the system gives little: a read-only root."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_deploy import CONTAINER, TASK
from tests.simulator import Simulator
from tests.support.eventually import PATIENCE

pytestmark = pytest.mark.proof

UP_TO_NOW = ["--from", "trim-horizon", "--no-follow"]
VOLUMES = [
    *(each["mountPath"] for each in CONTAINER["volumeMounts"]),
    "/dev/shm",  # a container's runtime puts it there by itself
]


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(table="orders", shards=2, clock=lambda: time.time() - 60) as simulator:
        simulator.write("a", 3)
        simulator.advance(60)
        yield simulator


def shell(
    lines: str, inside: list[str], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*inside, "bash", "-ec", lines],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def run_in_read_only_root(
    sim: Simulator, *words: str, writable: list[str]
) -> subprocess.CompletedProcess[str]:
    """The command line in a root as a container has it; only these folders can be written to."""
    unshare = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    tried = shell("mount -o remount,bind,ro /", unshare, dict(os.environ))
    if tried.returncode:
        pytest.skip(f"no mounts of one's own here: {tried.stderr.strip()}")
    here = shlex.quote(str(Path.cwd()))
    lines = [f"mount --bind {here} {here}", f"mount -o remount,bind,ro {here}", f"exec 9<{here}"]
    for folder in ("/var/tmp", "/dev/shm", "/tmp"):
        lines.append(f"mount -t tmpfs none {folder}")
        if Path.cwd().is_relative_to(folder):  # this clone is in there, and hidden now
            lines += [f"mkdir -p {here}", f"mount --bind /proc/self/fd/9 {here}"]
            lines.append(f"mount -o remount,bind,ro {here}")
        if folder not in writable:
            lines.append(f"mount -o remount,ro {folder}")
    lines += ["mount -o remount,bind,ro /", f"cd {here}"]
    lines.append(shlex.join(["exec", sys.executable, "-m", "watcher", *words]))
    environment = {**os.environ, **sim.environment, "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("TMPDIR", "TEMP", "TMP", "XDG_RUNTIME_DIR"):
        environment.pop(name, None)
    return shell("\n".join(lines), unshare, environment)


@pytest.mark.parametrize("words", [CONTAINER["args"], TASK["command"]], ids=["kubernetes", "ecs"])
@pytest.mark.parametrize("more", [[], ["--concurrency", "3"]], ids=["", "concurrent"])
def test_the_manifests_roots_have_what_a_watch_writes_to(
    words: list[str], more: list[str], sim: Simulator
) -> None:
    asked = [each for each in words if "checkpoint" not in each and "metrics" not in each]
    done = run_in_read_only_root(
        sim, *asked, *UP_TO_NOW, *more, "--metrics-port", "0", writable=VOLUMES
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3
