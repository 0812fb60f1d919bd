"""Parses start positions and times as users write them."""

import contextlib
import re
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from dateutil import parser as dates
from dateutil import tz

from watcher.aws.model import CLOCKS_APART, AtTime, Latest, Listing, TrimHorizon
from watcher.clock import Clock, no_later
from watcher.errors import UsageError

_UNIT = r"(s|sec|second|m|min|minute|h|hr|hour|d|day|w|week)"
_PART = re.compile(rf"(\d+(?:\.\d+)?|\ban?\b) ?{_UNIT}s?(?:,? (?:and )?)?(?![a-z])")
_AGE = re.compile(rf"(?:{_PART.pattern})+(?: ?ago)?")
# dateutil's free parser reads almost anything as some time, and undo acts on it: only unambiguous
# forms are accepted. https://en.wikipedia.org/wiki/ISO_8601
_ZONE = r" ?(?:z|utc|gmt|[+-]\d\d(?::?\d\d)?)"
# No offset with a minus: most people read 08:00-09:00 as a span.
_TIME_OF_DAY = re.compile(rf"\d{{1,2}}:\d\d(?::\d\d(?:[.,]\d+)?)?(?:(?! ?-){_ZONE})?")
_ISO = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d|\d{8}(?=t))(?:[t ](?P<time>\d\d:?\d\d(?::?\d\d(?:[.,]\d{1,6})?)?)"
    rf"(?P<zone>{_ZONE})?)?"
)
_EPOCH = re.compile(r"\d{10}(\d{3})?")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DAYS = {"today": 0, "yesterday": 1}
Moment: TypeAlias = str | datetime | timedelta
"""A time as users give it: a text, a datetime (naive: local time), or an age."""

_OLDEST = ("trim-horizon", "earliest", "oldest", "beginning")


class LatestMoment:
    """The time at which a reader asked for "latest", for streams that are listed only later.

    Its positions are never after that time by either clock: no later record is missed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._time, self._boottime = clock.time(), clock.boottime()

    @property
    def here(self) -> AtTime:
        """The position of that time by this machine's clock."""
        return AtTime(datetime.fromtimestamp(int(self._time), UTC) - CLOCKS_APART)

    def in_stream(self, listing: Listing) -> AtTime:
        """Returns the position of that time, by the service's clock at a later listing."""
        # The clock that also runs while the machine sleeps.
        passed = timedelta(seconds=self._clock.boottime() - self._boottime)
        return AtTime(no_later(listing.time - passed, self._time) - CLOCKS_APART)


def at_time(time: datetime, now: datetime) -> AtTime:
    """Returns the position of a time; a naive `time` is local, as everywhere in `datetime`.

    Raises UsageError for a time after `now`, which the service would refuse shard by shard, and for
    one that the local clocks skip.
    """
    try:
        if time.tzinfo is None and not tz.datetime_exists(time, tz.tzlocal()):
            raise UsageError(
                f"there is no {time:%Y-%m-%d %H:%M} here, as clocks are put forward then; "
                + _offset_hint(time)
            )
        time = time.astimezone(UTC)
    except (OverflowError, ValueError):
        raise UsageError(f"{time} is before all time; retention is 24 hours") from None
    if time > now:
        raise UsageError(f"{time.isoformat()} is in the future: give a time that has passed")
    return AtTime(time.replace(microsecond=0))


def parse_start(text: Moment, now: datetime) -> Latest | TrimHorizon | AtTime:
    """Parses `--from`: `latest`, `trim-horizon`, an age like `90s 15m 2h30m 1d`, or a time.

    Kafka's `earliest` and the like mean the trim horizon, `now` means latest. An age may be spelled
    out (`2 hours ago`). A time is a date with or without a time of day (no zone: local), a time of
    day (today's), `today` or `yesterday` with or without one, or epoch seconds or milliseconds.
    Raises UsageError for anything else, also for ambiguous texts.
    """
    if not isinstance(text, str):
        return _position_of(text, now)
    word = _normal(text)
    if word in ("latest", "now"):
        return Latest()
    if word in _OLDEST:
        return TrimHorizon()
    found = _position_of_age(word, now) or _time(word, text, now)
    if found is None:
        raise _unreadable(text, "position", "latest, trim-horizon, ")
    return found


def parse_time(text: Moment, now: datetime) -> AtTime:
    """Parses a past time: `now`, or one of `parse_start`'s ages and times."""
    if not isinstance(text, str):
        return _position_of(text, now)
    word = _normal(text)
    found = _position_of_age("0s" if word == "now" else word, now) or _time(word, text, now)
    if found is None:
        raise _unreadable(text, "time")
    return found


def _position_of(moment: datetime | timedelta, now: datetime) -> AtTime:
    if isinstance(moment, datetime):
        return at_time(moment, now)
    if not isinstance(moment, timedelta):
        text = "give a text such as 2h, a datetime or a timedelta"
        raise UsageError(text, value=repr(moment))
    return _ago(moment, str(moment), now)


def _ago(age: timedelta, text: str, now: datetime) -> AtTime:
    try:
        return at_time(now - age, now)
    except OverflowError:
        raise UsageError(f"{text!r} is before all time; retention is 24 hours") from None


def _time(word: str, text: str, now: datetime) -> AtTime | None:
    time = _written_time(_dated(word, now), text)
    return None if time is None else at_time(time, now)


def _normal(text: str) -> str:
    return " ".join(text.lower().replace("_", "-").split())


def _position_of_age(word: str, now: datetime) -> AtTime | None:
    """Returns the position of an age; None for other texts."""
    if not _AGE.fullmatch(word):
        return None
    parts = [
        (_UNITS[unit[0]], 1.0 if number[0] == "a" else float(number))
        for number, unit in _PART.findall(word)
    ]
    try:
        age = sum((timedelta(**{unit: number}) for unit, number in parts), timedelta())
    except OverflowError:
        age = timedelta.max
    return _ago(age, word, now)


def _dated(word: str, now: datetime) -> str:
    """Returns a time of day, today's or yesterday's, with its date; other texts unchanged."""
    day, _, rest = word.partition(" ")
    rest = rest.removeprefix("at ")
    if day in _DAYS and (not rest or _TIME_OF_DAY.fullmatch(rest)):
        midnight = now.astimezone().date() - timedelta(days=_DAYS[day])
        return f"{midnight}t{rest or '00:00'}"
    return f"{now.astimezone().date()}t{word}" if _TIME_OF_DAY.fullmatch(word) else word


def _written_time(word: str, text: str) -> datetime | None:
    """Parses a date with or without a time, or an epoch; None for other texts."""
    if epoch := _EPOCH.fullmatch(word):
        return datetime.fromtimestamp(int(word) / (1000 if epoch[1] else 1), UTC)
    iso = _ISO.fullmatch(re.sub(r"([t ])(\d:)", r"\g<1>0\2", word))  # 9:30 is 09:30
    if iso is None:
        return None
    zone = (iso["zone"] or "").strip().replace("utc", "z").replace("gmt", "z").upper()
    written = iso["day"] + (f"T{iso['time']}" if iso["time"] else "") + zone
    try:
        time = dates.isoparse(written.replace(",", "."))
    except (ValueError, OverflowError):
        return None
    if time.tzinfo is None and tz.datetime_ambiguous(time, tz.tzlocal()):
        raise UsageError(
            f"{text!r} comes twice here, as clocks are put back then; {_offset_hint(time)}"
        )
    return time


def _offset_hint(time: datetime) -> str:
    return f"add an offset, as in {time:%Y-%m-%dT%H:%M}+02:00, or Z for UTC"


# Texts that are no time, or ambiguous; `_hint` says what to write instead.
_ZONE_NAME = re.compile(r"\d ?[A-Za-z]{3,5}$")
_SPAN = re.compile(r"(?:^|\s)(\d{1,2}:\d\d) ?- ?(\d{1,2}:\d\d)$")
_WRITTEN_DATE = re.compile(r"(?:^|\D)(\d{1,2})[./](\d{1,2})[./](\d{4})(?:\D|$)")
_MONTH = re.compile(r"\d{4}-\d\d")
_DAY_BEHIND = re.compile(r"\d{1,2}:\d\d \d{1,2}")
_HOUR = re.compile(r"(\d{4}-\d\d-\d\d[T ])?(\d{1,2})(?: ?([ap])\.?m\.?)?", re.IGNORECASE)
# Dates of ISO 8601 that hardly anyone can read.
_OTHER_DATE = re.compile(r"\d{4}-?W\d\d(?:-?\d)?|\d{4}-\d{3}|\d{8}")


def _hint(text: str) -> str:
    """Returns how to write the likely meaning of an unreadable text; "" if unknown."""
    text = text.strip()
    if _ZONE_NAME.search(text):
        return (
            "; a zone's name can mean several: give the offset behind date and time, as in "
            "2026-11-21T14:05-05:00, or Z for UTC"
        )
    if span := _SPAN.search(text):
        return (
            f"; from {span[1]} to {span[2]}, or {span[1]} at an offset of -{span[2]}? Give one "
            f"time, an offset behind date and time, as in 2026-11-21T{span[1]:0>5}-{span[2]:0>5}"
        )
    if date := _WRITTEN_DATE.search(text):
        first, second, year = date.groups()
        days = {(second, first), (first, second)}
        possible = [f"{year}-{int(m):02}-{int(d):02}" for m, d in sorted(days) if int(m) <= 12]
        return f"; a date is year-month-day: {' or '.join(possible)}" if possible else ""
    if _MONTH.fullmatch(text):
        return f"; which day? Give one, as in {text}-01"
    if _DAY_BEHIND.fullmatch(text):
        return "; a day stands before its time, as in 2026-11-05 12:00"
    if (hour := _HOUR.fullmatch(text)) and int(hour[2]) < 24:
        later = 12 if (hour[3] or "").lower() == "p" else 0
        number = int(hour[2]) % 12 + later if hour[3] else int(hour[2])
        return f"; an hour has minutes: {hour[1] or ''}{number:02}:00"
    if _OTHER_DATE.fullmatch(text):
        with contextlib.suppress(ValueError):
            return f"; a date is year-month-day: {dates.isoparse(text):%Y-%m-%d}"
    return ""


def _unreadable(text: str, kind: str, words: str = "") -> UsageError:
    return UsageError(
        f"can't read {text!r} as a {kind}: use {words}an age like 2h, "
        f"or a time like 2026-11-21T08:00Z{_hint(text)}"
    )
