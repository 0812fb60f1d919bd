"""Pages of DescribeStream, put together whatever they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.hand_clock import HandClock
from watcher.aws.listings import read_listing
from watcher.errors import ShardNotFoundError, StreamGoneError, TransientError

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/1"


def page(*names: str, last: str | None = None, date: str = "") -> dict[str, Any]:
    shards = [{"ShardId": name, "SequenceNumberRange": {}} for name in names]
    stream = {"StreamArn": ARN, "Shards": shards, "LastEvaluatedShardId": last}
    return {"StreamDescription": stream, "ResponseMetadata": {"HTTPHeaders": {"date": date}}}


class Pages:
    """Answers each call with the page behind the key that it names."""

    def __init__(self, **pages: dict[str, Any]) -> None:
        self.pages = pages
        self.calls = 0

    def __call__(self, query: Mapping[str, Any]) -> Any:
        self.calls += 1
        return self.pages[query.get("ExclusiveStartShardId", "first")]


def names(describe: Any) -> list[str]:
    return [shard.id for shard in read_listing(ARN, describe, lambda seconds: None).shards]


def test_pages_are_put_together() -> None:
    assert names(Pages(first=page("a", "b", last="b"), b=page("c"))) == ["a", "b", "c"]


def test_pages_in_a_circle_end() -> None:
    describe = Pages(first=page("a", last="a"), a=page("b", last="b"), b=page("c", last="a"))
    assert names(describe) == ["a", "b", "c"]
    assert describe.calls == 3


def test_pages_without_an_end_are_trouble() -> None:
    clock = HandClock()
    calls = iter(range(2000))

    def describe(query: Mapping[str, Any]) -> Any:
        clock.sleep(0.25)
        name = str(next(calls))
        return page(name, last=name)

    with pytest.raises(TransientError, match="does not end, after 1,000 pages in 250 s") as caught:
        read_listing(ARN, describe, clock.sleep, clock.monotonic)
    assert next(calls) == 1000
    assert caught.value.unreachable, "it is not begun anew at once"


def test_a_page_is_asked_for_again_by_itself() -> None:
    answers: list[Any] = [TransientError("500"), page("a", last="a"), TransientError("500")]
    answers.append(page("b"))

    def describe(query: Mapping[str, Any]) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert names(describe) == ["a", "b"]


def test_a_stream_that_is_not_there_is_gone() -> None:
    def describe(query: Mapping[str, Any]) -> Any:
        raise ShardNotFoundError("no such stream")

    with pytest.raises(StreamGoneError, match="it was deleted"):
        names(describe)


def test_a_row_without_its_id_is_trouble() -> None:
    broken = page("a")
    del broken["StreamDescription"]["Shards"][0]["ShardId"]
    with pytest.raises(TransientError, match="an answer without 'ShardId'"):
        names(lambda query: broken)


def test_what_was_listed_before_the_machine_slept_is_listed_anew_and_once() -> None:
    times = [f"Sun, {day} Nov 2026 12:00:00 GMT" for day in (15, 22)]
    slept = [page("a", "b", last="b", date=times[0]), page("d", date=times[1])]
    awake = [page("c", "d", last="d", date=times[1]), page("e", date=times[1])]
    for answers in (slept + awake, slept * 2):
        last = answers[2:]
        described = iter(answers)
        expected = [row["ShardId"] for each in last for row in each["StreamDescription"]["Shards"]]
        assert names(lambda query, pages=described: next(pages)) == expected
