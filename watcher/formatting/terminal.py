"""The one way to standard output: on a terminal, nothing in item data steers that terminal.

To a file or a pipe everything goes as it is.
"""

from __future__ import annotations

import re
import sys
from typing import IO, Final

from watcher.files import is_terminal
from watcher.formatting.text import printable_json, printable_lines

# What `style` paints with; none of these hides a text.
_PAINT: Final = re.compile(r"(\x1b\[(?:0|7|27|3[1-7]|9[0-7])m)")


def write_text(text: str, file: IO[str] | None = None) -> None:
    """Writes lines for people (default: to standard output)."""
    out = file or sys.stdout
    if out is None:  # a host program's: as `print`
        return
    out.write(painted_alone(text) if is_terminal(out) else text)


def painted_alone(text: str) -> str:
    """Returns lines for people with all control characters but our own paint as escapes."""
    parts = _PAINT.split(text)
    parts[::2] = map(printable_lines, parts[::2])
    return "".join(parts)


def write_json(text: str, file: IO[str] | None = None) -> None:
    """Writes JSON, on one line or several (default: to standard output); it stays JSON."""
    out = file or sys.stdout
    if out is None:  # a host program's: as `print`
        return
    if is_terminal(out):
        text = "\n".join(map(printable_json, text.split("\n")))
    out.write(text)
