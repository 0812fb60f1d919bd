"""`scripts/bench [PART ...] [--json FILE]`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts.benchmarks import (
    ends,
    idle,
    lake,
    latency,
    results,
    scale,
    start,
    throughput,
)
from scripts.benchmarks.replay import Replay
from scripts.benchmarks.results import Row
from tests.support.dynamodb_local import MissingPart

SPARK = tuple(
    f"spark-{name}"
    for name in ("images", "columns", "shards", "planner", "idle", "memory", "watch")
)
"""What `spark` stands for."""


def _spark(part: str) -> Callable[[Replay], Iterator[Row]]:
    def measured(replay: Replay) -> Iterator[Row]:
        try:
            from scripts.benchmarks import spark
        except ImportError as error:
            raise MissingPart(f"Spark is not installed: {error}") from None
        yield from spark.PARTS[part](replay)

    return measured


PARTS: dict[str, Callable[[Replay], Iterator[Row]]] = {
    "raw": throughput.raw,
    "keys": throughput.keys,
    "native": throughput.native,
    "print": throughput.printing,
    "filter": throughput.dropping,
    "cpu": throughput.cpu,
    "pull": throughput.pull,
    "many": throughput.many,
    "late": throughput.late,
    "latency": latency.latency,
    "ends": ends.ends,
    "idle": idle.idle,
    "history": idle.history,
    "scale": scale.scale,
    "retained": scale.retained,
    "start": start.start,
    "memory": idle.memory,
    "lake": lake.lake,
    **{part: _spark(part) for part in SPARK},
}


def asked() -> argparse.Namespace:
    """The command line, which ends the program where it can't be."""
    about = "How fast watcher is, beside boto3 in the same run."
    parser = argparse.ArgumentParser(prog="scripts/bench", description=about)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of: spark {' '.join(PARTS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    found = parser.parse_args()
    if unknown := set(found.parts) - {*PARTS, "spark"}:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are: spark {' '.join(PARTS)}")
    chosen = [name for part in found.parts for name in (SPARK if part == "spark" else [part])]
    found.parts = list(dict.fromkeys(chosen or PARTS))
    return found


def main() -> int:
    """Measure the chosen parts; 0 whether the aims are met or not."""
    arguments = asked()
    began, where = time.monotonic(), results.machine()
    rows: list[Row] = []
    replay = Replay()
    try:
        for name in arguments.parts:
            print(f"{time.monotonic() - began:5.0f} s  {name} ...", file=sys.stderr)
            try:
                for row in PARTS[name](replay):
                    rows.append(row)
                    print(f"{time.monotonic() - began:5.0f} s    {row}", file=sys.stderr)
            except MissingPart as missing:
                print(f"left out: {missing}", file=sys.stderr)
    finally:
        replay.stop()
    seconds = time.monotonic() - began
    print(f"\n{where}; took {seconds:.0f} s\n")
    print(results.table(rows))
    if arguments.json:
        arguments.json.write_text(
            json.dumps(results.as_json(rows, where, seconds), indent=1) + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
