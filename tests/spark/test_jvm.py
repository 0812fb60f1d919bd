"""What the JVM, and py4j beside it, write while a job ends."""

import io
import logging
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from py4j.clientserver import ClientServerConnection
from py4j.protocol import Py4JError, Py4JJavaError

from watcher.errors import WatcherError
from watcher.spark import jvm
from watcher.spark.error_mapping import one_line, translated, translating_errors


def call_that_meets_the_end(*given: object) -> None:
    raise Py4JError("An error occurred while calling o243.getCause")


def test_a_batch_cut_off_by_the_jvms_end_is_not_told_once_a_stop_was_asked_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal to the whole group ends the JVM while Python writes a batch for it."""
    monkeypatch.setattr(logging.getLogger("py4j.clientserver"), "disabled", False)
    monkeypatch.setattr(jvm, "STARTED", [])
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
    assert one_line(Java()) == "Java: Spark's JVM has ended (Py4JError)"
    assert str(translated(Java())) == "Spark: Java: Spark's JVM has ended (Py4JError)"


PLANNER = """java.io.EOFException
\tat java.base/java.io.DataInputStream.readFully(DataInputStream.java:210)
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:385)
\tat org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner.latestOffset(x)
\tat org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution.$anonfun(x)
"""
WRITTEN_TO = """Caused by: java.net.SocketException: Connection reset
\tat java.base/sun.nio.ch.SocketChannelImpl.throwConnectionReset(SocketChannelImpl.java:401)
\tat org.apache.spark.api.python.BasePythonRunner$ReaderInputStream.writeAdditionalInput(x)
"""
ANOTHERS = """Caused by: java.net.SocketException: Connection reset
\tat java.base/sun.nio.ch.SocketChannelImpl.throwConnectionReset(SocketChannelImpl.java:401)
\tat org.apache.hadoop.ipc.Client.call(x)
\tat org.apache.spark.api.python.PythonRDD.collect(x)
"""


class OfQuery(Exception):
    """One whose causes only its Java side has."""

    def __init__(self, trace: str) -> None:
        super().__init__("[STREAM_FAILED] Query terminated with exception: ")
        self._stackTrace = trace


@pytest.mark.parametrize(
    ("error", "has_died"),
    [
        (Exception("Job aborted: Python worker exited unexpectedly (crashed). Consider x"), True),
        (Exception("Job aborted: Python worker exited unexpectedly (crashed) - y"), True),
        (OfQuery(PLANNER), True),
        (OfQuery(WRITTEN_TO), True),
        (OfQuery(ANOTHERS), False),
        (Java(), False),
    ],
)
def test_a_python_process_that_has_died_is_the_cause(error: Exception, has_died: bool) -> None:
    told = str(translated(error))

    assert told.startswith("Spark: one of its Python processes has died: it was") is has_died
    assert "\n" not in told


@pytest.mark.proof
@pytest.mark.spark
def test_a_worker_that_is_killed_is_the_cause(spark: Any) -> None:
    def die(batches: Any) -> Any:
        import os
        import signal

        os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    with (
        pytest.raises(WatcherError, match="its Python processes has died: it was"),
        translating_errors(),
    ):
        spark.range(1).mapInArrow(die, "id long").collect()
