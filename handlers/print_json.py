"""Print the service's own JSON, a line each: ready for jq."""

import contextlib
import json
import sys
from typing import Any

from watcher import Record
from watcher.files import WholeFile, append_lines
from watcher.formatting.plain_records import FIELDS, plain_record
from watcher.formatting.style import are_tables_shown
from watcher.formatting.text import write_json
from watcher.records.page import RecordPage

OPTIONS = {
    "jmespath": (
        "EXPR",
        "print this of each change instead, as the aws CLI's --query does; EXPR sees eventName, "
        "key, old, new (as plain values; fractions as doubles, 17 digits), createdAt, "
        "sequenceNumber, shardId",
    ),
    "jsonl_file": ("PATH", "append the lines to PATH instead of printing them"),
}

on_a_terminal = sys.stdout.isatty()
query: Any = None
file: WholeFile | None = None


def configure(jmespath: str | None = None, jsonl_file: str | None = None) -> None:
    global query, file
    if jmespath is not None:
        query = compiled(jmespath)
    if jsonl_file is not None:
        # Without a buffer: what a checkpoint says is delivered has left us.
        file = append_lines(jsonl_file)


def compiled(expression: str) -> Any:
    import jmespath

    try:
        # jq's habit: .eventName
        made = jmespath.compile(expression.removeprefix(".") or "@")
        refuse_unknown_functions(made.parsed)
        with contextlib.suppress(jmespath.exceptions.JMESPathTypeError):  # of what is not there
            made.search(AnyChange())
        return made
    except jmespath.exceptions.JMESPathError as error:
        reason = str(error).splitlines()[0].rstrip(":")
        raise ValueError(f"--jmespath {expression!r}: {reason}") from None


class AnyChange(dict[str, object]):
    """Stands for any change: raises ValueError for a field that none has, which is always null."""

    def get(self, name: str, default: object = None) -> object:
        """Returns the default for a field that a change has."""
        if name not in FIELDS:
            near = [each for each in FIELDS if each.lower() in name.lower()]
            raise ValueError(f"--jmespath: no field {name}; there are {', '.join(near or FIELDS)}")
        return default


def refuse_unknown_functions(node: dict[str, Any]) -> None:
    """Raises UsageError before the first change: otherwise each change would warn."""
    from jmespath import exceptions, functions

    name = node.get("value")
    if node["type"] == "function_expression" and name not in functions.Functions.FUNCTION_TABLE:
        raise exceptions.UnknownFunctionError(f"there is no function {name}()")
    for child in node.get("children", ()):
        if isinstance(child, dict):  # a slice has numbers
            refuse_unknown_functions(child)


def handle(record: Record) -> None:
    out = sys.stdout
    if query is not None:
        write(json.dumps(query.search(plain_record(record)), ensure_ascii=False))
    elif on_a_terminal or file is not None:
        write(str(wire_json(record), "utf-8"))
    elif getattr(out, "write_through", False):
        # Nothing waits above the buffer that this could overtake: the bytes as they came.
        out.buffer.write(b"%b\n" % wire_json(record))
    else:
        out.write(str(wire_json(record), "utf-8") + "\n")


def handle_page(page: RecordPage) -> bool:
    """Prints a page's records; False where `handle` has to do more than copy bytes."""
    out = sys.stdout
    if query is not None or file is not None or on_a_terminal:
        return False
    if not getattr(out, "write_through", False):
        return False
    head = of_several(page.shard_key.stream)
    lines = [head + bytes(raw)[1:] for raw in page.raws] if head else page.raws
    out.buffer.write(b"\n".join([*lines, b""]))
    return True


def wire_json(record: Record) -> Any:
    """Returns the record's bytes; of several streams with the ARN, as in Lambda's events."""
    head = of_several(record.stream)
    return head + bytes(record.raw)[1:] if head else record.raw


def of_several(arn: str) -> bytes:
    """Returns the beginning of a record of one of several tables."""
    return b'{"eventSourceARN":"%b",' % arn.encode() if are_tables_shown() else b""


def write(line: str) -> None:
    if file is not None:
        file.write(line.encode("utf-8", "backslashreplace") + b"\n")
    else:
        write_json(line + "\n")


def close() -> None:
    if file is not None:
        file.close()
