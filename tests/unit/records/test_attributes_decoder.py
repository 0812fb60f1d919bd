"""What filters look at is the same, whether all of an item is decoded or what they name."""

from __future__ import annotations

import pickle
import sys
import threading
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.odd_pages import pages
from tests.support.wire import body
from watcher.records import conditions
from watcher.records.filters import record_filter
from watcher.records.page import decode

TEXTS = st.sampled_from(["a", "b", "k", "", "\u00e9", "\ufffd", '"', "\\", "eventName", "x=1, y"])
LEAVES = st.lists(
    st.one_of(
        TEXTS,
        st.sampled_from(
            [{"exists": True}, {"prefix": "x"}, {"anything-but": ["a"]}, {"exists": False}]
        ),
    ),
    min_size=1,
    max_size=2,
)
NUMERALS = st.lists(
    st.sampled_from([1, "1", {"numeric": [">", 5]}, {"exists": False}, {"numeric": ["=", 12.5]}]),
    min_size=1,
    max_size=2,
)
PARTS = st.one_of(
    st.builds(lambda leaf: {"S": leaf}, LEAVES),
    st.builds(lambda leaf: {"N": leaf}, NUMERALS),
    st.builds(lambda name, leaf: {"M": {name: {"S": leaf}}}, TEXTS, LEAVES),
    st.sampled_from([[{"exists": True}], [{"exists": False}], {"L": {"S": ["a"]}}]),
)
ITEMS: st.SearchStrategy[Any] = st.dictionaries(TEXTS, PARTS, min_size=1, max_size=2)
ITEMS |= st.builds(lambda items: {"$or": items}, st.lists(ITEMS, min_size=1, max_size=2))
ITEMS |= st.just([{"exists": True}])
IMAGES = st.dictionaries(st.sampled_from(["Keys", "NewImage", "OldImage"]), ITEMS, min_size=1)
IMAGES |= st.builds(lambda images: {"$or": images}, st.lists(IMAGES, min_size=1, max_size=2))
PATTERNS = st.builds(lambda images: {"dynamodb": images}, IMAGES)
PATTERNS |= st.builds(lambda each: {"$or": each}, st.lists(PATTERNS, min_size=1, max_size=2))


@given(body=pages(), patterns=st.lists(PATTERNS, min_size=1, max_size=2))
def test_a_filter_finds_the_same_in_what_it_names_as_in_all(
    body: bytes, patterns: list[Any]
) -> None:
    records = decode(body).Records
    test = record_filter(patterns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conditions, "attributes_decoder", lambda names: msgspec.json.decode)
        plain = record_filter(patterns)
    assert test is not None and plain is not None
    found = [test.matches_wire(record) for record in records]
    assert found == [plain.matches_wire(record) for record in records]
    handed_on = pickle.loads(pickle.dumps(test))
    assert [handed_on.matches_wire(record) for record in records] == found


def test_threads_that_share_a_filter_do_not_mix_up_their_records() -> None:
    """A worker reads several shards in as many threads."""
    pattern = {"dynamodb": {"NewImage": {"n": {"N": ["1"]}, "pk": {"S": ["a"]}}}}
    test = record_filter([pattern])
    assert test is not None
    found: dict[bool, set[bool]] = {True: set(), False: set()}

    def look(is_one: bool) -> None:
        (record,) = decode(body([1 if is_one else 2])).Records
        for _ in range(1000):
            copy = msgspec.structs.replace(
                record.dynamodb, NewImage=record.dynamodb.NewImage.copy()
            )
            found[is_one].add(test.matches_wire(msgspec.structs.replace(record, dynamodb=copy)))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=look, args=(each,)) for each in (True, False)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert found == {True: {True}, False: {False}}
