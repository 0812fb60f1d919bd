"""Records a second through the command line and the shared queue, beside the naive loop."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator

from scripts.benchmarks import commands
from scripts.benchmarks.replay import ARN, RECORDS, Replay, Scenario
from scripts.benchmarks.results import Row

RUNS = 5
# One in a hundred records, as plain_loop.py has them.
_TEN_OF_A_PAGE = {
    "key": ("--key", "customer=user-042"),
    "filter": (
        "--filter",
        '{"dynamodb": {"NewImage": {"total": {"N": [{"numeric": [">=", 1990]}]}}}}',
    ),
}


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


def filtered(replay: Replay, pages: int, what: str) -> float:
    """Records a second that `python -m watcher` reads, to hand over one in a hundred."""
    options = ["--from", "trim-horizon", "--max-records", str(10 * pages)]
    command = commands.watcher(ARN, *options, *_TEN_OF_A_PAGE[what], "--read-keys")
    return rate(replay, command, Scenario(1, pages), pages * RECORDS)


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
    replay: Replay, figure: str, what: str, run: Callable[[], float], ratio: float
) -> Row:
    ours, theirs = [], []
    for _ in range(RUNS):
        theirs.append(naive(replay, 10, what))
        ours.append(run())
    return Row(figure, "records/s", ours, compared=theirs, ratio_at_least=ratio)


def keys(replay: Replay) -> Iterator[Row]:
    """An observer that reads event name and keys."""
    yield _beside_naive(
        replay, "one shard, keys", "keys", lambda: watched(replay, 400, "read-keys"), 40
    )


def native(replay: Replay) -> Iterator[Row]:
    """An observer that reads the whole new image; the naive loop has its TypeDeserializer."""
    yield _beside_naive(
        replay, "one shard, native new image", "new", lambda: watched(replay, 200, "read-new"), 25
    )


def printing(replay: Replay) -> Iterator[Row]:
    """The built-in handlers that programs read from, to a file."""
    for what, ratio in (("json", 50), ("summary", 30)):
        name = f"print-{what}"
        run = functools.partial(watched, replay, 400, name)
        yield _beside_naive(replay, f"--{name} to a file", what, run, ratio)


def dropping(replay: Replay) -> Iterator[Row]:
    """A filter that lets one record of a hundred through."""
    for what in _TEN_OF_A_PAGE:
        run = functools.partial(filtered, replay, 400, what)
        yield _beside_naive(replay, f"--{what} that drops 99 %", what, run, 60)


def pull(replay: Replay) -> Iterator[Row]:
    """`next(stream)`, which reads in the caller's own process."""
    pages = 200
    command = commands.program("pull", ARN, str(pages * RECORDS))
    runs = [rate(replay, command, Scenario(1, pages), pages * RECORDS) for _ in range(RUNS)]
    yield Row("next(stream), keys", "records/s", runs, at_least=60_000)


def many(replay: Replay) -> Iterator[Row]:
    """A backlog on a hundred shards at once."""
    one, hundred = [], []
    for _ in range(RUNS):
        one.append(watched(replay, 400, "read-keys"))
        hundred.append(watched(replay, 10, "read-keys", shards=100))
    note = "compared with one shard"
    yield Row("100 shards, keys", "records/s", hundred, compared=one, ratio_at_least=0.8, note=note)


def late(replay: Replay) -> Iterator[Row]:
    """With a network in between."""
    for milliseconds in (5, 30):
        ours, theirs = [], []
        for _ in range(2):
            theirs.append(naive(replay, 8, "keys", milliseconds / 1000))
            ours.append(watched(replay, 100, "read-keys", late=milliseconds / 1000))
        figure = f"one shard, keys, {milliseconds} ms away"
        yield Row(figure, "records/s", ours, compared=theirs)
