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
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from watcher.aws.model import typed
from watcher.errors import UsageError, WatcherError
from watcher.records.conditions import (
    All,
    AnyOf,
    Bound,
    Computed,
    Condition,
    Constant,
    Not,
    Operand,
    Place,
    Range,
    Test,
    Texts,
    Value,
    union,
)
from watcher.records.diff import ABSENT, Content, same
from watcher.records.paths import QUOTED, WORD, unquoted

_TOKEN: Final = re.compile(
    rf"""\s*(?:
        (?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.]))
      | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<quoted>{QUOTED})
      | (?P<word>{WORD})
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

_DEEPEST: Final = 100
"""So many parentheses and nots may stand in one another."""


def parse_expression(text: str) -> Condition:
    """Returns the condition that a text says. Raises UsageError with the place of a mistake."""
    return _Parser(text).parse()


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
        self._depth = 0

    def parse(self) -> Condition:
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

    def _any_of(self) -> Condition:
        parts = [self._all_of()]
        while self._take("or"):
            parts.append(self._all_of())
        return AnyOf(tuple(parts))

    def _all_of(self) -> Condition:
        parts = [self._negated()]
        while self._take("and"):
            parts.append(self._negated())
        return All(tuple(parts))

    def _negated(self) -> Condition:
        is_negated = self._take("not") is not None
        if not is_negated and self._take("(") is None:
            name = self._function()
            if name and name != "size":
                return self._called(name)
            return self._compared(self._operand())
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UsageError(f"more than {_DEEPEST} parentheses and nots stand in one another")
        if is_negated:
            inner: Condition = Not(self._negated())
        else:
            inner = self._any_of()
            self._need(")")
        self._depth -= 1
        return inner

    def _function(self) -> str | None:
        token, behind = self._tokens[self._at : self._at + 2] if self._next.word else (None, None)
        is_call = behind is not None and behind.text == "("
        if token is None or not is_call or token.word in _RESERVED:
            return None
        if token.word not in _FUNCTIONS:
            raise self._wrong(f"one of {', '.join(_FUNCTIONS)}")
        return token.word

    def _called(self, name: str) -> Condition:
        self._at += 2
        operands = [self._operand()]
        while len(operands) < _FUNCTIONS[name]:
            self._need(",")
            operands.append(self._value())
        self._need(")")
        bound = None
        if name == "begins_with" and isinstance(equal := _equal_to(operands[1]), Texts):
            bound = equal._replace(whole=False)
        return Test(_TESTS[name], tuple(operands), bound)

    def _compared(self, left: Operand) -> Condition:
        if sign := self._take("=", "<>", *_ORDER):
            right = self._value()
            if sign == "<>":
                return Not(Test(_is_same, (left, right)))
            if sign == "=":
                return Test(_is_same, (left, right), _equal_to(right))
            return _ordered(left, sign, right)
        if self._take("between"):
            low = self._value()
            self._need("and")
            return All((_ordered(left, ">=", low), _ordered(left, "<=", self._value())))
        if self._take("in"):
            self._need("(")
            values = [self._value()]
            while self._take(","):
                values.append(self._value())
            self._need(")")
            return Test(_is_among, (left, *values), union([*map(_equal_to, values)]))
        raise self._wrong("a comparison (= <> < <= > >= between in)")

    # Operands

    def _operand(self) -> Operand:
        if self._function() == "size":
            self._at += 2
            inner = self._operand()
            self._need(")")
            return Computed(_size, inner)
        token = self._next
        if token.kind in ("number", "string") or token.word in _CONSTANTS:
            self._at += 1
            return Constant(_literal(token))
        return self._path()

    def _value(self) -> Operand:
        """An operand that is compared with: a word alone would be an attribute; it is none."""
        word, behind = self._next, self._tokens[self._at + 1 : self._at + 2]
        is_alone = word.word and word.word not in (*_CONSTANTS, *_RESERVED)
        if is_alone and not (behind and behind[0].text in (".", "[", "(")):
            raise UsageError(
                f"{self._text!r}: put {word.text} into quotes, as a text, "
                f"or say new.{word.text}, as an attribute"
            )
        return self._operand()

    def _path(self) -> Place:
        image, steps = "item", [self._name()]
        if steps[0] in _SIDES and self._tokens[self._at - 1].kind == "word" and self._take("."):
            image, steps = steps[0], [self._name()]
        names: list[str | int] = list(steps)
        while sign := self._take(".", "["):
            if sign == ".":
                names.append(self._name())
                continue
            index = self._next
            if not (index.text.isascii() and index.text.isdigit()):
                raise self._wrong("the index of a list")
            self._at += 1
            self._need("]")
            names.append(int(index.text))
        return Place(image, tuple(names))

    def _name(self) -> str:
        token = self._next
        if token.kind == "quoted" or (token.kind == "word" and token.word not in _RESERVED):
            self._at += 1
            return unquoted(token.text)
        raise self._wrong("an attribute or a value")


def _literal(token: _Token) -> Value:
    if token.kind == "number":
        return {"N": token.text}
    if token.kind == "string":
        return {"S": re.sub(r"\\(.)", r"\1", token.text[1:-1])}
    return _CONSTANTS[token.word]


def _equal_to(operand: Operand) -> Bound | None:
    """Returns the bound of what equals a number or a text that the condition has."""
    match operand:
        case Constant({"N": digits}):
            return Range(float(digits), float(digits))
        case Constant({"S": text}):
            return Texts("S", (text,), whole=True)
    return None


def _ordered(left: Operand, sign: str, right: Operand) -> Test:
    compare = _ORDER[sign]
    bound = _equal_to(right)
    if isinstance(bound, Range):
        bound = Range(low=bound.low) if sign in (">", ">=") else Range(high=bound.high)
    else:
        bound = None
    return Test(lambda one, other: _is_ordered(one, compare, other), (left, right), bound)


# Values


def _type(value: Value) -> str | None:
    return None if value is ABSENT else typed(value)[0]


def _content(value: Value) -> Content:
    return None if value is ABSENT else typed(value)[1]


def _is_same(left: Value, right: Value) -> bool:
    if left is ABSENT or right is ABSENT:
        return False
    try:
        return same(left, right)
    except WatcherError:
        return False


def _is_among(value: Value, *others: Value) -> bool:
    return any(_is_same(value, other) for other in others)


def _is_ordered(left: Value, compare: Callable[[Any, Any], bool], right: Value) -> bool:
    """True for numbers, texts and bytes that are in order; values of two types are in none."""
    kind = _type(left)
    if kind != _type(right) or kind not in ("N", "S", "B"):
        return False
    try:
        if kind == "N":
            return compare(Decimal(_content(left)), Decimal(_content(right)))
        return compare(_bytes(left), _bytes(right))
    except (InvalidOperation, ValueError):
        return False


def _bytes(value: Value) -> bytes:
    """Returns the bytes of a text or of a binary value. Raises ValueError for an emulator's."""
    content = _content(value)
    if _type(value) == "B":
        return base64.b64decode(content)
    encoded: bytes = content.encode("utf-8", "surrogatepass")
    return encoded


def _begins_with(value: Value, start: Value) -> bool:
    if _type(value) != _type(start) or _type(value) not in ("S", "B"):
        return False
    try:
        return _bytes(value).startswith(_bytes(start))
    except ValueError:
        return False


def _contains(value: Value, part: Value) -> bool:
    match _type(value):
        case "S" | "B" as kind if kind == _type(part):
            try:
                return _bytes(part) in _bytes(value)
            except ValueError:
                return False
        case "SS" | "NS" | "BS" as kind:
            return any(_is_same({kind[0]: each}, part) for each in _content(value))
        case "L":
            return any(_is_same(each, part) for each in _content(value))
    return False


def _size(value: Value) -> Value:
    """DynamoDB's `size`: the units of UTF-16 of a text, bytes, or the number of elements."""
    kind, content = _type(value), _content(value)
    if kind == "S":
        length = len(content.encode("utf-16-le", "surrogatepass")) // 2
    elif kind == "B":
        length = len(_bytes(value))
    elif kind in ("SS", "NS", "BS", "M", "L"):
        length = len(content)
    else:
        return ABSENT
    return {"N": str(length)}


_TESTS: Final[dict[str, Callable[..., bool]]] = {
    "attribute_exists": lambda value: value is not ABSENT,
    "attribute_not_exists": lambda value: value is ABSENT,
    "attribute_type": lambda value, kind: _type(value) == _content(kind),
    "begins_with": _begins_with,
    "contains": _contains,
}
