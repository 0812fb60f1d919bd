"""Records a second through the command line and the shared queue, beside the naive loop."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator

from scripts.benchmarks import commands
from scripts.benchmarks.replay import ARN, RECORDS, Figures, Replay, Scenario
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
    done, figures = _run(replay, command, scenario)
    return records / (done.ended - figures.first_read)


def _run(replay: Replay, command: list[str], scenario: Scenario) -> tuple[commands.Done, Figures]:
    replay.begin(scenario)
    with tempfile.TemporaryFile() as output:
        done = commands.run(command, replay.endpoint, output)
    return done, replay.begin(Scenario())


def watched(replay: Replay, pages: int, *handlers: str, shards: int = 1, late: float = 0) -> float:
    """Records a second through `python -m watcher`."""
    records = shards * pages * RECORDS
    command = _watching(records, *(f"--{name}" for name in handlers))
    return rate(replay, command, Scenario(shards, pages, latency=late), records)


def _watching(records: int, *options: str) -> list[str]:
    """`python -m watcher` until it has handed over so many."""
    limit = ["--from", "trim-horizon", "--max-records", str(records)]
    return commands.watcher(ARN, *limit, *options)


def filtered(replay: Replay, pages: int, what: str) -> float:
    """Records a second that `python -m watcher` reads, to hand over one in a hundred."""
    command = _watching(10 * pages, *_TEN_OF_A_PAGE[what], "--read-keys")
    return rate(replay, command, Scenario(1, pages), pages * RECORDS)


def pulled(replay: Replay, pages: int, what: str) -> float:
    """Records a second that `next(stream)` reads, to give out one in a hundred."""
    command = commands.program("pull", ARN, str(10 * pages), *_TEN_OF_A_PAGE[what])
    return rate(replay, command, Scenario(1, pages), pages * RECORDS)


def naive(replay: Replay, pages: int, what: str, late: float = 0) -> float:
    """Records a second through boto3's plain loop."""
    command = commands.program("plain_loop", ARN, str(pages), what)
    return rate(replay, command, Scenario(1, pages, latency=late), pages * RECORDS)


def raw(replay: Replay) -> Iterator[Row]:
    """The yardstick's own limit."""
    command = commands.program("raw_client", replay.endpoint, "300")
    scenario = Scenario(1, 300)
    theirs = [naive(replay, 10, "keys") for _ in range(RUNS)]
    runs = [rate(replay, command, scenario, 300 * RECORDS) for _ in range(RUNS)]
    figure = "replay server to a raw client"
    yield Row(figure, "records/s", runs, at_least=300_000, compared=theirs)


def cpu(replay: Replay) -> Iterator[Row]:
    """What a page takes, all processes together: what else runs there changes it less than times.

    Between a few pages and many, so without the program's beginning and end.
    """
    few, many = 40, 240
    for figure, of_a_page, options in (
        ("one shard, keys", RECORDS, ["--read-keys"]),
        ("one shard, native new image", RECORDS, ["--read-new"]),
        ("--print-json to a file", RECORDS, ["--print-json"]),
        ("--print-summary to a file", RECORDS, ["--print-summary"]),
        *((f"--{name}", 10, [*test, "--read-keys"]) for name, test in _TEN_OF_A_PAGE.items()),
    ):
        runs = []
        for _ in range(3):
            used = [
                _run(replay, _watching(pages * of_a_page, *options), Scenario(1, pages))[0].cpu
                for pages in (few, many)
            ]
            runs.append((used[1] - used[0]) / (many - few) * 1000)
        yield Row(f"{figure}: CPU a page", "ms", runs)


def _beside_naive(
    replay: Replay, figure: str, what: str, run: Callable[[], float], ratio: float
) -> Row:
    ours, theirs = [], []
    for _ in range(RUNS):
        theirs.append(naive(replay, 10, what))
        ours.append(run())
    return Row(figure, "records/s", ours, compared=theirs, ratio_at_least=ratio)


def keys(replay: Replay) -> Iterator[Row]:
    """A handler that reads event name and keys."""
    yield _beside_naive(
        replay, "one shard, keys", "keys", lambda: watched(replay, 400, "read-keys"), 60
    )


def native(replay: Replay) -> Iterator[Row]:
    """A handler that reads the whole new image; the naive loop has its TypeDeserializer."""
    yield _beside_naive(
        replay, "one shard, native new image", "new", lambda: watched(replay, 200, "read-new"), 40
    )


def printing(replay: Replay) -> Iterator[Row]:
    """The built-in handlers that programs read from, to a file."""
    for what, ratio in (("json", 100), ("summary", 30)):
        name = f"print-{what}"
        run = functools.partial(watched, replay, 400, name)
        yield _beside_naive(replay, f"--{name} to a file", what, run, ratio)


def dropping(replay: Replay) -> Iterator[Row]:
    """A filter that lets one record of a hundred through."""
    for what in _TEN_OF_A_PAGE:
        run = functools.partial(filtered, replay, 400, what)
        yield _beside_naive(replay, f"--{what} that drops 99 %", what, run, 60)
        runs = [pulled(replay, 200, what) for _ in range(RUNS)]
        yield Row(f"next(stream), {what} that drops 99 %", "records/s", runs)


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
    note = "compared with one shard; the aim is for 4 cores"
    yield Row("100 shards, keys", "records/s", hundred, compared=one, ratio_at_least=1.5, note=note)


def late(replay: Replay) -> Iterator[Row]:
    """With a network in between."""
    for milliseconds in (5, 30):
        ours, theirs = [], []
        for _ in range(2):
            theirs.append(naive(replay, 8, "keys", milliseconds / 1000))
            ours.append(watched(replay, 100, "read-keys", late=milliseconds / 1000))
        figure = f"one shard, keys, {milliseconds} ms away"
        yield Row(figure, "records/s", ours, compared=theirs)
