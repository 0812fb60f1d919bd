"""Redaction: takes private values out of a change's wire JSON, by rules."""

from __future__ import annotations

import base64
import fnmatch
import functools
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from watcher.aws.json_text import read
from watcher.aws.model import WireItem, WireValue
from watcher.errors import UsageError, blame, texts
from watcher.records.diff import number_text
from watcher.records.paths import INDEX, QUOTED, unquoted
from watcher.records.record import Record
from watcher.records.wire import NO_IMAGE, WireRecord

KEY_VARIABLE: Final = "WATCHER_REDACT_KEY"
"""The variable with the key of `hash`: every user of a machine can see a command line."""
METHODS: Final = ("drop", "mask", "hash", "keep-type")

_MASK: Final = "***"
_MASK_BYTES: Final = base64.b64encode(_MASK.encode()).decode()
_OF_TYPE: Final[Mapping[str, Any]] = {
    "S": _MASK,
    "N": "0",
    "B": _MASK_BYTES,
    "BOOL": False,
    "NULL": True,
    "SS": [_MASK],
    "NS": ["0"],
    "BS": [_MASK_BYTES],
    "L": [],
    "M": {},
}
_SETS: Final = ("SS", "NS", "BS")
_MEMBER: Final = -1
"""The index of every member of a set."""
_IMAGES: Final = ("Keys", "NewImage", "OldImage")
_NULL: Final = b"null"
_LEAST_KEY: Final = 16
# The last 8 of a hash's 32 digits prove that this key made the others: no hash is hashed again.
_DIGITS: Final = 24
_HASH: Final = re.compile("[0-9a-f]{32}")

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any_json = msgspec.json.Decoder()
_encode = msgspec.json.encode


class _Name(NamedTuple):
    """A step of a path into a map: its attributes of this name, or like this pattern."""

    name: re.Pattern[str] | str

    def after(self, step: str | int) -> Iterator[int]:
        """Yields the number of the path's steps that an attribute's name, or a list's index, takes.

        An index takes none: `items.email` is the `email` of each item.
        """
        if isinstance(step, int):
            yield 0
        elif step == self.name if isinstance(self.name, str) else self.name.fullmatch(step):
            yield 1


class _Index(NamedTuple):
    """A step into a list or a set: to one element, or to all (None); a set has no order."""

    place: int | None

    def after(self, step: str | int) -> Iterator[int]:
        """Yields as `_Name.after`."""
        if isinstance(step, int) and (self.place in (None, step) or step == _MEMBER):
            yield 1


class _Deep(NamedTuple):
    """Any number of steps: `**`."""

    def after(self, step: str | int) -> Iterator[int]:
        """Yields as `_Name.after`."""
        yield 0


class Rule(NamedTuple):
    """A redaction rule: the path, and the action."""

    path: Sequence[_Name | _Index | _Deep]
    """Its steps; none for a pattern of values."""
    pattern: re.Pattern[str] | None
    method: str
    text: str
    """The rule's text."""

    def finds(self, text: str) -> bool:
        """Returns True if the pattern is in a text."""
        return self.pattern is not None and self.pattern.search(text) is not None


_States: TypeAlias = frozenset[tuple[int, int]]
"""The places in the rules' paths: each a rule's index, and the number of steps taken."""


class Redaction:
    """Takes values out of changes and items, by rules. It can be sent to another process.

    If several rules fit a value, the first of them counts, also for the values within. A value that
    was redacted before, with the same key, stays unchanged.
    """

    def __init__(self, rules: Sequence[Rule], key: bytes = b"") -> None:
        self._rules = rules
        self._key = key
        self.found: set[str] = set()
        """The texts of the rules that have matched."""
        self._patterns = [each for each in rules if each.pattern is not None]
        self._start = self._closure((at, 0) for at, each in enumerate(rules) if each.path)
        self._after = functools.lru_cache(maxsize=4096)(self._after_uncached)
        self._first = functools.lru_cache(maxsize=4096)(partial(self._after_uncached, self._start))
        self._digest = functools.lru_cache(maxsize=4096)(self._digest_uncached)

    def __reduce__(self) -> tuple[object, ...]:
        return Redaction, (self._rules, self._key)

    def __call__(self, record: Record) -> Record:
        """Returns the record without private values; the record itself if it has none."""
        raw = record.raw
        redacted = self.record(raw)
        if redacted is raw:
            return record
        return Record.from_json(redacted, record.shard_id, record.stream)

    def record(self, raw: bytes | msgspec.Raw) -> bytes | msgspec.Raw:
        """Returns a record's wire JSON without private values."""
        fields = read(_members, raw)
        change = read(_members, fields["dynamodb"])
        found = {name: self.item(change[name]) for name in _IMAGES if name in change}
        if all(found[name] is change[name] for name in found):
            return raw
        change.update((name, msgspec.Raw(image)) for name, image in found.items())
        fields["dynamodb"] = msgspec.Raw(_encode(change))
        return _encode(fields)

    def wire(self, record: WireRecord) -> WireRecord:
        """Returns a record's fields without private values."""
        change = record.dynamodb
        found = {name: getattr(change, name) for name in _IMAGES}
        redacted = {
            name: msgspec.Raw(self.item(image))
            for name, image in found.items()
            if image is not NO_IMAGE
        }
        return replace(record, dynamodb=replace(change, **redacted))

    def item(self, raw: bytes | msgspec.Raw) -> bytes | msgspec.Raw:
        """Returns an item's wire JSON without private values."""
        if (
            len(raw) == len(_NULL) and bytes(raw) == _NULL
        ):  # an emulator's way to leave out an image
            return raw
        attributes = read(_members, raw)
        kept: dict[str, msgspec.Raw] = {}
        for name, value in attributes.items():
            method, states = self._first(name)
            if not (method or states or self._patterns):
                kept[name] = value
                continue
            if self._is_named(name):
                continue
            decoded = _decoded(value)
            made = self._redacted(decoded, method, states)
            if made is not None:
                kept[name] = value if made is decoded else msgspec.Raw(_encode(made))
        if len(kept) == len(attributes) and all(kept[name] is attributes[name] for name in kept):
            return raw
        return _encode(kept)

    def hides(self, name: str) -> bool:
        """Returns True if a key attribute of this name may be redacted."""
        return bool(self._patterns) or self._first(name)[0] is not None

    def key_type(self, name: str, kind: str) -> str | None:
        """Returns the redacted type (S, N, B) of a key attribute of this type.

        None if several items may have the same redacted value.
        """
        method, _ = self._first(name)
        if method is not None or self._is_named(name):
            return "S" if method == "hash" else None
        is_kept = kind == "S" and all(each.method == "hash" for each in self._patterns)
        return kind if is_kept or not self._patterns else None

    @property
    def unused(self) -> list[str]:
        """The rules that have matched nothing yet: a path may be misspelled."""
        return [each.text for each in self._rules if each.text not in self.found]

    @property
    def fingerprint(self) -> str:
        """A text that differs for other rules, and for another key."""
        written = "\n".join(each.text for each in self._rules)
        return hmac.digest(self._key, written.encode(), hashlib.sha256).hex()[:16]

    def _closure(self, states: Iterable[tuple[int, int]]) -> _States:
        """Returns the states with those behind each `**`, which may stand for no step."""
        found = set(states)
        for rule, at in sorted(found):
            path = self._rules[rule].path
            while at < len(path) and isinstance(path[at], _Deep):
                at += 1
                found.add((rule, at))
        return frozenset(found)

    def _after_uncached(self, states: _States, step: str | int) -> tuple[str | None, _States]:
        """Returns the method of the value one step further, and the states there."""
        found = self._closure(
            (rule, at + count)
            for rule, at in states
            if at < len(self._rules[rule].path)
            for count in self._rules[rule].path[at].after(step)
        )
        ended = sorted(rule for rule, at in found if at == len(self._rules[rule].path))
        self.found.update(self._rules[rule].text for rule in ended)
        return (self._rules[ended[0]].method if ended else None), found

    def _redacted(self, value: WireValue, method: str | None, states: _States) -> WireValue | None:
        """Returns the redacted value, or the value itself; None if it is left out."""
        if len(value) != 1:
            return value if method is None else {"S": _MASK}
        ((kind, content),) = value.items()
        if method is None and self._patterns and kind not in ("M", "L", *_SETS):
            method = self._by_pattern(kind, content)
        if method is not None:
            return self._by_method(method, kind, content)
        if kind == "M" and isinstance(content, dict):
            made: Any = dict(self._map(content, states))
            same = len(made) == len(content) and all(made[each] is content[each] for each in made)
        elif kind == "L" and isinstance(content, list):
            made = list(self._list(content, states))
            same = len(made) == len(content) and all(map(_is, made, content))
        elif kind in _SETS and isinstance(content, list):
            return self._set(value, states)
        else:
            return value
        return value if same else {kind: made}

    def _map(self, content: WireItem, states: _States) -> Iterator[tuple[str, WireValue]]:
        for name, value in content.items():
            method, behind = self._after(states, name)
            if not self._is_named(name):
                made = self._redacted(value, method, behind)
                if made is not None:
                    yield name, made

    def _list(self, content: Sequence[WireValue], states: _States) -> Iterator[WireValue]:
        for at, value in enumerate(content):
            method, behind = self._after(states, at)
            made = self._redacted(value, method, behind)
            if made is not None:
                yield made

    def _set(self, value: WireValue, states: _States) -> WireValue | None:
        """Redacts a set's members; it becomes a set of texts if one of them becomes a text."""
        ((kind, content),) = value.items()
        kept: list[WireValue] = []
        method, _ = self._after(states, _MEMBER)
        for member in content:
            made = self._redacted({kind[0]: member}, method, frozenset())
            if made is not None:
                kept.append(made)
        if not kept and content:
            return None
        kinds = {next(iter(each)) for each in kept}
        if kinds <= {kind[0]}:
            members = list(dict.fromkeys(each[kind[0]] for each in kept))
            return value if members == content else {kind: members}
        return {"SS": list(dict.fromkeys(next(iter(each.values())) for each in kept))}

    def _is_named(self, name: str) -> bool:
        """Returns True for a name with a private value in it: its attribute is left out."""
        return any(each.finds(name) for each in self._patterns)

    def _by_pattern(self, kind: str, content: object) -> str | None:
        if not isinstance(content, str):
            return None
        text = content
        if kind == "B":
            text = _bytes(content).decode("latin-1")
        rule = next((each for each in self._patterns if each.finds(text)), None)
        if rule is None:
            return None
        self.found.add(rule.text)
        return rule.method

    def _by_method(self, method: str, kind: str, content: object) -> WireValue | None:
        if method == "drop":
            return None
        if method == "hash":
            return {"S": self._hashed(kind, content)}
        if method == "keep-type" and kind in _OF_TYPE:
            return {kind: _OF_TYPE[kind]}
        return {"S": _MASK}

    def _hashed(self, kind: str, content: object) -> str:
        if kind == "S" and isinstance(content, str) and self._is_hash(content):
            return content
        return self._digest(_canonical(kind, content))

    def _digest_uncached(self, content: bytes) -> str:
        digits = hmac.digest(self._key, content, hashlib.sha256).hex()[:_DIGITS]
        return digits + self._check(digits)

    def _is_hash(self, text: str) -> bool:
        return bool(_HASH.fullmatch(text)) and hmac.compare_digest(
            text[_DIGITS:], self._check(text[:_DIGITS])
        )

    def _check(self, digits: str) -> str:
        return hmac.digest(self._key, b"hash:" + digits.encode(), hashlib.sha256).hex()[:8]


def _is(one: object, other: object) -> bool:
    return one is other


def _decoded(raw: msgspec.Raw) -> WireValue:
    value = read(_any_json, raw)
    return value if isinstance(value, dict) else {}


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except ValueError:  # an emulator's
        return text.encode("utf-8", "surrogatepass")


def _canonical(kind: str, content: object) -> bytes:
    """Returns the bytes to hash, which are equal for equal values of any attributes."""
    if kind == "N" and isinstance(content, str):
        return number_text(content).encode()
    if kind == "B" and isinstance(content, str):
        return _bytes(content)
    if isinstance(content, str):
        return content.encode()
    return _encode({kind: _ordered(kind, content)}, order="deterministic")


def _ordered(kind: str, content: object) -> object:
    if kind == "M" and isinstance(content, dict):
        return {name: _ordered_value(value) for name, value in content.items()}
    if kind == "L" and isinstance(content, list):
        return list(map(_ordered_value, content))
    if kind in _SETS and isinstance(content, list):
        return sorted(map(number_text, content) if kind == "NS" else content)
    return number_text(content) if kind == "N" and isinstance(content, str) else content


def _ordered_value(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return {kind: _ordered(kind, content) for kind, content in value.items()}


# Rules as they are written


_STEP: Final = re.compile(
    rf"""
    (?P<dot>\.)?
    (?: (?P<quoted>{QUOTED})
      | \[ (?P<index>\*|{INDEX}) \]
      | (?P<deep>\*\*) (?=[.\[=,\s]|$)
      | (?P<name>[^\s.,=\["`]+) )
    """,
    re.VERBOSE,
)
_METHOD: Final = re.compile(r"\s*(?:=\s*(?P<method>[^\s,=]*)\s*)?(?P<end>,|$)")
_VALUES: Final = re.compile(r"/(?P<pattern>.+)/(?P<rest>\s*(?:=[^/]*)?)", re.DOTALL)


def redaction(
    redact: str | Iterable[str] | None = None,
    redact_file: str | os.PathLike[str] | None = None,
    redact_key_file: str | os.PathLike[str] | None = None,
) -> Redaction | None:
    """Builds the redaction of what rules and a file of rules say; None where there are none.

    Raises UsageError with the place of a mistake.
    """
    with blame("redact"):
        lines = [line for each in texts(redact, "redact") for line in each.split("\n")]
        rules = [rule for line in lines for rule in _rules(line)]
    if redact_file is not None:
        with blame("redact_file"):
            rules += _of_file(redact_file)
    if not rules:
        return None
    _refuse_moving_elements(rules)
    needs_key = any(each.method == "hash" for each in rules)
    return Redaction(rules, _key(redact_key_file) if needs_key else b"")


def _refuse_moving_elements(rules: Iterable[Rule]) -> None:
    """Raises UsageError where a rule drops elements, and one names an element by its index.

    A second redaction, as of a replay, would find another element there.
    """
    steps = [step for each in rules for step in each.path]
    if not any(isinstance(step, _Index) and step.place is not None for step in steps):
        return
    for each in rules:
        named = [step for step in each.path if not isinstance(step, _Deep)]
        if each.method == "drop" and (each.pattern or (named and isinstance(named[-1], _Index))):
            text = "dropping an element moves those behind it, and a rule has an index: mask it"
            raise UsageError(f"{each.text!r}: {text}", "redact")


def _rules(text: str) -> Iterator[Rule]:
    """Yields the rules of `PATH[=METHOD],…`, or of `/REGEX/[=METHOD]` by itself."""
    text = text.strip()
    if text.startswith("/"):
        yield _of_values(text)
        return
    at = 0
    while at < len(text):
        begin = at
        path, at = _path(text, at)
        found = _METHOD.match(text, at)
        if found is None:
            raise UsageError(f"{text[at:]!r} in {text!r}: give PATH or PATH=METHOD, with commas")
        written = text[begin : found.end("method") if found["method"] else at].strip()
        yield Rule(path, None, _method(found["method"], text), written)
        at = found.end()
    if text.endswith(","):
        raise UsageError(f"{text!r} ends with a comma")


def _path(text: str, at: int) -> tuple[Sequence[_Name | _Index | _Deep], int]:
    at += len(text[at:]) - len(text[at:].lstrip())
    path: list[_Name | _Index | _Deep] = []
    while found := _STEP.match(text, at):
        is_first, has_dot, is_index = not path, bool(found["dot"]), found["index"] is not None
        if (has_dot and (is_first or is_index)) or not (has_dot or is_first or is_index):
            break
        path.append(_step(found))
        at = found.end()
    if not path or all(isinstance(each, _Index) for each in path[:1]):
        raise UsageError(
            f"{text!r}: no attribute's path at {text[at:]!r}: such as a.b or list[*].c"
        )
    return path, at


def _step(found: re.Match[str]) -> _Name | _Index | _Deep:
    if found["deep"]:
        return _Deep()
    if (index := found["index"]) is not None:
        return _Index(None if index == "*" else int(index))
    if found["quoted"]:
        return _Name(unquoted(found["quoted"]))
    name = found["name"]
    is_pattern = any(sign in name for sign in "*?")
    return _Name(re.compile(fnmatch.translate(name), re.DOTALL) if is_pattern else name)


def _of_values(text: str) -> Rule:
    found = _VALUES.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{text!r}: a pattern of values ends with a slash: /REGEX/ or /REGEX/=METHOD"
        )
    try:
        pattern = re.compile(found["pattern"])
    except re.error as error:
        raise UsageError(f"{text!r}: no regular expression: {error}") from None
    method = _method(found["rest"].strip().removeprefix("=") or None, text)
    return Rule((), pattern, method, text)


def _method(given: str | None, text: str) -> str:
    if given is None:
        return "mask"
    if given.strip() not in METHODS:
        raise UsageError(f"{text!r}: no method {given.strip()!r}; there are {', '.join(METHODS)}")
    return given.strip()


def _of_file(file: str | os.PathLike[str]) -> Iterator[Rule]:
    """Yields the rules of a file: as in the option, in lines; `#` begins a comment."""
    for number, line in enumerate(_read(file).split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                yield from _rules(line)
            except UsageError as error:
                raise UsageError(f"{file}, line {number}: {error}") from None


def _key(file: str | os.PathLike[str] | None) -> bytes:
    if file is not None:
        with blame("redact_key_file"):
            text, origin = _read(file), str(file)
    else:
        text, origin = os.environ.get(KEY_VARIABLE, ""), KEY_VARIABLE
    key = text.strip().encode()
    if len(key) >= _LEAST_KEY:
        return key
    make = "`openssl rand -hex 32` makes one"
    if file is None and not key:
        raise UsageError(
            f"hash needs a key: in {KEY_VARIABLE}, or in a file ({make})",
            "redact",
            about=("redact_key_file",),
        )
    option = "redact" if file is None else "redact_key_file"
    raise UsageError(f"the key in {origin} has less than {_LEAST_KEY} bytes; {make}", option)


def _read(file: str | os.PathLike[str]) -> str:
    try:
        return Path(file).read_text("utf-8")
    except (OSError, ValueError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(f"can't read {os.fspath(file)}: {reason}") from None
