"""Colours and times."""

import json
import sys
from datetime import datetime, timedelta, timezone

import pytest

from tests.support.wire import wire
from watcher import Record, UsageError
from watcher.formatting import style


def test_tables_of_one_name_are_told_apart_once_both_are_seen() -> None:
    places = [f"arn:aws:dynamodb:{each}:1:table/orders/stream/1" for each in ("us-east-1", "x")]
    wire_json = json.dumps(wire(1)).encode()
    here, there = (Record.from_json(wire_json, "s", place) for place in places)
    style.show_tables(True, places[:1])
    assert style.table_prefix(here) == "orders "
    assert style.table_prefix(there) == "x/orders "
    assert style.table_prefix(here) == "us-east-1/orders "
    style.set_up(color="always")
    style.show_tables(True, places)
    assert style.table_prefix(there) == "\x1b[35mx/orders\x1b[0m "


@pytest.mark.parametrize(
    ("color", "terminal", "environment", "painted"),
    [
        ("auto", True, {"TERM": "xterm"}, True),
        ("auto", False, {"TERM": "xterm"}, False),
        ("auto", True, {"TERM": "dumb"}, False),
        ("auto", True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        ("auto", False, {"FORCE_COLOR": "1"}, True),
        ("auto", True, {"TERM": "xterm", "FORCE_COLOR": "0"}, False),
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
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    style.set_up(color=color)
    assert style.paint("x", "INSERT") == ("\x1b[32mx\x1b[0m" if painted else "x")
    assert style.paint("x", "OTHER") == "x"


def test_another_word_for_colours_is_refused() -> None:
    with pytest.raises(UsageError, match="color yes: use auto, always or never"):
        style.set_up(color="yes")


def test_times_are_local_or_utc() -> None:
    created = datetime(2022, 5, 27, 15, 35, 57, tzinfo=timezone(timedelta(hours=2)))
    assert style.time_text(created) == "2022-05-27T15:35:57+02:00"
    style.set_up(utc=True)
    assert style.time_text(created) == "2022-05-27T13:35:57+00:00"
    assert style.time_text(None) == ""
