"""Escapes item data for display, and writes it to standard output.

On a terminal, item data can't send control sequences: control characters become escapes. Files and
pipes get everything unchanged.
"""

from __future__ import annotations

import difflib
import re
import sys
import unicodedata
from collections.abc import Set
from typing import IO, Final

from watcher.files import is_terminal


def plural(number: int, noun: str) -> str:
    """Returns the form of a noun after a number: `change`, `changes`, `batches`, `LOSSES`."""
    if number == 1:
        return noun
    return noun + {"S": "ES", "s": "es", "h": "es"}.get(noun[-1], "s")


def counted(number: int, noun: str) -> str:
    """Formats a number of things: `1 change`, `1000 changes`."""
    return f"{number} {plural(number, noun)}"


def grouped(number: int, noun: str) -> str:
    """Formats a number of things with its digits in groups: `1,000 changes`."""
    return f"{number:,} {plural(number, noun)}"


def none_matched(number: int, noun: str, names: Set[str], seen: Set[str]) -> str:
    """Says that a filter let none of these through, and which of its names none of them had.

    `seen` are the names that they had: `0 of 63 changes matched; none has totl (total?)`.
    """
    text = f"0 of {counted(number, noun)} matched"
    absent = sorted(names - seen) if seen else []
    if not absent:
        return text
    near = difflib.get_close_matches(absent[0], seen, 1)
    return f"{text}; none has {', '.join(absent)}" + (f" ({near[0]}?)" if near else "")


# C0, DEL, C1 (to a terminal, U+009B is the same as ESC [), line separators, and marks that change
# the writing direction.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Returns the text with control characters as escapes (`\\x1b`), so it stays on one line."""
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def printable_lines(text: str) -> str:
    """Returns several lines with all other control characters as escapes."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def cell_width(text: str) -> int:
    """Returns how many columns of a terminal a text takes: ideographs and emoji take two."""
    if text.isascii():
        return len(text)
    seen = [each for each in text if unicodedata.category(each) not in ("Mn", "Me", "Cf")]
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in seen)


def padded(text: str, width: int) -> str:
    """Returns a text with spaces behind it, up to a width in columns."""
    return text + " " * (width - cell_width(text))


def printable_json(line: str) -> str:
    """Returns JSON text with the control characters that JSON allows as JSON's own escapes."""
    if line.isprintable():
        return line
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


# The colour sequences of `style`; none of these hides a text.
_COLOUR: Final = re.compile(r"(\x1b\[(?:0|7|27|3[1-7]|9[0-7])m)")


def write_text(text: str, file: IO[str] | None = None) -> None:
    """Writes lines for display (default: to standard output)."""
    out = file or sys.stdout
    if out is None:  # in a host program; `print` ignores it too
        return
    out.write(painted_alone(text) if is_terminal(out) else text)


def painted_alone(text: str) -> str:
    """Returns lines with all control characters escaped, except for our own colours."""
    parts = _COLOUR.split(text)
    parts[::2] = map(printable_lines, parts[::2])
    return "".join(parts)


def write_json(text: str, file: IO[str] | None = None) -> None:
    """Writes JSON, on one or several lines (default: to standard output); it stays valid JSON."""
    out = file or sys.stdout
    if out is None:  # in a host program; `print` ignores it too
        return
    if is_terminal(out):
        text = "\n".join(map(printable_json, text.split("\n")))
    out.write(text)


def write_document(value: object) -> None:
    """Writes a value to standard output as a JSON document of several lines."""
    import msgspec  # not for help, nor for a line that is wrong

    write_json(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")


def cut(text: str, most: int) -> str:
    """Returns a text of at most `most` characters, or its beginning with the number of all."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
