"""Old and new are compared once: `changes`, a report, a diff and keys agree."""

import base64
import json
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from watcher import ABSENT, Record, WatcherError
from watcher.delivery import handler_modules
from watcher.records.diff import (
    changed_attributes,
    changed_values,
    differences,
    key_of,
    normal_keys,
    number_text,
    same,
    to_number,
)
from watcher.records.wire import WireChange, WireRecord

Item = dict[str, Any]


def record(old: Item, new: Item) -> Record:
    change = {
        "Keys": {"pk": {"S": "a"}},
        "OldImage": old,
        "NewImage": new,
        "SequenceNumber": "100000000000000000001",
    }
    return Record.from_json(json.dumps({"eventName": "MODIFY", "dynamodb": change}).encode(), "s")


SAME: list[tuple[Item, Item]] = [
    ({"N": "1"}, {"N": "1.0"}),
    ({"N": "-0"}, {"N": "0"}),
    ({"NULL": True}, {}),
    ({"N": "NaN"}, {"N": "NaN"}),
    ({"SS": ["a", "b"]}, {"SS": ["b", "a"]}),
    ({"NS": ["1", "2.50"]}, {"NS": ["2.5", "1.0"]}),
    ({"M": {"a": {"N": "1"}, "b": {"S": "x"}}}, {"M": {"b": {"S": "x"}, "a": {"N": "1.00"}}}),
    ({"L": [{"SS": ["a", "b"]}]}, {"L": [{"SS": ["b", "a"]}]}),
]
DIFFERENT: list[tuple[Item, Item]] = [
    ({"BOOL": True}, {"N": "1"}),
    ({"S": "1"}, {"N": "1"}),
    ({"B": "AA=="}, {"S": "AA=="}),
    ({"NULL": True}, {"BOOL": False}),
    ({"N": "1" * 40}, {"N": "1" * 39 + "2"}),
    ({"N": "0.10000000000000000000000000000000000001"}, {"N": "0.1"}),
    ({"L": [{"S": "a"}, {"S": "b"}]}, {"L": [{"S": "b"}, {"S": "a"}]}),
    ({"L": []}, {"M": {}}),
    ({"SS": ["1"]}, {"NS": ["1"]}),
]


@pytest.mark.parametrize(("old", "new"), SAME)
def test_what_is_the_same_to_dynamodb_has_not_changed(old: Item, new: Item) -> None:
    assert same(old, new)
    assert same(new, old)


@pytest.mark.parametrize(("old", "new"), DIFFERENT)
def test_what_differs_to_dynamodb_has_changed(old: Item, new: Item) -> None:
    assert not same(old, new)
    assert not same(new, old)


@pytest.mark.parametrize("value", [{"X": "1"}, {"M": 5}, {"N": None}, {"L": [7]}, "text"])
def test_what_is_no_value_is_said_to_be_none(value: Any) -> None:
    with pytest.raises(WatcherError, match="not a DynamoDB attribute value"):
        same(value, {"N": "1"})


def test_differences_are_named_by_their_place() -> None:
    old = {"M": {"a": {"L": [{"N": "1"}, {"S": "x"}]}, "gone": {"NULL": True}}}
    new = {"M": {"a": {"L": [{"N": "2"}, {"S": "x"}, {"S": "y"}]}}}
    assert list(differences(old, new, ("item",))) == [
        (("item", "a", 0), {"N": "1"}, {"N": "2"}),
        (("item", "a", 2), ABSENT, {"S": "y"}),
        (("item", "gone"), {"NULL": True}, ABSENT),
    ]


# Few words and digits, so that many values are alike.
WORDS = st.sampled_from(["", "1", "1.0", "a", "AA==", "AQ=="])
NUMBERS = st.sampled_from(["0", "-0", "1", "1.0", "1E0", "10", "1" * 38, "1" * 37 + "2"])
BYTES = st.sampled_from([base64.b64encode(each).decode() for each in (b"", b"\0", b"\1")])


def sets(of: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(of, min_size=1, max_size=3, unique=True)


VALUES: st.SearchStrategy[Item] = st.recursive(
    st.one_of(
        WORDS.map(lambda text: {"S": text}),
        NUMBERS.map(lambda digits: {"N": digits}),
        st.booleans().map(lambda value: {"BOOL": value}),
        st.just({"NULL": True}),
        BYTES.map(lambda text: {"B": text}),
        sets(WORDS).map(lambda values: {"SS": values}),
        sets(NUMBERS).map(lambda values: {"NS": values}),
        sets(BYTES).map(lambda values: {"BS": values}),
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda values: {"L": values})
        | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3).map(lambda item: {"M": item})
    ),
    max_leaves=6,
)
ITEMS = st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1, max_size=3)


@given(ITEMS, ITEMS)
@example({"a": {"BOOL": True}}, {"a": {"N": "1"}})
def test_changes_column_report_and_diff_name_the_same_attributes(old: Item, new: Item) -> None:
    made = record(old, new)
    names = list(made.changes)
    assert changed_attributes(made.wire) == names
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("sys.stdout.write", printed.append)
        handler_modules.load(handler_modules.find()["print_diff"]).handle(made)
    lines = "".join(printed).splitlines()[1:]
    assert list(dict.fromkeys(line[4] for line in lines)) == sorted(names)  # for people, by name


SPELLINGS = st.sampled_from(
    [
        lambda item: json.dumps(item, separators=(",", ":")),
        lambda item: json.dumps(item, separators=(" ,\n", "\r:\t ")),
        lambda item: json.dumps(item).replace('"a"', r'"\u0061"'),
        lambda item: '{"a": {"S": "1"}, ' + json.dumps(item)[1:] if item else "{}",  # twice an "a"
    ]
)
IMAGES = st.just(b"") | st.builds(lambda spell, item: spell(item).encode(), SPELLINGS, ITEMS)


@given(st.lists(st.tuples(st.sampled_from(["INSERT", "MODIFY", "REMOVE"]), IMAGES, IMAGES)))
def test_the_attributes_that_have_changed_are_those_of_the_changed_values(page: list[Any]) -> None:
    wires = [
        WireRecord(WireChange("1", OldImage=Raw(old), NewImage=Raw(new)), eventName=kind)
        for kind, old, new in page
    ]
    for wire in wires:
        values = changed_values(wire)
        assert changed_attributes(wire) == (values if values is None else list(values))


def test_a_number_that_is_spelled_in_another_way_has_not_changed() -> None:
    spelled = [
        *("0", "-0", "0.0", "-0.0", "1", "-1", "1.0", "01", "1E0", "10", "1E1", "0.1", "-0.1"),
        *("0.10", ".1", "1.5", "-1.50", "100", "1" * 38, "1" * 38 + ".0", "NaN", "", "x", "1_0"),
    ]
    for old, new in product(spelled, spelled):
        raws = [Raw(b'{"a":{"N":"%b"}}' % each.encode()) for each in (old, new)]
        change = WireChange("1", OldImage=raws[0], NewImage=raws[1])
        changed = ["a"] if to_number(old) != to_number(new) else []
        assert changed_attributes(WireRecord(change, eventName="MODIFY")) == changed


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        *((text, "1") for text in ("1", "1.0", "+1", "001", "10E-1")),
        *((".5", "0.5"), ("-2.10", "-2.1"), ("1e-3", "0.001")),
        *(("-0", "0"), ("0.000", "0"), ("100", "100"), ("1E2", "100")),
        ("12345678901234567890123456789012345678", "12345678901234567890123456789012345678"),
        ("1E+125", "1" + 125 * "0"),
        ("NaN", "NaN"),
        ("1E999999999", "1E999999999"),
    ],
)
def test_equal_numbers_have_one_text(text: str, normal: str) -> None:
    assert number_text(text) == normal
    assert number_text(normal) == normal


def test_only_numbers_are_changed() -> None:
    raw = b'{"a":{"S":"1.0"},"b":{"N":"1.0"}}'
    assert key_of(raw) == {"a": {"S": "1.0"}, "b": {"N": "1"}}
    assert normal_keys([raw]) == [b'{"a":{"S":"1.0"},"b":{"N":"1"}}']


def test_keys_that_are_in_form_keep_their_bytes() -> None:
    keys = [msgspec.Raw(b'{"a": {"N": "1"}}'), msgspec.Raw(b""), msgspec.Raw(b'{"a":{"S":"1.0"}}')]
    assert [bytes(each) for each in normal_keys(keys)] == [bytes(each) for each in keys]
