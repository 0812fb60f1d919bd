"""A key is shown as its table has it: first what says the partition, whatever the names."""

import sqlite3
from pathlib import Path

import pytest

from tests.simulator import Simulator
from tests.support.program import told
from watcher.aws import key_schema
from watcher.aws.key_schema import in_order, remember_key_schema


@pytest.fixture(autouse=True)
def nothing_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_schema, "known_first", {})
    in_order.cache_clear()


def schema(*names: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": name, "KeyType": kind}
        for name, kind in zip(names, ("HASH", "RANGE"), strict=False)
    ]


def test_it_is_by_name_until_the_table_is_known() -> None:
    odd: list[list[dict[str, str]]] = [[], [{}], schema("user")]  # of an emulator
    for left_out in odd:
        remember_key_schema(left_out)
    assert in_order(("user", "at")) == ("at", "user") and in_order(()) == ()
    remember_key_schema(schema("user", "at"))
    assert in_order(("user", "at")) == in_order(("at", "user")) == ("user", "at")
    assert in_order(("at",)) == ("at",)
    remember_key_schema(schema("at", "user"))  # of a table that disagrees
    assert in_order(("user", "at")) == ("at", "user")


def test_every_text_of_a_key_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Simulator(table="visits", key_names=("user", "at")) as sim:
        sim.set_environment(monkeypatch.setenv)
        sim.put({"at": {"S": "noon"}, "all": {"N": "1"}, "user": {"S": "ada"}})

        def said(*words: str) -> str:
            return told(0, *words).printed

        watch = ("visits", "--from", "trim-horizon", "--no-follow")
        flags = [f"--print-{each}" for each in ("summary", "diff", "record", "table")]
        shown = said(*watch, *flags, "--print-template", "{key}")
        assert shown.count("user=ada, at=noon") == 4
        assert "new {user: 'ada', at: 'noon', all: 1}" in shown
        file, key = tmp_path / "visits.db", '{"user":"ada","at":"noon"}'
        assert key in said(*watch, "--print-csv", "--sqlite", str(file)).replace('""', '"')
        with sqlite3.connect(file) as changes:
            assert changes.execute("SELECT key FROM changes").fetchall() == [(key,)]
        assert "user=ada, at=noon" in said("count", "visits", "--by", "key")
        assert "user=ada, at=noon" in said(
            "history", "visits", "--key", "user=ada", "--key=at=noon"
        )
