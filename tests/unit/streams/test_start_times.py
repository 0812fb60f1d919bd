import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from watcher.aws.model import AtTime, Latest, Position, TrimHorizon
from watcher.errors import UsageError
from watcher.streams.start_times import at_time, parse_start, parse_time

NOW = datetime(2026, 11, 21, 12, 0, 0, 700_000, UTC)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        *((text, Latest()) for text in ("latest", "LATEST", " latest ")),
        *((text, TrimHorizon()) for text in ("trim-horizon", "trim_horizon", "TRIM_HORIZON")),
    ],
)
def test_names_as_the_aws_cli_and_boto3_spell_them(text: str, position: Position) -> None:
    assert parse_start(text, NOW) == position


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("1.5h", timedelta(minutes=90)),
        ("500ms", timedelta(milliseconds=500)),
        (" 2h30m ", timedelta(minutes=150)),
        ("1d2h5m", timedelta(hours=26, minutes=5)),
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


@pytest.mark.parametrize(
    "text",
    [
        *("", "soon", "2x", "-2h", "999999999d", "2026-13-45", "08:00 EST", "0001-01-01"),
        *("2", "2m3", "hours ago", "1 month", "yesterday", "2 hours ago", "2h 30m", "an hour ago"),
        *("5M", "5ss", "3hs", "3H", "30m2h", "1h1h", "h", "1.h", ".5h", "1e3s", "+1h", "1h\n2m"),
        *(
            "\N{ARABIC-INDIC DIGIT FIVE}h",
            "\N{FULLWIDTH DIGIT TWO}h",
            "20\N{ARABIC-INDIC DIGIT ONE}",
        ),
        *("14:05 EST", "14:05", "08:00-09:00", "10.11.2026", "22/11/2026", "2026-11", "12:00 5"),
        *("2026", "Nov 20", "20 Nov 2026 10:00", "2026-11-20 8pm", "2026-W47", "2026-325", "14"),
        *("2026-11-20T24:30", "2026-11-20T10", "2026-11-20 9:30", "2026-11-20T08:00 UTC"),
        *("20261121", "2026-11-20T08:00:00.1234567891Z", "2026-11-20x08:00", "2026-11-20T08:00z"),
        *("123456789", "12345678901", "17952480001234", "1795248000.5"),
    ],
)
def test_anything_else_is_refused_with_the_forms_there_are(text: str) -> None:
    for parse in (parse_start, parse_time):
        with pytest.raises(UsageError, match=r"an age like 2h or 1h30m, or a time like|24 hours"):
            parse(text, NOW)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("2026-11-21T08:00:30Z", 30), ("2026-11-21 08:00:30+00:00", 30)),
        *(("2026-11-21T08:00:30,5Z", 30), ("2026-11-21 09:00+01:00", 0)),
        *(("2026-11-21T080030Z", 30), ("20261121T0800Z", 0)),
        *(("1795248000", 0), ("1795248030250", 30), ("1795248030250999", 30)),
        ("2026-11-21T08:00:30.123456789Z", 30),
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
