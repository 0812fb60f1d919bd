"""The README's Spark commands run as written; one that would go on is asked to end."""

import subprocess
from pathlib import Path

import pytest

from tests.test_readme import ON_SPARK, place, server

__all__ = ["place", "server"]  # fixtures

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("command", ON_SPARK)
def test_a_spark_command_of_the_readme_works_as_written(command: str, place: Path) -> None:
    end = "" if "watcher query" in command else " --once"
    if "--engine spark" in command:
        end = " --from trim-horizon --no-follow"
    done = subprocess.run(
        ["bash", "-c", command + end],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout or "Done:" in done.stderr
    assert "Traceback" not in done.stderr
