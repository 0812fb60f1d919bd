"""Print the service's own JSON, a line each: ready for jq."""

import sys
from typing import Any

from watcher import Record
from watcher.files import WholeFile, append_lines
from watcher.formatting.style import are_tables_shown
from watcher.formatting.text import write_json
from watcher.records.page import RecordPage

OPTIONS = {
    "jsonl_file": ("PATH", "append the lines to PATH instead of printing them"),
}

on_a_terminal = sys.stdout.isatty()
file: WholeFile | None = None


def configure(jsonl_file: str | None = None) -> None:
    global file
    if jsonl_file is not None:
        # Without a buffer: what a checkpoint says is delivered has left us.
        file = append_lines(jsonl_file)


def handle(record: Record) -> None:
    out = sys.stdout
    if on_a_terminal or file is not None:
        write(str(wire_json(record), "utf-8"))
    elif getattr(out, "write_through", False):
        # Nothing waits above the buffer that this could overtake: the bytes as they came.
        out.buffer.write(b"%b\n" % wire_json(record))
    else:
        out.write(str(wire_json(record), "utf-8") + "\n")


def handle_page(page: RecordPage) -> bool:
    """Prints a page's records; False where `handle` has to do more than copy bytes."""
    out = sys.stdout
    if file is not None or on_a_terminal:
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
