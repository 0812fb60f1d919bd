"""How handlers print: colours by kind, times local or UTC; the command line sets it once."""

import os
import sys
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter

from watcher.errors import UsageError

_COLORS: Final = {"INSERT": "\x1b[32m", "MODIFY": "\x1b[33m", "REMOVE": "\x1b[31m"}
_PLAIN: Final = "\x1b[0m"


class _Style(msgspec.Struct):
    color: bool = False
    utc: bool = False


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
) -> None:
    """Choose how `paint` and `time_text` work from now on. Raises UsageError."""
    if color not in ("auto", "always", "never"):
        raise UsageError("use auto, always or never", "color", color)
    _style.color = color == "always" or (color == "auto" and _wants_color())
    _style.utc = utc
    time_text.cache_clear()


def _wants_color() -> bool:
    """https://no-color.org, https://force-color.org, and what every terminal but a dumb one can."""
    if os.environ.get("NO_COLOR"):
        return False
    if (forced := os.environ.get("FORCE_COLOR", "")) != "":
        return forced != "0"
    return sys.stdout.isatty() and os.environ.get("TERM") not in (None, "", "dumb", "unknown")


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
