"""What a comparison of a table with its mirror takes, beside a bare parallel scan of the table."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from scripts.benchmarks.replay import Replay
from scripts.benchmarks.results import Row
from tests.support.dynamodb_local import REGION, DynamoDBLocal
from watcher.aws.config import AwsConfig
from watcher.aws.tables import TablesClient
from watcher.time_machine.table import scan_segments

_ITEMS = int(os.environ.get("BENCH_VERIFY_ITEMS", "200000"))
_SEGMENTS = 8
_RUNS = 3
_BATCH = 25
_WRITERS = 4


def verify(_: Replay) -> Iterator[Row]:
    """A mirror of orders that are equal; the whole command, from its start to its end."""
    with DynamoDBLocal() as database, tempfile.TemporaryDirectory() as folder:
        database.create_table("orders")
        _fill(database)
        environment = {**os.environ, **database.environment}
        mirror = str(Path(folder, "mirror"))
        _run(environment, "mirror", "orders", "--to", mirror, "--no-follow")
        database.dilate_time(1.0)  # nothing is new
        theirs, ours, most = [], [], []
        for _run_number in range(_RUNS):
            theirs.append(_scan(database))
            seconds, megabytes = _run(environment, "verify", "orders", "--with", mirror)
            ours.append(seconds)
            most.append(megabytes)
        note = f"{_ITEMS:,} items; beside a scan in {_SEGMENTS} segments, nothing parsed"
        yield Row("verify with a mirror", "s", ours, compared=theirs, ratio_at_most=2.0, note=note)
        yield Row("memory of verify", "MB", most, at_most=300.0)


def _fill(database: DynamoDBLocal) -> None:
    def write(first: int) -> None:
        items = [{"PutRequest": {"Item": _item(first + each)}} for each in range(_BATCH)]
        client.batch_write_item(RequestItems={"orders": items})

    client = database.client()
    with ThreadPoolExecutor(_WRITERS) as pool:
        list(pool.map(write, range(0, _ITEMS, _BATCH)))


def _item(number: int) -> dict[str, Any]:
    return {
        "PK": {"S": f"user-{number % 997:03}"},
        "SK": {"S": f"order-{number:08}"},
        "status": {"S": "delivered" if number % 2 else "received"},
        "total": {"N": f"{1000 + number}.25"},
        "paid": {"BOOL": number % 3 == 0},
        "tags": {"SS": ["gift"]},
        "ship_to": {"M": {"city": {"S": "Delft"}, "zip": {"S": "3511"}}},
    }


def _scan(database: DynamoDBLocal) -> float:
    config = AwsConfig(region=REGION, endpoint_url=database.endpoint_url)
    os.environ.update(AWS_ACCESS_KEY_ID="local", AWS_SECRET_ACCESS_KEY="local")
    tables, pages = TablesClient(config), []
    began = time.monotonic()
    parts = [tables.scan("orders", each, _SEGMENTS) for each in range(_SEGMENTS)]
    scan_segments(parts, lambda page: pages.append(len(page)))
    assert sum(pages) == _ITEMS
    return time.monotonic() - began


def _run(environment: dict[str, str], *words: str) -> tuple[float, float]:
    """Runs a command; returns its seconds, and the most memory that it had, in MB."""
    began = time.monotonic()
    command = [sys.executable, "-m", "watcher", *words]
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    process = os.posix_spawn(sys.executable, command, environment, file_actions=silent)
    _, status, used = os.wait4(process, 0)
    if status:
        raise RuntimeError(f"{words[0]} ended with {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - began, used.ru_maxrss / 1024
