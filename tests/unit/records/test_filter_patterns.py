"""Lambda's filter patterns, also against a plain interpreter of them."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watcher import Record, UsageError
from watcher.records import conditions
from watcher.records.filters import record_filter

WIRE: dict[str, Any] = {
    "eventID": "1",
    "eventName": "MODIFY",
    "awsRegion": "us-east-1",
    "userIdentity": {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"},
    "dynamodb": {
        "ApproximateCreationDateTime": 1790000000,
        "SequenceNumber": "100000000000000000001",
        "SizeBytes": 42,
        "StreamViewType": "NEW_AND_OLD_IMAGES",
        "Keys": {"pk": {"S": "user-42"}, "sk": {"N": "7"}},
        "NewImage": {
            "pk": {"S": "user-42"},
            "sk": {"N": "7"},
            "status": {"S": "Shipped"},
            "note": {"S": ""},
            "total": {"N": "100.50"},
            "big": {"N": "12345678901234567890123456789012345678"},
            "paid": {"BOOL": True},
            "gone": {"NULL": True},
            "blob": {"B": "AAE="},
            "tags": {"SS": ["gift", "red"]},
            "sizes": {"NS": ["1", "2.5"]},
            "none": {"L": []},
            "mixed": {"L": [{"S": "x"}, {"N": "5"}]},
            "lines": {"L": [{"M": {"qty": {"N": "1"}}}, {"M": {"qty": {"N": "9"}}}]},
            "ship": {"M": {"city": {"S": "Delft"}}},
        },
        "OldImage": {"pk": {"S": "user-42"}, "sk": {"N": "7"}, "status": {"S": "open"}},
    },
}


def record(wire: dict[str, Any] = WIRE) -> Record:
    return Record.from_json(json.dumps(wire).encode())


# With every digit of a number.
encoder = msgspec.json.Encoder(decimal_format="number")


def matches(pattern: dict[str, Any], wire: dict[str, Any] = WIRE) -> bool:
    test = record_filter([encoder.encode(pattern).decode()])
    assert test is not None
    return test(record(wire))


def new(name: str, *accepted: Any, **fields: Any) -> dict[str, Any]:
    """A pattern for one attribute of the new image: `new("total.N", …)`, or with fields there."""
    inner: Any = fields or list(accepted)
    for part in reversed(name.split(".")):
        inner = {part: inner}
    return {"dynamodb": {"NewImage": inner}}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ({"eventName": ["MODIFY"]}, True),
        ({"eventName": ["INSERT", "REMOVE"]}, False),
        ({"eventName": ["INSERT"], "awsRegion": ["us-east-1"]}, False),
        ({"userIdentity": {"type": ["Service"]}}, True),
        ({"userIdentity": {"principalId": [{"exists": False}]}}, False),
        ({"eventVersion": [{"exists": False}]}, True),
        ({"dynamodb": {"SizeBytes": [{"numeric": [">", 41, "<=", 42]}]}}, True),
        ({"dynamodb": {"SizeBytes": [42]}}, True),
        ({"dynamodb": {"Keys": {"pk": {"S": ["user-42"]}, "sk": {"N": ["7"]}}}}, True),
        ({"dynamodb": {"Keys": {"pk": {"S": ["user-42"]}, "sk": {"N": ["8"]}}}}, False),
        ({"dynamodb": {"OldImage": {"status": {"S": ["open"]}}}}, True),
        (new("gone.NULL", True), True),
        (new("paid.BOOL", True), True),
        (new("paid.BOOL", False), False),
        (new("paid.BOOL", 1), False),
        (new("blob.B", "AAE="), True),
        (new("total.N", {"numeric": ["=", 100.5]}), True),
        (new("total.N", {"numeric": [">", 100, "<", 101]}), True),
        (new("total.N", {"numeric": ["<", 100]}), False),
        (new("total.N", 100.5), True),
        (new("total.N", "100.50"), True),
        (new("total.N", {"anything-but": [100.5]}), False),
        (new("total.N", {"anything-but": [100]}), True),
        (new("big.N", {"numeric": ["=", 12345678901234567890123456789012345678]}), True),
        (new("big.N", {"numeric": ["=", 12345678901234567890123456789012345679]}), False),
        (new("total.N", {"numeric": ["<", Decimal("100.5000000000000000000000001")]}), True),
        (new("total.N", Decimal("100.5000000000000000000000001")), False),
        (new("mixed.L", S=["x"], BOOL=[{"exists": False}]), True),
        (new("mixed.L", S=["x"], N=[{"exists": False}]), False),
        (new("mixed.L", S=["x"], N=["5"]), False),  # of two elements
        (new("lines.L.M", qty={"N": ["1"]}, sku=[{"exists": False}]), True),
        (new("status", {"exists": True}), True),
        (new("lines.L", **{"$or": [{"S": ["1"]}, {"M": {"qty": {"N": [9]}}}]}), True),
        ({"dynamodb": {"NewImage": [{"exists": True}]}}, True),
        ({"$or": [{"eventName": ["REMOVE"]}, new("paid.BOOL", True)]}, True),
        ({"$or": [{"eventName": ["REMOVE"]}, new("paid.BOOL", False)]}, False),
        ({"eventName": ["INSERT"], "$or": [{"eventID": ["1"]}, {"eventID": ["2"]}]}, False),
        ({"dynamodb": {"$or": [{"SizeBytes": [1]}, {"Keys": {"sk": {"N": [7]}}}]}}, True),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_pattern(pattern: dict[str, Any], expected: bool) -> None:
    assert matches(pattern) is expected


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("{", "filters: not JSON: "),
        ("f.json", "filters: 'f.json': a comparison (= <> < <= > >= between in) should stand at"),
        ("[]", "filters: not a JSON object"),
        ("{}", "filters: pattern: empty"),
        ("@no/such/file", "can't read filter no/such/file: No such file"),
        ({"eventname": ["INSERT"]}, 'unknown field "eventname"; did you mean eventName?'),
        ({"eventName": "INSERT"}, 'eventName: put the accepted values into a list: ["INSERT"]'),
        ({"eventName": []}, "eventName: empty"),
        ({"eventName": [["INSERT"]]}, "eventName[0]: give a string, a number"),
        ({"dynamodb": {"NewImages": {}}}, 'dynamodb: unknown field "NewImages"; did you mean'),
        ({"dynamodb": {"NewImage": "x"}}, "dynamodb.NewImage: not a JSON object"),
        (
            new("status.S", {"prefx": "o"}),
            'dynamodb.NewImage.status.S[0]: unknown operator "prefx"; did you mean prefix?',
        ),
        (new("status", "open"), "dynamodb.NewImage.status[0]: only exists can stand here; a value"),
        (new("status.T", "o"), 'dynamodb.NewImage.status: unknown type "T"; an attribute\'s value'),
        (new("status.S", {"prefix": 3}), "dynamodb.NewImage.status.S[0].prefix: give a string"),
        (new("status.S", {"prefix": "a", "suffix": "b"}), "S[0]: give one operator"),
        (new("status.S", {"exists": "yes"}), "S[0].exists: give true or false"),
        (new("total.N", {"numeric": [">"]}), "N[0].numeric: give comparisons such as"),
        (new("total.N", {"numeric": [">", "5"]}), "N[0].numeric: give comparisons"),
        (new("total.N", {"numeric": [">", 5, ">", 6]}), "N[0].numeric: give comparisons"),
        (new("total.N", {"numeric": ["!=", 5]}), "N[0].numeric: give comparisons"),
        (new("status.S", {"anything-but": []}), "S[0].anything-but: empty"),
        (new("status.S", {"anything-but": {"prefix": "x"}}), "anything-but[0]: give a string, a"),
        ('{"dynamodb": {"SizeBytes": [NaN]}}', "dynamodb.SizeBytes[0]: not a number that"),
        ('{"dynamodb": {"SizeBytes": [-Infinity]}}', "SizeBytes[0]: not a number that"),
        ('{"dynamodb": {"SizeBytes": [1e99999999999999999999]}}', "SizeBytes[0]: not a number"),
        (new("total.N", {"numeric": [">", float("nan")]}), "N[0].numeric: not a number that"),
        ({"eventSourceARN": [{"prefix": "arn:"}]}, "eventSourceARN: all records are of the stream"),
        ({"$or": {}}, "$or: not a list of objects"),
        ({"$or": [{"eventName": ["X"]}, {"nosuch": [1]}]}, '$or[1]: unknown field "nosuch"'),
    ],
    ids=str,
)
def test_a_bad_pattern_is_refused_with_its_place(
    pattern: str | dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        record_filter([pattern])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_no_filter_looks_at_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def decode(raw: msgspec.Raw) -> dict[str, Any]:
        decoded.append(bytes(raw))
        return {**msgspec.json.decode(raw)}

    monkeypatch.setattr(conditions, "attributes_decoder", lambda names: decode)
    assert matches({"eventName": ["MODIFY"]})
    assert decoded == []
    keys = {"Keys": {"pk": {"S": ["user-42"]}}}
    assert matches({"dynamodb": keys, "$or": [{"dynamodb": keys}, {"eventName": ["X"]}]})
    assert [json.loads(raw) for raw in decoded] == [WIRE["dynamodb"]["Keys"]]


# Against an interpreter that knows no compiling and no laziness


def reference(pattern: Any, value: Any, numeral: bool = False) -> bool:
    if isinstance(pattern, list):
        return any(accepts(each, value, numeral) for each in pattern)
    if isinstance(value, list) and value:
        absent, present = asking(pattern, True), asking(pattern, False)
        return all(reference(absent, element) for element in value) and any(
            reference(present, element) for element in value
        )
    members = value if isinstance(value, dict) else {}
    return all(
        any(reference(each, value) for each in part)
        if name == "$or"
        else reference(part, members.get(name, ...), name in ("N", "NS"))
        for name, part in pattern.items()
    )


def asking(pattern: Any, for_absence: bool) -> Any:
    """The part of a pattern that asks for absences, or the other one."""
    found = {}
    for name, part in pattern.items():
        if isinstance(part, dict):
            part = asking(part, for_absence)
            is_wanted = bool(part)
        else:
            is_wanted = (name != "$or" and part == [{"exists": False}]) is for_absence
        if is_wanted:
            found[name] = part
    return found


def accepts(each: Any, value: Any, numeral: bool) -> bool:
    if isinstance(each, dict) and "exists" in each:
        return bool((value is not ...) == each["exists"])
    if isinstance(value, list):
        return any(accepts(each, element, numeral) for element in value)
    if value is ... or isinstance(value, dict):
        return False
    if not isinstance(each, dict):
        if isinstance(each, bool) or each is None or isinstance(value, bool):
            return each is value
        if isinstance(each, int):
            return bool(numeral and Decimal(value) == each)
        return bool(each == value)
    ((name, argument),) = each.items()
    match name:
        case "prefix":
            return isinstance(value, str) and value.startswith(argument)
        case "suffix":
            return isinstance(value, str) and value.endswith(argument)
        case "equals-ignore-case":
            return isinstance(value, str) and value.lower() == argument.lower()
        case "numeric":
            sign, bound = argument
            number = Decimal(value) if numeral else Decimal(bound)
            return numeral and (number > bound if sign == ">" else number <= bound)
    return not any(accepts(other, value, numeral) for other in argument)


WORDS = st.sampled_from(["", "a", "A", "ab", "b"])
NUMERALS = st.sampled_from(["0", "1", "-1", "1.5", "10"])
ATTRIBUTES = st.recursive(
    st.one_of(
        st.builds(lambda text: {"S": text}, WORDS),
        st.builds(lambda text: {"N": text}, NUMERALS),
        st.builds(lambda flag: {"BOOL": flag}, st.booleans()),
        st.builds(lambda texts: {"SS": texts}, st.lists(WORDS, min_size=1, max_size=2)),
    ),
    lambda inner: st.one_of(
        st.builds(lambda values: {"L": values}, st.lists(inner, max_size=2)),
        st.builds(lambda value: {"M": value}, st.dictionaries(WORDS, inner, max_size=2)),
    ),
    max_leaves=4,
)
IMAGES = st.dictionaries(WORDS, ATTRIBUTES, max_size=3)
EXISTS = st.builds(lambda flag: {"exists": flag}, st.booleans())
TEXTS = st.one_of(
    WORDS,
    st.none(),
    EXISTS,
    st.builds(
        lambda name, text: {name: text},
        st.sampled_from(["prefix", "suffix", "equals-ignore-case"]),
        WORDS,
    ),
    st.builds(lambda texts: {"anything-but": texts}, st.lists(WORDS, min_size=1, max_size=2)),
)
NUMBERS = st.one_of(
    NUMERALS,
    st.integers(-1, 2),
    EXISTS,
    st.builds(
        lambda sign, bound: {"numeric": [sign, bound]},
        st.sampled_from([">", "<="]),
        st.integers(-1, 2),
    ),
    st.builds(lambda bounds: {"anything-but": bounds}, st.lists(st.integers(-1, 2), min_size=1)),
)


def several(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(leaf, min_size=1, max_size=2)


VALUES: st.SearchStrategy[Any] = st.deferred(
    lambda: st.one_of(
        st.fixed_dictionaries({"S": several(TEXTS)}),
        st.fixed_dictionaries({"SS": several(TEXTS)}),
        st.fixed_dictionaries({"N": several(NUMBERS)}),
        st.fixed_dictionaries({"BOOL": several(st.booleans())}),
        st.fixed_dictionaries({"M": st.dictionaries(WORDS, VALUES, min_size=1, max_size=1)}),
        st.fixed_dictionaries({"L": VALUES}),
        st.fixed_dictionaries({"L": st.builds(lambda one, other: one | other, VALUES, VALUES)}),
    )
)
FIELDS = st.dictionaries(WORDS, st.one_of(several(EXISTS), VALUES), min_size=1, max_size=2)
PATTERNS = st.one_of(
    FIELDS, st.builds(lambda fields: {"$or": fields}, st.lists(FIELDS, min_size=1, max_size=2))
)


@given(IMAGES, PATTERNS)
def test_patterns_mean_what_a_plain_interpreter_says(
    image: dict[str, Any], pattern: dict[str, Any]
) -> None:
    wire = {"dynamodb": {"SequenceNumber": "1", "NewImage": image}}
    whole = {"dynamodb": {"NewImage": pattern}}
    assert matches(whole, wire) is reference(whole, wire)
