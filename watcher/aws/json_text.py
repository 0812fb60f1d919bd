"""Decodes JSON text of DynamoDB, also where strict decoders fail."""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec

# An escape in JSON text; the groups: a high surrogate, the low one behind it, a lone low one.
_ESCAPE: Final = re.compile(
    rb"\\(?:u(d[89ab][0-9a-f]{2})(\\ud[c-f][0-9a-f]{2})?|u(d[c-f][0-9a-f]{2})|.)",
    re.IGNORECASE | re.DOTALL,
)
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

    Characters of private use replace them, U+E000 to U+E7FF, one for each half: with U+FFFD, two
    names, or two members of a set, could become one.
    """
    return _ESCAPE.sub(_whole, text)


def _whole(match: re.Match[bytes]) -> bytes:
    high, low_behind, low = match.groups()
    half = low or (high if not low_behind else None)
    return b"\\u%04x" % (int(half, 16) + _PRIVATE) if half else match[0]
