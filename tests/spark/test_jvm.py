"""What the JVM, and py4j beside it, write while a job ends."""

import io
import logging
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from py4j.clientserver import ClientServerConnection
from py4j.protocol import Py4JError, Py4JJavaError

from watcher.spark import jvm
from watcher.spark.jobs.run import translated


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


class Java(Py4JJavaError):  # type: ignore[misc]  # py4j has no types
    """One whose text is in a JVM that has ended."""

    def __init__(self) -> None:
        Exception.__init__(self)

    def __str__(self) -> str:
        raise Py4JError("An error occurred while calling o243.getCause")


def test_an_error_whose_text_is_gone_with_the_jvm_is_told_all_the_same() -> None:
    assert jvm.said(Java()) == "Java: Spark's JVM has ended (Py4JError)"
    assert str(translated(Java())) == "Spark: Java: Spark's JVM has ended (Py4JError)"
