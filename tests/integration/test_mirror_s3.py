"""Mirrors in S3, as moto has it, read by others."""

import socket
import sys
from collections.abc import Iterator
from subprocess import DEVNULL, Popen

import boto3
import polars
import pytest

from tests.ledger.ledger import Ledger
from tests.support.eventually import eventually
from watcher.cli import main

pytestmark = pytest.mark.proof


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """In a process of its own: delta-rs holds the interpreter's lock while it asks."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    words = ["-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    with Popen([sys.executable, *words], stdout=DEVNULL, stderr=DEVNULL) as moto:
        try:
            client = boto3.client(
                "s3",
                region_name="us-east-1",
                endpoint_url=endpoint,
                aws_access_key_id="here",
                aws_secret_access_key="here",
            )
            eventually(lambda: answers(port))
            client.create_bucket(Bucket="lake")
            client.close()
            yield endpoint
        finally:
            moto.kill()


def test_a_mirror_in_s3_continues_there(
    bucket: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    mirror = ["mirror", "orders", "--no-follow", "--to", "s3://lake/orders"]
    with Ledger(24) as ledger:
        for name, value in ledger.simulator.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", bucket)
        for key in ("a", "b"):
            ledger.change(key, {"pk": {"S": key}})
            ledger.settle()
            assert main(mirror) == 0
        assert main(["verify", "orders", "--with", "s3a://lake/orders"]) == 0
        assert "2 items, 0 differ" in capsys.readouterr().out
        assert main(["verify", "orders", "--with", "s3://lake/nothing"]) == 2
        assert "it is not a mirror" in capsys.readouterr().err
        assert main([*mirror[:-1], "s3://lake"]) == 2
        assert main([*mirror[:-1], "s3://none/x"]) == 1
        assert "error: s3://none/x: S3 has no such bucket: create it, " in capsys.readouterr().err

    options = {"aws_endpoint": bucket, "aws_allow_http": "true", "aws_region": "us-east-1"}
    assert set(polars.read_delta("s3://lake/orders", storage_options=options)["pk"]) == {"a", "b"}
