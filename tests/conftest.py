"""What all tests share: a deterministic hypothesis, no real account, streams on the simulator."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.ledger.ledger import Ledger
from tests.order import pytest_collection_modifyitems as pytest_collection_modifyitems
from tests.order import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler
from tests.simulator import Simulator
from tests.spark import home
from tests.support.program import log_restored
from watcher.formatting import style
from watcher.streams.timing import TIMING

# Same examples everywhere; `HYPOTHESIS_PROFILE=search` looks further by hand.
settings.register_profile("same", derandomize=True, deadline=None, max_examples=60)
settings.register_profile("search", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# A script that runs the tests in its background has them ignore Ctrl-C, and all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# One that runs them under nohup, a hangup.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Every Spark that a test starts, in a child process too, starts from here.
home.make()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a part that is missing is a failure: a skip would be a test that never runs."""
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """So it is for a module that a missing package keeps from being collected."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
    return report


_count_frozen = gc.get_freeze_count


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The collected thousands stay: no garbage collection looks at them, now or during a test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        # Counting them takes 60 ms, and each process that a watch starts asks for it.
        frozen = gc.get_freeze_count()
        gc.get_freeze_count = lambda: frozen


def pytest_unconfigure(config: pytest.Config) -> None:
    """What libraries leave is collected at the end, as always.

    Each of several workers would take 2 s for it: the collection of all tests before them does it.
    """
    if not hasattr(config, "workerinput"):
        gc.unfreeze()


@pytest.fixture
def frozen_objects_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what is frozen, and what is not any more."""
    monkeypatch.setattr(gc, "get_freeze_count", _count_frozen)


@pytest.fixture(autouse=True)
def no_real_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may reach a real account, whatever the shell is logged in to."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


@pytest.fixture(autouse=True)
def no_defaults_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options have the defaults that each test says."""
    for name in [name for name in os.environ if name.startswith("WATCHER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WATCHER_CONFIG", os.devnull)


@pytest.fixture(autouse=True)
def no_colours_of_this_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether there are colours is for each test to say."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def a_style_of_its_own() -> Iterator[None]:
    """What a test sets up for printing ends with it."""
    with style.restored():
        yield


@pytest.fixture(autouse=True)
def the_log_as_it_was() -> Iterator[None]:
    """A command that is run in this process sets the log up for itself."""
    # A Spark session handles Ctrl-C itself, for as long as the process lives.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with log_restored():
        yield
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        # pytest adds its handlers to those that don't propagate, and pyspark makes them write JSON.
        if made := logging.Logger.manager.loggerDict.get(name):
            setattr(made, "propagate", True)  # noqa: B010 - it may be a placeholder


# Tests of the wait itself, and those that reckon with its seconds on a clock of their own.
_OF_WRITES = (
    *("tests/simulation/", "tests/spark/", "tests/unit/pull/", "tests/unit/runtime/"),
    *(
        "tests/unit/streams/",
        "tests/integration/test_histories.py",
        "tests/integration/test_ends.py",
    ),
)


@pytest.fixture(autouse=True)
def writes_are_there_at_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Services on this machine show a write at once: bounded reads wait for it 0.05 s, not 2 s."""
    if request.node.nodeid.startswith(_OF_WRITES):
        yield
        return
    before = TIMING.written_seconds
    TIMING.written_seconds = 0.05
    yield
    TIMING.written_seconds = before


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    """A stream of one shard, in a thread of the test, which the environment leads to."""
    with Simulator(table="orders") as sim:
        sim.set_environment(monkeypatch.setenv)
        yield sim


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """A table of two shards, and what was written to it when."""
    with Ledger(11) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder `handlers/` in the current folder, which is the test's own."""
    made = tmp_path / "handlers"
    made.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return made
