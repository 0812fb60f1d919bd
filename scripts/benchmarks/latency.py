"""From the write to the observer, on DynamoDB Local, with the default pacing."""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.benchmarks import commands
from scripts.benchmarks.replay import Replay
from scripts.benchmarks.results import Row
from tests.support.dynamodb_local import DynamoDBLocal

_RATES = ((1, 25.0), (10, 15.0), (50, 10.0))
# The first writes wake an idle shard, which is read once a second: not what a steady rate meets.
_WAKING_SECONDS = 1.5


def latency(replay: Replay) -> Iterator[Row]:
    """p50 and p99 at 1, 10 and 50 writes a second."""
    with DynamoDBLocal() as database:
        for rate, seconds in _RATES:
            stream = database.create_table(f"latency-{rate}")
            late = sorted(_latencies(database, stream, rate, seconds))
            p50, p99 = statistics.median(late), late[int(len(late) * 0.99)]
            aimed = rate == 10
            name = f"latency at {rate} write{'s' * (rate > 1)}/s"
            yield Row(f"{name}, p50", "ms", [p50 * 1000], at_most=150 if aimed else None)
            yield Row(f"{name}, p99", "ms", [p99 * 1000], at_most=500 if aimed else None)


def _latencies(database: DynamoDBLocal, stream: str, rate: int, seconds: float) -> list[float]:
    client = database.client()
    table = f"latency-{rate}"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NOTE_LATENCY"] = f"{folder}/noted"
        command = commands.watcher(stream, "--note-latency", "--from", "trim-horizon")
        process = commands.start(command, database.endpoint_url)
        try:
            time.sleep(3.0)
            began = time.monotonic()
            count = int(rate * (seconds + _WAKING_SECONDS))
            for number in range(count):
                # A little off the beat, else it is always the same distance from a read.
                due = began + (number + number % 7 / 10) / rate
                time.sleep(max(due - time.monotonic(), 0))
                _write(client, table, number)
            time.sleep(2.0)
        finally:
            process.send_signal(signal.SIGTERM)
            commands.check(process, process.communicate()[1])
        noted = [float(line) for line in Path(f"{folder}/noted").read_text().split()]
    if len(noted) != count:
        raise RuntimeError(f"{len(noted)} of {count} writes arrived")
    return noted[int(rate * _WAKING_SECONDS) :]


def _write(client: Any, table: str, number: int) -> None:
    # Before the call: what the write itself takes is counted in.
    written = {"N": repr(time.monotonic())}
    item = {"PK": {"S": "latency"}, "SK": {"S": str(number)}, "written": written}
    client.put_item(TableName=table, Item=item)
