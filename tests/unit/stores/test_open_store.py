"""A program's own object as its checkpoint, and what is no checkpoint at all."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.play import Play, Seen, page
from watcher.aws.config import AwsConfig
from watcher.errors import UsageError
from watcher.stores.file import CheckpointFile
from watcher.stores.open_store import open_store
from watcher.streams.checkpoint_format import Token
from watcher.streams.messages import IteratorGranted


def opened(given: Any) -> Any:
    return open_store(given, AwsConfig(), None)


class Kept:
    """Ten lines of somebody's."""

    def __init__(self) -> None:
        self.token: str | None = None
        self.fails = False
        self.tries = 0

    def load(self) -> str | None:
        return self.token

    def save(self, token: str) -> None:
        self.tries += 1
        if self.fails:
            raise ConnectionError("the database\nis away")
        self.token = token


def play(kept: Kept, seen: Seen) -> Play:
    made = Play(seen, store=opened(kept))
    made.service.add("a")
    return made


def test_an_object_of_the_callers_keeps_the_positions() -> None:
    kept, seen = Kept(), Seen()
    first = play(kept, seen)
    first.run(("a", IteratorGranted(first.service.now)), ("a", page(1, 2)))
    again = play(kept, seen)
    again.run(("a", page(3)))
    assert seen.numbers == [1, 2, 3]
    assert "AfterSequence" in repr(again.begun[0]), "not from the horizon again"


class Generates(Kept):
    async def save(self, token: str) -> Any:
        yield token


class Async(Kept):
    async def save(self, token: str) -> None:  # type: ignore[override]
        super().save(token)


class Answers(Kept):
    def load(self) -> Any:
        return self.token


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            object(),
            "checkpoint object: give a file, dynamodb://TABLE/NAME, s3://BUCKET/KEY, or an object",
        ),
        (7, "checkpoint int: give a file"),
        (Generates(), "its save is an async generator, and nothing would run it"),
        (Async(), "its save is async, and nothing would await it"),
        ("dynamodb://leases", "checkpoint dynamodb://leases: give dynamodb://TABLE/NAME"),
        ("dynamodb://x/orders", "give dynamodb://TABLE/NAME"),
        (
            "gs://bucket/key",
            "no gs:// here: give a file, dynamodb://TABLE/NAME, s3://BUCKET/KEY, or",
        ),
    ],
)
def test_what_is_no_checkpoint_is_refused(given: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        opened(given)


@pytest.mark.parametrize(
    ("loaded", "text"),
    [
        ("{", "can't be read"),
        ({"a": 1}, "its load gave dict"),
        ('{"x": 1}', "can't be read"),
        ("", "can't be read"),
    ],
)
def test_what_it_loads_is_looked_at(loaded: Any, text: str) -> None:
    kept = Answers()
    kept.token = loaded
    with pytest.raises(UsageError, match=text):
        opened(kept).load()


def test_a_load_that_raises_is_said_in_one_line() -> None:
    class Broken(Kept):
        def load(self) -> str | None:
            raise OSError("no\nway")

    with pytest.raises(UsageError, match="checkpoint Broken: its load failed: OSError: no way"):
        opened(Broken()).load()


def test_a_path_is_a_file_whatever_it_is_called(tmp_path: Path) -> None:
    opened(tmp_path / "s3:" / ".." / "c.json").close()


def test_that_positions_are_not_saved_shows_in_the_figures() -> None:
    kept, saved = Kept(), list[bool]()
    made = play(kept, Seen())

    def look(fails: bool) -> None:
        saved.append(made.totals.saved)
        kept.fails = fails

    made.run(
        *(("a", page(1)), 2.0, lambda: look(True), ("a", page(2)), 2.0),
        *(lambda: look(False), ("a", page(3)), 2.0, lambda: look(False)),
    )
    assert saved == [True, False, True]


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
