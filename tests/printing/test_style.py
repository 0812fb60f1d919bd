import json
import sys
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from watcher import Record, UsageError
from watcher.delivery import handlers
from watcher.printing import style as output
from watcher.printing.plain_json import document


@pytest.fixture(autouse=True)
def plain_again() -> Any:
    yield
    output.set_up(color="never")


def record(kind: str = "MODIFY", view: str = "NEW_AND_OLD_IMAGES", **images: Any) -> Record:
    """A record of the item pk=a; images are given without their key."""
    change: dict[str, Any] = {
        "Keys": {"pk": {"S": "a"}},
        "SequenceNumber": "100000000000000000001",
        "ApproximateCreationDateTime": 1790000000,
        "StreamViewType": view,
    }
    change |= {name: {"pk": {"S": "a"}, **image} for name, image in images.items()}
    wire = {"eventName": kind, "dynamodb": change}
    return Record.from_json(json.dumps(wire).encode(), "shard-1")


@pytest.mark.parametrize(
    ("color", "terminal", "environment", "painted"),
    [
        ("auto", True, {"TERM": "xterm"}, True),
        ("auto", False, {"TERM": "xterm"}, False),
        ("auto", True, {"TERM": "dumb"}, False),
        ("auto", True, {}, False),
        ("auto", True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        ("auto", True, {"TERM": "xterm", "NO_COLOR": ""}, True),
        ("auto", False, {"FORCE_COLOR": "1"}, True),
        ("auto", True, {"TERM": "xterm", "FORCE_COLOR": "0"}, False),
        ("auto", False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {"TERM": "xterm", "FORCE_COLOR": "1"}, False),
    ],
)
def test_when_there_are_colours(
    color: str,
    terminal: bool,
    environment: dict[str, str],
    painted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TERM", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    output.set_up(color=color)
    assert output.paint("x", "INSERT") == ("\x1b[32mx\x1b[0m" if painted else "x")
    assert output.paint("x", "OTHER") == "x"


def test_another_word_for_colours_is_refused() -> None:
    with pytest.raises(UsageError, match="--color yes: use auto, always or never"):
        output.set_up(color="yes")


def test_times_are_local_or_utc() -> None:
    created = datetime(2022, 5, 27, 15, 35, 57, tzinfo=timezone(timedelta(hours=2)))
    assert output.time_text(created) == "2022-05-27T15:35:57+02:00"
    output.set_up(utc=True)
    assert output.time_text(created) == "2022-05-27T13:35:57+00:00"
    assert output.time_text(None) == ""


def test_a_record_as_one_plain_document() -> None:
    output.set_up(utc=True)
    new = {
        "n": {"N": "1.50"},
        "i": {"N": "12345678901234567890123456789012345678"},
        "b": {"B": "AAE="},
        "bs": {"BS": ["AAE=", "AA=="]},
        "ss": {"SS": ["b", "a"]},
        "ns": {"NS": ["10", "9"]},
        "m": {"M": {"l": {"L": [{"BOOL": True}, {"NULL": True}]}}},
    }
    assert document(record("INSERT", NewImage=new)) == {
        "eventName": "INSERT",
        "key": {"pk": "a"},
        "old": None,
        "new": {
            "pk": "a",
            "n": 1.5,
            "i": 12345678901234567890123456789012345678,
            "b": "AAE=",
            "bs": ["AA==", "AAE="],
            "ss": ["a", "b"],
            "ns": [9, 10],
            "m": {"l": [True, None]},
        },
        "createdAt": "2026-09-21T14:13:20+00:00",
        "sequenceNumber": "100000000000000000001",
        "shardId": "shard-1",
    }


# --print-diff


def shown(capsys: pytest.CaptureFixture[str], each: Record) -> list[str]:
    output.set_up(color="never", utc=True)
    handlers.load(handlers.find()["print_diff"]).handle(each)
    return capsys.readouterr().out.splitlines()


def n(digits: str) -> dict[str, str]:
    return {"N": digits}


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ({"a": n("1")}, {"a": n("1")}, []),
        ({"a": n("1")}, {"a": n("2.50")}, ["~ a: 1 -> 2.50"]),
        ({"a": {"S": "x"}}, {}, ["- a: 'x'"]),
        ({}, {"a": {"NULL": True}}, ["+ a: None"]),
        ({"a": {"BOOL": True}}, {"a": n("1")}, ["~ a: True -> 1"]),
        (
            {"a": {"M": {"b": {"M": {"c": n("1")}}}}},
            {"a": {"M": {"b": {"M": {"c": n("2")}}, "d": n("3")}}},
            ["~ a.b.c: 1 -> 2", "+ a.d: 3"],
        ),
        (
            {"a": {"L": [n("1"), {"M": {"q": n("1")}}, n("3")]}},
            {"a": {"L": [n("1"), {"M": {"q": n("2")}}]}},
            ["~ a[1].q: 1 -> 2", "- a[2]: 3"],
        ),
        ({"a": {"SS": ["x", "y"]}}, {"a": {"SS": ["y", "z", "w"]}}, ["~ a: +'w' +'z' -'x'"]),
        ({"a": {"L": [n("1")]}}, {"a": {"M": {"b": n("1")}}}, ["~ a: [1] -> {b: 1}"]),
        ({"\x1b": n("1")}, {}, ["- \\x1b: 1"]),
    ],
)
def test_differences(
    capsys: pytest.CaptureFixture[str], old: Any, new: Any, lines: list[str]
) -> None:
    assert shown(capsys, record(OldImage=old, NewImage=new))[1:] == [f"  {each}" for each in lines]


def test_a_diff_has_one_line_for_the_item_and_one_for_each_difference(
    capsys: pytest.CaptureFixture[str],
) -> None:
    old, new = {"n": {"N": "1"}}, {"n": {"N": "2"}}
    head = "2026-09-21T14:13:20+00:00 pk=a"
    assert shown(capsys, record(NewImage=new, OldImage=old)) == [f"MODIFY {head}", "  ~ n: 1 -> 2"]
    assert shown(capsys, record("INSERT", NewImage=new)) == [f"INSERT {head}", "  + n: 2"]
    assert shown(capsys, record("REMOVE", OldImage=old)) == [f"REMOVE {head}", "  - n: 1"]


@pytest.mark.parametrize(
    ("view", "images", "lines"),
    [
        ("KEYS_ONLY", {}, []),
        ("NEW_IMAGE", {"NewImage": {"n": {"N": "2"}}}, ["  new {pk: 'a', n: 2}"]),
        ("OLD_IMAGE", {"OldImage": {"n": {"N": "2"}}}, ["  old {pk: 'a', n: 2}"]),
    ],
)
def test_where_there_is_nothing_to_compare_a_diff_shows_what_there_is(
    capsys: pytest.CaptureFixture[str], view: str, images: dict[str, Any], lines: list[str]
) -> None:
    assert shown(capsys, record(view=view, **images))[1:] == [
        *lines,
        f"  (nothing to compare: the stream's view type is {view})",
    ]
