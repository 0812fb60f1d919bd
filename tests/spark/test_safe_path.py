"""What Spark starts takes no modules from the working folder; what that starts is the user's."""

import os
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark import SparkContext

from watcher import safe_path
from watcher.errors import UsageError
from watcher.spark import jvm


def test_sparks_processes_inherit_it_and_give_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def launch(*_: Any) -> None:
        seen.append(os.environ.get("PYTHONSAFEPATH"))
        safe_path.end()  # as one of them does
        seen.append(os.environ.get("PYTHONSAFEPATH"))
        raise OSError("no JVM here")

    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(jvm, "launch_gateway", launch)
    with pytest.raises(UsageError):
        jvm.launch({}, is_private=True)
    assert seen == ["watcher", None]
    assert "PYTHONSAFEPATH" not in os.environ
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    with pytest.raises(UsageError):
        jvm.launch({}, is_private=True)
    assert seen[2:] == ["1", "1"]
