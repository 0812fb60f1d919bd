"""`--log-format json`: whatever is said on stderr, each line is one JSON object."""

import json
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import Simulator
from tests.support.program import Program, Ran

pytestmark = pytest.mark.proof


def parsed(program: Program | Ran) -> list[dict[str, Any]]:
    """The lines; each has the three fields that all have."""
    lines = [json.loads(line) for line in program.err]
    for line in lines:
        assert set(line) >= {"time", "level", "message"}
        assert line["time"].endswith("Z")
        age = datetime.now(UTC) - datetime.fromisoformat(line["time"])
        assert timedelta(0) <= age < timedelta(minutes=5)
    return lines


def saying(lines: list[dict[str, Any]], text: str) -> dict[str, Any]:
    (line,) = [line for line in lines if text in line["message"]]
    return line


def test_a_watchs_lines_name_stream_shard_and_observer(sim: Simulator, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        '"""Broken."""\nimport logging, warnings\n'
        "def handle(record):\n"
        '    logging.getLogger("mine").warning("of my own\\nin two lines")\n'
        '    warnings.warn("beware")\n'
        '    raise ValueError("evil \\x1b[2J \\u2028 data")\n'
    )
    options = ("--log-format", "json", "--handlers", str(tmp_path), "--broken", "-v")
    with Program("orders", *options, "--print-summary", env=sim.environment) as program:
        program.wait_for_status("Watching")
        sim.write("a")
        program.wait_for_lines(1)
        pid = program.process.pid
        child = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
        os.kill(int(child), signal.SIGKILL)
        program.wait_for_status("starting it again")
        assert program.end() == 0
    lines, shard = parsed(program), sim.open_shards[0]
    assert not any(character in line for line in program.err for character in "\x1b\u2028")
    assert saying(lines, "Starting watcher") == {
        "time": saying(lines, "Starting watcher")["time"],
        "level": "info",
        "message": f"Starting watcher for shard: {shard}",
        "stream": sim.stream_arn,
        "shard": shard,
    }
    failed = saying(lines, "evil")
    assert (failed["level"], failed["shard"], failed["handler"]) == ("error", shard, "broken")
    assert "ValueError" in failed["traceback"]
    assert saying(lines, "signal 9")["shard"] == shard
    assert saying(lines, "of my own")["logger"] == "mine"
    assert "beware" in saying(lines, "beware")["message"]
    assert "stream" not in saying(lines, "Done: 1 record")


def test_what_python_says_of_errors_that_nobody_catches_is_lines_of_json_too(
    sim: Simulator, tmp_path: Path
) -> None:
    (tmp_path / "careless.py").write_text(
        '"""Careless."""\nimport logging, threading\n'
        "class Dropped:\n"
        "    def __del__(self):\n"
        '        raise ValueError("dropped")\n'
        "def handle(record):\n"
        '    thread = threading.Thread(target=int, args=("x",), name="aside")\n'
        "    thread.start()\n"
        "    thread.join()\n"
        "    Dropped()\n"
        '    logging.getLogger("mine").error("bad %d", "x")\n'
    )
    sim.write("a")
    options = ("--log-format", "json", "--handlers", str(tmp_path), "--careless", "--no-follow")
    with Program("orders", *options, "--from", "trim-horizon", env=sim.environment) as program:
        program.process.wait(60)
        program.wait_for_status("Done:")
        lines = parsed(program)

    assert saying(lines, "ValueError: invalid literal")["level"] == "error"
    assert saying(lines, "ValueError: dropped")["level"] == "error"
    assert "can't be logged" in saying(lines, "bad %d")["message"]
