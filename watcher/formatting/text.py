"""Item data as text that is safe to show: control characters could steer the terminal."""

import base64
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec
from boto3.dynamodb.types import Binary

from watcher.aws.key_schema import in_order
from watcher.records.record import wire_item


def plural(number: int, what: str) -> str:
    """Returns the form of a noun after a number: `change`, `changes`, `processes`, `LOSSES`."""
    if number == 1:
        return what
    return what + {"S": "ES", "s": "es"}.get(what[-1], "s")


def counted(number: int, what: str) -> str:
    """Formats a number of things: `1 change`, `1000 changes`."""
    return f"{number} {plural(number, what)}"


def grouped(number: int, what: str) -> str:
    """Formats a number of things with its digits in groups: `1,000 changes`."""
    return f"{number:,} {plural(number, what)}"


# C0, DEL, C1 (a terminal takes U+009B as it does ESC [), line separators, and the marks that
# turn the direction of writing.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Returns the text with control characters as escapes (`\\x1b`), so it stays on one line."""
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def printable_lines(text: str) -> str:
    """Returns several lines with all other control characters as escapes."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def printable_json(line: str) -> str:
    """Returns JSON text with the control characters that JSON allows as JSON's own escapes."""
    if line.isprintable():
        return line
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


def printable_key(keys: Mapping[str, Mapping[str, Any]]) -> str:
    """Formats a record's `Keys` (boto3's form) in the table's order: `PK=test, SK=item`."""
    return ", ".join(f"{printable(name)}={_key_text(keys[name])}" for name in in_order((*keys,)))


class _Key(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    S: str | msgspec.UnsetType = msgspec.UNSET
    N: str | msgspec.UnsetType = msgspec.UNSET


_keys = msgspec.json.Decoder(dict[str, _Key])


def printable_wire_key(raw: msgspec.Raw) -> str:
    """Formats a record's `Keys` in wire JSON as `printable_key` does, in a third of the time."""
    try:
        keys = _keys.decode(raw)
    except msgspec.DecodeError:  # binary ones
        return printable_key(wire_item(raw))
    texts = []
    for name in in_order((*keys,)):
        key = keys[name]
        text, number = key.S, key.N
        if isinstance(text, str) is isinstance(number, str):  # no key of DynamoDB's
            return printable_key(wire_item(raw))
        texts.append(f"{name}={text if number is msgspec.UNSET else number}")
    return printable(", ".join(texts))


def _key_text(attribute: Mapping[str, Any]) -> str:
    """Formats one key attribute; keys are strings, numbers or binary."""
    ((kind, value),) = attribute.items()
    return base64.b64encode(value).decode() if kind == "B" else printable(value)


def ordered(elements: Iterable[Any]) -> list[Any]:
    """Sorts a set's elements: numbers by value, everything else as it is printed."""
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
        case Binary():
            return repr(bytes(value))  # type: ignore[call-overload]
        case _:
            return repr(value)
