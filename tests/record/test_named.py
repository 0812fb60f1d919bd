"""What filters look at is the same, whether all of an item is decoded or what they name."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.odd_pages import pages
from watcher.record import named
from watcher.record.page import decode
from watcher.record.selection import wanted

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
    test = wanted(patterns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(named, "_decoder", lambda names: msgspec.json.decode)
        plain = wanted(patterns)
    assert test is not None and plain is not None
    found = [test.on_wire(record) for record in records]
    assert found == [plain.on_wire(record) for record in records]
    handed_on = pickle.loads(pickle.dumps(test))
    assert [handed_on.on_wire(record) for record in records] == found
