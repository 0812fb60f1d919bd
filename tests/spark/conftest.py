"""One Spark for all tests here: a session takes 5 to 10 seconds to start."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.simulator import Simulator
from tests.support.hand_clock import HandClock
from tests.support.secret import KEY

Options = dict[str, Any]

# For one step, such as Spark's start: 5 s here, half a minute there. What takes longer hangs.
PATIENCE = 300.0
# For a test as a whole, of several steps.
WHOLE = 900.0


def pytest_itemcollected(item: pytest.Item) -> None:
    """The first test pays for Spark's start; and one cut off in a call into Spark spoils the rest.

    So on a slow machine they are given time.
    """
    if item.get_closest_marker("spark"):
        item.add_marker(pytest.mark.timeout(WHOLE))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session with two cores and `dynamodb_streams`."""
    try:
        from watcher.errors import WatcherError
        from watcher.spark import session
    except ImportError as error:
        missing(f"Spark is not installed: {error}")
    # Spark's JVM keeps the environment that it was started with.
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test")
    os.environ.setdefault("TERM", "xterm")
    os.environ.setdefault("WATCHER_REDACT_KEY", KEY)
    os.environ.update(AWS_EC2_METADATA_DISABLED="true", AWS_CONFIG_FILE=os.devnull)
    try:
        started = session.start(master="local[2]")
    except WatcherError as error:
        missing(str(error))
    yield started
    started.stop()


@pytest.fixture
def no_query_left(spark: Any) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def missing(what: str) -> None:
    """Skip on a laptop; in CI a silent skip would be a test that never runs."""
    if os.environ.get("CI"):
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def stream(clock: HandClock) -> Any:
    """A played one, which is empty."""
    from tests.spark.played import PlayedStream

    return PlayedStream(clock)


@pytest.fixture
def sim() -> Iterator[Simulator]:
    """A stream of two shards, in a process of its own: Spark's processes are many."""
    with Simulator(shards=2) as simulator:
        yield simulator


def options(simulator: Simulator, **more: Any) -> Options:
    """What a read of this simulator needs."""
    return {
        "stream": simulator.stream_arn,
        "endpointUrl": simulator.endpoint,
        "region": "us-east-1",
        **more,
    }


class Done(NamedTuple):
    """What a command left."""

    status: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def command(
    spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """The whole command line, on the session that is there: another one takes 10 seconds."""
    from watcher import cli
    from watcher.spark import session

    logger = logging.getLogger("watcher")
    before = (list(logger.handlers), logger.propagate, logger.level)
    monkeypatch.setattr(session, "stop", lambda spark: None)
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # the command line may replace it

    def run(*arguments: str) -> Done:
        return Done(cli.main([*arguments]), *capsys.readouterr())

    yield run
    logger.handlers[:], logger.propagate = before[0], before[1]
    logger.setLevel(before[2])
