"""Compares a copy's item with what its table's item was, and finds the change that it lacks.

Nothing here reads or writes: an item's history and the copy's item go in, differences come out.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from decimal import (
    ROUND_DOWN,
    ROUND_FLOOR,
    ROUND_HALF_EVEN,
    ROUND_HALF_UP,
    Context,
    Decimal,
    localcontext,
)
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import msgspec

from watcher.aws.model import WireItem, WireValue
from watcher.records.diff import ABSENT, Absent, Content, number_text, same, to_number

Value: TypeAlias = WireValue | Absent

_SETS: Final = ("SS", "NS", "BS")
_OTHER_IN_JSON: Final = ("M", "L", "NS", "BS")
_sorted: Final = msgspec.json.Encoder(order="sorted").encode
_strict_json: Final = msgspec.json.Decoder(float_hook=Decimal)
_json: Final = json.JSONDecoder(parse_float=Decimal, parse_int=Decimal)


class Form(Enum):
    """The part of a value's type that a copy keeps."""

    WIRE = "all of it"
    JSON = "JSON's: a set is a list, a binary value is base64"
    TEXT = "a column's: numbers may be text, lists and maps JSON text, null is nothing"


def reads_as(expected: Value, copied: Value, form: Form) -> bool:
    """Returns True where a copy of this form has this value for the wanted one."""
    if expected == copied:  # most often, and fast
        return True
    if form is Form.TEXT:
        expected, copied = (ABSENT if _is_null(each) else each for each in (expected, copied))
    if isinstance(expected, Absent) or isinstance(copied, Absent):
        # Tools that have columns write a null for each that a row lacks.
        is_lacking = form is Form.JSON and expected is ABSENT and _is_null(copied)
        return expected is copied or is_lacking
    return same(expected, copied) if form is Form.WIRE else _reads_as(expected, copied, form)


def _reads_as(expected: WireValue, copied: WireValue, form: Form) -> bool:
    kind, content = _part(expected)
    found_kind, found = _part(copied)
    if form is Form.TEXT and found_kind == "S" and kind in ("M", "L", *_SETS):
        found_kind, found = _part(parsed_value(found))
    if kind == "M":
        return found_kind == "M" and items_equal(content, found, form)
    if kind == "L":
        return found_kind == "L" and _lists_equal(content, found, form)
    if kind in _SETS:
        return _is_set(kind, content, found_kind, found)
    if kind == "B" and found_kind in ("B", "S"):
        return bool(content == found)
    if form is Form.TEXT and kind != found_kind:
        return _is_text(kind, content, found_kind, found)
    return same(expected, copied)


def _lists_equal(expected: Sequence[WireValue], copied: Sequence[WireValue], form: Form) -> bool:
    return len(expected) == len(copied) and all(
        reads_as(one, other, form) for one, other in zip(expected, copied, strict=True)
    )


def items_equal(
    expected: WireItem, copied: WireItem, form: Form, columns: frozenset[str] | None = None
) -> bool:
    """Returns True where a copy of this form has this item; only `columns` count, if given."""
    names = (expected.keys() | copied.keys()) if columns is None else columns
    return all(
        reads_as(expected.get(name, ABSENT), copied.get(name, ABSENT), form) for name in names
    )


def wanted_text(item: WireItem, form: Form) -> bytes | None:
    """Returns a text of a table's item, as a copy of this form has it.

    Where `copied_text` of the copy's item is the same, they are equal; where it is another, they
    may be nevertheless. None of a form that has too many ways to write an item.
    """
    if form is not Form.JSON:
        return copied_text(item, form)
    made = {}
    for name, value in item.items():
        kind = _kind(value)
        # A column may hold a binary value, or a set of texts, as such.
        made[name] = _in_json(kind, value) if kind in _OTHER_IN_JSON else value
    return _sorted(made)


def copied_text(item: WireItem, form: Form) -> bytes | None:
    """Returns the text of a copy's item."""
    if form is Form.TEXT:
        return None
    text = _sorted(item)
    if form is Form.WIRE and b'S":[' in text:
        return _sorted({name: _ordered(value) for name, value in item.items()})
    return text


def _ordered(value: WireValue) -> WireValue:
    """Returns a value with the members of its sets in order."""
    kind, content = _part(value)
    if kind in _SETS:
        return {kind: sorted(content)}
    if kind == "M":
        return {kind: {name: _ordered(each) for name, each in content.items()}}
    return {kind: [_ordered(each) for each in content]} if kind == "L" else value


def _in_json(kind: str, value: WireValue) -> WireValue:
    """Returns a value as JSON has it."""
    content = value[kind]
    if kind == "M":
        return {"M": {name: _in_json(_kind(each), each) for name, each in content.items()}}
    if kind == "L":
        return {"L": [_in_json(_kind(each), each) for each in content]}
    if kind in _SETS:
        return {"L": [{"N" if kind == "NS" else "S": each} for each in content]}
    return {"S": content} if kind == "B" else value


def plain_value(value: object) -> WireValue:
    """Converts what a file or a database gives to wire types."""
    if type(value) is str:  # most often
        return {"S": value}
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case int() | float() | Decimal():
            return {"N": number_text(str(value))}
        case bytes() | bytearray() | memoryview():
            return {"B": base64.b64encode(value).decode()}
        case dict():
            return {"M": {str(name): plain_value(part) for name, part in value.items()}}
        case list() | tuple():
            return {"L": [plain_value(part) for part in value]}
        case datetime():
            return {"S": value.isoformat()}
    return {"S": str(value)}


def _kind(value: WireValue) -> str:
    return next(iter(value))


def _part(value: WireValue) -> tuple[str, Content]:
    ((kind, content),) = value.items()
    return kind, content


def _is_null(value: Value) -> bool:
    return not isinstance(value, Absent) and "NULL" in value


def parsed_value(text: str) -> WireValue:
    """Converts JSON text to wire types; other text stays text."""
    try:
        return plain_value(_strict_json.decode(text))
    except (ValueError, RecursionError):
        pass  # the other one takes halves of surrogate pairs, and deeper values
    try:
        return plain_value(_json.decode(text))
    except (ValueError, RecursionError):
        return {"S": text}


def _is_set(kind: str, content: Sequence[str], found_kind: str, found: Content) -> bool:
    if found_kind == kind:
        members = list(found)
    elif found_kind == "L":
        members = [next(iter(each.values())) for each in found]
        wanted_kinds = ("N",) if kind == "NS" else ("S", "B")
        if not all(next(iter(each)) in wanted_kinds for each in found):
            return False
    else:
        return False
    return len(members) == len(content) and _members(kind, members) == _members(kind, content)


def _members(kind: str, values: Iterable[str]) -> frozenset[object]:
    return frozenset(map(to_number, values) if kind == "NS" else values)


def _set_in(kind: str, found_kind: str, found: Content) -> frozenset[object] | None:
    """Returns the members of a set that a copy holds as one, or as a list; None of other values."""
    if found_kind == kind:
        return _members(kind, found)
    if found_kind != "L":
        return None
    values = [_part(each) for each in found]
    if any(member_kind not in ("S", "N", "B") for member_kind, _ in values):
        return None  # lists and maps are no set's members
    return _members(kind, [value for _, value in values])


def _is_text(kind: str, content: Content, found_kind: str, found: Content) -> bool:
    """Compares a value with a column's that has another type."""
    if kind == "N" and found_kind == "S":
        number = to_number(found)
        return not isinstance(number, str) and number == to_number(content)
    if kind == "S" and found_kind in ("N", "B"):
        return bool(content == found)
    if kind == "BOOL":
        return str(found).lower() in (("true", "1") if content else ("false", "0"))
    return False


class Change(msgspec.Struct, frozen=True, array_like=True):
    """One change of an item."""

    number: str
    """The change's sequence number."""
    kind: str
    at: float | None
    """The change's time in epoch seconds."""
    after: msgspec.Raw | None
    """The item after it; None after a removal."""


class CauseKind(Enum):
    """The kinds of causes of a difference; each is its text for people."""

    MISSING = "is missing there"
    STALE = "and later ones are missing there, or an older one came after them"
    TWICE = "was applied twice there"
    OUT_OF_ORDER = "was applied there after a later one"
    CUT = "digits are lost there: a float, or a column too narrow?"
    LACKS_MEMBERS = "members are lacking there, and no change took them: removed there by hand?"
    OTHER_TYPE = "it has another type there"
    REPEATED = "there are several items of this key there"
    NEVER_COPIED = "no change explains it: it was never copied, or was removed there by hand?"
    ORPHAN = "no change explains it: no such item is known, was it written there by hand?"
    UNEXPLAINED = "no change explains it: written there by hand?"


class Cause(NamedTuple):
    """The reason of a difference."""

    kind: CauseKind
    change: Change | None = None
    """The change that is missing there, was applied twice or too late."""
    more: int = 0
    """The number of later changes that the copy lacks, too."""
    alike: int = 0
    """The number of other changes that would explain the difference, too."""


class CopyDifference(NamedTuple):
    """One difference of a copy."""

    attribute: str | None
    """The attribute; None for an item that is only on one side, or several times in the copy."""
    in_copy: Value
    in_table: Value
    cause: Cause


class ItemHistory:
    """An item's states at its table, of which a copy may have some.

    `changes` are in their order, behind the state `before`. The first so many of them, `certain`,
    are in the copy by its position; those behind may be as far as `possible`. The attributes of
    its key, `keys`, tell nothing about them.
    """

    def __init__(
        self,
        before: msgspec.Raw | None,
        changes: Sequence[Change],
        certain: int,
        possible: int,
        read: Callable[[msgspec.Raw], WireItem] = msgspec.json.decode,
        *,
        keys: Collection[str] = (),
    ) -> None:
        self.changes = changes
        self.keys = frozenset(keys)
        self.certain = certain
        self.possible = possible
        images = [before, *(each.after for each in changes)]
        self.states = [None if each is None else read(each) for each in images]

    def allowed(self) -> Iterator[int]:
        """Yields the indexes of the states that the copy may have, the newest first."""
        return iter(range(self.possible, self.certain - 1, -1))

    def values(self, attribute: str, until: int) -> list[Value]:
        """Returns the attribute's value in each state up to that index."""
        return [
            ABSENT if state is None else state.get(attribute, ABSENT)
            for state in self.states[: until + 1]
        ]

    def touching(self, values: Sequence[Value]) -> list[int]:
        """Returns the indexes of the states in which the value differs from the one before."""
        return [at for at in range(1, len(values)) if not same(values[at - 1], values[at])]


def copy_differences(
    history: ItemHistory,
    copied: WireItem | None,
    form: Form,
    columns: frozenset[str] | None = None,
) -> list[CopyDifference]:
    """Returns how a copy's item differs from every state that it may have; empty if it is one."""
    differing = _differing_names(history, copied, form, columns)
    if differing is None:
        return []
    if not differing:  # it is only on one side
        if copied is None:
            return [CopyDifference(None, ABSENT, ABSENT, _only_here(history))]
        cause = _only_there(history, copied, form, columns)
        return [CopyDifference(None, ABSENT, ABSENT, cause)]
    assert copied is not None
    # The state that explains most of it; the newest of several.
    nearest = min(differing, key=lambda at: (len(differing[at]), -at))
    state = history.states[nearest]
    assert state is not None
    causes = _Attributes(history, copied, form, nearest)
    causes.was_once = any(
        each is not None and items_equal(each, copied, form, columns)
        for each in history.states[:nearest]
    )
    found = []
    for name in differing[nearest]:
        in_table = state.get(name, ABSENT)
        in_copy = copied.get(name, ABSENT)
        if form is Form.TEXT:
            in_copy = ABSENT if _is_null(in_copy) else _as_number(in_copy, in_table)
        found.append(CopyDifference(name, in_copy, in_table, causes.cause(name, in_copy)))
    return found


def _differing_names(
    history: ItemHistory, copied: WireItem | None, form: Form, columns: frozenset[str] | None
) -> dict[int, list[str]] | None:
    """Returns the attributes in which a copy differs from each state; None if it is equal to one.

    States on one side only, where the other side has no item, are left out.
    """
    differing: dict[int, list[str]] = {}
    for at in history.allowed():
        state = history.states[at]
        if state is None or copied is None:
            if state is copied:
                return None
            continue
        names = (state.keys() | copied.keys()) if columns is None else columns
        differing[at] = [
            name
            for name in sorted(names)
            if not reads_as(state.get(name, ABSENT), copied.get(name, ABSENT), form)
        ]
        if not differing[at]:
            return None
    return differing


def _as_number(in_copy: Value, in_table: Value) -> Value:
    """Returns a text that is a number as one, where one is wanted."""
    if isinstance(in_copy, Absent) or isinstance(in_table, Absent) or "N" not in in_table:
        return in_copy
    text = in_copy.get("S")
    return {"N": text} if text is not None and isinstance(to_number(text), Decimal) else in_copy


def _only_there(
    history: ItemHistory, copied: WireItem, form: Form, columns: frozenset[str] | None
) -> Cause:
    """Returns why a copy has an item that the table has no more, or never had."""
    removed = next((at for at in range(history.certain, 0, -1) if history.states[at] is None), 0)
    for at in range(removed - 1, -1, -1):
        state = history.states[at]
        if state is not None and items_equal(state, copied, form, columns):
            return _missing(history, at, history.certain)
    last = history.states[removed - 1] if removed else None
    if last is None:
        return Cause(CauseKind.UNEXPLAINED if history.changes else CauseKind.ORPHAN)
    # It may have been wrong before the removal; what the item never was is by hand.
    causes = _Attributes(history, copied, form, removed - 1)
    names = (last.keys() | copied.keys()) if columns is None else columns
    for name in names:
        in_copy = copied.get(name, ABSENT)
        differs = not reads_as(last.get(name, ABSENT), in_copy, form)
        if differs and causes.cause(name, in_copy).kind is CauseKind.UNEXPLAINED:
            return Cause(CauseKind.UNEXPLAINED)
    return Cause(CauseKind.MISSING, history.changes[removed - 1])


def _only_here(history: ItemHistory) -> Cause:
    """Returns why a copy lacks an item."""
    for at in range(history.certain, 0, -1):
        if history.states[at - 1] is None:
            earlier = [n for n in range(at) if n and history.states[n] is None]
            if earlier and at < history.certain:
                # Changes behind the insertion would have brought it back.
                return Cause(CauseKind.OUT_OF_ORDER, history.changes[earlier[-1] - 1])
            return _missing(history, at - 1, history.certain)
    return Cause(CauseKind.NEVER_COPIED)


def _missing(history: ItemHistory, at: int, until: int) -> Cause:
    """Returns the cause of a copy's having the state `at` in place of the one `until`."""
    kind = CauseKind.MISSING if until == at + 1 else CauseKind.STALE
    return Cause(kind, history.changes[at], until - at - 1)


class _Attributes:
    """Finds why attributes of a copy's item differ from those of the state at this index."""

    was_once: bool = False
    """The copy's item is, whole, what the table's once was: then no attribute of it shows a later
    change, though a change may have brought back its value."""

    def __init__(self, history: ItemHistory, copied: WireItem, form: Form, at: int) -> None:
        self._history = history
        self._copied = copied
        self._form = form
        self._at = at
        self._known_effects: dict[str, dict[int, CauseKind]] = {}

    def cause(self, name: str, found: Value) -> Cause:
        """Returns the cause of an attribute's difference."""
        values = self._history.values(name, self._at)
        touching = self._history.touching(values)
        for at in range(self._at - 1, -1, -1):
            if reads_as(values[at], found, self._form):
                if self._is_gone(name, at, touching):
                    break
                return self._behind(name, at, touching)
        return (
            self._by_arithmetic(name, found)
            or self._of_value(values[-1], found)
            or Cause(CauseKind.UNEXPLAINED)
        )

    def _is_gone(self, name: str, at: int, touching: Sequence[int]) -> bool:
        """Returns True where the copy has had the attribute, and no change took it since."""
        values = self._history.values(name, at)
        was_never = isinstance(values[at], Absent) and not any(each <= at for each in touching)
        return (
            not self.was_once
            and (was_never or self._history.states[at] is None)
            and any(self._was_applied(each, name) for each in touching if each > at)
        )

    def _behind(self, name: str, at: int, touching: Sequence[int]) -> Cause:
        """Returns the cause where the copy has the value of an earlier state."""
        changes = self._history.changes
        later = [each for each in touching if each > at]
        setters = [each for each in touching if each <= at]
        for each in () if self.was_once else later:
            if self._was_applied(each, name):
                if setters:
                    return Cause(CauseKind.OUT_OF_ORDER, changes[setters[-1] - 1])
                return Cause(CauseKind.MISSING, changes[each - 1])
        kind = CauseKind.STALE if len(later) > 1 else CauseKind.MISSING
        return Cause(kind, changes[later[0] - 1], len(later) - 1)

    def _was_applied(self, at: int, name: str) -> bool:
        """Returns True where another attribute shows that the copy has had this change."""
        before, after = self._history.states[at - 1] or {}, self._history.states[at] or {}
        for other in (before.keys() | after.keys()) - self._history.keys - {name}:
            was, now = before.get(other, ABSENT), after.get(other, ABSENT)
            in_copy = self._copied.get(other, ABSENT)
            if same(was, now):
                continue
            if reads_as(now, in_copy, self._form) or self._contains(at, other, in_copy):
                return True
        return False

    def _contains(self, at: int, name: str, in_copy: Value) -> bool:
        """Returns True where a sum, list or set holds this change among later ones."""
        values = self._history.values(name, self._at)
        if reads_as(values[-1], in_copy, self._form):
            return _is_kept(values[at - 1], values[at], values[-1])
        # It is off by another change, and by that one alone.
        effects = self._effects(name, _as_number(in_copy, values[-1]))
        return bool(effects) and effects.get(at) is not CauseKind.MISSING

    def _effects(self, name: str, found: Value) -> dict[int, CauseKind]:
        """Returns the changes by whose effect alone the copy's value is off, the newest first."""
        if name not in self._known_effects:
            values = self._history.values(name, self._at)
            kinds: dict[int, CauseKind] = {}
            for at in reversed(self._history.touching(values)):
                states = values[at - 1], values[at], values[-1], found
                kind = next((kind for kind, explains in _EFFECTS if explains(*states)), None)
                if kind is not None:
                    kinds[at] = kind
            self._known_effects[name] = kinds
        return self._known_effects[name]

    def _by_arithmetic(self, name: str, found: Value) -> Cause | None:
        """Returns the change whose effect is there twice, too late, or lacking among later ones."""
        effects = self._effects(name, found)
        # One of which nothing else is there rather than one that has left its traces.
        lost = [
            at
            for at, kind in effects.items()
            if kind is not CauseKind.MISSING or not self._was_applied(at, name)
        ]
        alike = lost or [at for at in effects if self._history.states[at - 1] is not None]
        if not alike:
            return None
        return Cause(effects[alike[0]], self._history.changes[alike[0] - 1], alike=len(alike) - 1)

    def _of_value(self, expected: Value, found: Value) -> Cause | None:
        """Returns what the value itself shows."""
        if isinstance(expected, Absent) or isinstance(found, Absent):
            return None
        (kind, content), (found_kind, other) = _part(expected), _part(found)
        if kind == "N" and _is_cut(to_number(content), to_number(str(other))):
            return Cause(CauseKind.CUT)
        members = _set_in(kind, found_kind, other) if kind in _SETS else None
        if members is not None and members < _members(kind, content):
            return Cause(CauseKind.LACKS_MEMBERS)
        if kind != found_kind and reads_as(expected, found, Form.TEXT):
            return Cause(CauseKind.OTHER_TYPE)
        if kind != found_kind and {kind, found_kind} == {"SS", "NS"}:
            numbers = frozenset(map(to_number, content)), frozenset(map(to_number, other))
            return Cause(CauseKind.OTHER_TYPE) if numbers[0] == numbers[1] else None
        return None


# Of all numbers of DynamoDB; what only an emulator takes may be rounded, and raises nothing.
_EXACT: Final = Context(prec=1_000, traps=[])
_ROUNDINGS: Final = (ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, ROUND_HALF_EVEN)


def _is_cut(exact: Decimal | str, part: Decimal | str) -> bool:
    """Returns True where a number has lost digits: rounded, cut, or through a float."""
    if isinstance(exact, str) or isinstance(part, str) or exact == part:
        return False
    if Decimal(repr(float(exact))) == part or Decimal(float(exact)) == part:
        return True
    exponent = part.as_tuple().exponent
    assert isinstance(exponent, int)
    unit = Decimal((0, (1,), exponent))
    if part.is_zero():
        return exact.copy_abs() < unit
    with localcontext(_EXACT):
        return any(exact.quantize(unit, rounding=each) == part for each in _ROUNDINGS)


def _number(value: Value) -> Decimal | None:
    if isinstance(value, Absent):
        return Decimal(0)
    made = to_number(str(value["N"])) if "N" in value else None
    return made if isinstance(made, Decimal) else None


def _adds(sign: int, before: Value, after: Value, expected: Value, found: Value) -> bool:
    """Returns True where the copy is off by what a change added, once too often or too rarely."""
    if isinstance(expected, Absent) or isinstance(found, Absent) or "N" not in found:
        return False
    numbers = [_number(each) for each in (before, after, expected, found)]
    if any(each is None for each in numbers):
        return False
    old, new, in_table, in_copy = (each for each in numbers if each is not None)
    with localcontext(_EXACT):
        return in_copy - in_table == sign * (new - old)


def _list(value: Value) -> list[object] | None:
    if isinstance(value, Absent):
        return []
    found = value.get("L")
    return list(found) if found is not None else None


def _appends(twice: bool, before: Value, after: Value, expected: Value, found: Value) -> bool:
    """Returns True where what a change appended is there twice, or is lacking."""
    lists = [_list(each) for each in (before, after, expected, found)]
    if any(each is None for each in lists) or isinstance(found, Absent):
        return False
    old, new, in_table, in_copy = (each for each in lists if each is not None)
    if len(new) <= len(old) or new[: len(old)] != old or in_table[: len(new)] != new:
        return False
    tail = new[len(old) :]
    if twice:
        return in_copy in (in_table + tail, new + tail + in_table[len(new) :])
    return in_copy == old + in_table[len(new) :]


def _moves(before: Value, after: Value, expected: Value, found: Value) -> bool:
    """Returns True where what a change appended stands behind what later ones appended."""
    lists = [_list(each) for each in (before, after, expected, found)]
    if any(each is None for each in lists):
        return False
    old, new, in_table, in_copy = (each for each in lists if each is not None)
    if len(new) <= len(old) or new[: len(old)] != old or in_table[: len(new)] != new:
        return False
    tail, others = new[len(old) :], old + in_table[len(new) :]
    return len(in_copy) == len(in_table) and any(
        in_copy[at : at + len(tail)] == tail
        and in_copy[:at] == others[:at]
        and in_copy[at + len(tail) :] == others[at:]
        for at in range(len(old) + 1, len(others) + 1)
    )


def _set(value: Value) -> frozenset[object] | None:
    if isinstance(value, Absent):
        return frozenset()
    kind, content = _part(value)
    return _members(kind, content) if kind in _SETS else None


def _lacks_from_set(before: Value, after: Value, expected: Value, found: Value) -> bool:
    """Returns True where a set is off by what one change did to it."""
    sets = [_set(each) for each in (before, after, expected, found)]
    if any(each is None for each in sets) or not (sets[2] and sets[3]):
        return False
    old, new, in_table, in_copy = (each for each in sets if each is not None)
    return in_table - in_copy == new - old and in_copy - in_table == old - new


def _is_kept(before: Value, after: Value, expected: Value) -> bool:
    """Returns True where a later value of a list or set still shows what a change did to it."""
    lists = [_list(each) for each in (before, after, expected)]
    if all(each is not None for each in lists):
        old_list, new_list, last = (each for each in lists if each is not None)
        is_longer = len(new_list) > len(old_list) and new_list[: len(old_list)] == old_list
        return is_longer and last[: len(new_list)] == new_list
    sets = [_set(each) for each in (before, after, expected)]
    if any(each is None for each in sets):
        return False
    old, new, in_table = (each for each in sets if each is not None)
    return old != new and new - old <= in_table and not (old - new) & in_table


_EFFECTS: Final[Sequence[tuple[CauseKind, Callable[[Value, Value, Value, Value], bool]]]] = (
    (CauseKind.TWICE, partial(_adds, 1)),
    (CauseKind.TWICE, partial(_appends, True)),
    (CauseKind.MISSING, partial(_adds, -1)),
    (CauseKind.MISSING, partial(_appends, False)),
    (CauseKind.MISSING, _lacks_from_set),
    (CauseKind.OUT_OF_ORDER, _moves),
)
