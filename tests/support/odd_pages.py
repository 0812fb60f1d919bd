"""Pages as DynamoDB and its emulators may write them: odd values, any order, space and escapes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from tests.support.wire import FIRST

_TEXTS = st.text(st.characters(codec=None, categories=None), max_size=4) | st.sampled_from(
    ["a", "b", "x=1, y", "\ud83d", "\udc00", '"', "\\", "\x1b[2J", "\u2028", "eventName", "k"]
)
_DIGITS = st.sampled_from(["1", "1.0", "-0", "007", "NaN", "9" * 50, "1E40", "12.50"])
_LEAVES = st.one_of(
    st.builds(lambda text: {"S": text}, _TEXTS),
    st.builds(lambda digits: {"N": digits}, _DIGITS),
    st.sampled_from([{"B": "AAE="}, {"BOOL": True}, {"NULL": True}, {"SS": ["a", "\ud83d"]}]),
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda each: {"L": each}, st.lists(inner, max_size=2)),
        st.builds(lambda each: {"M": each}, st.dictionaries(_TEXTS, inner, max_size=2)),
    ),
    max_leaves=4,
)
_IMAGES = st.dictionaries(_TEXTS, _VALUES, max_size=3)
_KEYS = st.dictionaries(
    st.sampled_from(["k", "\u00e9", "pk"]),
    st.one_of(
        st.builds(lambda text: {"S": text}, _TEXTS),
        st.builds(lambda text: {"N": text}, _DIGITS),
        st.sampled_from([{"B": "AAE="}, {"B": "AAF="}, {"S": "a", "N": "1"}, {"S": None}, {}]),
    ),
    min_size=1,
    max_size=2,
)
_IDENTITIES = st.sampled_from(
    [
        {"type": "Service", "principalId": "dynamodb.amazonaws.com"},
        {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"},
        {"type": "User", "principalId": "x"},
    ]
)


@st.composite
def pages(draw: st.DrawFn, keys: st.SearchStrategy[Any] = _KEYS) -> bytes:
    """The body of a GetRecords answer."""
    records = [_record(draw, keys, number) for number in range(draw(st.integers(0, 6)))]
    members = {"Records": records, "NextShardIterator": "more"}
    return _json(draw, _in_any_order(draw, members)).encode("utf-8", "surrogatepass")


def _record(draw: st.DrawFn, keys: st.SearchStrategy[Any], number: int) -> dict[str, Any]:
    change = {"SequenceNumber": str(FIRST + number), "Keys": draw(keys)}
    for name, values in (
        ("NewImage", _IMAGES),
        ("OldImage", _IMAGES),
        ("ApproximateCreationDateTime", st.sampled_from([1_700_000_000, 1.5, 1e300, -1])),
        ("StreamViewType", st.just("NEW_IMAGE")),
    ):
        if draw(st.booleans()):
            change[name] = draw(values)
    kind = draw(st.sampled_from(["INSERT", "MODIFY", "REMOVE"]))
    record = {"eventName": kind, "dynamodb": _in_any_order(draw, change), "unknown": {"x": [1]}}
    if draw(st.booleans()):
        record["userIdentity"] = draw(_IDENTITIES)
    return _in_any_order(draw, record)


def _in_any_order(draw: st.DrawFn, members: dict[str, Any]) -> dict[str, Any]:
    return {name: members[name] for name in draw(st.permutations(list(members)))}


def _json(draw: st.DrawFn, value: Any) -> str:
    """With escapes or without, where it can be; with spaces in odd places, or none."""
    is_ascii = draw(st.booleans()) or _has_half_pair(value)
    comma, colon = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", "\r:\n ")]))
    text = json.dumps(value, ensure_ascii=is_ascii, separators=(comma, colon))
    return text.replace("/", "\\/") if draw(st.booleans()) else text


def _has_half_pair(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False
