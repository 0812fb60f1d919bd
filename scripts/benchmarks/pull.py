"""A program that pulls: `next(stream)` until so many records have come.

Arguments: the stream, how many records, and `--key` or `--filter` as the command line has them.
"""

from __future__ import annotations

import sys

from watcher import Stream


def main(arn: str, records: int, option: str = "", value: str = "") -> None:
    """Pull, and look at each record's event name and keys."""
    key, filters = ([value] if option == name else None for name in ("--key", "--filter"))
    stream = Stream(arn, "trim_horizon", key=key, filters=filters)
    while records:
        record = next(stream)
        if record is not None:
            record["eventName"], record["dynamodb"]["Keys"]
            records -= 1


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
