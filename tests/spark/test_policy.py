"""A job on Spark works with what its policy allows, in its executors too, and calls all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.integration.conftest import fresh_dynamodb_local
from tests.integration.test_policy import allow, guarded, others
from tests.spark.conftest import Run
from tests.support.iam import GuardedEndpoint

__all__ = ["fresh_dynamodb_local", "guarded", "others"]  # fixtures

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("orders --for query", ["orders", "SELECT count(*) FROM changes"]),
        ("orders --for archive", ["orders", "--to", "lake", "--checkpoint", "kept", "--once"]),
        (
            "orders --for replicate --to copy",
            ["orders", "--to", "copy", "--create", "--checkpoint", "kept", "--once"],
        ),
    ],
)
def test_a_job_works_with_its_policy_and_calls_all_that_it_allows(
    policy: str,
    words: list[str],
    command: Run,
    guarded: GuardedEndpoint,
    capsys: pytest.CaptureFixture[str],
) -> None:
    granted = allow(guarded, capsys, policy)
    words = [str(Path(each).absolute()) if each in ("lake", "kept") else each for each in words]
    done = command(
        policy.split()[2], *words, "--region", "us-east-1", "--endpoint-url", guarded.url
    )
    assert (done.status, guarded.refused) == (0, set()), done.err
    assert guarded.called == granted
