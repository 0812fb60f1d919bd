"""JSON text as DynamoDB sends it, read where strict decoders give up."""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec

# Each escape in JSON text; the groups are a high surrogate, the low one behind it, and a low one.
_ESCAPE: Final = re.compile(
    rb"\\(?:u(d[89ab][0-9a-f]{2})(\\ud[c-f][0-9a-f]{2})?|u(d[c-f][0-9a-f]{2})|.)",
    re.IGNORECASE | re.DOTALL,
)
_REPLACEMENT: Final = rb"\ufffd"
_T = TypeVar("_T")


def read(decoder: msgspec.json.Decoder[_T], text: bytes | memoryview | msgspec.Raw) -> _T:
    """Decode JSON; where a string holds half of a surrogate pair, U+FFFD stands in its place.

    JavaScript's `slice` leaves such halves, DynamoDB takes and gives them, and boto3 reads them;
    strict decoders don't. Raises msgspec.DecodeError.
    """
    try:
        return decoder.decode(text)
    except msgspec.DecodeError:
        mended = mend(bytes(text))
        if mended == text:
            raise
        return decoder.decode(mended)


def mend(text: bytes) -> bytes:
    """JSON text of the same length without half surrogate pairs."""

    def mended(match: re.Match[bytes]) -> bytes:
        high, low_behind, low = match.groups()
        return _REPLACEMENT if low or (high and not low_behind) else match[0]

    return _ESCAPE.sub(mended, text)
