"""The README's Spark commands run as written; one that would go on is asked to end."""

import json
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.integration.test_readme import ON_SPARK, place, shop
from tests.spark.conftest import PATIENCE, WHOLE

__all__ = ["place", "shop"]  # fixtures

pytestmark = [pytest.mark.spark, pytest.mark.timeout(WHOLE)]

ROOT = Path(__file__).parents[2]


def arguments(command: str) -> list[str]:
    given = shlex.split(command)
    assert given[:3] == ["python", "-m", "watcher"]
    if "--engine" in given:
        return [*given[3:], "--from", "trim-horizon", "--no-follow"]
    return given[3:] if given[3] == "query" else [*given[3:], "--once"]


def test_the_spark_commands_of_the_readme_work_as_written(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    log = place / "stderr"
    with (
        open(log, "w") as said,
        subprocess.Popen(
            [sys.executable, "-m", "tests.spark.in_turn"],
            cwd=place,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as process,
    ):
        assert process.stdin and process.stdout
        for command in ON_SPARK:
            print(json.dumps(arguments(command)), file=process.stdin, flush=True)
            hangs = threading.Timer(PATIENCE, process.kill)
            hangs.start()
            line = process.stdout.readline()
            hangs.cancel()
            assert line, f"no answer in {PATIENCE:.0f} s: {command}\n{log.read_text()[-3000:]}"
            status, out, err = json.loads(line)
            assert status == 0, (command, err)
            assert out or "Done:" in err, command
            assert "Traceback" not in err
        process.stdin.close()
        assert process.wait(PATIENCE) == 0, log.read_text()[-3000:]
