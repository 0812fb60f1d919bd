"""Trust in the working folder's `watcher.toml`, and the settings that need none."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from watcher.errors import UsageError

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
    """True for a value that needs no trust: it names no file, program or address."""
    texts = [str(each) for each in (value if isinstance(value, list) else [value])]
    named = any(text.startswith("@") or "dead-letter" in text for text in texts)
    return metavar in _HARMLESS and not named


def is_trusted(file: Path, content: bytes) -> bool:
    """True if the user trusts this file with this content."""
    return os.path.isfile(_note(file, content))  # not Path's: a user may be kept out of their home


def trust(file: Path, content: bytes) -> None:
    """Trusts this file until it changes. Raises UsageError."""
    note = _note(file, content)
    try:
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        note.write_text(f"{file.resolve()}\n", "utf-8", "surrogateescape")
    except OSError as error:
        raise UsageError(f"can't write {note}: {error.strerror}") from None


def untrust(file: Path) -> int:
    """Removes the trust in all versions of this file; returns how many there were."""
    place = f"{file.resolve()}\n"
    notes = [
        note for note in _folder().glob("*") if note.read_text("utf-8", "surrogateescape") == place
    ]
    for note in notes:
        note.unlink(missing_ok=True)
    return len(notes)


def _note(file: Path, content: bytes) -> Path:
    """Returns the file that records the trust, named after the path and content, as direnv does."""
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
    """Returns the settings of a file of defaults. Raises UsageError."""
    import tomllib  # not where there is none

    try:
        return tomllib.loads(content.decode())
    except ValueError as error:  # TOMLDecodeError, and text that is not UTF-8
        raise UsageError(f"{file} is not TOML: {error}") from None


def not_trusted(keys: Sequence[str]) -> UsageError:
    """Returns the error for untrusted settings that run code, write files or reach addresses."""
    return UsageError(
        f"{PROJECT_FILE} in this folder sets {' and '.join(keys)}: look into it, and allow it by "
        "`python -m watcher trust`, or leave it out by WATCHER_CONFIG=/dev/null"
    )
