"""In which order tests run: files that take long first, where there are several workers."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

# Seconds a test, roughly: it works on a Spark that is there, or starts one; its module starts
# other programs, or a service to wait for; or nothing of it.
_ON_SPARK, _OF_SPARKS, _OF_PROGRAMS, _OF_PARTS = 15.0, 100.0, 2.0, 0.2
_PROGRAMS = {"DynamoDBLocal", "Ledger", "Program", "Simulator", "run", "subprocess"}
# Those of its files that start Spark share a session, which takes as long to start, and to become
# fast, as many a test.
_ON_A_SESSION = "tests/spark/"
_ON_ONE_TOO = "tests/integration/test_spark_local.py"
_ROOT = Path(__file__).parents[1]


@cache
def _unit(file: str) -> str:
    """What one worker does as a whole: a file, or half of those that share a Spark."""
    if file == _ON_ONE_TOO:
        return _ON_A_SESSION + "a-o"
    if not file.startswith(_ON_A_SESSION) or "mark.spark" not in (_ROOT / file).read_text():
        return file
    return _ON_A_SESSION + ("a-o" if file < _ON_A_SESSION + "test_p" else "p-z")


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _seconds(item: pytest.Item) -> float:
    if item.get_closest_marker("spark"):
        return _ON_SPARK if item.nodeid.startswith(_ON_A_SESSION) else _OF_SPARKS
    module = item.getparent(pytest.Module)
    names = set(vars(module.obj)) if module is not None else set()
    return _OF_PROGRAMS if names & _PROGRAMS else _OF_PARTS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest first, where there are workers."""
    if not hasattr(config, "workerinput"):
        return
    seconds: dict[str, float] = defaultdict(float)
    for item in items:
        seconds[_unit(_file(item.nodeid))] += _seconds(item)
    items.sort(key=lambda item: -seconds[_unit(_file(item.nodeid))])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """As `--dist loadfile`, but in this order, and with the units above."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _unit(_file(nodeid))

    config.option.loadscopereorder = False
    return Scheduling(config, log)
