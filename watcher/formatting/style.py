"""The style of printed changes: colours, times, cut values, table names; set once per run."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Final

from watcher.aws.arns import short_table_names, table_of
from watcher.declared import Opt
from watcher.errors import UsageError
from watcher.files import is_terminal

if TYPE_CHECKING:
    from watcher.records.page import RecordPage
    from watcher.records.record import Record

_COLORS: Final = {"INSERT": "\x1b[32m", "MODIFY": "\x1b[33m", "REMOVE": "\x1b[31m"}
_PLAIN: Final = "\x1b[0m"
# About three lines of a narrow terminal.
_MAX_CHARACTERS: Final = 160
# Distinct from the colours of the kinds of change.
_TABLE_COLORS: Final = ("36", "35", "34", "96", "95", "94", "37", "90")


@dataclass(slots=True)
class OutputStyle:
    """The settings that all printing handlers share: no colours and local time by default."""

    color: bool = False
    utc: bool = False
    max_characters: int | None = None
    """The length to which longer values are cut; None: no limit."""
    table_names: dict[str, str] | None = None
    """The displayed name of each table, by its ARN; None for a single table."""
    prefixes: dict[str, str] = field(default_factory=dict)
    """The text before each line, by the stream's ARN."""


# A library that never calls `set_up` prints with these defaults.
_style = OutputStyle()


@contextmanager
def restored() -> Iterator[None]:
    """Starts the block with the defaults, and restores the previous style at its end."""
    global _style
    before = _style
    _style = OutputStyle()
    time_text.cache_clear()
    try:
        yield
    finally:
        _style = before
        time_text.cache_clear()


def set_up(
    *,
    color: Annotated[
        str,
        Opt(
            "colours by kind: auto (default: on a terminal; it follows "
            "NO_COLOR and FORCE_COLOR), always, never",
            "WHEN",
            "output",
            choices=("auto", "always", "never"),
        ),
    ] = "auto",
    utc: Annotated[bool, Opt("show times in UTC, not in local time", group="output")] = False,
) -> None:
    """Sets the style for everything printed from now on. Raises UsageError."""
    if color not in ("auto", "always", "never"):
        raise UsageError("use auto, always or never", "color", color)
    _style.color = color == "always" or (color == "auto" and _wants_color())
    _style.utc = utc
    _style.max_characters = _MAX_CHARACTERS if is_terminal(sys.stdout) else None
    time_text.cache_clear()


def _wants_color() -> bool:
    """Follows https://no-color.org and https://force-color.org; else checks the terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if (forced := os.environ.get("FORCE_COLOR", "")) != "":
        return forced != "0"
    return is_terminal(sys.stdout) and os.environ.get("TERM") not in (None, "", "dumb", "unknown")


def show_tables(several: bool, arns: Iterable[str] = ()) -> None:
    """Sets whether `table_prefix` names a record's table; `arns` are the streams known so far."""
    _style.table_names = short_table_names(arns) if several else None
    _style.prefixes.clear()


def shown_table(record: "Record | RecordPage") -> str:
    """Returns the name of a record's table, longer where another known table has the same name."""
    return _table_name(record.shard_key.stream)


def _table_name(stream: str) -> str:
    arn = table_of(stream)
    known = _style.table_names or {}
    if arn not in known:
        known.update(short_table_names([*known, arn]))
        _style.prefixes.clear()
    return known[arn]


def table_prefix(record: "Record | RecordPage") -> str:
    """Returns the table's name before a record's line, in its own colour; "" for one table."""
    if _style.table_names is None:
        return ""
    stream = record.shard_key.stream
    if stream not in _style.prefixes:
        table = shown_table(record)
        if _style.color:
            place = list(_style.table_names).index(table_of(stream))
            table = f"\x1b[{_TABLE_COLORS[place % len(_TABLE_COLORS)]}m{table}{_PLAIN}"
        _style.prefixes[stream] = f"{table} "
    return _style.prefixes[stream]


def about_table(text: str, stream: str) -> str:
    """Returns a message, with its table's name in front where several tables are watched."""
    if not stream or len(_style.table_names or ()) < 2:
        return text
    name = _table_name(stream)
    return text if name in text else f"{name}: {text}"


def are_tables_shown() -> bool:
    """Returns True where lines name their record's table."""
    return _style.table_names is not None


def paint(text: str, kind: str) -> str:
    """Returns the text in the colour of its kind (INSERT green, MODIFY yellow, REMOVE red)."""
    if not _style.color or kind not in _COLORS:
        return text
    return f"{_COLORS[kind]}{text}{_PLAIN}"


@lru_cache(maxsize=1024)
def time_text(created: datetime | None) -> str:
    """Formats a record's time: `2022-05-27T15:35:57+02:00`."""
    if created is None:
        return ""
    return (created.astimezone(UTC) if _style.utc else created).isoformat(timespec="seconds")


def local_time(time: datetime) -> str:
    """Formats a time of any zone as `time_text` formats a record's."""
    return time_text(time.astimezone())


def time_of_day(shown: str) -> str:
    """Returns the time of day in a displayed time, where the date has no room."""
    return shown[11:19] if shown[10:11] in ("T", " ") else shown


def max_characters() -> int | None:
    """Returns the length to which long values are cut; None: no limit."""
    return _style.max_characters


@contextmanager
def cut_values(most: int) -> Iterator[None]:
    """Cuts values longer than `most` characters within the block, on a terminal or not."""
    before, _style.max_characters = _style.max_characters, most
    try:
        yield
    finally:
        _style.max_characters = before
