"""A program's own object as its checkpoint, and what is no checkpoint at all."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from watcher.aws.config import AwsConfig
from watcher.errors import UsageError
from watcher.stores.file import CheckpointFile
from watcher.stores.open_store import open_store
from watcher.streams.checkpoint_format import Token


def opened(given: Any) -> Any:
    return open_store(given, AwsConfig(), None)


class Kept:
    """Ten lines of somebody's."""

    def __init__(self) -> None:
        self.token: str | None = None

    def load(self) -> str | None:
        return self.token

    def save(self, token: str) -> None:
        self.token = token


class Async(Kept):
    async def save(self, token: str) -> None:  # type: ignore[override]
        super().save(token)


class Answers(Kept):
    def load(self) -> Any:
        if self.token is None:
            raise OSError("no\nway")
        return self.token


class Refuses(Kept):
    def save(self, token: str) -> None:
        raise ConnectionError("the database\nis away")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (object(), "give a file, dynamodb://TABLE/NAME, s3://BUCKET/KEY, or an object"),
        (Async(), "its save is async, and nothing would await it"),
        ("dynamodb://leases", "checkpoint dynamodb://leases: give dynamodb://TABLE/NAME"),
        ("gs://bucket/key", "no gs:// here: give a file, dynamodb://TABLE/NAME"),
    ],
)
def test_what_is_no_checkpoint_is_refused(given: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        opened(given)


@pytest.mark.parametrize(
    ("loaded", "text"),
    [
        (None, "checkpoint Answers: its load failed: OSError: no way"),
        ({"a": 1}, "its load gave dict"),
        ("", "can't be read"),
    ],
)
def test_what_it_loads_is_looked_at(loaded: Any, text: str) -> None:
    kept = Answers()
    kept.token = loaded
    with pytest.raises(UsageError, match=text):
        opened(kept).load()


def test_a_save_that_raises_is_said_in_one_line() -> None:
    text = "checkpoint Refuses: its save failed: ConnectionError: the database is away"
    with pytest.raises(UsageError, match=text):
        opened(Refuses()).save([Token("arn", [], [])])


def test_the_recipe_for_a_database_keeps_what_it_is_given(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "positions.md").read_text()
    (text,) = re.findall(r"```python\n# in_sql\.py\n(.*?)```", page, re.DOTALL)
    found: dict[str, Any] = {}
    exec(text, found)
    with closing(sqlite3.connect(tmp_path / "positions.db")) as connection:
        store = opened(found["InSql"](connection, "orders"))
        assert store.load() == []
        for shard in "a", "b":
            token = Token("arn", [shard], [])
            store.save([token])
            assert store.load() == [token]


def test_the_root_is_no_checkpoint() -> None:
    with pytest.raises(UsageError, match="can't be used: Is a directory"):
        CheckpointFile("/")
