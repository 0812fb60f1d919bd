"""Whatever the endpoint, the table's data or the network hands us: an error at most, no crash."""

import json
import multiprocessing
from collections.abc import Iterable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.simulator import Simulator
from tests.support.wire import body, shard_key
from watcher import watch
from watcher.aws import deadline
from watcher.errors import TransientError, UnexpectedAnswerError
from watcher.records import page
from watcher.records.record import Record


def walk(records: Iterable[Record]) -> None:
    """Look at a record as the built-in handlers do."""
    for record in records:
        record.sequence_number, record.event_name, record.created_at  # noqa: B018
        bytes(record.raw)


def decoded(raw: bytes) -> None:
    try:
        wire_page = page.decode(raw)
    except (TransientError, UnexpectedAnswerError):
        return
    walk(page.RecordPage(raw, shard_key("shard"), range(len(wire_page.Records))))


@given(st.data())
def test_any_damage_to_a_page_is_a_page_or_a_passing_trouble(data: st.DataObject) -> None:
    whole = bytearray(body(range(3)))
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.integers(0, len(whole) - 1))
        match data.draw(st.sampled_from(["cut", "flip", "insert"])):
            case "cut":
                del whole[where : where + data.draw(st.integers(1, 30))]
            case "flip":
                whole[where] = data.draw(st.integers(0, 255))
            case _:
                whole[where:where] = data.draw(st.binary(max_size=8))
        if not whole:
            break
    decoded(bytes(whole))


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "dynamodb": ANY
                | st.fixed_dictionaries(
                    {"SequenceNumber": st.text(max_size=5) | st.just("1" * 22)},
                    optional={
                        "ApproximateCreationDateTime": ANY | st.floats(),
                        "Keys": ANY,
                        "NewImage": ANY,
                        "SizeBytes": ANY,
                    },
                ),
                "eventName": ANY,
                "userIdentity": ANY,
            },
        ),
        max_size=3,
    )
)
def test_anything_like_a_page_is_one_or_a_passing_trouble(records: list[Any]) -> None:
    decoded(json.dumps({"Records": records, "NextShardIterator": "x"}).encode())


@pytest.mark.parametrize("depth", [1000, 100_000])
def test_absurd_nesting_is_a_passing_trouble(depth: int) -> None:
    nested = '{"L":[' * depth + "]}" * depth
    raw = body([1]).replace(b'{"S": "a"}', nested.encode(), 1)
    decoded(raw)


def test_an_endpoint_that_stops_answering_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "READ_SECONDS", 0.3)
    monkeypatch.setattr(deadline, "LOOP_READ_SECONDS", 0.3)
    with Simulator(table="orders") as sim:
        sim.bulk(100)
        for operation in ("GetRecords", "GetShardIterator", "DescribeStream"):
            sim.fail_next(operation, "hang")
        seen: list[str] = []
        watch(
            "orders",
            [lambda record: seen.append(record.sequence_number)],
            start="trim_horizon",
            follow=False,
            region="us-east-1",
            endpoint_url=sim.endpoint,
        )
        assert seen == [record.sequence_number for record in sim.records]
    assert not multiprocessing.active_children()
