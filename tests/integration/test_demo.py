"""The demo's shop: what it is asked, it answers as the service does; it ends with the demo."""

import signal
import socket
from pathlib import Path

from tests.integration.test_readme import reached, shop
from tests.support.program import Program, run

__all__ = ["shop"]  # a fixture


def test_what_the_demo_says_to_undo_is_there_and_a_killed_one_leaves_no_shop_behind(
    tmp_path: Path,
) -> None:
    with Program("demo", "--keep", "--seconds", "1", env={}) as program:
        there = reached(program)
        (line,) = [line for line in program.err if " && export AWS_" in line]
        # What it says to type is to work as it stands, at once and hours later.
        program.wait_for_status("watcher undo orders")
        (undo,) = [line for line in program.err if "watcher undo orders" in line]
        planned = run(*undo.split()[3:], env=there, cwd=tmp_path)
        assert planned.err[-1].startswith("Plan: 19 items (19 MODIFY), 19 write units, 1 conflict")
        # Its end, and that of the shop, which writes to the same standard error.
        program.end(signal.SIGKILL)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(line.rpartition(":")[2]))) != 0
