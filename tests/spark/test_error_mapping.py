"""Errors out of Spark, in one line."""

import traceback

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import ParseException, PySparkException

from watcher.errors import DataLossError, UsageError
from watcher.spark.error_mapping import one_line, translated
from watcher.spark.options import parse


def test_a_worker_without_watcher_is_told_of_in_its_own_sentence() -> None:
    cause = "ModuleNotFoundError: No module named 'watcher'"
    error = Exception(f"From the Python worker:\n  File x\n{cause}\n\n\tat y")

    assert str(translated(error)).startswith("Spark's workers can't import dynamodb-watcher: ")


def test_a_loss_names_the_option_and_the_flags() -> None:
    error = Exception(
        "File x\nwatcher.errors.DataLossError: gone; to continue: failOnDataLoss=false\n"
    )

    told = translated(error)

    assert isinstance(told, DataLossError)
    assert str(told) == (
        "gone; to continue: failOnDataLoss=false (on the command line --no-fail-on-data-loss)"
    )


def test_what_is_no_position_is_told_as_our_own_error() -> None:
    with pytest.raises(UsageError) as raised:
        parse({"stream": "orders", "startingposition": "x"}, streaming=True)
    (line,) = traceback.format_exception_only(raised.value)

    told = translated(Exception(f"From the Python worker:\n  File x\n{line}\n\tat y"))

    assert isinstance(told, UsageError)
    assert str(told) == str(raised.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "s3a.UnknownStoreException: …NoSuchBucketException: The spec",
            "has no such bucket: create",
        ),
        (
            "S3Exception: Forbidden (Service: S3, Status Code: 403, Req",
            "refuses the credentials, or",
        ),
        (
            "auth.NoAwsCredentialsException: Dynamic session credential",
            "refuses the credentials, or",
        ),
    ],
)
def test_what_s3_refuses_is_a_line_that_says_what_to_do(text: str, told: str) -> None:
    assert str(translated(Exception(f"while calling o1.x\n: {text}"))).startswith(
        f"Spark: S3 {told}"
    )


def test_bad_sql_and_trouble_of_sparks_own_have_their_statuses() -> None:
    bad, gone = ParseException("[PARSE_SYNTAX_ERROR] near 'SELEC'"), PySparkException("no space")

    assert [translated(each).exit_status for each in (bad, gone, Exception("x"))] == [2, 3, 3]


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
