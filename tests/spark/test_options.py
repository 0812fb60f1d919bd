from datetime import datetime

import pytest

pytest.importorskip("pyspark")

from watcher.errors import UsageError
from watcher.service.model import Latest, TrimHorizon
from watcher.spark.options import parse


def test_a_stream_starts_at_latest_and_a_batch_at_the_trim_horizon() -> None:
    assert parse({"stream": "t"}, streaming=True).start == Latest()
    assert parse({"path": "t"}, streaming=False).start == TrimHorizon()


def test_names_are_not_case_sensitive() -> None:
    options = parse({"STREAM": "t", "maxrecordspertrigger": "5"}, streaming=True)

    assert options.max_records == 5


def test_an_end_is_a_moment() -> None:
    options = parse({"stream": "t", "endingPosition": "1h"}, streaming=False)

    assert isinstance(options.end, datetime)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({}, "option"),
        ({"stream": "t", "startPosition": "latest"}, "did you mean startingPosition"),
        ({"stream": "t", "zzz": "1"}, "there are stream, startingPosition"),
        ({"stream": "t", "maxRecordsPerTrigger": "0"}, "1 or more"),
        ({"stream": "t", "failOnDataLoss": "maybe"}, "true or false"),
        ({"stream": "t", "imageFormat": "xml"}, "json or dynamodb-json"),
        ({"stream": "t", "startingPosition": "tomorrowish"}, "as a position"),
        ({"stream": "t", "endingPosition": "1h"}, "has no end"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, str], hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        parse(given, streaming=True)
