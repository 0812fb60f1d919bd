"""How handlers print: colours, times, how much of long values; the command line sets it once."""

import os
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from cyclopts import Parameter

from watcher.aws.arns import apart, table_of
from watcher.errors import UsageError

if TYPE_CHECKING:
    from watcher.records.page import RecordPage
    from watcher.records.record import Record

_COLORS: Final = {"INSERT": "\x1b[32m", "MODIFY": "\x1b[33m", "REMOVE": "\x1b[31m"}
_PLAIN: Final = "\x1b[0m"
_MARKED: Final = "\x1b[7m"
_UNMARKED: Final = "\x1b[27m"
# Three lines of a narrow terminal, about.
_MOST: Final = 160
_TIMES: Final = {"short": "%H:%M:%S", "local": "%Y-%m-%d %H:%M:%S"}
# Those of the kinds are not among them.
_TABLE_COLORS: Final = ("36", "35", "34", "96", "95", "94", "37", "90")


class _Style(msgspec.Struct):
    color: bool = False
    utc: bool = False
    time: str = "iso"
    """How people are shown times."""
    most: int | None = None
    """Longer values are cut to so many characters; None: whole."""
    words: re.Pattern[str] | None = None
    """What is to be seen at a glance."""
    prefix: bool = False
    tables: dict[str, str] | None = None
    """By tables' ARNs, what they are called; None where there is only one table."""
    prefixes: dict[str, str] = {}
    """By streams' ARNs, what stands before a line."""


# As long as nobody sets it up (in a library's use): no colours, local time.
_style = _Style()


def set_up(
    *,
    color: Annotated[
        str,
        Parameter(
            metavar="WHEN",
            choices=("auto", "always", "never"),
            group="output",
            help="colours by kind: auto (default: on a terminal; NO_COLOR and FORCE_COLOR are "
            "heeded), always, never",
        ),
    ] = "auto",
    utc: Annotated[
        bool, Parameter(group="output", help="show times in UTC, not in local time")
    ] = False,
    time: Annotated[
        str,
        Parameter(
            metavar="HOW",
            choices=("iso", "utc", "local", "short"),
            group="output",
            help="times for people: iso (default: local, with the zone's offset), utc, local "
            "(without the offset), short (the time of day)",
        ),
    ] = "iso",
    full: Annotated[
        bool,
        Parameter(
            negative=(),
            group="output",
            help="whole values, also on a terminal, where long ones are cut and their length said",
        ),
    ] = False,
    highlight: Annotated[
        list[str] | None,
        Parameter(
            metavar="WORD",
            group="output",
            help="mark this word in lines for people; repeatable",
        ),
    ] = None,
) -> None:
    """Choose how what is here works from now on. Raises UsageError."""
    if color not in ("auto", "always", "never"):
        raise UsageError("use auto, always or never", "color", color)
    _style.color = color == "always" or (color == "auto" and _wants_color())
    _style.utc = utc or time == "utc"
    _style.time = time
    _style.most = None if full or not sys.stdout.isatty() else _MOST
    words = [re.escape(each) for each in highlight or () if each]
    _style.words = re.compile("|".join(words), re.IGNORECASE) if words else None
    time_text.cache_clear()
    shown_time.cache_clear()


def set_prefix(
    *,
    prefix: Annotated[
        bool,
        Parameter(
            negative=(),
            group="output",
            help="say of each change which table it is of, also where there is only one",
        ),
    ] = False,
) -> None:
    """Choose whether one table alone is named, too."""
    _style.prefix = prefix


def _wants_color() -> bool:
    """https://no-color.org, https://force-color.org, and what every terminal but a dumb one can."""
    if os.environ.get("NO_COLOR"):
        return False
    if (forced := os.environ.get("FORCE_COLOR", "")) != "":
        return forced != "0"
    return sys.stdout.isatty() and os.environ.get("TERM") not in (None, "", "dumb", "unknown")


def show_tables(several: bool, arns: Iterable[str] = ()) -> None:
    """Whether `table_prefix` says from which of several tables a record is; of these at first."""
    _style.tables = apart(arns) if several or _style.prefix else None
    _style.prefixes.clear()


def shown_table(record: "Record | RecordPage") -> str:
    """What a record's table is called, so that no other of those seen is called the same."""
    return _called(record.origin.stream)


def _called(stream: str) -> str:
    arn = table_of(stream)
    known = _style.tables or {}
    if arn not in known:
        known.update(apart([*known, arn]))
        _style.prefixes.clear()
    return known[arn]


def table_prefix(record: "Record | RecordPage") -> str:
    """What stands before a record's line: its table, in a colour of its own; "" for one table."""
    if _style.tables is None:
        return ""
    stream = record.origin.stream
    if stream not in _style.prefixes:
        table = shown_table(record)
        if _style.color:
            place = list(_style.tables).index(table_of(stream))
            table = f"\x1b[{_TABLE_COLORS[place % len(_TABLE_COLORS)]}m{table}{_PLAIN}"
        _style.prefixes[stream] = f"{table} "
    return _style.prefixes[stream]


def about_table(text: str, stream: str) -> str:
    """What is said of a stream: of several tables with the name of its own, as a line has it."""
    if not stream or len(_style.tables or ()) < 2:
        return text
    name = _called(stream)
    return text if name in text else f"{name}: {text}"


def are_tables_shown() -> bool:
    """Whether records of several tables are printed."""
    return _style.tables is not None


def paint(text: str, kind: str) -> str:
    """The text in the colour of a kind of change (INSERT green, MODIFY yellow, REMOVE red)."""
    if not _style.color or kind not in _COLORS:
        return text
    return f"{_COLORS[kind]}{text}{_PLAIN}"


@lru_cache(maxsize=1024)
def time_text(created: datetime | None) -> str:
    """A record's time as people and programs read it: `2022-05-27T15:35:57+02:00`."""
    if created is None:
        return ""
    return (created.astimezone(UTC) if _style.utc else created).isoformat(timespec="seconds")


@lru_cache(maxsize=1024)
def shown_time(created: datetime | None) -> str:
    """A record's time for people, as `--time` says."""
    if created is None or _style.time not in _TIMES:
        return time_text(created)
    return created.astimezone(UTC if _style.utc else None).strftime(_TIMES[_style.time])


def time_of_day(shown: str) -> str:
    """Of a time that is shown with its date the rest, for where there is little room."""
    return shown[11:19] if shown[10:11] in ("T", " ") else shown


def most_characters() -> int | None:
    """How much is shown of a long value; None: all."""
    return _style.most


def highlighted(line: str) -> str:
    """A line for people, with what `--highlight` names marked; also where there is no colour."""
    if _style.words is None:
        return line
    return _style.words.sub(lambda match: f"{_MARKED}{match[0]}{_UNMARKED}", line)
