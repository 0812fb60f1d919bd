from datetime import datetime

import pytest

pytest.importorskip("pyspark")

from watcher.aws.model import Latest, TrimHorizon
from watcher.errors import StreamError, UsageError
from watcher.spark.options import parse


def test_a_stream_starts_at_latest_and_a_batch_at_the_trim_horizon() -> None:
    assert parse({"stream": "orders"}, streaming=True).start == Latest()
    assert parse({"path": "orders"}, streaming=False).start == TrimHorizon()


def test_names_are_not_case_sensitive() -> None:
    options = parse({"STREAM": "orders", "maxrecordspertrigger": "5"}, streaming=True)

    assert options.max_records == 5


@pytest.mark.parametrize(("text", "seconds"), [("0s", 0), ("2h", 7200), ("1", 1)])
def test_a_skew_is_a_time(text: str, seconds: float) -> None:
    options = parse({"stream": "orders", "maxEventTimeSkew": text}, streaming=True)

    assert options.max_event_time_skew == seconds


def test_an_end_is_a_moment() -> None:
    options = parse({"stream": "orders", "endingPosition": "1h"}, streaming=False)

    assert isinstance(options.end, datetime)


def test_what_is_no_name_is_told_at_load() -> None:
    with pytest.raises(StreamError, match="'a table' is neither a stream ARN"):
        parse({"stream": "a table"}, streaming=True)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({}, "option"),
        ({"stream": "orders", "startPosition": "latest"}, "did you mean startingPosition"),
        ({"stream": "orders", "maxOffsetsPerTrigger": "9"}, "did you mean maxRecordsPerTrigger"),
        ({"stream": "orders", "zzz": "1"}, "there are stream, startingPosition"),
        ({"stream": "orders", "maxRecordsPerTrigger": "0"}, "1 or more"),
        ({"stream": "orders", "maxEventTimeSkew": "soon"}, "'soon': give a duration such as"),
        ({"stream": "orders", "failOnDataLoss": "maybe"}, "true or false"),
        ({"stream": "orders", "imageFormat": "xml"}, "json or dynamodb-json"),
        ({"stream": "orders", "startingPosition": "tomorrowish"}, "as a position"),
        ({"stream": "orders", "endingPosition": "1h"}, "endingPosition is for spark.read$"),
        ({"stream": "orders,users"}, "one stream: make one for each, and union them"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, str], hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        parse(given, streaming=True)


def test_a_batch_that_ends_before_it_starts_is_refused() -> None:
    given = {"stream": "orders", "startingPosition": "10m", "endingPosition": "1h"}

    with pytest.raises(UsageError, match="endingPosition 1h: it is before startingPosition"):
        parse(given, streaming=False)
