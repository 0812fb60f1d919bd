"""Where in a shard to start reading."""

import re
import warnings
from datetime import UTC, datetime, timedelta

from dateutil import parser as dates

from watcher.aws.model import AtTime, Latest, TrimHorizon
from watcher.errors import UnreadableError, UsageError

_UNIT = r"(s|sec|second|m|min|minute|h|hr|hour|d|day|w|week)"
_PART = re.compile(rf"(\d+(?:\.\d+)?|\ban?\b) ?{_UNIT}s?(?:,? (?:and )?)?(?![a-z])")
_AGE = re.compile(rf"(?:{_PART.pattern})+(?: ?ago)?")
# dateutil reads almost anything as some time of today; a date or a time of day has to be there.
_TIME = re.compile(r"\d{4}-\d\d|\d{8}t|\b\d{1,2}:\d\d")
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
    """What `--from` means: `latest`, `trim-horizon`, an age like `90s 15m 2h30m 1d`, or a time.

    Kafka's `earliest` and the like are the trim horizon, `now` is the latest. An age may be spelled
    out (`2 hours ago`), a day be `today` or `yesterday`, alone (its midnight) or before a time of
    day. A time without a zone is local time. Raises UsageError for anything else.
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
    # A default at midnight: dateutil would fill missing fields with the present hour.
    midnight = now.astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    day, _, rest = word.partition(" ")
    if day in _DAYS:
        midnight -= timedelta(days=_DAYS[day])
        word = rest.removeprefix("at ")
        if not word:
            return at_time(midnight, now)
    if not _TIME.search(word) or (day in _DAYS and "-" in word):
        raise _unreadable(text)
    try:
        with warnings.catch_warnings():
            # Another zone than the user meant would be hours off: better none at all.
            warnings.simplefilter("error", dates.UnknownTimezoneWarning)
            time = dates.parse(text if day not in _DAYS else word, default=midnight)
    except (ValueError, OverflowError, dates.UnknownTimezoneWarning):
        raise _unreadable(text) from None
    return at_time(time, now)


def _unreadable(text: str) -> UnreadableError:
    return UnreadableError(
        f"can't read {text!r} as a position: use latest, trim-horizon, an age like 2h, "
        "or a time like 2026-11-21T08:00Z"
    )
