import re
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from watcher.aws.model import AtTime, Latest, TrimHorizon
from watcher.errors import UsageError
from watcher.streams.start_times import at_time, parse_start, parse_time

NOW = datetime(2026, 11, 21, 12, 0, 0, 700_000, UTC)


@pytest.mark.parametrize("text", ["latest", "LATEST", " latest "])
def test_latest_by_its_name(text: str) -> None:
    assert parse_start(text, NOW) == Latest()


@pytest.mark.parametrize("text", ["trim-horizon", "trim_horizon", "TRIM_HORIZON"])
def test_trim_horizon_as_the_aws_cli_and_boto3_spell_it(text: str) -> None:
    assert parse_start(text, NOW) == TrimHorizon()


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("2h", timedelta(hours=2)),
        ("1.5h", timedelta(minutes=90)),
        ("1d", timedelta(days=1)),
        ("2 hours ago", timedelta(hours=2)),
        ("an hour ago", timedelta(hours=1)),
        ("2h 30m", timedelta(minutes=150)),
        ("1 day, 2 hours and 5 mins ago", timedelta(hours=26, minutes=5)),
    ],
)
def test_an_age_is_a_moment_before_now(text: str, age: timedelta) -> None:
    assert parse_start(text, NOW) == AtTime((NOW - age).replace(microsecond=0))


def test_a_timedelta_is_how_long_ago() -> None:
    moment = AtTime((NOW - timedelta(hours=2)).replace(microsecond=0))
    assert parse_start(timedelta(hours=2), NOW) == parse_time(timedelta(hours=2), NOW) == moment


@pytest.mark.parametrize(
    ("age", "says"),
    [(timedelta(hours=-1), "is in the future"), (timedelta.max, "is before all time")],
)
def test_a_timedelta_that_is_no_moment_of_the_past_is_refused(age: timedelta, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_start(age, NOW)


def test_a_time_with_a_zone() -> None:
    moment = AtTime(datetime(2026, 11, 21, 8, 0, tzinfo=UTC))
    assert parse_start("2026-11-21T08:00Z", NOW) == moment
    assert parse_start("2026-11-21T10:00+02:00", NOW) == moment
    assert parse_start("20261121T080000Z", NOW) == moment


def test_a_time_without_a_zone_is_local() -> None:
    local = datetime(2026, 11, 21, 8, 0).astimezone()
    assert parse_start("2026-11-21 08:00", NOW + timedelta(days=2)) == AtTime(local)


def test_a_date_alone_is_its_midnight() -> None:
    midnight = datetime(2026, 11, 20).astimezone()
    assert parse_start("2026-11-20", NOW) == AtTime(midnight)


def test_a_moment_is_rounded_down_to_whole_seconds_since_creation_times_are() -> None:
    position = at_time(datetime(2026, 11, 21, 11, 0, 10, 999_999, UTC), NOW)
    assert position.time == datetime(2026, 11, 21, 11, 0, 10, tzinfo=UTC)


def test_a_moment_in_the_future_is_refused() -> None:
    with pytest.raises(UsageError, match="in the future"):
        parse_start("2026-11-21T12:00:02Z", NOW)
    with pytest.raises(UsageError, match="in the future"):
        at_time(NOW.astimezone(timezone(timedelta(hours=3))) + timedelta(seconds=1), NOW)


def test_now_is_a_moment_that_has_passed() -> None:
    assert parse_time(" Now ", NOW) == AtTime(NOW.replace(microsecond=0))
    assert parse_time("2h", NOW) == parse_start("2h", NOW)
    with pytest.raises(UsageError, match="can't read 'latest' as a time: use an age"):
        parse_time("latest", NOW)


def test_today_and_yesterday_are_midnights_or_the_days_of_a_time() -> None:
    midnight = NOW.astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    assert parse_start("today", NOW) == AtTime(midnight)
    assert parse_start("Yesterday", NOW) == AtTime(midnight - timedelta(days=1))
    assert parse_start("yesterday 14:00", NOW) == AtTime(midnight - timedelta(hours=10))
    assert parse_start("yesterday at 14:00", NOW) == AtTime(midnight - timedelta(hours=10))


@pytest.mark.parametrize(
    "text",
    [
        *("", "soon", "2x", "-2h", "999999999d", "2026-13-45", "08:00 EST", "0001-01-01"),
        *("2", "2m3", "hours ago", "1 month", "yesterday noon", "yesterday 2026-01-01"),
    ],
)
def test_anything_else_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(UsageError, match=r"latest|24 hours"):
        parse_start(text, NOW)


@pytest.mark.parametrize(
    "text",
    [
        *("14:05 EST", "14:05 CEST", "08:00-09:00-10:00", "10.11.2026", "22/11/2026", "11/10/2026"),
        *("2026-11", "12:00 5", "2026", "Nov 20", "20 Nov 2026 10:00", "2026-11-20 8pm"),
        *("2026-W47", "2026-11-20T24:30", "1:2", "2026-11-20T10", "12:00 Europe/Berlin"),
    ],
)
def test_what_could_mean_two_moments_or_is_half_a_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="can't read"):
        parse_start(text, NOW)


MEANT = {
    "14:05 EST": "give the offset behind date and time",
    "2026-11-20 14:05 CEST": "give the offset behind date and time",
    "08:00-09:00": "from 08:00 to 09:00, or 08:00 at an offset of -09:00?",
    "8:00 - 9:00": "from 8:00 to 9:00",
    "yesterday 08:00-09:00": "as in 2026-11-21T08:00-09:00",
    "10.11.2026": "2026-10-11 or 2026-11-10",
    "22/11/2026": "year-month-day: 2026-11-22",
    "2026-11": "which day? Give one, as in 2026-11-01",
    "14": "an hour has minutes: 14:00",
    "8am": "an hour has minutes: 08:00",
    "12 p.m.": "an hour has minutes: 12:00",
    "2026-11-21T14": "an hour has minutes: 2026-11-21T14:00",
    "2026-W47-1": "a date is year-month-day: 2026-11-16",
    "2026-325": "a date is year-month-day: 2026-11-21",
    "20261121": "a date is year-month-day: 2026-11-21",
    "12:00 5": "a day stands before its time",
}


def test_why_a_time_is_refused_is_said() -> None:
    for text, meant in MEANT.items():
        for parse in (parse_start, parse_time):
            with pytest.raises(UsageError, match=re.escape(meant)):
                parse(text, NOW)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("2026-11-21T08:00:30Z", 30), ("2026-11-21 08:00:30+00:00", 30)),
        *(("2026-11-21T08:00:30,5Z", 30), ("2026-11-21 09:00 +01:00", 0)),
        *(("2026-11-21 08:00 UTC", 0), ("2026-11-21T080030Z", 30), ("20261121T0800Z", 0)),
        *(("8:00Z", 0), ("2026-11-21 8:00Z", 0)),
        *(("08:00Z", 0), ("08:00:30+0000", 30), ("1795248000", 0), ("1795248030250", 30)),
    ],
)
def test_forms_with_one_meaning_are_read(text: str, seconds: int) -> None:
    moment = datetime(2026, 11, 21, 8, 0, seconds, tzinfo=UTC)
    assert parse_start(text, NOW) == AtTime(moment)


def test_an_hour_that_clocks_skip_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        with pytest.raises(UsageError, match="put forward"):
            parse_start("2026-03-29 02:30", NOW)
        with pytest.raises(UsageError, match=r"put forward .* as in 2026-03-29T02:30\+02:00"):
            at_time(datetime(2026, 3, 29, 2, 30), NOW)
        with pytest.raises(UsageError, match="comes twice here"):
            parse_start("2026-10-25 02:30", NOW)
        assert parse_start("2026-10-25T02:30+01:00", NOW) == AtTime(
            datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
        )
        assert parse_start("2026-03-29 03:30", NOW) == AtTime(
            datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
        )
    finally:
        monkeypatch.undo()
        time.tzset()
