"""The README's Spark commands run as written; one that would go on is asked to end."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_readme import ON_SPARK, place, shop
from tests.spark.conftest import Run

__all__ = ["place", "shop"]  # fixtures

pytestmark = [pytest.mark.spark, pytest.mark.proof]


def arguments(command: str) -> list[str]:
    given = shlex.split(command)
    assert given[:3] == ["python", "-m", "watcher"]
    if "--engine" in given:
        return [*given[3:], "--from", "trim-horizon", "--no-follow"]
    return given[3:] if given[3] == "query" else [*given[3:], "--once"]


@pytest.fixture
def here(
    place: Path, shop: dict[str, str], spark: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The JVM, which is there already, finds the place and the shop as one that starts there."""
    monkeypatch.chdir(place)
    for name, value in shop.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    hadoop, system = spark._jvm.org.apache.hadoop.fs, spark._jvm.java.lang.System
    files = hadoop.FileSystem.get(spark._jsc.hadoopConfiguration())
    before = system.setProperty("user.dir", str(place))
    files.setWorkingDirectory(hadoop.Path(str(place)))
    yield
    system.setProperty("user.dir", before)
    files.setWorkingDirectory(hadoop.Path(before))


@pytest.mark.parametrize("line", ON_SPARK)
@pytest.mark.usefixtures("here")
def test_a_spark_command_of_the_readme_works_as_written(line: str, command: Run) -> None:
    done = command(*arguments(line))

    assert done.status == 0, done.err
    assert done.out or "Done:" in done.err
    assert "Traceback" not in done.err
