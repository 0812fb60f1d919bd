"""Note how old each change is when it arrives, by the `written` that its item carries."""

import os
import time
from pathlib import Path

from watcher import Record

latencies: list[float] = []


def handle(record: Record) -> None:
    now = time.monotonic()
    latencies.append(now - float(record["dynamodb"]["NewImage"]["written"]["N"]))


def close() -> None:
    Path(os.environ["NOTE_LATENCY"]).write_text("\n".join(map(str, latencies)))
