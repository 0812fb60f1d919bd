"""Print what changed, attribute by attribute: old -> new."""

import sys
from collections.abc import Iterator
from typing import Any

from watcher import ABSENT, Record
from watcher.printing.escaping import printable, printable_key, printable_value
from watcher.printing.style import paint, table_prefix, time_text
from watcher.record.boto3_shape import native
from watcher.record.compare import Difference, changed_values, differences

# A line's mark, and the kind of change whose colour it has.
MARKS = {"+": "INSERT", "~": "MODIFY", "-": "REMOVE"}


def handle(record: Record) -> None:
    kind, keys = record.event_name, record["dynamodb"]["Keys"]
    by_ttl = " (expired by TTL)" if record.expired_by_ttl else ""
    lines = [
        f"{paint(f'{kind:<6}', kind)} {time_text(record.created_at)} {printable_key(keys)}{by_ttl}"
    ]
    values = changed_values(record.wire)
    if values is None:
        lines += without_comparison(record)
    for name, (old, new) in (values or {}).items():
        if name not in keys:  # it is in the first line
            for each in differences(old, new, (name,)):
                mark, text = described(each)
                lines.append("  " + paint(f"{mark} {place_text(each.place)}: {text}", MARKS[mark]))
    before = table_prefix(record)
    sys.stdout.write("".join(f"{before}{line}\n" for line in lines))


def without_comparison(record: Record) -> Iterator[str]:
    """What there is, where the stream's view type leaves out what it takes to compare."""
    view = record["dynamodb"].get("StreamViewType", "KEYS_ONLY")
    for name, image in (("old", record.old), ("new", record.new)):
        if image is not None:
            yield f"  {name} {printable_value(image)}"
    yield f"  (nothing to compare: the stream's view type is {view})"


def place_text(place: tuple[str | int, ...]) -> str:
    """`lines[2].qty`"""
    parts = (f"[{part}]" if isinstance(part, int) else f".{printable(part)}" for part in place)
    return "".join(parts)[1:]


def described(difference: Difference) -> tuple[str, str]:
    """A line's mark, and its text."""
    if difference.new is ABSENT:
        return "-", printable_value(native(difference.old))
    new = native(difference.new)
    if difference.old is ABSENT:
        return "+", printable_value(new)
    old = native(difference.old)
    if isinstance(old, set) and isinstance(new, set):
        return "~", " ".join([*elements("+", new - old), *elements("-", old - new)])
    return "~", f"{printable_value(old)} -> {printable_value(new)}"


def elements(mark: str, values: set[Any]) -> list[str]:
    return [mark + text for text in sorted(map(printable_value, values))]
