"""On Spark the driver hands its credentials to the executors, new ones too, and writes none."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import WHOLE

from .fake import FakeAWS
from .signature import Issued

pytestmark = pytest.mark.proof

pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
@pytest.mark.timeout(WHOLE)
def test_executors_read_with_the_drivers_keys_also_once_they_have_expired_and_no_file_has_them(
    aws: FakeAWS, tmp_path: Path
) -> None:
    aws.table.bulk(400)
    aws.table.rotate("all")  # executors read what is closed
    process, runs = tmp_path / "process", tmp_path / "runs"
    key, keys = log_in(aws, process, runs)
    (tmp_path / ".aws" / "config").write_text(f"[default]\ncredential_process = {process}\n")
    work = tmp_path / "work"
    for name in ("conf", "events", "local", "temporary"):
        (work / name).mkdir(parents=True)
    settings = f"spark.eventLog.enabled true\nspark.eventLog.dir file://{work}/events\n"
    settings += f"spark.local.dir {work}/local\nspark.eventLog.compress false\n"
    settings += "spark.driver.extraJavaOptions -Dusers.own=kept\n"
    (work / "conf" / "spark-defaults.conf").write_text(settings)
    environment = os.environ | {
        "SPARK_CONF_DIR": str(work / "conf"),
        "TMPDIR": str(work / "temporary"),
        "PYTHONPATH": str(ROOT),
    }
    arguments = [aws.table.stream_arn, str(work), "700"]
    with (
        (tmp_path / "stderr").open("w+") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.aws.spark_query", *arguments],
            env=environment,
            cwd=work,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as program,
    ):
        assert program.stdout is not None
        lines = list[str]()
        for line in program.stdout:
            lines.append(line)
            if line == "read 400\n":
                # One for the stream's planner, one for the batch's: processes of their own.
                assert len(runs.read_text().split()) == 2
                assert aws.signed_by("GetRecords") == {key}
            if line == "followed 400\n":
                aws.accounts.expire()
                other, others = log_in(aws, process, runs)
                aws.table.bulk(200)
                aws.table.rotate("all")
                aws.table.bulk(100)
        stdout, stderr = "".join(lines), (tmp_path / "stderr").read_text()
    assert program.returncode == 0, stderr
    assert "streamed 400" in stdout and "read 400" in stdout
    assert "distinct 700 of 700" in stdout, stdout + stderr
    assert aws.signed_by("GetRecords") == {key, other}
    secrets = [each.encode() for each in (keys.secret, others.secret)]
    secrets += [each.token.encode() for each in (keys, others) if each.token]
    written = [path for path in work.rglob("*") if path.is_file()]
    assert any("checkpoint" in str(path) for path in written)
    events = b"".join(path.read_bytes() for path in (work / "events").rglob("*") if path.is_file())
    assert len(events) > 10_000 and b'"users.own":"kept"' in events
    for path in written:
        content = path.read_bytes()
        assert not any(secret in content for secret in secrets), path
    assert not any(secret.decode() in stdout + stderr for secret in secrets)


def log_in(aws: FakeAWS, process: Path, runs: Path) -> tuple[str, Issued]:
    """What credential_process prints from now on; each of its runs is a line of a file."""
    key, keys = aws.accounts.issue("process")
    answer = {"Version": 1, "AccessKeyId": key, "SecretAccessKey": keys.secret}
    answer |= {"SessionToken": keys.token}
    process.write_text(f"#!/bin/sh\necho $PPID >> {runs}\ncat <<'END'\n{json.dumps(answer)}\nEND\n")
    process.chmod(0o700)
    return key, keys
