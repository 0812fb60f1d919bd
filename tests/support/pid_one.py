"""What a handler leaves behind does not stay: to be run in a PID namespace, below what is PID 1.

`unshare --pid --fork --mount-proc tini -- python -m tests.support.pid_one`, as root;
scripts/deploy-checks
does. Without tini the children of a handler's children stay as zombies, and it fails. (Nor does
Python as PID 1 hear a SIGTERM that comes while it starts: the kernel gives PID 1 no default
action.)
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.simulator import Simulator
from tests.support.program import Program

HANDLER = '''"""Leaves a process behind for each record."""
import subprocess
def handle(record):
    subprocess.run(["sh", "-c", "sleep 0.1 & exit 0"])
    print("left", flush=True)
'''


def zombies() -> int:
    """How many processes have ended, and nobody has asked how."""
    states = [path.read_text().rpartition(")")[2] for path in Path("/proc").glob("[0-9]*/stat")]
    return sum(state.split()[0] == "Z" for state in states)


def main() -> int:
    """Watch five records; 1 where something stays of them, or the end is not in order."""
    with tempfile.TemporaryDirectory() as folder, Simulator(table="orders") as sim:
        Path(folder, "leaves.py").write_text(HANDLER)
        with Program("orders", "--handlers", folder, "--leaves", env=sim.environment) as program:
            program.wait_for_status("Watching")
            sim.write("a", 5)
            program.wait_for_lines(5)
            time.sleep(0.5)
            left, status = zombies(), program.end()
    print(f"{left} zombies, exit status {status}")
    return 1 if left or status else 0


if __name__ == "__main__":
    sys.exit(main())
