"""Several shards' records at once: each shard's in order, and the position behind the slowest."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.support.gate import Gate, ThreadsClock, WatchedPool
from tests.support.play import Play, page
from tests.support.wire import FIRST
from watcher.aws.model import AfterSequence
from watcher.delivery.batches import Batches
from watcher.delivery.concurrent import HandlerPool, Work
from watcher.records.record import Record
from watcher.runtime.protocol import Pause


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.let(-1)()


def played(observe: Callable[[Record], Any], count: int, *shards: str, **settings: Any) -> Play:
    pool = WatchedPool(count, observe if isinstance(observe, Gate) else None)
    play = Play(observe, pool=pool, clock=ThreadsClock(pool), **settings)
    for shard in shards:
        play.service.add(shard)
    return play


def test_up_to_so_many_shards_are_handled_at_once_each_in_order(gate: Gate) -> None:
    play = played(gate, 2, "a", "b", "c")
    play.run(
        1.0,
        ("a", page(1, 2)),
        ("b", page(11, 12)),
        ("c", page(21)),
        gate.begins(1, 11),
        gate.let(1),
        gate.begins(1, 2, 11),
        gate.let(2),
        gate.begins(1, 2, 11, 21),
        gate.let(-1, 11, 12, 21),
        1.0,
    )
    assert play.totals.records == 5 and gate.done.index(11) < gate.done.index(12)


def test_a_batch_is_handed_over_in_time_though_its_worker_has_died() -> None:
    """Nothing more comes of the shard: the batch stood until the end of the watch."""
    calls: list[list[str]] = []

    def take(records: Sequence[Record]) -> int:
        calls.append([each.sequence_number for each in records])
        return len(records)

    pool = WatchedPool(2, None)
    clock = ThreadsClock(pool)
    batches = Batches("batch", take, size=4, window=2.0, clock=clock)
    play = Play(batches, pool=pool, clock=clock)
    play.service.add("a")
    seen: list[int] = []
    play.run(1.0, ("a", page(1, 2)), 0.5, ("a", None), 5.0, lambda: seen.append(len(calls)), 5.0)
    assert seen == [1]
    assert calls == [[str(FIRST + 1), str(FIRST + 2)]]


def test_what_is_handled_while_the_end_waits_for_another_handler_is_saved(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a kill during that wait, which may take long, would repeat it."""
    play = played(gate, 2, "a", "b", stop_timeout=10)
    saver, workers, saved = play.manager.saver, play.manager.workers, list[Any]()
    stop_workers = workers.stop
    monkeypatch.setattr(saver, "save_last", lambda: saved.append(play.store.position("a")))
    # The loop has ended; the wait for the handlers begins.
    monkeypatch.setattr(workers, "stop", lambda: (stop_workers(), gate.let(1)()))
    play.run(1.0, ("a", page(1, 2)), ("b", page(11)), gate.begins(1, 11), play.manager.stop)
    assert gate.done == [1] and saved == [AfterSequence(str(FIRST + 1))]
    still = f"Interrupted: a handler is still processing record {FIRST + 11} of b"
    assert any(text.startswith(still) for text in caplog.messages)


def test_no_more_are_handled_than_were_asked_for() -> None:
    seen: list[Record] = []
    play = played(seen.append, 3, "a", "b", max_records=5)
    play.run(1.0, ("a", page(1, 2, 3, 4)), ("b", page(11, 12, 13, 14)), 30.0)
    assert len(seen) == play.totals.records == 5 and not play.totals.stopped


def test_what_waits_of_a_shard_pauses_its_reading(gate: Gate) -> None:
    play = played(gate, 2, "a")
    large = page(*range(1, 9001))
    assert 2 * len(large.body) >= 4 * 1024 * 1024 > len(large.body)
    pauses: list[int] = []

    def count() -> None:
        commands = [each for process in play.processes for each in process.commands]
        pauses.append(sum(isinstance(each, Pause) for each in commands))

    play.run(1.0, ("a", large), 1.0, count, ("a", large), 2.0, gate.let(-1), count, 1.0)
    assert pauses[0] == 0 < pauses[1]


def test_a_record_that_is_done_is_no_step_any_more() -> None:
    """Its retries are over: until the next record, its handler counted as stuck."""
    works: list[Iterator[None]] = []
    steps: list[tuple[float, float]] = []

    class Stepped(HandlerPool):
        def submit(self, work: Work) -> None:
            works.append(work())

    play = Play(lambda record: play.clock.sleep(100.0), pool=Stepped(1))
    play.service.add("a")

    def step() -> None:
        next(works[0], None)
        for each in play.manager.delivery.steps():
            steps.append((each.since, play.clock.monotonic()))

    play.run(1.0, ("a", page(1, 2)), 1.0, step, lambda: [*works.pop(0)], lambda: [*works.pop(0)])
    assert [since == now for since, now in steps] == [True]
