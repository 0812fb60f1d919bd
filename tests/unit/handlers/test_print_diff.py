"""What `--print-diff` prints."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from watcher import Record
from watcher.delivery import handler_modules
from watcher.formatting import style


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    style.set_up(color="never", utc=True)
    yield
    style.set_up(color="never")


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


def shown(capsys: pytest.CaptureFixture[str], each: Record) -> list[str]:
    handler_modules.load(handler_modules.find()["print_diff"]).handle(each)
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
        ({"\x1b": n("1")}, {}, ["- `\\x1b`: 1"]),
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
