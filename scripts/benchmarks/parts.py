"""What `scripts/bench` can be asked for; it is run by itself before anything is installed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

SPARK = tuple(
    f"spark-{name}"
    for name in ("images", "columns", "shards", "planner", "idle", "memory", "watch")
)
"""What `spark` stands for."""

NAMES = (
    *("raw", "keys", "native", "print", "filter", "cpu", "pull", "many", "late"),
    *(
        "latency",
        "ends",
        "idle",
        "idle-floor",
        "history",
        "scale",
        "retained",
        "start",
        "memory",
        "lake",
        "who",
        "verify",
        *SPARK,
    ),
)


def asked(words: Sequence[str]) -> argparse.Namespace:
    """The command line, which ends the program where it can't be."""
    about = "How fast watcher is, beside boto3 in the same run."
    parser = argparse.ArgumentParser(prog="scripts/bench", description=about)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of: spark {' '.join(NAMES)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    found = parser.parse_args(words)
    if unknown := set(found.parts) - {*NAMES, "spark"}:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are: spark {' '.join(NAMES)}")
    if found.json is not None and (found.json.is_dir() or not found.json.parent.is_dir()):
        parser.error(f"--json {found.json}: no place for a file")
    asked = [name for part in found.parts for name in (SPARK if part == "spark" else [part])]
    found.parts = list(dict.fromkeys(asked or NAMES))
    return found


if __name__ == "__main__":
    asked(sys.argv[1:])
