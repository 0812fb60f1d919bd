"""Errors out of Spark, in one line."""

import traceback

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import ParseException, PySparkException

from watcher.errors import DataLossError, UsageError
from watcher.spark.error_mapping import translated
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


def test_bad_sql_and_trouble_of_sparks_own_have_their_statuses() -> None:
    bad, gone = ParseException("[PARSE_SYNTAX_ERROR] near 'SELEC'"), PySparkException("no space")

    assert [translated(each).exit_status for each in (bad, gone, Exception("x"))] == [2, 3, 3]
