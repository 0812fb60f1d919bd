"""What the JVM, and py4j beside it, write while a job ends."""

import io
import logging
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from py4j.clientserver import ClientServerConnection
from py4j.protocol import Py4JError

from watcher.spark import jvm


def call_that_meets_the_end(*given: object) -> None:
    raise Py4JError("An error occurred while calling o243.getCause")


def test_a_batch_cut_off_by_the_jvms_end_is_not_told_once_a_stop_was_asked_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal to the whole group ends the JVM while Python writes a batch for it."""
    monkeypatch.setattr(logging.getLogger("py4j.clientserver"), "disabled", False)
    monkeypatch.setattr(jvm, "_started", [])
    batch = SimpleNamespace(call=call_that_meets_the_end)
    connection: Any = SimpleNamespace(
        pool={"p0": batch},
        python_parameters=SimpleNamespace(propagate_java_exceptions=False),
        _get_params=lambda given: [],
    )

    def call_back() -> list[str]:
        ClientServerConnection._call_proxy(connection, "p0", io.StringIO("call\n"))
        told = [record.name for record in caplog.records]
        caplog.clear()
        return told

    assert call_back() == ["py4j.clientserver"]
    jvm.silence()
    assert call_back() == []
