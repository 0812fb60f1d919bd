"""A program that pulls: `next(stream)` until so many records have come.

Arguments: the stream, how many records.
"""

from __future__ import annotations

import sys

from watcher import Stream


def main(arn: str, records: int) -> None:
    """Pull, and look at each record's event name and keys."""
    stream = Stream(arn, "trim_horizon")
    while records:
        record = next(stream)
        if record is not None:
            record["eventName"], record["dynamodb"]["Keys"]
            records -= 1


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
