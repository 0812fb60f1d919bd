"""What a filter can't match is told of a whole page at once; nothing that it matches is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.odd_pages import pages
from tests.unit.records import test_attributes_decoder
from watcher.records.conditions import Prefilter
from watcher.records.expressions import parse_expression
from watcher.records.filter_patterns import parse_pattern
from watcher.records.filters import record_filter
from watcher.records.page import decode

NUMERALS = st.lists(
    st.sampled_from(
        [
            *(1, 12.5, -7, 10**400, "1", True, None, {"exists": True}, {"prefix": "1"}),
            *({"numeric": ["<", 8]}, {"numeric": [">=", 1, "<", 12.50]}, {"anything-but": [1]}),
        ]
    ),
    min_size=1,
    max_size=2,
)
TEXTS = st.lists(
    st.sampled_from(["a", "", "\ud83d", {"prefix": "x"}, {"suffix": ""}, {"prefix": ""}, 5, None]),
    min_size=1,
    max_size=2,
)
NAMES = st.sampled_from(["a", "b", "k", "pk", "S", "M", "", "\u00e9", '"', "\\", "\ud83d"])
PARTS: st.SearchStrategy[Any] = st.recursive(
    st.builds(lambda leaf: {"N": leaf}, NUMERALS)
    | st.builds(lambda kind, leaf: {kind: leaf}, st.sampled_from(["S", "SS", "B"]), TEXTS),
    lambda inner: (
        st.builds(lambda name, part: {"M": {name: part}}, NAMES, inner)
        | st.builds(lambda part: {"L": part}, inner)
    ),
    max_leaves=2,
)
IMAGES = st.dictionaries(
    st.sampled_from(["Keys", "NewImage", "OldImage"]),
    st.dictionaries(NAMES, PARTS, min_size=1, max_size=2),
    min_size=1,
    max_size=2,
)
PATTERNS = test_attributes_decoder.PATTERNS | st.builds(
    lambda images, kinds: {"dynamodb": images, **kinds},
    IMAGES,
    st.sampled_from([{}, {"eventName": ["INSERT"]}, {"eventName": ["INSERT", {"prefix": "M"}]}]),
)


@given(body=pages(), patterns=st.lists(PATTERNS, min_size=1, max_size=2))
def test_a_page_as_a_whole_gives_what_its_records_give_one_by_one(
    body: bytes, patterns: list[Any]
) -> None:
    records = decode(body).Records
    test = record_filter(patterns)
    assert test is not None
    one_by_one = [place for place, record in enumerate(records) if test.matches_wire(record)]
    assert test.matching_indexes(records) == one_by_one


def page_of(items: list[Any]) -> bytes:
    records = []
    for number, item in enumerate(items):
        change = {"SequenceNumber": str(number), "Keys": {"pk": item["pk"]}, "NewImage": item}
        records.append({"dynamodb": change})
    return json.dumps({"Records": records}).encode()


ITEMS = [
    {"pk": {"S": "user-1"}, "n": {"N": "10"}},
    {"pk": {"S": "user-2"}, "n": {"N": "10.00"}, "in": {"M": {"city": {"S": "Delft"}}}},
    {"pk": {"S": "order-1"}, "n": {"N": "-1E3"}},
    {"pk": {"S": "order-2"}},
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pk = 'user-2'", [1]),
        ("new.pk in ('user-2', 'order-1') and eventName <> 'x'", [1, 2]),
        ("begins_with(key.pk, 'user-') and not n = 10", [0, 1]),
        ("n = 10", [0, 1]),
        ("n < 0", [2]),
        ("n between 9 and 10.5", [0, 1]),
        ("`in`.city = 'Delft'", [1]),
        ("n > 5 or n < 0", [0, 1, 2, 3]),
        ("pk in ('user-2', 10)", [0, 1, 2, 3]),
        ("old.n = 10", []),
        ({"pk": {"S": ["order-2", {"prefix": "user-"}]}}, [0, 1, 3]),
        ({"n": {"N": [{"numeric": [">", 9, "<=", 10]}]}, "pk": {"S": [{"prefix": "user-2"}]}}, [1]),
        ({"in": {"M": {"city": {"S": ["Delft"]}}}}, [1]),
        ({"pk": {"S": [{"suffix": "1"}]}}, [0, 1, 2, 3]),
        ({"n": {"N": [{"exists": False}]}}, [0, 1, 2, 3]),
        ({"n": {"N": [True, 10]}}, [0, 1, 2, 3]),
        ({"$or": [{"pk": {"S": ["user-2"]}}]}, [1]),
    ],
)
def test_one_condition_leaves_few(text: Any, expected: list[int]) -> None:
    records = decode(page_of(ITEMS)).Records
    image = {"dynamodb": {"NewImage": text}}
    made = parse_expression(text) if isinstance(text, str) else parse_pattern(image)
    assert list(Prefilter(made)(records)) == expected


@given(
    body=pages(),
    name=NAMES.filter(str.isalpha),
    rest=st.sampled_from(
        [
            *("= 'a'", "in ('a', 'b')", "in (1, 'a')", "= 1", "< 12.5", ">= 1", "between 1 and 9"),
            *(".b = 'x'", ".b > 3", "[0] = 'a'", "<> 'a'"),
        ]
    ),
    image=st.sampled_from(["new.", "old.", "key.", ""]),
)
def test_a_condition_in_one_line_finds_in_a_page_what_it_finds_one_by_one(
    body: bytes, name: str, rest: str, image: str
) -> None:
    records = decode(body).Records
    test = record_filter([f"{image}`{name}`{rest if rest[0] in '.[' else f' {rest}'}"])
    assert test is not None
    one_by_one = [place for place, record in enumerate(records) if test.matches_wire(record)]
    assert test.matching_indexes(records) == one_by_one


def test_what_is_no_value_of_dynamodbs_is_left_to_the_test() -> None:
    items = [{"pk": {"S": "a"}, "n": {"N": number}} for number in ("1", 5, "many")]
    records = decode(page_of(items)).Records
    pattern = {"dynamodb": {"NewImage": {"n": {"N": [1]}}}}
    assert list(Prefilter(parse_pattern(pattern))(records)) == [0, 1, 2]
    test = record_filter([pattern])
    assert test is not None and test.matching_indexes(records) == [0]


def test_a_key_that_the_table_lacks_is_heard_of_whatever_the_filter() -> None:
    records = decode(page_of(ITEMS)).Records
    test = record_filter([{"dynamodb": {"NewImage": {"pk": {"S": ["nobody"]}}}}], ["id=1"])
    assert test is not None
    with pytest.raises(Exception, match="no such key attribute"):
        test.matching_indexes(records)
