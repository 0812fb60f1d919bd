import asyncio
import gc
import inspect
import logging
import os
import pydoc
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import watcher
from tests.simulator import Simulator, judge
from tests.support.eventually import eventually
from watcher import HandlerError, Record, StreamError, UsageError, watch
from watcher.cli import options
from watcher.observability.watch_stats import Totals


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(table="orders", shards=2) as simulator:
        yield simulator


def settings_of(sim: Simulator, **settings: object) -> dict[str, Any]:
    """What a watch from the beginning is given."""
    place = {"region": "us-east-1", "endpoint_url": sim.endpoint}
    return {"start": "trim_horizon", **place, **settings}


def see(sim: Simulator, *observers: object, **settings: object) -> Totals:
    """Watch everything up to now."""
    return watch("orders", observers, **settings_of(sim, **{"follow": False, **settings}))  # type: ignore[arg-type]


def test_each_observer_gets_every_record_in_this_process(sim: Simulator) -> None:
    sim.bulk(300, keys=7)
    first: list[Record] = []
    second: list[Record] = []  # filled in this process
    totals = see(sim, first.append, second.append)
    assert not any(judge(sim.records, [record.sequence_number for record in first]))
    assert first == second
    assert totals.records == sum(totals.kinds.values()) == 300


def test_a_filter_that_no_change_matched_says_what_none_has(
    sim: Simulator, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("watcher"), "propagate", True)
    caplog.set_level(logging.INFO, "watcher")
    sim.bulk(30)
    for filters in ("pkk > 100 and pk = 'x'", "v > 100", "attribute_exists(v)"):
        see(sim, filters=filters)
    assert [text for text in caplog.messages if "matched" in text] == [
        "0 of 30 changes matched; none has pkk (pk?)",
        "0 of 30 changes matched",
    ]


def test_a_filter_of_images_that_the_stream_lacks_is_refused_at_the_start() -> None:
    with Simulator(table="orders", view_type="KEYS_ONLY") as sim:
        connection: Any = {"region": "us-east-1", "endpoint_url": sim.endpoint}
        for start in (partial(watch, "orders", [print]), partial(watcher.Stream, "orders")):
            with pytest.raises(
                UsageError, match=r"new\.total: the stream's view type is KEYS_ONLY"
            ):
                start(filters="new.total > 1", **connection)


def test_an_event_stops_it_in_any_thread(sim: Simulator, tmp_path: Path) -> None:
    stop, seen, totals = threading.Event(), list[str](), list[Totals]()
    file = tmp_path / "state.json"
    sim.write("a", 300)

    def slowly(record: Record) -> None:
        seen.append(record.sequence_number)
        time.sleep(0.01)
        if len(seen) == 30:
            stop.set()

    def run() -> None:
        settings: dict[str, Any] = {"follow": True, "stop": stop, "stop_timeout": 0.5}
        totals.append(see(sim, slowly, checkpoint=file, **settings))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    (done,) = totals
    assert done.stopped and 30 <= done.records == len(seen) < 90
    see(sim, lambda record: seen.append(record.sequence_number), checkpoint=file)
    assert not any(judge(sim.records, seen))


async def later(record: Record) -> None: ...


@pytest.mark.parametrize(
    ("observer", "words"),
    [
        (3, "3 can't be called"),
        ("no_such_handler", "no handler 'no_such_handler'; there are"),
        (later, "later is async, and nothing would await it"),
        (ModuleType("empty"), "empty has no function handle"),
    ],
)
def test_an_observer_that_can_never_work_is_refused_at_once(observer: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        watch("orders", [observer], region="us-east-1")  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_records": 0}, "max_records 0: give 1 or more"),
        ({"read_limit": "5"}, r"read_limit .*: give more than 0 capacity units a second"),
        ({"poll_max": 0.0}, "poll_max 0: give more than 0 seconds"),
        ({"start": "someday"}, "start: can't read 'someday'"),
        ({"on_error": "panic"}, "on_error: can't read 'panic'"),
        ({"only": "insrt"}, 'only: unknown kind "insrt"'),
        ({"key": ["id"]}, "key id: give NAME=VALUE"),
        ({"filters": ["{"]}, "filters: not JSON"),
        ({"metrics_port": "x"}, "metrics_port x: give PORT"),
        ({"start": None}, "start None: give a text such as 2h, a datetime or a timedelta"),
        ({"stop": 3}, r"stop 3: give a threading\.Event"),
        ({"filters": print}, "filters: not a JSON object: <built-in function print>"),
        ({"key": 5}, "key 5: give a text, or several"),
        ({"grep": ["a"]}, r"grep \['a'\]: give a text"),
        ({"snapshot": "no"}, "snapshot 'no': give True or False"),
        ({"endpoint_url": 8000}, "endpoint_url 8000: give a text"),
    ],
)
def test_a_bad_setting_is_refused_by_its_parameters_name(
    settings: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageError, match=f"^{words}") as caught:
        watch("orders", [], **settings)  # type: ignore[arg-type]
    assert {caught.value.option} == set(settings)


def test_every_parameter_of_watch_is_a_flag_of_the_command_line() -> None:
    of_programs = {"stream", "observers", "display", "stop"}
    flags = {each.name for each in options.declared_by(watch)}
    assert {*inspect.signature(watch).parameters} == flags | of_programs


def test_help_of_watch_shows_plain_types_and_what_each_option_is_for() -> None:
    text = pydoc.plain(pydoc.render_doc(watch))
    assert "Annotated" not in text
    assert "Parameter(" not in text
    for each in options.declared_by(watch):
        assert re.search(rf"^ +{each.name}: \w", text, re.MULTILINE), each.name


def test_dir_lists_what_there_is() -> None:
    assert {*dir(watcher)} == {*watcher.__all__} | {"__version__"}
    assert {"watch", "Stream", "history", "undo"} <= {*dir(watcher)}


def test_a_child_that_imports_a_main_program_without_a_guard_starts_no_watch_of_its_own(
    sim: Simulator, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing, os\nfrom watcher import watch\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('spawn').Process(target=print)\n"
        "    child.start(); child.join(); os._exit(child.exitcode)\n"
        "watch('orders', [print])\n"
    )
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, **sim.environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "__main__" in done.stderr.splitlines()[-1]


def test_a_failing_close_ends_in_an_error_under_the_policy_that_stops(sim: Simulator) -> None:
    module = ModuleType("mine")
    module.handle = print  # type: ignore[attr-defined]
    module.close = lambda: 1 / 0  # type: ignore[attr-defined]
    assert see(sim, module).failures == 1
    with pytest.raises(HandlerError, match="mine failed to close: ZeroDivisionError"):
        see(sim, module, on_error="stop")


@pytest.mark.parametrize(
    ("until", "start", "says"),
    [
        ("2h", "latest", "give an earlier --from"),
        ("2h", "1h", "before --from"),
        ("2099-01-01", "1h", "in the future"),
        (7, "1h", "a text"),
    ],
)
def test_a_range_that_is_none_is_refused(until: Any, start: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        watch("orders", [print], start=start, until=until)
    assert caught.value.option == "until"


class Replaced:
    """A host program's stream, which knows how to write and no more."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


def test_a_host_program_may_have_streams_of_its_own_making(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim.bulk(3)
    out = Replaced()
    monkeypatch.setattr(sys, "stderr", Replaced())
    monkeypatch.setattr(sys, "stdout", out)
    see(sim, "print_summary")
    assert out.text.count("\n") == 3
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert see(sim, "print_summary").failures == 0


@pytest.mark.parametrize(
    ("stream", "one"),
    [("orders", {"filters": {"eventName": ["INSERT"]}}), ("order*", {"exclude": "users"})],
)
def test_one_by_itself_stands_for_a_list_of_one(
    sim: Simulator, stream: str, one: dict[str, Any]
) -> None:
    sim.bulk(3)
    seen: list[Record] = []
    watch(stream, seen.append, **settings_of(sim, follow=False, **one))
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("number", "of_host"),
    [(signal.SIGINT, "Python's"), (signal.SIGTERM, "the system's"), (signal.SIGTERM, "a handler")],
)
def test_a_second_signal_breaks_the_watch_off_and_not_the_host_program(
    number: signal.Signals, of_host: str, sim: Simulator
) -> None:
    sim.bulk(3)
    told: list[int] = []
    handlers: dict[str, Any] = {
        "a handler": lambda number, frame: told.append(number),
        "the system's": signal.SIG_DFL,
        "Python's": signal.default_int_handler,
    }

    def take(record: Record) -> None:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)

    before = signal.signal(number, handlers[of_host])
    try:
        with pytest.raises(KeyboardInterrupt):
            see(sim, take, follow=True)
        assert signal.getsignal(number) is handlers[of_host]
    finally:
        signal.signal(number, before)
    assert told == [number] * (of_host == "a handler")


def test_a_signal_that_the_host_program_ignores_stays_ignored(sim: Simulator) -> None:
    sim.bulk(3)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        totals = see(sim, lambda record: os.kill(os.getpid(), signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)
    assert totals.records == 3 and not totals.stopped


@pytest.mark.usefixtures("frozen_objects_are_counted")
def test_what_a_host_program_has_frozen_stays_frozen(sim: Simulator) -> None:
    sim.bulk(3)
    gc.freeze()  # as tests/conftest.py has done before
    frozen = gc.get_freeze_count()
    see(sim, lambda record: None)
    assert gc.get_freeze_count() > frozen / 2  # some are no more


def beside(sim: Simulator, *observers: object, **settings: Any) -> watcher.Watch:
    """A watch as an object."""
    return watcher.Watch("orders", observers, **settings_of(sim, **settings))  # type: ignore[arg-type]


def test_a_watch_goes_on_beside_the_program(sim: Simulator, tmp_path: Path) -> None:
    seen: list[Record] = []
    made = beside(sim, seen.append, checkpoint=tmp_path / "state.json")
    assert made.health() == ["the watch has not begun yet"]
    with pytest.raises(UsageError, match="has not begun: use it in a `with` block"):
        made.wait()
    with made as under_way:
        sim.bulk(20)
        eventually(lambda: under_way.stats().records == 20 and not under_way.health())
        assert under_way.wait(0.01) is None
    assert (made.error, made.health()) == (None, ["the watch has ended"])
    totals = made.wait()
    assert totals is not None
    assert (totals.records, len(seen), totals.stopped) == (20, 20, True)
    assert (tmp_path / "state.json").exists()
    with pytest.raises(UsageError, match="runs only once"), made:
        pass


def test_a_watch_that_dies_is_seen(sim: Simulator, caplog: Any) -> None:
    def fail(record: Record) -> None:
        raise ValueError("no such customer")

    made = beside(sim, fail, on_error="stop")
    with pytest.raises(HandlerError, match="no such customer"), made as under_way:
        sim.write("a", 1)
        eventually(lambda: under_way.error)
        (line,) = under_way.health()
        assert line.startswith("the watch has ended: ")
        assert "no such customer" in line
        with pytest.raises(HandlerError):
            under_way.wait()
    assert "The watch has ended: " in caplog.text


def test_an_error_of_the_block_is_not_hidden_by_one_of_the_watch(sim: Simulator) -> None:
    def fail(record: Record) -> None:
        raise ValueError

    with pytest.raises(KeyError), beside(sim, fail, on_error="stop") as made:
        sim.write("a", 1)
        eventually(lambda: made.error)
        raise KeyError


def test_what_can_not_begin_is_raised_where_the_block_begins(sim: Simulator) -> None:
    made = watcher.Watch("none", [print], region="us-east-1", endpoint_url=sim.endpoint)
    with pytest.raises(StreamError, match="none"), made:
        raise AssertionError
    assert made.health()[0].startswith("the watch has ended: ")
    with pytest.raises(UsageError):
        beside(sim, print, on_error="never")


def test_a_watch_keeps_the_event_loop_free(sim: Simulator) -> None:
    seen: list[Record] = []

    async def main() -> None:
        async with beside(sim, seen.append) as under_way:
            sim.write("a", 3)
            while len(seen) < 3:
                await asyncio.sleep(0.05)
            assert under_way.error is None

    asyncio.run(asyncio.wait_for(main(), 60))
    assert len(seen) == 3


def test_its_metrics_go_into_a_registry_of_the_programs_own(sim: Simulator) -> None:
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    sim.write("a", 3)
    with beside(sim, lambda record: None) as made:
        registry.register(made.collector())
        eventually(lambda: made.stats().records == 3)
        labels = {"table": sim.table_name, "kind": "INSERT"}
        assert registry.get_sample_value("watcher_records_total", labels) == 1
        with pytest.raises(ValueError, match="Duplicated"):
            registry.register(beside(sim, print).collector())


def test_a_watch_without_an_end_is_refused_where_it_would_block_an_event_loop() -> None:
    async def task() -> None:
        watch("orders", [print], region="us-east-1")

    with pytest.raises(UsageError, match=r"use `async with Watch.*`async for record in Stream"):
        asyncio.run(task())
