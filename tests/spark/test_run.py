"""Errors out of Spark, in one line."""

import pytest

pytest.importorskip("pyspark")

from watcher.errors import DataLossError
from watcher.spark.jobs.run import translated


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
