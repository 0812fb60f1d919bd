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
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from watcher.aws.json_text import read
from watcher.aws.model import WireValue
from watcher.errors import UsageError, blame, texts
from watcher.files import text_in
from watcher.records.diff import number_text
from watcher.records.paths import QUOTED, unquoted
from watcher.records.record import Record
from watcher.records.wire import WireRecord

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
_IMAGES: Final = ("Keys", "NewImage", "OldImage")
# The last 8 of a hash's 32 digits prove that this key made the others: no hash is hashed again.
_DIGITS: Final = 24
_HASH: Final = re.compile("[0-9a-f]{32}")

_NAME: Final = rf'(?:{QUOTED}|[^\s.,=\["`]+)'
_STEP: Final = re.compile(rf"{_NAME}|\[\*\]")
_RULE: Final = re.compile(
    rf"\s*(?P<path>{_NAME}(?:\.{_NAME}|\[\*\])*)\s*(?:=\s*(?P<method>[^\s,=]*)\s*)?(?:,|$)"
)
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any_json = msgspec.json.Decoder()
_encode = msgspec.json.encode

# A step of a path is a pattern of names, or one of these.
_ELEMENT: Final = "[*]"
"""Every element of a list, every member of a set."""
_DEEP: Final = "**"
"""Any number of steps."""
_Path: TypeAlias = tuple[re.Pattern[str] | str, ...]


class _Rule(NamedTuple):
    """A rule: what is done with what is at a path."""

    text: str
    method: str
    path: _Path


_Places: TypeAlias = frozenset[tuple[int, _Path]]
"""Where a value is in the rules' paths: each a rule's index, and the steps that are left."""


class Redaction:
    """Takes values out of changes and items, by rules. It can be sent to another process.

    If several rules fit a value, the first of them counts, also for the values within. A value that
    was redacted before, with the same key, stays unchanged.
    """

    def __init__(self, rules: Sequence[_Rule], key: bytes = b"") -> None:
        self._rules = rules
        self._key = key
        self.found: set[str] = set()
        """The texts of the rules that have matched."""
        self._start = frozenset((at, each.path) for at, each in enumerate(rules))
        self._further = functools.lru_cache(maxsize=4096)(self._further_uncached)
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
        redacted = {
            name: msgspec.Raw(self.item(image))
            for name in _IMAGES
            if (image := getattr(change, name))  # an export has another empty one than NO_IMAGE
        }
        return replace(record, dynamodb=replace(change, **redacted))

    def item(self, raw: bytes | msgspec.Raw) -> bytes | msgspec.Raw:
        """Returns an item's wire JSON without private values."""
        if bytes(raw) == b"null":  # an emulator's way to leave out an image
            return raw
        attributes = read(_members, raw)
        kept: dict[str, msgspec.Raw] = {}
        for name, value in attributes.items():
            method, places = self._further(self._start, name)
            if not places:
                kept[name] = value
                continue
            decoded = read(_any_json, value)
            made = self._redacted(decoded, method, places)
            if made is not None:
                kept[name] = value if made == decoded else msgspec.Raw(_encode(made))
        if len(kept) == len(attributes) and all(kept[name] is attributes[name] for name in kept):
            return raw
        return _encode(kept)

    def hides(self, name: str) -> bool:
        """Returns True if a key attribute of this name may be redacted."""
        return self._further(self._start, name)[0] is not None

    def key_type(self, name: str, kind: str) -> str | None:
        """Returns the redacted type (S, N, B) of a key attribute of this type.

        None if several items may have the same redacted value.
        """
        method, _ = self._further(self._start, name)
        return {None: kind, "hash": "S"}.get(method)

    @property
    def unused(self) -> list[str]:
        """The rules that have matched nothing yet: a path may be misspelled."""
        return [each.text for each in self._rules if each.text not in self.found]

    @property
    def fingerprint(self) -> str:
        """A text that differs for other rules, and for another key."""
        written = "\n".join(each.text for each in self._rules)
        return hmac.digest(self._key, written.encode(), hashlib.sha256).hex()[:16]

    def _further_uncached(self, places: _Places, name: str | None) -> tuple[str | None, _Places]:
        """Returns the method of an attribute, or of an element (None), and where that one is."""
        found = frozenset((rule, left) for rule, path in places for left in _left(path, name))
        ended = sorted(rule for rule, left in found if all(step == _DEEP for step in left))
        self.found.update(self._rules[rule].text for rule in ended)
        return (self._rules[ended[0]].method if ended else None), found

    def _redacted(self, value: WireValue, method: str | None, places: _Places) -> WireValue | None:
        """Returns the redacted value; None if it is left out."""
        if not isinstance(value, dict) or len(value) != 1:  # an emulator's
            return value if method is None else {"S": _MASK}
        ((kind, content),) = value.items()
        if method is not None:
            return self._by_method(method, kind, content)
        made: Any = content
        if kind == "M" and isinstance(content, dict):
            found = {
                name: self._redacted(each, *self._further(places, name))
                for name, each in content.items()
            }
            made = {name: each for name, each in found.items() if each is not None}
        elif kind == "L" and isinstance(content, list):
            elements = [self._redacted(each, *self._further(places, None)) for each in content]
            made = [each for each in elements if each is not None]
        elif kind in _SETS and isinstance(content, list):
            return self._set(kind, content, places)
        return {kind: made}

    def _set(self, kind: str, content: Sequence[str], places: _Places) -> WireValue | None:
        """Redacts a set's members; it becomes a set of texts if one of them becomes a text."""
        method, _ = self._further(places, None)
        members = [self._redacted({kind[0]: each}, method, frozenset()) for each in content]
        kept = [next(iter(each.items())) for each in members if each is not None]
        if not kept and content:
            return None
        is_kept = all(each == kind[0] for each, _ in kept)
        return {kind if is_kept else "SS": list(dict.fromkeys(text for _, text in kept))}

    def _by_method(self, method: str, kind: str, content: object) -> WireValue | None:
        if method == "drop":
            return None
        if method == "hash":
            if kind == "S" and isinstance(content, str) and self._is_hash(content):
                return {"S": content}
            return {"S": self._digest(_canonical(kind, content))}
        if method == "keep-type" and kind in _OF_TYPE:
            return {kind: _OF_TYPE[kind]}
        return {"S": _MASK}

    def _digest_uncached(self, content: bytes) -> str:
        digits = hmac.digest(self._key, content, hashlib.sha256).hex()[:_DIGITS]
        return digits + self._check(digits)

    def _is_hash(self, text: str) -> bool:
        return bool(_HASH.fullmatch(text)) and hmac.compare_digest(
            text[_DIGITS:], self._check(text[:_DIGITS])
        )

    def _check(self, digits: str) -> str:
        return hmac.digest(self._key, b"hash:" + digits.encode(), hashlib.sha256).hex()[:8]


def _left(path: _Path, name: str | None) -> Iterator[_Path]:
    """Yields what may be left of a path behind a name, or an element (None).

    A name stays where an element is: `items.email` is the `email` of each item.
    """
    if not path:
        return
    first, *rest = path
    if first == _DEEP:
        yield path
        yield from _left((*rest,), name)
    elif name is None:
        yield (*rest,) if first == _ELEMENT else path
    elif isinstance(first, re.Pattern) and first.fullmatch(name):
        yield (*rest,)


def _canonical(kind: str, content: object) -> bytes:
    """Returns the bytes to hash, which are equal for equal values of any attributes.

    The service itself writes equal numbers equally, emulators those within lists and maps too.
    """
    if isinstance(content, str):
        if kind == "B":
            with suppress(ValueError):  # an emulator's
                return base64.b64decode(content)
        text = number_text(content) if kind == "N" else content
        return text.encode("utf-8", "surrogatepass")
    if kind in _SETS and isinstance(content, list):
        content = sorted(content)
    return _encode({kind: content}, order="deterministic")


# Rules as they are written


def redaction(redact: str | Iterable[str] | None = None) -> Redaction | None:
    """Builds the redaction that rules describe; None where there are none.

    Raises UsageError with the place of a mistake.
    """
    rules: list[_Rule] = []
    with blame("redact"):
        for line, place in _lines(redact).items():
            try:
                rules += _rules(line)
            except UsageError as error:
                raise UsageError(f"{place}{error}") from None
        needs_key = any(each.method == "hash" for each in rules)
        return Redaction(rules, _key() if needs_key else b"") if rules else None


def redaction_text(redact: str | Iterable[str] | None) -> str | None:
    """Returns the rules in one text, without files, which another process may not find; or None.

    Raises UsageError as `redaction` does.
    """
    redaction(redact)
    return "\n".join(_lines(redact)) or None


def _lines(redact: str | Iterable[str] | None) -> Mapping[str, str]:
    """Returns each line of rules with its place in a file (`@FILE`); `#` begins a comment."""
    lines: list[tuple[str, str]] = []
    for text in texts(redact, "redact"):
        if text.startswith("@"):
            file = text[1:]
            several = enumerate(text_in(file).split("\n"), 1)
            lines += [(line.strip(), f"{file}, line {number}: ") for number, line in several]
        else:
            lines += [(line.strip(), "") for line in text.split("\n")]
    return {line: place for line, place in lines if line and not line.startswith("#")}


def _rules(text: str) -> Iterator[_Rule]:
    """Yields the rules of `PATH[=METHOD],…`."""
    at = 0
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None:
            raise UsageError(
                f"{text[at:]!r} in {text!r}: give PATH or PATH=METHOD, with commas; "
                "a path is such as a.b or list[*].c"
            )
        path = tuple(map(_step, _STEP.findall(found["path"])))
        yield _Rule(found[0].rstrip(",").strip(), _method(found["method"], text), path)
        at = found.end()


def _step(text: str) -> re.Pattern[str] | str:
    if text in (_ELEMENT, _DEEP):
        return text
    name = unquoted(text)
    return re.compile(re.escape(name) if name != text else fnmatch.translate(name), re.DOTALL)


def _method(given: str | None, text: str) -> str:
    method = "mask" if given is None else given.strip()
    if method not in METHODS:
        raise UsageError(f"{text!r}: no method {method!r}; there are {', '.join(METHODS)}")
    return method


def _key() -> bytes:
    key = os.environ.get(KEY_VARIABLE, "").strip().encode()
    if len(key) < 16:
        raise UsageError(
            f"hash needs a key of at least 16 bytes in {KEY_VARIABLE} "
            "(`openssl rand -hex 32` makes one)"
        )
    return key
