"""An item that holds one secret in every place that an item has, and the search for it."""

from __future__ import annotations

import base64
import re
from typing import Any

SECRET = "hush-7919-hush"
NUMBER = "7919791979197919"
BINARY = base64.b64encode(SECRET.encode()).decode()
# Also within another text, at any of the places that three bytes have in base64.
TRACES = [
    SECRET.encode(),
    NUMBER.encode(),
    *(base64.b64encode(b"x" * at + SECRET.encode())[4:-4] for at in range(3)),
    SECRET.encode().hex().encode(),
    b"791,979",
]
# As a fraction; after another digit it is a part of some time.
_FRACTION = re.compile(rb"(?<!\d)7\.919")
KEY = "0123456789abcdef0123456789abcdef"
EVERYTHING = "--redact", "pk=hash,v=keep-type,**.inner,list[*],set[*]=hash,number,binary,gone=drop"


def secret_item(number: int) -> dict[str, Any]:
    """The item; the number makes two of them differ."""
    inner = {"inner": {"L": [{"S": SECRET}]}}
    return {
        "pk": {"S": SECRET},
        "v": {"N": f"{NUMBER}{number}"},
        "map": {"M": {"inner": {"S": f"x{SECRET}{number}"}, "deep": {"M": inner}}},
        "list": {"L": [{"S": SECRET}, {"M": {"x": {"N": NUMBER}}}]},
        "set": {"SS": [SECRET, f"{SECRET}{number}"]},
        "number": {"N": NUMBER},
        "binary": {"B": BINARY},
        "gone": {"S": SECRET},
        "plain": {"S": f"seen-{number}"},
    }


def refuse_traces(*contents: bytes) -> None:
    for content in contents:
        for trace in TRACES:
            assert trace not in content, content[max(0, content.find(trace) - 100) :][:200]
        found = _FRACTION.search(content)
        assert found is None, found and content[max(0, found.start() - 100) :][:200]
