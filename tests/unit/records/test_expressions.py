"""Conditions in one line: what they let through; and paths, which rules and prints have too."""

import json
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watcher.errors import UsageError
from watcher.records.filters import record_filter
from watcher.records.paths import path_text
from watcher.records.redaction import redaction
from watcher.records.wire import NO_IMAGE, WireChange, WireRecord

Item = dict[str, Any]


def record(new: Item | None = None, old: Item | None = None, key: Item | None = None) -> WireRecord:
    def raw(item: Item | None) -> msgspec.Raw:
        return NO_IMAGE if item is None else msgspec.Raw(json.dumps(item).encode())

    keys = raw({"PK": {"S": "user-1"}} if key is None else key)
    return WireRecord(WireChange("1", Keys=keys, NewImage=raw(new), OldImage=raw(old)))


PAID = record(
    {
        "PK": {"S": "user-1"},
        "total": {"N": "250"},
        "status": {"S": "paid"},
        "tags": {"SS": ["new", "gift"]},
        "lines": {"L": [{"N": "1"}, {"M": {"sku": {"S": "a'b"}}}]},
        "odd name": {"BOOL": True},
        "untyped": {},  # by DynamoDB Local 3, for an empty map or list
        "raw": {"B": "AAE="},
        "face": {"S": "é\N{GRINNING FACE}"},
        "new": {"M": {"x": {"NULL": True}}},
    },
    {"PK": {"S": "user-1"}, "status": {"S": "open"}, "total": {"N": "1E+2"}}
    | {"start": {"B": "AA=="}, "end": {"B": "AQ=="}},
)


def holds(text: str, one: WireRecord) -> bool:
    made = record_filter([text])
    assert made is not None
    assert made.matching_indexes([one]) == [0] * made.matches_wire(one)
    return made.matches_wire(one)


@pytest.mark.parametrize(
    "text",
    [
        'total > 200 and status = "paid"',
        "total > 200 AND Not status = 'open'",
        "old.status <> new.status",
        "old.total = 100 and old.total == 100.0",
        "status = 'open' or (total >= 250 and total <= 250)",
        "total between 200 and 300",
        "untyped = null and not untyped between 1 and 2 and not size(untyped) < 1",
        "total in (1, 2.5e2)",
        'lines[0] = 1 and lines[1].sku = "a\'b"',
        r"lines[1].sku = 'a\'b'",
        "`odd name` = true",
        "`new`.x = null and attribute_type(`new`.x, 'NULL')",
        "begins_with(PK, 'user-') and key.PK = 'user-1'",
        "contains(tags, 'gift') and contains(status, 'ai') and contains(lines, 1)",
        "size(tags) = 2 and size(status) = 4 and size(raw) = 2",
        "attribute_not_exists(note) and note <> 5",
        "attribute_not_exists(start)",  # it was there before, it is not now
        "'a' < new.status and total > -3",
        "size(face) = 3 and size(face) < 4 and contains(face, 'é')",
        "begins_with(raw, old.start) and contains(raw, old.end) and contains(raw, new.raw)",
        "not begins_with(raw, old.end) and not contains(raw, old.status)",
    ],
)
def test_a_condition_lets_through_what_it_says(text: str) -> None:
    assert holds(text, PAID)
    assert not holds(f"not ({text})", PAID)


def test_a_path_is_of_the_item_after_the_change_or_else_before_it_or_else_of_its_key() -> None:
    b = {"PK": {"S": "b"}}
    assert holds("PK = 'b'", record(new=b, old=b, key=b))
    assert holds("PK = 'b'", record(old=b, key=b))
    assert holds("PK = 'b'", record(key=b))
    assert holds("attribute_not_exists(new.PK)", record(old=b, key=b))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("status = paid", "put paid into quotes, as a text, or say new.paid, as an attribute"),
        ("PK=user-1", "put user-1 into quotes"),
        ("total >", "an attribute or a value should stand at character 8, in place of the end"),
        ("total 5", "a comparison (= <> < <= > >= between in) should stand at character 7"),
        ("(total > 5", ") should stand at character 11, in place of the end"),
        ("total > 5 und x", "and, or, or the end should stand at character 11, in place of und"),
        ("upper(total) > 5", "one of attribute_exists, attribute_not_exists, size"),
        ("status = 'a", "can't read \"'a\", at character 10"),
        ("lines[x] = 1", "the index of a list should stand at character 7"),
        ("total ! 5", "can't read '! 5', at character 7"),
        ("", "an attribute or a value should stand at character 1"),
        ("a = 1" + " and (a = 1" * 9 + ")" * 9 + "x", "and, or, or the end should stand"),
        ("(" * 400 + "a = 1" + ")" * 400, "more than 100 parentheses and nots stand in one"),
        ("a = \N{ARABIC-INDIC DIGIT FIVE}", "can't read"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        record_filter([text])
    assert words in str(caught.value)


def test_a_text_is_found_in_names_and_values_of_the_key_and_both_images() -> None:
    for text in ("user-1", "paid", "open", "250", "gift", "a'b", "odd", "true"):
        assert has_text(text), text
    for text in ("NULL", "AAE", "Paid", "SS"):
        assert not has_text(text), text


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("café", rb'{"S": "caf\u00e9"}'),
        ("café", '{"S": "café"}'.encode()),
        ('a"b', rb'{"S": "a\"b"}'),
        ("a/b", rb'{"S": "a\/b"}'),
        ("a\nb", rb'{"S": "a\nb"}'),
        ("a\ue03db", rb'{"S": "a\ud83db"}'),
    ],
)
def test_a_text_is_found_also_where_the_json_escapes_it(text: str, raw: bytes) -> None:
    change = WireChange("1", Keys=msgspec.Raw(b'{"pk": %b}' % raw))
    assert has_text(text, WireRecord(change))
    assert not has_text("other", WireRecord(change))


def has_text(text: str, wire: WireRecord = PAID) -> bool:
    made = record_filter(grep=text)
    return made is not None and made.matches_wire(wire)


def test_a_filter_takes_conditions_patterns_and_a_text_and_can_be_sent_elsewhere() -> None:
    pattern = {"dynamodb": {"NewImage": {"status": {"S": ["open"]}}}}
    made = record_filter([pattern, "total > 200"], grep="gift")
    assert made is not None
    for test in (made, pickle.loads(pickle.dumps(made))):
        assert test.matching_indexes([PAID, record({"status": {"S": "open"}})]) == [0]


NAMES = st.text(min_size=1, max_size=4).filter(lambda name: "\n" not in name)
NAMES |= st.sampled_from(["a.b", "a`b", "`", "new", "and", "*", "x\ty", " a "])
PATHS = st.tuples(NAMES, st.lists(NAMES | st.integers(0, 2), max_size=3)).map(
    lambda parts: (parts[0], *parts[1])
)


def item_with(path: tuple[str | int, ...]) -> Any:
    """An item with the value 1 at a path, and 0 beside it."""
    value: Any = {"N": "1"}
    for step in reversed(path):
        if isinstance(step, int):
            value = {"L": [*[{"N": "0"}] * step, value, {"N": "0"}]}
        else:
            value = {"M": {step: value, f"{step}-": {"N": "0"}}}
    return value["M"]


@given(PATHS)
def test_a_printed_path_is_a_path_of_a_condition_and_of_a_rule(path: tuple[str | int, ...]) -> None:
    item = item_with(path)
    text = path_text(path)
    words = {"new", "old", "key", "and", "or", "not", "between", "in"}
    made = record_filter([f"new.{text} = 1"]) if not words & {*map(str, path)} else None
    assert made is None or made.matches_wire(record(new=item))
    if not any(isinstance(step, int) for step in path):  # a rule is of all elements
        rule = redaction([f"{text}=keep-type"])
        assert rule is not None
        found = json.loads(bytes(rule.item(json.dumps(item).encode())))
        assert json.dumps(found) == json.dumps(item).replace('"1"}', '"0"}')


def test_a_name_that_is_no_word_is_told_from_a_path() -> None:
    assert path_text(("a", "b", 2, "c-d")) == "a.b[2].c-d"
    assert path_text(("a.b", "x\ty", "a`b")) == "`a.b`.`x\ty`.`a``b`"
