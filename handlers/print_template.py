"""Print each change as one line, by your own template."""

import string
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from watcher import Record
from watcher.formatting.differences import change_text, shown_value
from watcher.formatting.style import table_prefix, time_text
from watcher.formatting.text import printable
from watcher.formatting.values import printable_key

OPTIONS = {
    "print_template": (
        "TEXT",
        "what to print, with {time} {kind} {key} {changes} {table} {shard} {sequence} and values "
        "such as {new.total} {old.lines.0} {key.PK}; {time:%H:%M:%S}, {kind:<6}",
    )
}

FIELDS = ("time", "kind", "key", "changes", "table", "shard", "sequence", "new", "old")

template = ""


class Fields(string.Formatter):
    """`{new.total}` looks into the item, never into a Python object; what is missing is empty."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Returns a field's value and its name."""
        name, *path = field_name.split(".")
        value = kwargs["native_key" if path and name == "key" else name]()
        for part in path:
            match value:
                case Mapping():
                    value = value.get(part)
                case list() if part.isdigit() and int(part) < len(value):
                    value = value[int(part)]
                case _:
                    value = None
        return value, name

    def format_field(self, value: Any, format_spec: str) -> str:
        """Returns a value as text; a missing value is empty."""
        match value:
            case None:
                return ""
            case datetime() if "%" in format_spec:
                return value.strftime(format_spec)
            case datetime():
                return format(time_text(value), format_spec)
            case Decimal() if format_spec:
                return format(value, format_spec)
            case str():
                return format(printable(value), format_spec)
            case _:
                return format(shown_value(value), format_spec)


def configure(print_template: str) -> None:
    global template
    refuse_unknown(print_template)
    template = print_template


def refuse_unknown(template: str) -> None:
    """Raises UsageError before the first change: otherwise each change would warn."""
    parts = string.Formatter().parse(template)
    fields = [(name, spec, conversion) for _, name, spec, conversion in parts if name is not None]
    if not fields:
        raise ValueError(f"--print-template: it has no field, such as {{{'} {'.join(FIELDS)}}}")
    for name, spec, conversion in fields:
        field, _, path = name.partition(".")
        if field not in FIELDS or (path and field not in ("new", "old", "key")) or conversion:
            raise ValueError(
                f"--print-template: no field {{{name}}}; there are {', '.join(FIELDS)}"
            )
        if spec and not (field == "time" and "%" in spec):
            # Numbers have forms that texts have not.
            format(Decimal(1) if path else "", spec)


def handle(record: Record) -> None:
    line = Fields().vformat(template, (), values(record))
    sys.stdout.write(f"{table_prefix(record)}{line}\n")


def values(record: Record) -> dict[str, Any]:
    """Returns the fields' values; each is computed only if the template uses it."""
    kind = "TTL" if record.expired_by_ttl else record.event_name
    return {
        "time": lambda: record.created_at,
        "kind": lambda: kind,
        "key": lambda: printable_key(record["dynamodb"]["Keys"]),
        "native_key": lambda: record.key,
        "changes": lambda: change_text(record),
        "table": lambda: record.table,
        "shard": lambda: record.shard_id,
        "sequence": lambda: record.sequence_number,
        "new": lambda: record.new,
        "old": lambda: record.old,
    }
