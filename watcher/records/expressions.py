"""Conditions in one line, as DynamoDB's own expressions with values in place of `:names`.

    total > 200 and status = "paid"        a path of the item as it is after the change
    old.status <> new.status               or as it was before; key.PK is of the key
    begins_with(PK, "user-") and not (total between 1 and 9 or attribute_exists(note))

Comparisons, functions and what they mean for values of different types and for attributes that an
item lacks are DynamoDB's:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.OperatorsAndFunctions.html
"""

from __future__ import annotations

import base64
import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from watcher.errors import UsageError, WatcherError
from watcher.records.diff import ABSENT, Content, same
from watcher.records.wire import WireRecord

_Value: TypeAlias = Any
"""A value as the wire has it, `{"N": "5"}`; ABSENT where an item lacks it."""


class _Item(NamedTuple):
    """The images that a condition tests."""

    new: Mapping[str, _Value]
    old: Mapping[str, _Value]
    key: Mapping[str, _Value]
    item: Mapping[str, _Value]
    """The item after the change; of a removed one, before; where there are no images, its key."""


_Condition: TypeAlias = Callable[[_Item], bool]
_Operand: TypeAlias = Callable[[_Item], _Value]

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
      | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<quoted>`[^`]+`)
      | (?P<word>[^\W\d][\w-]*)
      | (?P<sign><>|<=|>=|!=|==|[=<>(),.\[\]])
    )""",
    re.VERBOSE,
)
_SIGNS: Final = {"==": "=", "!=": "<>"}
_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_FUNCTIONS: Final = {
    **dict.fromkeys(("attribute_exists", "attribute_not_exists", "size"), 1),
    **dict.fromkeys(("attribute_type", "begins_with", "contains"), 2),
}
_SIDES: Final = ("new", "old", "key")
_CONSTANTS: Final = {"true": {"BOOL": True}, "false": {"BOOL": False}, "null": {"NULL": True}}
_RESERVED: Final = ("and", "or", "not", "between", "in")

_attributes: Final = msgspec.json.Decoder(dict[str, Any])


def compile_expression(text: str) -> Callable[[WireRecord], bool]:
    """Returns the test whether a record meets a condition. Raises UsageError with the place."""
    condition = _Parser(text).parse()
    return lambda record: condition(_item(record))


def contains_text(text: str) -> Callable[[WireRecord], bool]:
    """Returns the test whether a text stands in a record's key or images: in a name or a value."""

    def test(record: WireRecord) -> bool:
        change = record.dynamodb
        images = (change.Keys, change.NewImage, change.OldImage)
        return any(_holds(text, _attributes.decode(raw)) for raw in images if raw)

    return test


def _holds(text: str, item: Mapping[str, _Value]) -> bool:
    return any(text in name or _value_holds(text, value) for name, value in item.items())


def _value_holds(text: str, value: _Value) -> bool:
    ((kind, content),) = value.items()
    match kind:
        case "M":
            return _holds(text, content)
        case "L":
            return any(_value_holds(text, each) for each in content)
        case "SS" | "NS":
            return any(text in each for each in content)
        case "S" | "N":
            return text in content
        case "BOOL":
            return text == str(content).lower()
    return False


def _item(record: WireRecord) -> _Item:
    change = record.dynamodb
    new, old, key = (
        _attributes.decode(raw) if raw else {}
        for raw in (change.NewImage, change.OldImage, change.Keys)
    )
    return _Item(new, old, key, new or old or key)


class _Token(NamedTuple):
    kind: str
    text: str
    start: int

    @property
    def word(self) -> str:
        """The word as keywords are written; "" where it is none."""
        return self.text.lower() if self.kind == "word" else ""


class _Parser:
    """Reads a condition from left to right: each method takes what it is named for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._tokenized()
        self._at = 0

    def parse(self) -> _Condition:
        """Returns the whole condition."""
        condition = self._any_of()
        if self._next.kind != "end":
            raise self._wrong("and, or, or the end")
        return condition

    def _tokenized(self) -> list[_Token]:
        tokens, index = [], 0
        end = len(self._text.rstrip())
        while index < end:
            found = _TOKEN.match(self._text, index)
            if found is None:
                index += len(self._text[index:]) - len(self._text[index:].lstrip())
                like = self._text[index] == "*"
                hint = "; a beginning is begins_with(NAME, 'TEXT')" if like else ""
                raise UsageError(
                    f"can't read {self._text[index:]!r}, at character {index + 1}{hint}"
                )
            kind = str(found.lastgroup)
            tokens.append(_Token(kind, found[kind], found.start(kind)))
            index = found.end()
        return [*tokens, _Token("end", "the end", end)]

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> str | None:
        """Takes the next token if it is one of these; keywords in any case."""
        token = self._next
        text = _SIGNS.get(token.text, token.text) if token.kind == "sign" else token.word
        if text not in texts:
            return None
        self._at += 1
        return text

    def _need(self, text: str) -> None:
        if self._take(text) is None:
            raise self._wrong(text)

    def _wrong(self, wanted: str) -> UsageError:
        token = self._next
        hint = ""
        if token.text == "." and token.start == 0:
            hint = "; names have no dot before them: new.NAME, old.NAME or NAME"
        elif token.kind == "end" and self._at == 1:
            hint = "; is the whole condition in quotes?"
        return UsageError(
            f"{self._text!r}: {wanted} should stand at character {token.start + 1}, "
            f"in place of {token.text}{hint}"
        )

    # Conditions

    def _any_of(self) -> _Condition:
        parts = [self._all_of()]
        while self._take("or"):
            parts.append(self._all_of())
        return parts[0] if len(parts) == 1 else lambda item: any(part(item) for part in parts)

    def _all_of(self) -> _Condition:
        parts = [self._negated()]
        while self._take("and"):
            parts.append(self._negated())
        return parts[0] if len(parts) == 1 else lambda item: all(part(item) for part in parts)

    def _negated(self) -> _Condition:
        if self._take("not"):
            inner = self._negated()
            return lambda item: not inner(item)
        if self._take("("):
            inner = self._any_of()
            self._need(")")
            return inner
        name = self._function()
        if name and name != "size":
            return self._called(name)
        return self._compared(self._operand())

    def _function(self) -> str | None:
        token, behind = self._tokens[self._at : self._at + 2] if self._next.word else (None, None)
        is_call = behind is not None and behind.text == "("
        if token is None or not is_call or token.word in _RESERVED:
            return None
        if token.word not in _FUNCTIONS:
            raise self._wrong(f"one of {', '.join(_FUNCTIONS)}")
        return token.word

    def _called(self, name: str) -> _Condition:
        self._at += 2
        operands = [self._operand()]
        while len(operands) < _FUNCTIONS[name]:
            self._need(",")
            operands.append(self._value())
        self._need(")")
        first, last = operands[0], operands[-1]
        match name:
            case "attribute_exists":
                return lambda item: first(item) is not ABSENT
            case "attribute_not_exists":
                return lambda item: first(item) is ABSENT
            case "attribute_type":
                return lambda item: _type(first(item)) == _content(last(item))
            case "begins_with":
                return lambda item: _begins_with(first(item), last(item))
        return lambda item: _contains(first(item), last(item))

    def _compared(self, left: _Operand) -> _Condition:
        if sign := self._take("=", "<>", *_ORDER):
            right = self._value()
            if sign in _ORDER:
                return lambda item: _is_ordered(left(item), sign, right(item))
            is_equal = sign == "="
            return lambda item: _is_same(left(item), right(item)) is is_equal
        if self._take("between"):
            low = self._value()
            self._need("and")
            high = self._value()
            return lambda item: (
                _is_ordered(left(item), ">=", low(item))
                and _is_ordered(left(item), "<=", high(item))
            )
        if self._take("in"):
            self._need("(")
            values = [self._value()]
            while self._take(","):
                values.append(self._value())
            self._need(")")
            return lambda item: any(_is_same(left(item), value(item)) for value in values)
        raise self._wrong("a comparison (= <> < <= > >= between in)")

    # Operands

    def _operand(self) -> _Operand:
        if self._function() == "size":
            self._at += 2
            inner = self._operand()
            self._need(")")
            return lambda item: _size(inner(item))
        token = self._next
        if token.kind in ("number", "string") or token.word in _CONSTANTS:
            self._at += 1
            value = _literal(token)
            return lambda item: value
        return self._path()

    def _value(self) -> _Operand:
        """An operand that is compared with: a word alone would be an attribute; it is none."""
        word, behind = self._next, self._tokens[self._at + 1 : self._at + 2]
        is_alone = word.word and word.word not in (*_CONSTANTS, *_RESERVED)
        if is_alone and not (behind and behind[0].text in (".", "[", "(")):
            raise UsageError(
                f"{self._text!r}: put {word.text} into quotes, as a text, "
                f"or say new.{word.text}, as an attribute"
            )
        return self._operand()

    def _path(self) -> _Operand:
        side, steps = "item", [self._name()]
        if steps[0] in _SIDES and self._tokens[self._at - 1].kind == "word" and self._take("."):
            side, steps = steps[0], [self._name()]
        names: list[str | int] = list(steps)
        while sign := self._take(".", "["):
            if sign == ".":
                names.append(self._name())
                continue
            index = self._next
            if not index.text.isdecimal():
                raise self._wrong("the index of a list")
            self._at += 1
            self._need("]")
            names.append(int(index.text))
        return lambda item: _at(getattr(item, side), names)

    def _name(self) -> str:
        token = self._next
        if token.kind == "quoted" or (token.kind == "word" and token.word not in _RESERVED):
            self._at += 1
            return token.text.strip("`")
        raise self._wrong("an attribute or a value")


def _literal(token: _Token) -> _Value:
    if token.kind == "number":
        return {"N": token.text}
    if token.kind == "string":
        return {"S": re.sub(r"\\(.)", r"\1", token.text[1:-1])}
    return _CONSTANTS[token.word]


# Values


def _at(attributes: Mapping[str, _Value], names: list[str | int]) -> _Value:
    value: _Value = {"M": attributes}
    for name in names:
        content = value.get("M" if isinstance(name, str) else "L")
        try:
            value = content[name]
        except (KeyError, IndexError, TypeError):
            return ABSENT
    return value


def _type(value: _Value) -> str | None:
    return None if value is ABSENT else next(iter(value))


def _content(value: _Value) -> Content:
    return None if value is ABSENT else next(iter(value.values()))


def _is_same(left: _Value, right: _Value) -> bool:
    if left is ABSENT or right is ABSENT:
        return False
    try:
        return same(left, right)
    except WatcherError:
        return False


def _is_ordered(left: _Value, sign: str, right: _Value) -> bool:
    """True for numbers, texts and bytes that are in order; values of two types are in none."""
    kind = _type(left)
    if kind != _type(right) or kind not in ("N", "S", "B"):
        return False
    try:
        return _ORDER[sign](_sortable(left), _sortable(right))
    except (InvalidOperation, ValueError):
        return False


def _sortable(value: _Value) -> Decimal | bytes:
    ((kind, content),) = value.items()
    if kind == "N":
        return Decimal(content)
    if kind == "B":
        return base64.b64decode(content)
    text: bytes = content.encode("utf-8", "surrogatepass")
    return text


def _begins_with(value: _Value, start: _Value) -> bool:
    return _type(value) == _type(start) == "S" and _content(value).startswith(_content(start))


def _contains(value: _Value, part: _Value) -> bool:
    match _type(value):
        case "S":
            return _type(part) == "S" and _content(part) in _content(value)
        case "SS" | "NS" | "BS":
            kind = str(_type(value))[0]
            return any(_is_same({kind: each}, part) for each in _content(value))
        case "L":
            return any(_is_same(each, part) for each in _content(value))
    return False


def _size(value: _Value) -> _Value:
    """DynamoDB's `size`: of a text its bytes, of bytes theirs, else the number of elements."""
    kind, content = _type(value), _content(value)
    if kind == "S":
        content = content.encode("utf-8", "surrogatepass")
    elif kind == "B":
        content = base64.b64decode(content)
    elif kind not in ("SS", "NS", "BS", "M", "L"):
        return ABSENT
    return {"N": str(len(content))}
