"""Durations and times: what is read gives back what was written, and nothing else is read."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watcher.errors import UsageError
from watcher.times import duration_text, parse_duration, parse_seconds, parse_written_time

UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
UNITS |= {"ms": "milliseconds"}


@given(st.dictionaries(st.sampled_from([*UNITS]), st.integers(0, 500), min_size=1))
def test_a_duration_is_the_sum_of_its_parts(parts: dict[str, int]) -> None:
    text = "".join(f"{parts[unit]}{unit}" for unit in UNITS if unit in parts)
    sum_of = timedelta(**{UNITS[unit]: parts[unit] for unit in parts})
    assert parse_duration(text) == sum_of
    assert parse_seconds(text) == sum_of.total_seconds()


@given(st.text("0123456789.msdhwM+- \u0665\uff12", max_size=6))
def test_what_is_read_as_a_duration_is_numbers_with_units(text: str) -> None:
    if parse_duration(text) is not None:
        assert text.isascii() and text[0].isdigit() and text[-1] in "smhdw"
        assert "ss" not in text and "M" not in text and " " not in text


def test_an_option_of_seconds_takes_a_bare_number_too() -> None:
    assert [parse_seconds(text) for text in ("30", "2.5", "30s", "1m30s", "500ms")] == [
        *(30.0, 2.5, 30.0, 90.0, 0.5)
    ]
    for text in ("5ss", "5M", "", "ten", "-5", "1e3", "inf", "nan", "5 s"):
        with pytest.raises(UsageError, match="give a duration such as 500ms, 30s, 5m or 1h30m"):
            parse_seconds(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0, "0 s"), (0.4, "0 s"), (45, "45 s"), (59.6, "1 min"), (80, "1 min 20 s")),
        *((4800, "1 h 20 min"), (4801, "1 h 20 min"), (3605, "1 h"), (172_800, "2 d")),
        *((180_000, "2 d 2 h"), (-5, "0 s")),
    ],
)
def test_a_duration_is_shown_by_its_two_longest_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@given(st.datetimes(datetime(2002, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))
def test_a_written_time_is_read_to_the_microsecond(time: datetime) -> None:
    assert parse_written_time(time.isoformat()) == time
    assert parse_written_time(f"{time:%Y-%m-%dT%H:%M:%S.%f}789Z") == time
    micros = (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert parse_written_time(str(micros)) == parse_written_time(f"{micros}789") == time
    assert parse_written_time(str(micros // 10**6)) == time.replace(microsecond=0)


@pytest.mark.parametrize("text", ["T24:00Z", "T08:00+02:60", "T08:00+24:00", "T08:60Z"])
def test_no_time_is_read_that_does_not_exist(text: str) -> None:
    assert parse_written_time(f"2026-11-21{text}") is None
