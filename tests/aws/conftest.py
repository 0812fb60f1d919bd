"""One fake AWS for all tests here, and an environment that leads to it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .fake import FakeAWS


@pytest.fixture(scope="session")
def server() -> Iterator[FakeAWS]:
    with FakeAWS(shards=4) as aws:
        yield aws


@pytest.fixture
def aws(server: FakeAWS, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeAWS:
    """The fake, as new; this process is led to it, and has a home of its own, without keys."""
    server.reset()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    return server
