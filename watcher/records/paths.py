"""Paths of attributes as conditions, redaction rules and output write them: ``lines[2].`a.b` ``."""

import re
from collections.abc import Sequence
from typing import Final

WORD: Final = r"[^\W\d][\w-]*"
"""A name that stands by itself, as a regular expression."""
QUOTED: Final = r"`(?:[^`]|``)+`"
"""Any name, in backticks; one within is doubled."""

_is_word: Final = re.compile(WORD).fullmatch


def unquoted(name: str) -> str:
    """Returns a name as a path has it without its backticks."""
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def path_text(path: Sequence[str | int]) -> str:
    """Returns the text of a path; a name that is no word is quoted."""
    parts = []
    for step in path:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        else:
            name = step if _is_word(step) else "`{}`".format(step.replace("`", "``"))
            parts.append(f".{name}" if parts else name)
    return "".join(parts)
