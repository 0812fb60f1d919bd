"""Values for people: long ones cut, of two strings what differs; whole in files and pipes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from boto3.dynamodb.types import Binary

from watcher.printing.escaping import printable_value
from watcher.printing.style import most_characters
from watcher.service.key_order import in_order

# What is shown of two strings before and behind what differs.
_AROUND: Final = 16


class _Cut:
    """A part of a text; it prints as the text would, with the whole's length behind it."""

    def __init__(self, part: str, whole: str) -> None:
        self._text = f"{part}… ({whole})"

    def __repr__(self) -> str:
        return self._text


def shown_value(value: Any) -> str:
    """A native value on one line; on a terminal, long texts and binaries in it are cut."""
    most = most_characters()
    return printable_value(value if most is None else _cut(value, most))


def shown_item(item: Mapping[str, Any], keys: Collection[str]) -> str:
    """An item on one line: its key first, as the table has it; the other attributes by name."""
    first = in_order(tuple(name for name in keys if name in item))
    names = [*first, *sorted(item.keys() - keys)]
    return shown_value({name: item[name] for name in names})


def shortened(text: str, most: int) -> str:
    """So many characters of it at most: of an id the two ends tell it from others."""
    if len(text) <= most:
        return text
    behind = most // 2
    return f"{text[: most - behind - 1]}…{text[-behind:]}"


def shown_pair(old: Any, new: Any) -> tuple[str, str]:
    """Two values beside each other; of long strings, on a terminal, where they differ."""
    most = most_characters()
    is_text = isinstance(old, str) and isinstance(new, str)
    if most is None or not is_text or max(len(old), len(new)) <= most // 2:
        return shown_value(old), shown_value(new)
    begin = _alike(old, new)
    behind = _alike(old[begin:][::-1], new[begin:][::-1])
    return _span(old, begin, behind, most), _span(new, begin, behind, most)


def _alike(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _span(text: str, begin: int, behind: int, most: int) -> str:
    first, last = max(0, begin - _AROUND), min(len(text), len(text) - behind + _AROUND)
    part = text[first:last]
    cut = shown_value(part[: most + 2 * _AROUND] if len(part) > most + 2 * _AROUND else part)
    return f"{'…' * (first > 0)}{cut}{'…' * (last < len(text) or len(part) > most + 2 * _AROUND)}"


def _cut(value: Any, most: int) -> Any:
    match value:
        case str() if len(value) > most:
            return _Cut(repr(value[:most]), f"{len(value):,} characters")
        case Binary() if len(bytes(value)) > most:  # type: ignore[call-overload]
            whole = bytes(value)  # type: ignore[call-overload]
            return _Cut(repr(whole[: most // 4]), f"{len(whole):,} bytes")
        case dict():
            return {name: _cut(part, most) for name, part in value.items()}
        case list():
            return [_cut(part, most) for part in value]
        case set() | frozenset():
            return {_cut(part, most) for part in value}
        case _:
            return value
