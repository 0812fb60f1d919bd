"""How fast `--who` reads a trail: beside `zcat | wc` over the same files."""

from __future__ import annotations

import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from scripts.benchmarks.replay import Replay
from scripts.benchmarks.results import Row
from tests.support import trails
from tests.support.trails import ARN, deliver, role
from watcher import Record
from watcher.aws.arns import table_name
from watcher.aws.config import AwsConfig
from watcher.time_machine.callers import Callers, Trail

_BEGAN = 1_795_000_000
_FILES, _EVENTS = 48, 3_000
_RUNS = 3
# Of CloudTrail's events, a third are the table's; the others are other tables' and services'.
_OTHERS = 2


def who(replay: Replay) -> Iterator[Row]:
    """The calls of a table out of a trail, a hundred of whose changes are asked for."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [_file(Path(folder), number) for number in range(_FILES)]
        packed = sum(path.stat().st_size for path in paths) / 1e6
        ours, theirs = [], []
        for _ in range(_RUNS):
            theirs.append(_unpacked(paths))
            ours.append(_read(folder))
        note = f"{_FILES} files, {packed:.0f} MB packed; beside zcat | wc"
        yield Row(
            "a trail read for --who", "s", ours, compared=theirs, ratio_at_most=2.0, note=note
        )


def _file(folder: Path, number: int) -> Path:
    """A log file of five minutes; ids differ as much as CloudTrail's, so that it packs as well."""
    chance = random.Random(number)
    events = []
    for _ in range(_EVENTS):
        second = _BEGAN + 300 * number + chance.randrange(300)
        table = ARN if chance.randrange(_OTHERS + 1) == 0 else f"{ARN}-{chance.randrange(9)}"
        key = {"PK": f"user-{chance.randrange(10_000)}", "SK": f"order-{chance.randrange(9)}"}
        event = trails.event(
            "PutItem",
            second,
            {"tableName": table_name(table), "key": key, "item": [*key, "total", "status"]},
            by=role(f"service-{chance.randrange(9)}", f"i-{chance.getrandbits(64):x}"),
            table=table,
            requestID=f"{chance.getrandbits(260):052X}",
            eventID=f"{chance.getrandbits(128):032x}",
        )
        events.append(event)
    return deliver(folder, _BEGAN + 300 * (number + 1), *events)


def _unpacked(paths: list[Path]) -> float:
    began = time.monotonic()
    with subprocess.Popen(["zcat", *paths], stdout=subprocess.PIPE) as unpacking:
        subprocess.run(["wc"], stdin=unpacking.stdout, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


def _read(folder: str) -> float:
    callers = Callers()
    for number in range(100):
        callers.add_change(_change(number))
    began = time.monotonic()
    reading = Trail(folder, AwsConfig()).read(callers)
    assert len(reading.files) == _FILES
    assert not reading.broken
    assert callers.written == {ARN}
    return time.monotonic() - began


def _change(number: int) -> Record:
    """One of the hundred changes, over the time of the whole trail."""
    second = _BEGAN + number * 3 * _FILES
    keys = f'{{"PK": {{"S": "user-{number}"}}, "SK": {{"S": "order-1"}}}}'
    change = f'"Keys": {keys}, "SequenceNumber": "1", "ApproximateCreationDateTime": {second}'
    raw = f'{{"eventName": "MODIFY", "dynamodb": {{{change}}}}}'
    return Record.from_json(raw.encode(), "shard", f"{ARN}/stream/2026-11-01T00:00:00.000")
