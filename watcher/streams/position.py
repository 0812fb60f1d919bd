"""Where in a shard to start reading."""

import re
from datetime import UTC, datetime, timedelta

from dateutil import parser as dates
from dateutil import tz

from watcher.aws.model import AtTime, Latest, TrimHorizon
from watcher.errors import UnreadableError, UsageError

_UNIT = r"(s|sec|second|m|min|minute|h|hr|hour|d|day|w|week)"
_PART = re.compile(rf"(\d+(?:\.\d+)?|\ban?\b) ?{_UNIT}s?(?:,? (?:and )?)?(?![a-z])")
_AGE = re.compile(rf"(?:{_PART.pattern})+(?: ?ago)?")
# dateutil's free parser reads almost anything as some time, and undo acts on it: only forms with
# one meaning are read. https://en.wikipedia.org/wiki/ISO_8601
_ZONE = r" ?(?:z|utc|gmt|[+-]\d\d(?::?\d\d)?)"
_TIME_OF_DAY = re.compile(rf"\d{{1,2}}:\d\d(?::\d\d(?:[.,]\d+)?)?(?:{_ZONE})?")
_ISO = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d|\d{8}(?=t))(?:[t ](?P<time>\d\d:?\d\d(?::?\d\d(?:[.,]\d{1,6})?)?)"
    rf"(?P<zone>{_ZONE})?)?"
)
_EPOCH = re.compile(r"\d{10}(\d{3})?")
_ZONE_NAME = re.compile(r"\d ?[A-Za-z]{3,5}$")
_WRITTEN_DATE = re.compile(r"\d[./]\d")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DAYS = {"today": 0, "yesterday": 1}
_OLDEST = ("trim-horizon", "earliest", "oldest", "beginning")


def at_time(time: datetime, now: datetime) -> AtTime:
    """The position of a moment; a naive `time` is local time, as everywhere in `datetime`.

    Raises UsageError for a moment after `now`: the service would refuse it shard by shard.
    """
    try:
        time = time.astimezone(UTC)
    except (OverflowError, ValueError):
        raise UsageError(f"{time} is before all time; retention is 24 hours") from None
    if time > now:
        raise UsageError(f"{time.isoformat()} is in the future: give a time that has passed")
    return AtTime(time.replace(microsecond=0))


def parse_start(text: str, now: datetime) -> Latest | TrimHorizon | AtTime:
    """Reads `--from`: `latest`, `trim-horizon`, an age like `90s 15m 2h30m 1d`, or a time.

    Kafka's `earliest` and the like are the trim horizon, `now` is the latest. An age may be spelled
    out (`2 hours ago`). A time is ISO 8601 (without a zone: local time), a time of day (today's),
    `today` or `yesterday` with or without one, or epoch seconds or milliseconds. Raises UsageError
    for anything else, also for what could mean two moments.
    """
    word = " ".join(text.lower().replace("_", "-").split())
    if word in ("latest", "now"):
        return Latest()
    if word in _OLDEST:
        return TrimHorizon()
    if _AGE.fullmatch(word):
        parts = [
            (_UNITS[unit[0]], 1.0 if number[0] == "a" else float(number))
            for number, unit in _PART.findall(word)
        ]
        try:
            age = sum((timedelta(**{unit: number}) for unit, number in parts), timedelta())
            return at_time(now - age, now)
        except OverflowError:
            raise UsageError(f"{text!r} is before all time; retention is 24 hours") from None
    day, _, rest = word.partition(" ")
    if day in _DAYS:
        midnight = now.astimezone().date() - timedelta(days=_DAYS[day])
        word = f"{midnight}t{rest.removeprefix('at ') or '00:00'}"
    elif _TIME_OF_DAY.fullmatch(word):
        word = f"{now.astimezone().date()}t{word}"
    return at_time(_written_time(word, text), now)


def _written_time(word: str, text: str) -> datetime:
    """Reads ISO 8601, or epoch seconds or milliseconds: nothing that could mean two moments."""
    if epoch := _EPOCH.fullmatch(word):
        return datetime.fromtimestamp(int(word) / (1000 if epoch[1] else 1), UTC)
    iso = _ISO.fullmatch(re.sub(r"([t ])(\d:)", r"\g<1>0\2", word))  # 9:30 is 09:30
    if iso is None:
        raise _unreadable(text)
    zone = (iso["zone"] or "").strip().replace("utc", "z").replace("gmt", "z").upper()
    written = iso["day"] + (f"T{iso['time']}" if iso["time"] else "") + zone
    try:
        time = dates.isoparse(written.replace(",", "."))
    except (ValueError, OverflowError):
        raise _unreadable(text) from None
    if time.tzinfo is None and not tz.datetime_exists(time, tz.tzlocal()):
        raise UsageError(
            f"there is no {text!r} here: clocks are put forward then; add an offset such as +02:00"
        )
    return time


def _unreadable(text: str) -> UnreadableError:
    hint = ""
    if _ZONE_NAME.search(text):
        hint = "; a zone's name can mean several: give its offset, as in 14:05-05:00, or Z for UTC"
    elif _WRITTEN_DATE.search(text):
        hint = "; a date is year-month-day, since 10.11. is October to some, November to others"
    return UnreadableError(
        f"can't read {text!r} as a position: use latest, trim-horizon, an age like 2h, "
        f"or a time like 2026-11-21T08:00Z{hint}"
    )
