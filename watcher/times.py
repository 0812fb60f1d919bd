"""Durations and times as people write and read them: one grammar, and one form."""

import re
from datetime import UTC, datetime, timedelta

from watcher.errors import UsageError

_UNITS = {"w": 604_800.0, "d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SHOWN = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_DURATION = re.compile("".join(rf"(?:([0-9]+(?:\.[0-9]+)?){unit})?" for unit in _UNITS))
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
# https://en.wikipedia.org/wiki/ISO_8601: dates as year, month and day alone; no 24:00 or +02:60,
# which some Pythons take.
_ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{8}(?=T))"
    r"(?:[T ](?:[01][0-9]|2[0-3]):?[0-9]{2}(?::?[0-9]{2}(?:[.,][0-9]{1,9})?)?"
    r"(?:Z|[+-][0-9]{2}(?::?[0-5][0-9])?)?)?"
)
_EPOCH = re.compile(r"[0-9]{10}(?:[0-9]{3}){0,3}")


def parse_duration(text: str) -> timedelta | None:
    """Returns a duration: `500ms`, `90s`, `15m`, `2h`, `1d`, `2w`, `1h30m`; None for other texts.

    Each unit stands once, the longest first.
    """
    found = _DURATION.fullmatch(text)
    if found is None or not text:
        return None
    numbers = zip(found.groups("0"), _UNITS.values(), strict=True)
    try:
        return timedelta(seconds=sum(float(number) * seconds for number, seconds in numbers))
    except OverflowError:
        return timedelta.max


def parse_seconds(text: str) -> float:
    """Returns the seconds of a duration, or of a number of seconds. Raises UsageError."""
    if _SECONDS.fullmatch(text):
        return float(text)
    if (found := parse_duration(text)) is None:
        raise UsageError("give a duration such as 500ms, 30s, 5m or 1h30m", value=repr(text))
    return found.total_seconds()


def duration_text(seconds: float) -> str:
    """Formats a duration by its longest unit and the next: `45 s`, `1 h 20 min`, `2 d`."""
    rest = max(0, round(seconds))
    counts: list[tuple[int, str]] = []
    for unit, length in _SHOWN:
        count, rest = divmod(rest, length)
        if count or counts:
            counts.append((count, unit))
    return " ".join([f"{count} {unit}" for count, unit in counts[:2] if count]) or "0 s"


def parse_written_time(text: str) -> datetime | None:
    """Returns a time of ISO 8601 or epoch seconds, ms, µs or ns; None for other texts.

    A time without a zone is local. Raises UsageError for one that comes twice there.
    """
    if _EPOCH.fullmatch(text):
        micros = int(text[:16].ljust(16, "0"))  # the size tells the unit; a float loses digits
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)
    if _ISO.fullmatch(text) is None:
        return None
    try:
        time = datetime.fromisoformat(text.replace(",", "."))
    except ValueError:
        return None
    from dateutil import tz  # not for a shell's TAB

    if time.tzinfo is None and tz.datetime_ambiguous(time, tz.tzlocal()):
        raise UsageError(
            f"{text!r} comes twice here, as clocks are put back then; {offset_hint(time)}"
        )
    return time


def offset_hint(time: datetime) -> str:
    """Returns the advice to write a local time with its offset."""
    return f"add an offset, as in {time:%Y-%m-%dT%H:%M}+02:00, or Z for UTC"
