"""Errors out of Spark, in one line."""

import pytest

pytest.importorskip("pyspark")

from watcher.errors import DataLossError
from watcher.spark.jobs.run import translated


def test_a_worker_without_watcher_is_told_of_in_its_own_sentence() -> None:
    sentence = "Spark's worker on this machine can't import dynamodb-watcher (x): install it"
    error = Exception(f"From the Python worker:\n  File x\nImportError: {sentence}\n\n\tat y")

    assert str(translated(error)) == sentence


def test_a_loss_names_the_option_and_the_flags() -> None:
    error = Exception(
        "File x\nwatcher.errors.DataLossError: gone; to go on: failOnDataLoss=false\n"
    )

    told = translated(error)

    assert isinstance(told, DataLossError)
    assert str(told) == (
        "gone; to go on: failOnDataLoss=false "
        "(on the command line: --lossy, or a watch without --fail-on-data-loss)"
    )
