"""Formats an item's key and values for display."""

import base64
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec

from watcher.aws.key_schema import in_order
from watcher.aws.model import WireItem, WireValue
from watcher.formatting.text import printable
from watcher.records.record import binary_of, wire_item


def printable_key(keys: WireItem) -> str:
    """Formats a record's `Keys` (boto3's form) in the table's order: `PK=test, SK=item`."""
    return printable(_text_of(keys))


def _text_of(keys: WireItem) -> str:
    return ", ".join(f"{name}={_content(keys[name])}" for name in in_order((*keys,)))


def _content(attribute: WireValue) -> str:
    """Formats one key attribute; keys are strings, numbers or binary."""
    value = next(iter(attribute.values()), None)  # an emulator may give `{}`
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


class _Key(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    S: str | None = None
    N: str | None = None


_keys = msgspec.json.Decoder(dict[str, _Key])


def key_text(raw: msgspec.Raw) -> str:
    """Formats a record's `Keys` in wire JSON without escapes, in a third of the time."""
    try:
        keys = _keys.decode(raw)
    except msgspec.DecodeError:  # binary keys
        return _text_of(wire_item(raw))
    texts = []
    for name in in_order((*keys,)):
        text, number = keys[name].S, keys[name].N
        if (text is None) is (number is None):  # not a key of DynamoDB
            return _text_of(wire_item(raw))
        texts.append(f"{name}={number if text is None else text}")
    return ", ".join(texts)


def ordered(elements: Iterable[Any]) -> list[Any]:
    """Returns a set's elements sorted: numbers by value, others as printed."""
    listed = list(elements)
    if all(isinstance(each, Decimal) for each in listed):
        return sorted(listed)
    return sorted(listed, key=printable_value)


def printable_value(value: object) -> str:
    """Formats a native value on one line: numbers plain, binary as `b'…'`, sets sorted."""
    match value:
        case dict():
            inner = ", ".join(
                f"{printable(str(name))}: {printable_value(part)}" for name, part in value.items()
            )
            return "{" + inner + "}"
        case list():
            return "[" + ", ".join(map(printable_value, value)) + "]"
        case set() | frozenset():
            return "{" + ", ".join(map(printable_value, ordered(value))) + "}"
        case Decimal():
            return str(value)
        case _:
            binary = binary_of(value)
            return repr(value if binary is None else binary)
