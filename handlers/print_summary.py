"""Print one line per change: when, what kind, which item."""

import base64
import sys
from datetime import datetime
from functools import lru_cache
from typing import Any

from watcher import Record
from watcher.text import printable


@lru_cache(maxsize=1024)
def local_time(created: datetime | None) -> str:
    return "" if created is None else created.isoformat(timespec="seconds")


def text(attribute: dict[str, Any]) -> str:
    """A key's value; keys are strings, numbers or binary."""
    ((kind, value),) = attribute.items()
    return base64.b64encode(value).decode() if kind == "B" else printable(value)


def handle(record: Record) -> None:
    change = record["dynamodb"]
    keys = ", ".join(
        f"{printable(name)}={text(value)}" for name, value in sorted(change["Keys"].items())
    )
    created = local_time(change.get("ApproximateCreationDateTime"))
    sys.stdout.write(f"[{created}] - {record['eventName']:^6} - {keys}\n")
