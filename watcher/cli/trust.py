"""Trust in the working folder's `watcher.toml`: what it may set without it, and who has it."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from watcher.errors import UsageError

if TYPE_CHECKING:
    pass

logger = logging.getLogger("watcher")

PROJECT_FILE = "watcher.toml"
"""The file of the working folder; anybody may have put it there."""
Table: TypeAlias = dict[str, Any]

# Options by what their values are called: none of these runs, writes or reaches anything that the
# command would not. Of the others some do, as will some that are still to come; a profile is
# another account's, and may be one whose credentials a program gets.
_HARMLESS = {
    None,  # a switch
    "END",
    "ENGINE",
    "EXPR",
    "FORMAT",
    "HOW",
    "KINDS",
    "N",
    "NAME=VALUE",
    "PATTERN",
    "POLICY",
    "REGION",
    "SECONDS",
    "START",
    "TIME",
    "WHEN",
    "WORD",
}


def is_harmless(metavar: str | None, value: object) -> bool:
    """True where anybody may set an option to this: it names no file, program or place."""
    texts = [str(each) for each in (value if isinstance(value, list) else [value])]
    named = any(text.startswith("@") or "dead-letter" in text for text in texts)
    return metavar in _HARMLESS and not named


def is_trusted(file: Path, content: bytes) -> bool:
    """True where this file was allowed everything, as it stands."""
    return os.path.isfile(_note(file, content))  # not Path's: a user may be kept out of their home


def trust(file: Path, content: bytes) -> None:
    """Allows this file everything, until it changes. Raises UsageError."""
    note = _note(file, content)
    try:
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        note.write_text(f"{file.resolve()}\n", "utf-8", "surrogateescape")
    except OSError as error:
        raise UsageError(f"can't write {note}: {error.strerror}") from None


def untrust(file: Path) -> int:
    """Takes back what was allowed this file, in whatever form; returns how often that was."""
    place = f"{file.resolve()}\n"
    notes = [
        note for note in _folder().glob("*") if note.read_text("utf-8", "surrogateescape") == place
    ]
    for note in notes:
        note.unlink(missing_ok=True)
    return len(notes)


def _note(file: Path, content: bytes) -> Path:
    """Returns the file whose name says which place and content are allowed, as direnv has it."""
    digest = hashlib.sha256(os.fsencode(file.resolve()) + b"\n" + content)
    return _folder() / digest.hexdigest()


def _folder() -> Path:
    # Not Path's: a user may have no home.
    home = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(home, "watcher", "trusted")


def read(file: Path) -> bytes:
    """Returns a file's content. Raises UsageError."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"can't read {file}: {error.strerror}") from None


def table(file: Path, content: bytes) -> Table:
    """Returns what a file of defaults says. Raises UsageError."""
    import tomllib  # not where there is none

    try:
        return tomllib.loads(content.decode())
    except ValueError as error:  # TOMLDecodeError, and text that is not UTF-8
        raise UsageError(f"{file} is not TOML: {error}") from None


def not_trusted(keys: Sequence[str]) -> UsageError:
    """Returns the error for a file that sets what may run code, write files or reach places."""
    return UsageError(
        f"{PROJECT_FILE} in this folder sets {' and '.join(keys)}: look into it, and allow it by "
        "`python -m watcher trust`, or leave it out by WATCHER_CONFIG=/dev/null"
    )
