"""Decodes JSON text of DynamoDB, also where strict decoders fail."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

# An escape in JSON text; the groups: a high surrogate, the low one behind it, a lone low one.
_ESCAPE: Final = re.compile(
    rb"\\(?:u(d[89ab][0-9a-f]{2})(\\ud[c-f][0-9a-f]{2})?|u(d[c-f][0-9a-f]{2})|.)",
    re.IGNORECASE | re.DOTALL,
)
_REPLACEMENT: Final = rb"\ufffd"
_PRIVATE: Final = 0xE000 - 0xD800
_T = TypeVar("_T")


def read(decoder: msgspec.json.Decoder[_T], text: bytes | memoryview | msgspec.Raw) -> _T:
    """Decodes JSON; `mend` replaces each lone half of a surrogate pair.

    JavaScript's `slice` makes such halves, DynamoDB stores them, and boto3 reads them; strict
    decoders don't. Raises msgspec.DecodeError.
    """
    try:
        return decoder.decode(text)
    except msgspec.DecodeError:
        mended = mend(bytes(text))
        if mended == text:
            raise
        return decoder.decode(mended)


def mend(text: bytes) -> bytes:
    """Returns JSON text of the same length without lone surrogates.

    U+FFFD replaces them, or where that would make two names, or two members of a set, one:
    characters of private use, U+E000 to U+E7FF, one for each half.
    """
    mended = _ESCAPE.sub(_with_replacement, text)
    if mended == text or not _has_twins(mended):
        return mended
    return _ESCAPE.sub(_with_private, text)


def _with_replacement(match: re.Match[bytes]) -> bytes:
    high, low_behind, low = match.groups()
    return _REPLACEMENT if low or (high and not low_behind) else match[0]


def _with_private(match: re.Match[bytes]) -> bytes:
    half = _with_replacement(match) == _REPLACEMENT and (match[1] or match[3])
    return b"\\u%04x" % (int(half, 16) + _PRIVATE) if half else match[0]


class _TwinsError(Exception):
    """Raised for an object with a name twice, or a set with a text twice."""


def _has_twins(text: bytes) -> bool:
    try:
        json.loads(text, object_pairs_hook=_without_twins)
    except _TwinsError:
        return True
    except (ValueError, RecursionError):  # it breaks off, say; that is the caller's
        return False
    return False


def _without_twins(pairs: Sequence[tuple[str, object]]) -> object:
    found = dict(pairs)
    texts = found.get("SS")
    if len(found) < len(pairs) or (
        isinstance(texts, list) and len({*map(str, texts)}) < len(texts)
    ):
        raise _TwinsError
    return found
