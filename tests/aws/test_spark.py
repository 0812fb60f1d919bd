"""On Spark the driver hands its credentials to the executors, and they are written nowhere."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import WHOLE

from .fake import FakeAWS

pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[2]
CONF = Path(__file__).parents[1] / "spark" / "conf"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(WHOLE)
def test_executors_read_with_the_drivers_keys_which_are_in_no_file(
    aws: FakeAWS, tmp_path: Path
) -> None:
    aws.table.bulk(400)
    aws.table.rotate("all")  # executors read what is closed
    key, keys = aws.accounts.issue("process")
    answer = {"Version": 1, "AccessKeyId": key, "SecretAccessKey": keys.secret}
    answer |= {"SessionToken": keys.token}
    process, runs = tmp_path / "process", tmp_path / "runs"
    process.write_text(f"#!/bin/sh\necho $PPID >> {runs}\ncat <<'END'\n{json.dumps(answer)}\nEND\n")
    process.chmod(0o700)
    (tmp_path / ".aws" / "config").write_text(f"[default]\ncredential_process = {process}\n")
    work = tmp_path / "work"
    for name in ("conf", "events", "local", "temporary"):
        (work / name).mkdir(parents=True)
    settings = (CONF / "spark-defaults.conf").read_text()
    settings += f"\nspark.eventLog.enabled true\nspark.eventLog.dir file://{work}/events\n"
    settings += f"spark.local.dir {work}/local\nspark.eventLog.compress false\n"
    (work / "conf" / "spark-defaults.conf").write_text(settings)
    environment = os.environ | {
        "SPARK_CONF_DIR": str(work / "conf"),
        "TMPDIR": str(work / "temporary"),
        "PYTHONPATH": str(ROOT),
    }
    arguments = [aws.table.stream_arn, str(work)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.aws.spark_query", *arguments],
        env=environment,
        cwd=work,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "streamed 400" in done.stdout and "read 400" in done.stdout
    # One for the stream's planner, one for the batch's: they are processes of their own.
    assert len(runs.read_text().split()) == 2
    assert aws.signed_by("GetRecords") == {key}
    assert keys.token is not None
    secrets = [keys.secret.encode(), keys.token.encode()]
    written = [path for path in work.rglob("*") if path.is_file()]
    assert any("checkpoint" in str(path) for path in written)
    assert any(path.stat().st_size > 10_000 for path in (work / "events").rglob("*"))
    for path in written:
        content = path.read_bytes()
        assert not any(secret in content for secret in secrets), path
    assert not any(secret.decode() in done.stdout + done.stderr for secret in secrets)
