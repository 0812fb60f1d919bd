import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.odd_pages import pages
from tests.support.wire import shard_key
from watcher import Record
from watcher.errors import TransientError, UnexpectedAnswerError
from watcher.records import page
from watcher.records.wire import NO_IMAGE

BODY = (
    b'{"Records":['
    b'{"eventName":"INSERT","dynamodb":{"Keys":{"k":{"S":"a"}},"SequenceNumber":"1"}},'
    b'{"eventName":"MODIFY","dynamodb":{"Keys":{"k":{"S":"b"}},"SequenceNumber":"2"}},'
    b'{"eventName":"REMOVE","dynamodb":{"Keys":{"k":{"S":"c"}},"SequenceNumber":"3"}}'
    b'],"NextShardIterator":"next"}'
)


@given(body=pages())
def test_some_records_have_the_bytes_that_all_have(body: bytes) -> None:
    wire_records, raws = page.decode(body).Records, [bytes(raw) for raw in page.raw_records(body)]
    for places in ([], [0], [2], [0, 1], [1, 4], [5]):
        some = [place for place in places if place < len(raws)]
        assert [*map(bytes, page.raw_records_at(body, wire_records, some))] == [
            raws[place] for place in some
        ]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (BODY, "next"),
        (b' { "NextShardIterator" : "arn:aws|1|a b==" , "Records":[]} ', "arn:aws|1|a b=="),
        (b'{"Records":[], "NextShardIterator": "next" }\n', "next"),
        (b'{"Records":[]}', None),
        (b'{"Records":[],"NextShardIterator":null}', None),
        (b'{"Records":[],"NextShardIterator":"next"', None),
        (b'{"Records":[],"NextShardIterator":"next","More":1}', None),
        (b'{"Records":[],"NextShardIterator":"ne\\u0078t"}', None),
        (b'{"Records":[],"More":"\\"NextShardIterator\\":\\"next"}', None),
        (b'{"Records":[{"dynamodb":{"Keys":{"NextShardIterator":{"S":"next"}}}}]}', None),
        (b"", None),
    ],
)
def test_the_next_iterator_is_seen_at_a_glance_where_it_stands_first_or_last(
    body: bytes, found: str | None
) -> None:
    assert page.next_iterator(body) == found


@pytest.mark.parametrize(
    ("body", "error"),
    [
        *((body, TransientError) for body in (b"", b"<html>", b'{"Records":[')),
        *((body, UnexpectedAnswerError) for body in (b"{}", b"[]", b'{"Records":[{}]}')),
    ],
)
def test_a_body_that_is_no_page_is_trouble_never_the_end(
    body: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error, match="not a page"):
        page.decode(body)


@given(st.integers(0, len(BODY) - 1))
def test_a_page_cut_off_anywhere_is_refused(length: int) -> None:
    with pytest.raises(TransientError):
        page.decode(BODY[:length])


HALF = BODY.replace(b'{"S":"b"}', rb'{"S":"\ud83d"}')


def test_half_a_surrogate_pair_is_read_and_its_bytes_stay_as_they_came() -> None:
    """What JavaScript's slice leaves of an emoji; DynamoDB takes it and gives it."""
    first, half, last = page.RecordPage(HALF, shard_key("shard"), range(3))
    assert half.key == {"k": "\ue03d"} and half["dynamodb"]["Keys"] == {"k": {"S": "\ue03d"}}
    assert bytes(half.raw) in HALF and rb"\ud83d" in bytes(half.raw)
    assert (first.key, last.key) == ({"k": "a"}, {"k": "c"})
    assert b"".join(bytes(raw) for raw in page.raw_records(HALF)) == b"".join(
        bytes(each.raw) for each in (first, half, last)
    )


@pytest.mark.parametrize("empty", [b"{}", b"null"])
def test_an_empty_image_is_none_wherever_records_are_read(empty: bytes) -> None:
    """As moto up to 5.1.20 has it of an INSERT, other emulators of a REMOVE."""
    record = (
        b'{"eventName":"INSERT","dynamodb":{"Keys":{"k":{"S":"a"}},"NewImage":{"k":{"S":"a"}},'
        b'"OldImage": %b,"SequenceNumber":"1"}}' % empty
    )
    body = b'{"Records":[%b]}' % record
    of_page = page.decode(body).Records[0].dynamodb
    (opened,) = page.RecordPage(body, shard_key("a"), range(1))
    whole = Record.from_json(record)

    assert of_page.OldImage is opened.wire.dynamodb.OldImage is NO_IMAGE
    assert opened.old is whole.old is None
    assert "OldImage" not in whole["dynamodb"] and bytes(whole.raw) == record
