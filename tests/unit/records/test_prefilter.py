"""What a filter can't match is told of a whole page at once; nothing that it matches is."""

import json
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.odd_pages import pages
from tests.support.wire import body as body_of
from watcher.records import conditions
from watcher.records.conditions import Prefilter
from watcher.records.expressions import parse_expression
from watcher.records.filter_patterns import parse_pattern
from watcher.records.filters import record_filter
from watcher.records.page import decode

TEXTS = st.lists(
    st.sampled_from(
        [
            *("a", "", "\ud83d", 5, None, "x=1, y", {"exists": True}, {"exists": False}),
            *({"prefix": "x"}, {"suffix": ""}, {"prefix": ""}, {"anything-but": ["a"]}),
        ]
    ),
    min_size=1,
    max_size=2,
)
NUMERALS = st.lists(
    st.sampled_from(
        [
            *(1, 12.5, -7, 10**400, "1", True, None, {"exists": False}, {"prefix": "1"}),
            *({"numeric": ["<", 8]}, {"numeric": [">=", 1, "<", 12.50]}, {"anything-but": [1]}),
        ]
    ),
    min_size=1,
    max_size=2,
)
NAMES = st.sampled_from(["a", "b", "k", "pk", "S", "M", "", "\u00e9", '"', "\\", "\ud83d"])
PARTS: st.SearchStrategy[Any] = st.recursive(
    st.builds(lambda leaf: {"N": leaf}, NUMERALS)
    | st.builds(lambda kind, leaf: {kind: leaf}, st.sampled_from(["S", "SS", "B"]), TEXTS)
    | st.sampled_from([[{"exists": True}], [{"exists": False}]]),
    lambda inner: (
        st.builds(lambda name, part: {"M": {name: part}}, NAMES, inner)
        | st.builds(lambda part: {"L": part}, inner.filter(lambda part: isinstance(part, dict)))
    ),
    max_leaves=2,
)


def or_several(fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(fields, min_size=1, max_size=2)
    return fields | st.builds(lambda each: {"$or": each}, several)


ITEMS_SAID = or_several(st.dictionaries(NAMES, PARTS, min_size=1, max_size=2))
IMAGES = st.dictionaries(
    st.sampled_from(["Keys", "NewImage", "OldImage"]), ITEMS_SAID, min_size=1, max_size=2
)
PATTERNS = or_several(
    st.builds(
        lambda images, kinds: {"dynamodb": images, **kinds},
        or_several(IMAGES),
        st.sampled_from([{}, {"eventName": ["INSERT"]}, {"eventName": [{"prefix": "M"}]}]),
    )
)


@given(body=pages(), patterns=st.lists(PATTERNS, min_size=1, max_size=2))
def test_a_page_as_a_whole_gives_what_its_records_wholly_decoded_give_one_by_one(
    body: bytes, patterns: list[Any]
) -> None:
    records = decode(body).Records
    test = record_filter(patterns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conditions, "attributes_decoder", lambda names: msgspec.json.decode)
        plain = record_filter(patterns)
    assert test is not None and plain is not None
    one_by_one = [place for place, record in enumerate(records) if plain.matches_wire(record)]
    for each in (test, pickle.loads(pickle.dumps(test))):
        assert each.matching_indexes(records) == one_by_one
        found = [place for place, record in enumerate(records) if each.matches_wire(record)]
        assert found == one_by_one


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
        ("n between 9 and 10.5", [0, 1]),
        ("`in`.city = 'Delft'", [1]),
        ("n > 5 or n < 0", [0, 1, 2, 3]),
        ("pk in ('user-2', 10)", [0, 1, 2, 3]),
        ({"pk": {"S": ["order-2", {"prefix": "user-"}]}}, [0, 1, 3]),
        ({"n": {"N": [{"numeric": [">", 9, "<=", 10]}]}, "pk": {"S": [{"prefix": "user-2"}]}}, [1]),
        ({"in": {"M": {"city": {"S": ["Delft"]}}}}, [1]),
        ({"n": {"N": [{"exists": False}]}}, [0, 1, 2, 3]),
        ({"n": {"N": [True, 10]}}, [0, 1, 2, 3]),
    ],
)
def test_one_condition_leaves_few(text: Any, expected: list[int]) -> None:
    records = decode(page_of(ITEMS)).Records
    image = {"dynamodb": {"NewImage": text}}
    made = parse_expression(text) if isinstance(text, str) else parse_pattern(image)
    assert list(Prefilter(made)(records)) == expected


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


def test_threads_that_share_a_filter_do_not_mix_up_their_records() -> None:
    """A worker reads several shards in as many threads."""
    pattern = {"dynamodb": {"NewImage": {"n": {"N": ["1"]}, "pk": {"S": ["a"]}}}}
    test = record_filter([pattern])
    assert test is not None

    def look(number: int) -> set[bool]:
        (record,) = decode(body_of([number])).Records
        change, replace = record.dynamodb, msgspec.structs.replace
        changes = (replace(change, NewImage=change.NewImage.copy()) for _ in range(1000))
        return {test.matches_wire(replace(record, dynamodb=each)) for each in changes}

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(look, (1, 2))) == [{True}, {False}]
    finally:
        sys.setswitchinterval(before)
