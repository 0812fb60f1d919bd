"""Print what changed, attribute by attribute: old -> new."""

import sys
from collections.abc import Iterator
from typing import Any

from watcher import ABSENT, Record
from watcher.printing.escaping import printable, printable_key, printable_value
from watcher.printing.style import paint, time_text

# A line's mark, and the kind of change whose colour it has.
MARKS = {"+": "INSERT", "~": "MODIFY", "-": "REMOVE"}


def handle(record: Record) -> None:
    kind, key = record.event_name, printable_key(record["dynamodb"]["Keys"])
    by_ttl = " (expired by TTL)" if record.expired_by_ttl else ""
    lines = [f"{paint(f'{kind:<6}', kind)} {time_text(record.created_at)} {key}{by_ttl}"]
    if record.images_missing:
        lines += without_comparison(record)
    else:
        old, new = (without_key(image, record) for image in (record.old, record.new))
        for mark, place, text in differences(old, new, ""):
            lines.append("  " + paint(f"{mark} {place}: {text}", MARKS[mark]))
    sys.stdout.write("\n".join(lines) + "\n")


def without_key(image: dict[str, Any] | None, record: Record) -> dict[str, Any]:
    """The key is in the first line, and never changes."""
    return {name: value for name, value in (image or {}).items() if name not in record.key}


def without_comparison(record: Record) -> Iterator[str]:
    """What there is, where the stream's view type leaves out what it takes to compare."""
    view = record["dynamodb"].get("StreamViewType", "KEYS_ONLY")
    for name, image in (("old", record.old), ("new", record.new)):
        if image is not None:
            yield f"  {name} {printable_value(image)}"
    yield f"  (nothing to compare: the stream's view type is {view})"


def differences(old: Any, new: Any, place: str) -> Iterator[tuple[str, str, str]]:
    """Mark, place (`lines[2].qty`) and text of everything that differs."""
    if new is ABSENT:
        yield "-", place, printable_value(old)
    elif old is ABSENT:
        yield "+", place, printable_value(new)
    elif type(old) is not type(new):  # True is 1 to Python, not to DynamoDB
        yield "~", place, f"{printable_value(old)} -> {printable_value(new)}"
    elif isinstance(old, dict):
        for name in dict.fromkeys([*new, *old]):
            inner = f"{place}.{printable(name)}" if place else printable(name)
            yield from differences(old.get(name, ABSENT), new.get(name, ABSENT), inner)
    elif isinstance(old, list):
        for index in range(max(len(old), len(new))):
            before, after = (each[index] if index < len(each) else ABSENT for each in (old, new))
            yield from differences(before, after, f"{place}[{index}]")
    elif isinstance(old, set) and old != new:
        yield "~", place, " ".join([*elements("+", new - old), *elements("-", old - new)])
    elif old != new:
        yield "~", place, f"{printable_value(old)} -> {printable_value(new)}"


def elements(mark: str, values: set[Any]) -> list[str]:
    return [mark + text for text in sorted(map(printable_value, values))]
