"""A job on Spark, its executors too, calls what docs/aws.md says, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.integration.test_policy import READ, TABLE, actions, orders
from tests.simulator import Simulator
from tests.spark.conftest import Run

__all__ = ["orders"]  # a fixture

pytestmark = [pytest.mark.spark, pytest.mark.proof]


@pytest.mark.parametrize(
    "words",
    [
        ["query", "orders", "SELECT count(*) FROM changes"],
        ["archive", "orders", "--to", "lake", "--checkpoint", "kept", "--once"],
    ],
)
def test_a_job_calls_what_its_rows_say(words: list[str], command: Run, orders: Simulator) -> None:
    words = [str(Path(each).absolute()) if each in ("lake", "kept") else each for each in words]
    done = command(*words, "--region", "us-east-1", "--endpoint-url", orders.endpoint)
    assert done.status == 0, done.err
    assert {*orders.calls} == actions(READ, TABLE)
