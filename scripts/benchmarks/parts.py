"""What `scripts/bench` can be asked for; it is run by itself before anything is installed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

NAMES = (
    *("raw", "keys", "native", "print", "filter", "cpu", "pull", "many", "late"),
    *("latency", "idle", "history", "scale", "retained", "start", "memory", "spark"),
)


def asked(words: Sequence[str]) -> argparse.Namespace:
    """The command line, which ends the program where it can't be."""
    about = "How fast watcher is, beside boto3 in the same run."
    parser = argparse.ArgumentParser(prog="scripts/bench", description=about)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of: {' '.join(NAMES)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    found = parser.parse_args(words)
    if unknown := set(found.parts) - set(NAMES):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are: {' '.join(NAMES)}")
    return found


if __name__ == "__main__":
    asked(sys.argv[1:])
