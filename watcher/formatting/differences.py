"""Formats the differences between two items, one line per attribute: old -> new."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from watcher.aws.key_schema import in_order
from watcher.formatting.style import (
    max_characters,
    paint,
    table_prefix,
    time_text,
)
from watcher.formatting.text import printable
from watcher.formatting.values import ordered, printable_key, printable_value
from watcher.records.diff import (
    Absent,
    OldAndNew,
    changed_values,
    differences,
)
from watcher.records.page import RecordPage
from watcher.records.paths import path_text
from watcher.records.record import Record, binary_of, native

# The number of characters shown before and behind the difference of two strings.
_AROUND: Final = 16


class _CutText:
    """The beginning of a text; its repr ends with the whole text's length."""

    def __init__(self, part: str, whole: str) -> None:
        self._text = f"{part}… ({whole})"

    def __repr__(self) -> str:
        return self._text


def shown_value(value: object) -> str:
    """Formats a native value on one line; on a terminal, long texts and binaries are cut."""
    most = max_characters()
    return printable_value(value if most is None else _cut(value, most))


def shown_item(item: Mapping[str, object], keys: Collection[str]) -> str:
    """Formats an item on one line: its key in the table's order, then the others by name."""
    first = in_order(tuple(name for name in keys if name in item))
    names = [*first, *sorted(item.keys() - keys)]
    return shown_value({name: item[name] for name in names})


def shortened(text: str, most: int) -> str:
    """Returns an id cut to `most` characters in its middle, as ids differ at their ends."""
    if len(text) <= most:
        return text
    behind = most // 2
    return f"{text[: most - behind - 1]}…{text[-behind:]}"


def shown_pair(old: object, new: object) -> tuple[str, str]:
    """Formats two values side by side; on a terminal, only the differing part of long strings."""
    most = max_characters()
    if most is None or not (isinstance(old, str) and isinstance(new, str)):
        return shown_value(old), shown_value(new)
    if max(len(old), len(new)) <= most // 2:
        return shown_value(old), shown_value(new)
    begin = _common_length(old, new)
    behind = _common_length(old[begin:][::-1], new[begin:][::-1])
    return _span(old, begin, behind, most), _span(new, begin, behind, most)


def _common_length(one: str, other: str) -> int:
    """Returns the length of two texts' common beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _span(text: str, begin: int, behind: int, most: int) -> str:
    first, last = max(0, begin - _AROUND), min(len(text), len(text) - behind + _AROUND)
    part = text[first:last]
    cut = shown_value(part[: most + 2 * _AROUND] if len(part) > most + 2 * _AROUND else part)
    more = "…" * (last < len(text) or len(part) > most + 2 * _AROUND)
    return f"{'…' * (first > 0)}{cut}{more} ({len(text):,} characters)"


def _cut(value: object, most: int) -> object:
    match value:
        case str() if len(value) > most:
            return _CutText(repr(value[:most]), f"{len(value):,} characters")
        case dict():
            return {name: _cut(part, most) for name, part in value.items()}
        case list():
            return [_cut(part, most) for part in value]
        case set() | frozenset():
            return {_cut(part, most) for part in value}
        case _ if (whole := binary_of(value)) is not None and len(whole) > most:
            return _CutText(repr(whole[: most // 4]), f"{len(whole):,} bytes")
        case _:
            return value


BY_TTL: Final = " (expired by TTL)"
"""The text behind the key of a removal by time-to-live."""


def summary_line(record: Record) -> str:
    """Returns a change in one line: its time, kind and key."""
    change, kind = record["dynamodb"], record["eventName"]
    start = summary_beginning(record, change.get("ApproximateCreationDateTime"), kind)
    by_ttl = BY_TTL if kind == "REMOVE" and record.expired_by_ttl else ""
    return f"{start}{printable_key(change['Keys'])}{by_ttl}"


def summary_beginning(record: Record | RecordPage, created: datetime | None, kind: str) -> str:
    """Returns the line up to the key; the same for a page's records of one second and kind."""
    name = paint(f"{kind:^6}", kind)
    return f"{table_prefix(record)}[{time_text(created)}] - {name} - "


# Each line's mark has the colour of a kind of change.
_MARKS: Final = {"+": "INSERT", "~": "MODIFY", "-": "REMOVE"}


def change_lines(record: Record) -> Iterator[str]:
    """Yields a change's lines: its kind, time and key, then each attribute that differs."""
    kind, keys = record.event_name, record["dynamodb"]["Keys"]
    by_ttl = BY_TTL if record.expired_by_ttl else ""
    head = f"{time_text(record.created_at)} {printable_key(keys)}{by_ttl}"
    yield f"{paint(f'{kind:<6}', kind)} {head}"
    yield from map(_painted, described(record))


def attribute_lines(name: str, pair: OldAndNew) -> Iterator[str]:
    """Yields a line for each difference of an attribute, also inside maps and lists."""
    return map(_painted, _described(name, pair))


def _painted(found: DescribedDifference) -> str:
    mark, path, text = found
    return "  " + (paint(f"{mark} {path}: {text}", _MARKS[mark]) if mark else text)


class DescribedDifference(NamedTuple):
    """One difference as text: its mark, its path and its values."""

    mark: str
    """`+`, `~` or `-`; "" for an explanation."""
    path: str
    text: str


def described(record: Record) -> Iterator[DescribedDifference]:
    """Yields a change's differences one by one, without colours."""
    values = changed_values(record.wire)
    if values is None:
        for text in _without_comparison(record):
            yield DescribedDifference("", "", text)
    keys = record["dynamodb"]["Keys"]
    for name, pair in sorted((values or {}).items()):
        if name not in keys:
            yield from _described(name, pair)


def change_text(record: Record) -> str:
    """Returns all of a change's differences in one line without colours."""
    lines = described(record)
    return "; ".join(f"{mark}{path}: {text}" if mark else text for mark, path, text in lines)


def _without_comparison(record: Record) -> Iterator[str]:
    """Yields the images of a stream whose view type allows no comparison."""
    view = record["dynamodb"].get("StreamViewType", "KEYS_ONLY")
    for name, image in (("old", record.old), ("new", record.new)):
        if image is not None:
            yield f"{name} {shown_item(image, record.key)}"
    yield f"(nothing to compare: the stream's view type is {view})"


def _described(name: str, pair: OldAndNew) -> Iterator[DescribedDifference]:
    """Yields each difference of an attribute, also inside maps and lists."""
    for path, before, after in differences(*pair, (name,)):
        where = printable(path_text(path))
        if isinstance(after, Absent):
            text = "" if isinstance(before, Absent) else shown_value(native(before))
            yield DescribedDifference("-", where, text)
            continue
        new = native(after)
        if isinstance(before, Absent):
            yield DescribedDifference("+", where, shown_value(new))
            continue
        old = native(before)
        if isinstance(old, set) and isinstance(new, set):
            text = " ".join([*_elements("+", new - old), *_elements("-", old - new)])
        else:
            text = " -> ".join(shown_pair(old, new))
        yield DescribedDifference("~", where, text)


def _elements(mark: str, values: set[object]) -> list[str]:
    return [mark + shown_value(each) for each in ordered(values)]
