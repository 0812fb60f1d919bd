"""Read each change's event name and keys, and note when the last one came."""

import os
import time
from pathlib import Path

from watcher import Record

_last = 0.0
_busy = int(os.environ["NOTE_LAST_BUSY"]) * 1_000


def handle(record: Record) -> None:
    global _last
    record["eventName"], record["dynamodb"]["Keys"]
    _last = time.monotonic()
    if _busy:
        done = time.thread_time_ns() + _busy
        while time.thread_time_ns() < done:
            pass


def close() -> None:
    # On Spark each process has its own.
    Path(os.environ["NOTE_LAST"], str(os.getpid())).write_text(str(_last))
