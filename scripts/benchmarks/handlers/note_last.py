"""Read each change's event name and keys, and note when the last one came."""

import os
import time
from pathlib import Path

from watcher import Record

_last = 0.0


def handle(record: Record) -> None:
    global _last
    record["eventName"], record["dynamodb"]["Keys"]
    _last = time.monotonic()


def close() -> None:
    # On Spark each process has its own.
    Path(os.environ["NOTE_LAST"], str(os.getpid())).write_text(str(_last))
