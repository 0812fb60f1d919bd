"""`scripts/bench [PART ...] [--json FILE]`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator

from scripts.benchmarks import (
    ends,
    idle,
    lake,
    latency,
    parts,
    results,
    scale,
    start,
    throughput,
    trail,
    verify,
)
from scripts.benchmarks.replay import Replay
from scripts.benchmarks.results import Row
from tests.support.dynamodb_local import MissingPart


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
    "idle-floor": idle.idle_floor,
    "history": idle.history,
    "scale": scale.scale,
    "retained": scale.retained,
    "start": start.start,
    "memory": idle.memory,
    "lake": lake.lake,
    "who": trail.who,
    "verify": verify.verify,
    **{part: _spark(part) for part in parts.SPARK},
}


def main() -> int:
    """Measure the chosen parts; 0 whether the aims are met or not."""
    arguments = parts.asked(sys.argv[1:])
    assert set(PARTS) == {*parts.NAMES}
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
