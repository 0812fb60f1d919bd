"""A job on Spark, its executors too, works with what docs/aws.md allows, and calls all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.integration.conftest import fresh_dynamodb_local
from tests.integration.test_policy import READ, TABLE, allow, guarded, others
from tests.spark.conftest import Run
from tests.support.iam import GuardedEndpoint

__all__ = ["fresh_dynamodb_local", "guarded", "others"]  # fixtures

pytestmark = [pytest.mark.spark, pytest.mark.proof]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ((), ["query", "orders", "SELECT count(*) FROM changes"]),
        ((), ["archive", "orders", "--to", "lake", "--checkpoint", "kept", "--once"]),
        (
            ("`replicate`", "the table that `replicate` writes to"),
            ["replicate", "orders", "--to", "copy", "--create", "--checkpoint", "kept", "--once"],
        ),
    ],
)
def test_a_job_calls_what_its_rows_allow(
    rows: tuple[str, ...],
    words: list[str],
    command: Run,
    guarded: GuardedEndpoint,
) -> None:
    granted = allow(guarded, READ, TABLE, *rows)
    words = [str(Path(each).absolute()) if each in ("lake", "kept") else each for each in words]
    done = command(*words, "--region", "us-east-1", "--endpoint-url", guarded.url)
    assert (done.status, guarded.refused) == (0, set()), done.err
    assert guarded.called == granted
