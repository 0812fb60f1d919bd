"""Parses start positions and times as users write them."""

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from dateutil import tz

from watcher.aws.model import AtTime, Latest, TrimHorizon
from watcher.errors import UsageError
from watcher.times import offset_hint, parse_duration, parse_written_time

Moment: TypeAlias = str | datetime | timedelta
"""A time as users give it: a text, a datetime (naive: local time), or an age."""


def at_time(time: datetime, now: datetime) -> AtTime:
    """Returns the position of a time; a naive `time` is local, as everywhere in `datetime`.

    Raises UsageError for a time after `now`, which the service would refuse shard by shard, and for
    one that the local clocks skip.
    """
    try:
        if time.tzinfo is None and not tz.datetime_exists(time, tz.tzlocal()):
            raise UsageError(
                f"there is no {time:%Y-%m-%d %H:%M} here, as clocks are put forward then; "
                + offset_hint(time)
            )
        time = time.astimezone(UTC)
    except (OverflowError, ValueError):
        raise UsageError(f"{time} is before all time; retention is 24 hours") from None
    if time > now:
        raise UsageError(f"{time.isoformat()} is in the future: give a time that has passed")
    return AtTime(time.replace(microsecond=0))


def parse_start(text: Moment, now: datetime) -> Latest | TrimHorizon | AtTime:
    """Parses `--from`: `latest`, `trim-horizon`, an age like `90s 15m 2h30m 1d`, or a time.

    Kafka's `earliest` means the trim horizon, `now` means latest. A time is ISO 8601 (no zone:
    local), or epoch seconds, ms, µs or ns. Raises UsageError for anything else.
    """
    if isinstance(text, str):
        word = text.strip().lower().replace("_", "-")
        if word in ("latest", "now"):
            return Latest()
        if word in ("trim-horizon", "earliest"):
            return TrimHorizon()
    return _past(text, now, "position", "latest, trim-horizon, ")


def parse_time(text: Moment, now: datetime) -> AtTime:
    """Parses a past time: `now`, or one of `parse_start`'s ages and times."""
    if isinstance(text, str) and text.strip().lower() == "now":
        return at_time(now, now)
    return _past(text, now, "time")


def _past(moment: Moment, now: datetime, kind: str, words: str = "") -> AtTime:
    if isinstance(moment, datetime):
        return at_time(moment, now)
    if isinstance(moment, timedelta):
        return _ago(moment, str(moment), now)
    if not isinstance(moment, str):
        text = "give a text such as 2h, a datetime or a timedelta"
        raise UsageError(text, value=repr(moment))
    text = moment.strip()
    if (age := parse_duration(text)) is not None:
        return _ago(age, text, now)
    if (time := parse_written_time(text)) is not None:
        return at_time(time, now)
    raise UsageError(
        f"can't read {text!r} as a {kind}: use {words}an age like 2h or 1h30m, "
        "or a time like 2026-11-21T08:00Z"
    )


def _ago(age: timedelta, text: str, now: datetime) -> AtTime:
    try:
        return at_time(now - age, now)
    except OverflowError:
        raise UsageError(f"{text!r} is before all time; retention is 24 hours") from None
