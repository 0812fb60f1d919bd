"""Records a second through the command line and the shared queue, beside the naive loop."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

from scripts.benchmarks import commands
from scripts.benchmarks.replay import ARN, RECORDS, Replay, Scenario
from scripts.benchmarks.results import Row

RUNS = 3


def rate(replay: Replay, command: list[str], scenario: Scenario, records: int) -> float:
    """Records a second, from the first GetRecords until the program has ended."""
    replay.begin(scenario)
    with tempfile.TemporaryFile() as output:
        done = commands.run(command, replay.endpoint, output)
    figures = replay.begin(Scenario())
    return records / (done.ended - figures.first_read)


def watched(replay: Replay, pages: int, *handlers: str, shards: int = 1, late: float = 0) -> float:
    """Records a second through `python -m watcher`."""
    records = shards * pages * RECORDS
    options = ["--from", "trim-horizon", "--max-records", str(records)]
    command = commands.watcher(ARN, *options, *(f"--{name}" for name in handlers))
    return rate(replay, command, Scenario(shards, pages, latency=late), records)


def naive(replay: Replay, pages: int, what: str, late: float = 0) -> float:
    """Records a second through boto3's plain loop."""
    command = commands.program("plain_loop", ARN, str(pages), what)
    return rate(replay, command, Scenario(1, pages, latency=late), pages * RECORDS)


def raw(replay: Replay) -> Iterator[Row]:
    """The yardstick's own limit."""
    command = commands.program("raw_client", replay.endpoint, "300")
    runs = [rate(replay, command, Scenario(1, 300), 300 * RECORDS) for _ in range(RUNS)]
    yield Row("replay server to a raw client", "records/s", runs, at_least=300_000)


def _beside_naive(
    replay: Replay, figure: str, handler: str, what: str, pages: int, aim: float, ratio: float
) -> Row:
    ours, theirs = [], []
    for _ in range(RUNS):
        theirs.append(naive(replay, 10, what))
        ours.append(watched(replay, pages, handler))
    return Row(figure, "records/s", ours, aim, compared=theirs, ratio_at_least=ratio)


def keys(replay: Replay) -> Iterator[Row]:
    """An observer that reads event name and keys."""
    yield _beside_naive(replay, "one shard, keys", "read-keys", "keys", 400, aim=100_000, ratio=25)


def native(replay: Replay) -> Iterator[Row]:
    """An observer that reads the whole new image; the naive loop has its TypeDeserializer."""
    yield _beside_naive(
        replay, "one shard, native new image", "read-new", "new", 150, aim=25_000, ratio=8
    )


def printing(replay: Replay) -> Iterator[Row]:
    """The built-in handlers that programs read from, to a file."""
    for name, aim in (("print-json", 150_000), ("print-summary", 80_000)):
        runs = [watched(replay, 400, name) for _ in range(RUNS)]
        yield Row(f"--{name} to a file", "records/s", runs, at_least=aim)


def pull(replay: Replay) -> Iterator[Row]:
    """`next(stream)`, which reads in the caller's own process."""
    pages = 200
    command = commands.program("pull", ARN, str(pages * RECORDS))
    runs = [rate(replay, command, Scenario(1, pages), pages * RECORDS) for _ in range(RUNS)]
    yield Row("next(stream), keys", "records/s", runs, at_least=60_000)


def many(replay: Replay) -> Iterator[Row]:
    """A backlog on a hundred shards at once."""
    runs = [watched(replay, 4, "read-keys", shards=100) for _ in range(2)]
    yield Row("100 shards, keys", "records/s", runs)


def late(replay: Replay) -> Iterator[Row]:
    """With a network in between."""
    for milliseconds in (5, 30):
        ours, theirs = [], []
        for _ in range(2):
            theirs.append(naive(replay, 8, "keys", milliseconds / 1000))
            ours.append(watched(replay, 100, "read-keys", late=milliseconds / 1000))
        figure = f"one shard, keys, {milliseconds} ms away"
        yield Row(figure, "records/s", ours, compared=theirs)
