"""Pages of DescribeStream, put together whatever they are; one without an end is given up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from watcher.aws.listings import ListingProgress, read_listing
from watcher.errors import TransientError

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


def test_pages_in_a_circle_end_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        describe = Pages(first=page("a", last="a"), a=page("b", last="b"), b=page("c", last="a"))
        assert names(describe) == ["a", "b", "c"]
        assert describe.calls == 3
    (line,) = caplog.messages
    assert line.startswith("The listing of shards comes back to a page")


def test_each_page_is_asked_for_five_times() -> None:
    def describe(query: Mapping[str, Any]) -> Any:
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    failures = [TransientError("500")] * 4
    answers: list[Any] = [*failures, page("a", last="a"), *failures, page("b")]
    assert names(describe) == ["a", "b"]
    answers = [*failures, TransientError("throttled"), page("a")]
    with pytest.raises(TransientError, match="throttled"):
        names(describe)
    answers = [TransientError("no answer", unreachable=True), page("a")]
    with pytest.raises(TransientError, match="no answer"):
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


@pytest.mark.parametrize(("seconds", "most"), [(0.25, 1000), (5.0, 60)])
def test_what_does_not_end_is_given_up_and_not_begun_anew_at_once(
    seconds: float, most: int
) -> None:
    listing = ListingProgress("shards", f"a stream of {most} pages")
    for number in range(1, most):
        assert not listing.add_page(str(number), number, seconds)
    with pytest.raises(TransientError, match=f"does not end, after {most:,} pages in") as caught:
        listing.add_page("last", most, seconds)
    assert caught.value.unreachable
