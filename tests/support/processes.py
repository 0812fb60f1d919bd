"""A program's processes, and the memory that each has."""

from __future__ import annotations

import contextlib
from pathlib import Path


def children(parent: int) -> list[int]:
    """A process's children."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # After the name in brackets: state, parent, …
                if (entry / "stat").read_text().rpartition(")")[2].split()[1] == str(parent):
                    found.append(int(entry.name))
    return sorted(found)


def memory_of(process: int, kind: str = "Pss") -> float:
    """In MB; 0 where it has ended meanwhile. Of what is shared, its share."""
    with contextlib.suppress(OSError, IndexError):
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
        return int(text.split(f"\n{kind}:")[1].split()[0]) / 1024
    return 0.0
