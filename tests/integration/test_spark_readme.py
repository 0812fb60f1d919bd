"""The README's Spark commands run as written; one that would go on is asked to end."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import PATIENCE
from tests.test_readme import ON_SPARK, place, shop

__all__ = ["place", "shop"]  # fixtures

pytestmark = [pytest.mark.spark, pytest.mark.timeout(PATIENCE + 60)]

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
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.in_turn"],
        input="".join(json.dumps(arguments(command)) + "\n" for command in ON_SPARK),
        cwd=place,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(ON_SPARK)
    for command, (status, out, err) in zip(ON_SPARK, answers, strict=True):
        assert status == 0, (command, err)
        assert out or "Done:" in err, command
        assert "Traceback" not in err
