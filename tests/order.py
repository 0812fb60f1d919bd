"""In which order several workers of pytest take the files: one that takes long is not the last."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

# Seconds a test, roughly: it works on a Spark that is there, or starts one; its module starts
# other programs; or nothing of it.
_ON_SPARK, _OF_SPARKS, _OF_PROGRAMS, _OF_PARTS = 15.0, 40.0, 2.0, 0.2
_PROGRAMS = {"DynamoDBLocal", "Program", "run", "subprocess"}
# These share a session, which takes as long to start, and to become fast, as many a test.
_ON_A_SESSION = "tests/spark/"


def _unit(nodeid: str) -> str:
    """What one worker does as a whole: a file, or half of those that share a Spark."""
    file = nodeid.partition("::")[0]
    if not file.startswith(_ON_A_SESSION):
        return file
    return _ON_A_SESSION + ("a-q" if file < _ON_A_SESSION + "test_r" else "r-z")


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
        seconds[_unit(item.nodeid)] += _seconds(item)
    items.sort(key=lambda item: -seconds[_unit(item.nodeid)])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """As `--dist loadfile`, but in this order, and with the units above."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _unit(nodeid)

    config.option.loadscopereorder = False
    return Scheduling(config, log)
