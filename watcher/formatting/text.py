"""Item data as text that is safe to show: control characters could steer the terminal."""

import re


def plural(number: int, what: str) -> str:
    """Returns the form of a noun after a number: `change`, `changes`, `processes`, `LOSSES`."""
    if number == 1:
        return what
    return what + {"S": "ES", "s": "es"}.get(what[-1], "s")


def counted(number: int, what: str) -> str:
    """Formats a number of things: `1 change`, `1000 changes`."""
    return f"{number} {plural(number, what)}"


def grouped(number: int, what: str) -> str:
    """Formats a number of things with its digits in groups: `1,000 changes`."""
    return f"{number:,} {plural(number, what)}"


# C0, DEL, C1 (a terminal takes U+009B as it does ESC [), line separators, and the marks that
# turn the direction of writing.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Returns the text with control characters as escapes (`\\x1b`), so it stays on one line."""
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def printable_lines(text: str) -> str:
    """Returns several lines with all other control characters as escapes."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def printable_json(line: str) -> str:
    """Returns JSON text with the control characters that JSON allows as JSON's own escapes."""
    if line.isprintable():
        return line
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", line)
