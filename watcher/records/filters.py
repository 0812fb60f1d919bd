"""The record filter that all commands share: patterns, conditions, keys, kinds and text."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial

import msgspec

from watcher.aws.json_text import read
from watcher.aws.model import WireItem, WireValue, typed
from watcher.errors import UsageError, blame, refuse_other_than_text, texts
from watcher.files import text_in
from watcher.records.conditions import (
    All,
    AnyOf,
    Condition,
    OfRecord,
    Prefilter,
    compiled,
    places,
)
from watcher.records.diff import to_number
from watcher.records.expressions import parse_expression
from watcher.records.filter_patterns import parse_pattern, refuse
from watcher.records.paths import path_text
from watcher.records.record import Record
from watcher.records.wire import (
    KINDS,
    SNAPSHOT,
    FilterPattern,
    KeyValues,
    WireFilter,
    WireRecord,
    is_by_ttl,
)

# Removals by time-to-live; they count as REMOVE, too.
_TTL = "TTL"
_ONLY = (*KINDS, _TTL, SNAPSHOT)
_OTHER_WORDS = {"update": "modify", "delete": "remove"}
_shallow = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MOST_NAMES = 1000
_any_item = msgspec.json.Decoder(WireItem)
_SECOND_PAIR = re.compile(r",[\w.-]+=(?!=)")


def record_filter(
    filters: FilterPattern | Iterable[FilterPattern] | None = None,
    key: str | KeyValues | None = None,
    only: str | Iterable[str] | None = None,
    grep: str | None = None,
) -> RecordFilter | None:
    """Builds the filter of records that match any pattern, have the key, kinds and text.

    A pattern is Lambda's, or a text with a condition (see `records/expressions.py`).
    Returns None where every record matches. Raises UsageError with the place of a mistake.
    """
    refuse_other_than_text(grep=grep)
    kinds: set[str] = set()
    if isinstance(only, str) or only:
        with blame("only"):
            kinds = _kinds(texts(only, "only"))
    keys = _accepted(key if isinstance(key, Mapping) else texts(key, "key")) if key else {}
    if isinstance(filters, str | Mapping):
        filters = [filters]
    with blame("filters"):
        if not isinstance(filters, Iterable | None):
            raise UsageError(f"not a JSON object: {filters}")
        patterns = list(map(_pattern, filters or ()))
        made = RecordFilter(patterns, keys, kinds, grep=grep)
    return made if patterns or keys or kinds or grep else None


class RecordFilter:
    """Filters records, also in their wire form before a record is made; pickles."""

    def __init__(
        self,
        patterns: Sequence[FilterPattern],
        keys: Mapping[str, set[str]],
        kinds: set[str],
        *,
        grep: str | None = None,
    ) -> None:
        self._pickled = patterns, keys, kinds
        self._new = partial(RecordFilter, grep=grep)
        parts: list[Condition] = []
        if kinds:
            parts.append(_of_kinds(kinds))
        if keys:
            parts.append(_of_key(keys))
        several = [
            parse_expression(each) if isinstance(each, str) else parse_pattern(each)
            for each in patterns
        ]
        if several:
            parts.append(AnyOf(tuple(several)))
        self._places = [each for part in several for each in places(part) if each.steps]
        named = {each.steps[0] for each in self._places if each.image != "element"}
        self.names = frozenset(map(str, named))
        """The attributes that the conditions and patterns name."""
        self._unseen = set(self.names)
        if grep:
            parts.append(_of_text(grep))
        condition = All(tuple(parts))
        self.matches_wire: WireFilter = compiled(condition)
        # A key that the table does not have is an error, whatever a pattern leaves out before.
        self._prefilter = Prefilter(All(()) if keys else condition)

    def matching_indexes(self, records: Sequence[WireRecord]) -> list[int]:
        """Returns the indexes of the matching records."""
        matches = self.matches_wire
        return [index for index in self._prefilter(records) if matches(records[index])]

    def names_beside(self, records: Sequence[WireRecord]) -> list[str]:
        """Returns the names that records have, until each that the filter names was among them."""
        found: set[str] = set()
        for record in records if self._unseen else ():
            change = record.dynamodb
            for image in filter(None, (change.Keys, change.NewImage, change.OldImage)):
                found.update(_shallow.decode(image))
        self._unseen -= found
        return sorted(found)[:_MOST_NAMES]

    def refuse_view(self, view_type: str) -> None:
        """Raises UsageError for a stream whose records lack an image that the filter looks at."""
        for image in ("new", "old"):
            paths = [path_text(each.steps) for each in self._places if each.image == image]
            if paths and view_type and image.upper() not in view_type:
                raise UsageError(
                    f"{image}.{paths[0]}: the stream's view type is {view_type}, whose changes "
                    f"have no {image} image",
                    "filters",
                )

    def __call__(self, record: Record) -> bool:
        """Returns True for a matching record."""
        return self.matches_wire(record.wire)

    def __reduce__(self) -> tuple[object, ...]:
        return self._new, self._pickled


def words(only: str | Iterable[str] | None) -> set[str]:
    """Returns the kinds of change that `only` names, in lower case."""
    named = [only] if isinstance(only, str) else only or ()
    given = (word.strip().lower() for text in named for word in text.split(","))
    return {_OTHER_WORDS.get(word, word) for word in given}


def _kinds(only: str | Iterable[str]) -> set[str]:
    kinds = set(map(str.upper, words(only)))
    for kind in sorted(kinds - set(_ONLY)):
        refuse("", f'unknown kind "{kind.lower()}"', kind.lower(), map(str.lower, _ONLY))
    return kinds


def _of_kinds(kinds: set[str]) -> OfRecord:
    if _TTL not in kinds:
        return OfRecord(lambda record: record.eventName in kinds, frozenset(kinds))
    return OfRecord(lambda record: record.eventName in kinds or is_by_ttl(record))


def _accepted(key: KeyValues) -> dict[str, set[str]]:
    """Returns the accepted values, as the wire has them, by the attribute's name."""
    accepted: dict[str, set[str]] = {}
    pairs = key.items() if isinstance(key, Mapping) else map(name_and_value, key)
    for name, value in pairs:
        text = base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
        accepted.setdefault(name, set()).add(text)
    return accepted


def _of_key(accepted: Mapping[str, set[str]]) -> OfRecord:
    """Returns the condition that each named attribute of a key has one of its values."""
    decode = msgspec.json.Decoder(dict[str, dict[str, str]]).decode

    def holds(record: WireRecord) -> bool:
        key = decode(record.dynamodb.Keys)
        for name, values in accepted.items():
            if name not in key:
                text = f"no such key attribute; the table has {', '.join(sorted(key))}"
                raise UsageError(text, "key", name)
            kind, text = typed(key[name])
            if text not in values and not (kind == "N" and _is_among(text, values)):
                return False
        return True

    return OfRecord(holds)


def _of_text(text: str) -> OfRecord:
    """Returns the condition that a text stands in the key or an image: in a name or a value."""
    needle = text.encode("utf-8", "surrogatepass")

    def holds(record: WireRecord) -> bool:
        change = record.dynamodb
        for raw in (change.Keys, change.NewImage, change.OldImage):
            # Without escapes, the text stands in the bytes wherever it stands in what they say.
            there = bytes(raw)
            if (needle in there or b"\\" in there) and _holds(text, {"M": read(_any_item, raw)}):
                return True
        return False

    return OfRecord(holds)


def _holds(text: str, value: WireValue) -> bool:
    kind, content = typed(value)
    match kind:
        case "M":
            return any(text in name or _holds(text, each) for name, each in content.items())
        case "L":
            return any(_holds(text, each) for each in content)
        case "SS" | "NS":
            return any(text in each for each in content)
        case "S" | "N":
            return text in content
        case "BOOL":
            return text == str(content).lower()
    return False


def name_and_value(text: str) -> tuple[str, str]:
    """Splits `NAME=VALUE` of a key. Raises UsageError, also for two parts in one text."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError("give NAME=VALUE", "key", text)
    if more := _SECOND_PAIR.search(value):
        first = f"{name}={value[: more.start()]}"
        text = f"two parts of a key are two values: {first} and {value[more.start() + 1 :]}"
        raise UsageError(f"{text}; a value with a comma and = goes into a filter", "key")
    return name, value


def _is_among(text: str, values: Iterable[str]) -> bool:
    """Returns True where one of the texts is this number: 1 is also 1.0."""
    return any(to_number(value) == to_number(text) for value in values)


def _pattern(text: FilterPattern) -> FilterPattern:
    """Returns a pattern in JSON, or in a file (`@file`); text that is no JSON is a condition."""
    if isinstance(text, str) and text.strip()[:1] not in ("{", "[", "@"):
        return text
    pattern = _read(text) if isinstance(text, str) else text
    if not isinstance(pattern, Mapping):
        raise UsageError(f"not a JSON object: {text}")
    return pattern


def _read(text: str) -> object:
    source = ""
    if text.startswith("@"):
        source = text[1:]
        text = text_in(source)
    try:
        return json.loads(text, parse_float=_decimal)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source}{': ' * bool(source)}not JSON: {error}") from None


def _decimal(text: str) -> Decimal:
    """Reads a JSON number; one too large becomes infinity, whose place a later check names."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal("Infinity")
