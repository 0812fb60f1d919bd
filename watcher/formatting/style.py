"""The style of printed changes: colours, times, cut values, table names; set once per run."""

import os
import re
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
_MARKED: Final = "\x1b[7m"
_UNMARKED: Final = "\x1b[27m"
# About three lines of a narrow terminal.
_MAX_CHARACTERS: Final = 160
_TIMES: Final = {"short": "%H:%M:%S", "local": "%Y-%m-%d %H:%M:%S"}
# Distinct from the colours of the kinds of change.
_TABLE_COLORS: Final = ("36", "35", "34", "96", "95", "94", "37", "90")


@dataclass(slots=True)
class OutputStyle:
    """The settings that all printing handlers share: no colours and local time by default."""

    color: bool = False
    utc: bool = False
    time: str = "iso"
    """The format of displayed times: a choice of `--time`."""
    max_characters: int | None = None
    """The length to which longer values are cut; None: no limit."""
    highlight: re.Pattern[str] | None = None
    """Matches the words that `--highlight` marks."""
    prefix: bool = False
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
    _forget_times()
    try:
        yield
    finally:
        _style = before
        _forget_times()


def _forget_times() -> None:
    time_text.cache_clear()
    shown_time.cache_clear()


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
    time: Annotated[
        str,
        Opt(
            "times for people: iso (default: local, with the zone's offset), utc, local "
            "(without the offset), short (the time of day)",
            "HOW",
            "output",
            choices=("iso", "utc", "local", "short"),
        ),
    ] = "iso",
    full: Annotated[
        bool,
        Opt(
            "whole values and items; by default, a terminal truncates long ones",
            group="output",
            negative=(),
        ),
    ] = False,
    highlight: Annotated[
        list[str] | None, Opt("mark this word in lines for people; repeatable", "WORD", "output")
    ] = None,
) -> None:
    """Sets the style for everything printed from now on. Raises UsageError."""
    if color not in ("auto", "always", "never"):
        raise UsageError("use auto, always or never", "color", color)
    _style.color = color == "always" or (color == "auto" and _wants_color())
    _style.utc = utc or time == "utc"
    _style.time = time
    _style.max_characters = None if full or not is_terminal(sys.stdout) else _MAX_CHARACTERS
    words = [re.escape(each) for each in highlight or () if each]
    _style.highlight = re.compile("|".join(words), re.IGNORECASE) if words else None
    _forget_times()


def set_prefix(
    *,
    prefix: Annotated[
        bool,
        Opt(
            "begin each line with its table, even if there is only one", group="output", negative=()
        ),
    ] = False,
) -> None:
    """Sets whether lines name the table even where only one is watched."""
    _style.prefix = prefix


def _wants_color() -> bool:
    """Follows https://no-color.org and https://force-color.org; else checks the terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if (forced := os.environ.get("FORCE_COLOR", "")) != "":
        return forced != "0"
    return is_terminal(sys.stdout) and os.environ.get("TERM") not in (None, "", "dumb", "unknown")


def show_tables(several: bool, arns: Iterable[str] = ()) -> None:
    """Sets whether `table_prefix` names a record's table; `arns` are the streams known so far."""
    _style.table_names = short_table_names(arns) if several or _style.prefix else None
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
    """Formats a record's time for display and for programs: `2022-05-27T15:35:57+02:00`."""
    if created is None:
        return ""
    return (created.astimezone(UTC) if _style.utc else created).isoformat(timespec="seconds")


@lru_cache(maxsize=1024)
def shown_time(created: datetime | None) -> str:
    """Formats a record's time for display, in the format of `--time`."""
    if created is None or _style.time not in _TIMES:
        return time_text(created)
    return created.astimezone(UTC if _style.utc else None).strftime(_TIMES[_style.time])


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


def highlighted(line: str) -> str:
    """Marks the words of `--highlight` in a displayed line, even without colours."""
    if _style.highlight is None:
        return line
    return _style.highlight.sub(lambda match: f"{_MARKED}{match[0]}{_UNMARKED}", line)
