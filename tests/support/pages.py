"""The README and the pages of docs/, and the blocks that readers copy from them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}


def blocks(text: str) -> list[tuple[str, str]]:
    """Each block's kind and its text."""
    return re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def of_kind(kind: str, text: str) -> list[str]:
    return [each for found, each in blocks(text) if found == kind]


def files(text: str) -> dict[str, str]:
    """The Python blocks that begin with a file's name, by it."""
    found = (re.match(r"# ([\w/]+\.py)\n", each) for each in of_kind("python", text))
    return {match[1]: match.string for match in found if match}


def commands(text: str) -> list[str]:
    """What stands behind each `$`; a quotation may go on over lines."""
    found = []
    for block in of_kind("console", text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            command = lines.pop(0)
            while command.count('"') % 2 and "'" not in command.partition('"')[0]:
                command += "\n" + lines.pop(0)
            found.append(command)
    return found
