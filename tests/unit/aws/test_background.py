"""A service that is asked while its caller goes on."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import ARN, PlayedService
from watcher.aws.background import BackgroundService
from watcher.aws.model import CachedListing, Latest
from watcher.aws.timing import BackgroundTiming
from watcher.errors import NoAnswerYetError, TransientError, WatcherError


class Slow(PlayedService):
    """Answers listings when it is let go."""

    def __init__(self) -> None:
        super().__init__(HandClock())
        self.add("a")
        self.go = threading.Event()

    def list_shards(self, arn: str) -> Any:
        self.go.wait(60)
        return super().list_shards(arn)

    def list_children(self, arn: str, shard_id: str) -> Any:
        self.go.wait(60)
        return super().list_children(arn, shard_id)


def answer(call: Callable[[], Any], told: threading.Event) -> Any:
    told.clear()
    with pytest.raises(NoAnswerYetError):
        call()
    return answered(call, told)


def answered(call: Callable[[], Any], told: threading.Event) -> Any:
    """The answer, once it is there: that there is one may be told of another question, too."""
    while True:
        assert told.wait(60)
        told.clear()
        with contextlib.suppress(NoAnswerYetError):
            return call()


@pytest.fixture
def told() -> threading.Event:
    return threading.Event()


def test_an_answer_comes_the_next_time_and_is_told(told: threading.Event) -> None:
    service = Slow()
    service.go.set()
    aside = BackgroundService(service, told.set)
    assert [shard.id for shard in answer(lambda: aside.list_shards(ARN), told).shards] == ["a"]
    assert answer(lambda: aside.list_children(ARN, "a"), told) == []
    assert answer(lambda: aside.latest_stream("orders"), told) == ARN
    assert service.listings == 1


def test_an_error_is_raised_the_next_time(told: threading.Event) -> None:
    service = Slow()
    service.go.set()
    service.errors = [TransientError("500")]
    aside = BackgroundService(service, told.set)
    with pytest.raises(TransientError, match="500"):
        answer(lambda: aside.list_shards(ARN), told)
    assert answer(lambda: aside.list_shards(ARN), told)


def test_an_answer_waits_until_a_slow_handler_lets_the_loop_turn(
    told: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Slow()
    service.go.set()
    aside = BackgroundService(service, told.set)
    with pytest.raises(NoAnswerYetError):
        aside.list_shards(ARN)
    aside.wait_for_thread()
    later = time.monotonic() + 3600
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert aside.list_shards(ARN)
    assert service.listings == 1


def test_nothing_waits_for_an_answer(told: threading.Event) -> None:
    service = Slow()
    aside = BackgroundService(service, told.set)
    for _ in range(100):
        with pytest.raises(NoAnswerYetError):
            aside.list_shards(ARN)
    service.go.set()
    assert told.wait(60)
    aside.wait_for_thread()
    assert aside.list_shards(ARN)
    assert service.listings == 1, "asked once"


def test_several_questions_are_asked_one_after_the_other(told: threading.Event) -> None:
    service = Slow()
    aside = BackgroundService(service, told.set)
    for _ in range(3):
        for each in ("a", "b"):
            with pytest.raises(NoAnswerYetError):
                aside.list_children(ARN, each)
            with pytest.raises(NoAnswerYetError):
                aside.list_shards(ARN + each)
    service.go.set()
    aside.wait_for_thread()
    assert [aside.list_children(ARN, each) for each in ("a", "b")] == [[], []]
    assert [aside.list_shards(ARN + each).arn for each in ("a", "b")] == [ARN + "a", ARN + "b"]
    assert service.listings == 2


@pytest.mark.parametrize("question", ["list_shards", "list_children"])
def test_a_listing_that_hangs_keeps_no_other(
    question: str,
) -> None:
    class Hanging(Slow):
        def list_shards(self, arn: str) -> Any:
            return super().list_shards(arn) if arn == ARN else PlayedService.list_shards(self, arn)

        def list_children(self, arn: str, shard_id: str) -> Any:
            if arn == ARN:
                self.go.wait(60)
            return PlayedService.list_children(self, arn, shard_id)

    service = Hanging()
    aside = BackgroundService(service, timing=BackgroundTiming(listing_hangs_seconds=0.02))
    more = ("a",) if question == "list_children" else ()
    ask = getattr(aside, question)
    until = time.monotonic() + 60  # by then it has given up to hang
    waiting = [f"{ARN}{number}" for number in range(3)]
    with pytest.raises(NoAnswerYetError):
        ask(ARN, *more)
    while waiting:
        assert time.monotonic() < until
        with contextlib.suppress(NoAnswerYetError):
            ask(waiting[0], *more)
            del waiting[0]
        time.sleep(0.005)
    service.go.set()


def test_a_fork_waits_for_a_thread_that_is_at_work(
    told: threading.Event,
) -> None:
    service = Slow()
    aside = BackgroundService(service, told.set, timing=BackgroundTiming(settle_seconds=30.0))
    with pytest.raises(NoAnswerYetError):
        aside.list_shards(ARN)
    threading.Timer(0.1, service.go.set).start()
    if (child := os.fork()) == 0:
        os._exit(threading.active_count() > 2)  # the timer's may still end
    assert os.waitpid(child, 0)[1] == 0
    assert told.is_set()


def test_all_else_is_asked_as_ever() -> None:
    service = Slow()
    aside = BackgroundService(service)
    assert aside.get_iterator(ARN, "a", Latest())[0] == "iterator"
    aside.renew_credentials()
    assert service.renewed == 1
    assert aside.counters is service.counters


def test_a_probe_that_hangs_keeps_neither_a_listing_nor_other_probes(
    told: threading.Event,
) -> None:
    service = SlowToProbe()
    service.go.set()
    aside = BackgroundService(service, told.set)
    assert answer(lambda: aside.probe(ARN, ["slow", "b", "c"]), told).keys() <= {"b", "c"}
    assert [shard.id for shard in answer(lambda: aside.list_shards(ARN), told).shards] == ["a"]
    told.clear()
    service.answers.set()
    assert answered(lambda: aside.probe(ARN, ["slow"]), told) == {"slow": None}


class SlowToProbe(Slow):
    """Answers a probe when it is let to."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()
        self.probed: list[str] = []

    def probe(self, arn: str, shard_ids: Collection[str]) -> dict[str, WatcherError | None]:
        self.probed += shard_ids
        if any(each.startswith("slow") for each in shard_ids):
            self.answers.wait(60)
        return dict.fromkeys(shard_ids)

    def has_hung(self, times: int) -> None:
        """Wait until so many probes were begun, and the last one for longer than is patient."""
        while len(self.probed) < times:
            time.sleep(0.005)
        time.sleep(0.1)


def test_a_question_that_is_new_is_waited_for_a_moment() -> None:
    timing = BackgroundTiming(listing_hangs_seconds=30.0)  # on no machine
    service = Slow()
    aside = BackgroundService(service, patience=0.2, timing=timing)
    began = time.monotonic()
    for _ in range(100):
        with pytest.raises(NoAnswerYetError):
            aside.list_shards(ARN)
    assert 0.2 <= time.monotonic() - began < 10
    service.go.set()
    aside = BackgroundService(service, patience=20.0, timing=timing)
    assert aside.list_shards(ARN)
    assert aside.list_shards(ARN), "at once, though it is asked anew"
    assert aside.probe(ARN, ["a", "gone"]).keys() == {"a", "gone"}


def test_probes_that_hang_make_room_for_one_that_is_answered() -> None:
    service = SlowToProbe()
    aside = BackgroundService(service, timing=BackgroundTiming(probe_hangs_seconds=0.02))
    names = [*(f"slow {number}" for number in range(90)), "b"]
    assert probed(aside, names) == {"b": None}
    service.answers.set()


def probed(aside: BackgroundService, names: list[str]) -> dict[str, WatcherError | None]:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            return aside.probe(ARN, names)
        except NoAnswerYetError:
            time.sleep(0.005)
    raise AssertionError("no answer")


def test_a_probe_that_has_hung_is_asked_last_and_waited_for_once() -> None:
    service = SlowToProbe()
    timing = BackgroundTiming(probes_at_once=1, probe_hangs_seconds=0.05)
    aside = BackgroundService(service, patience=0.4, timing=timing)
    with pytest.raises(NoAnswerYetError):
        aside.probe(ARN, ["slow"])
    service.has_hung(1)
    aside.patience = 30.0
    service.answers.set()
    assert probed(aside, ["slow"]) == {"slow": None}
    service.answers.clear()
    began = time.monotonic()
    with pytest.raises(NoAnswerYetError):
        aside.probe(ARN, ["slow"])
    assert time.monotonic() - began < 25  # of the 30 that it has patience for
    service.has_hung(2)
    service.answers.set()
    probed(aside, ["slow"])
    probed(aside, ["slow", "b"])
    aside.wait_for_thread()
    assert service.probed == ["slow", "slow", "b", "slow"]


def test_a_fork_does_not_wait_for_a_probe_that_hangs() -> None:
    service = SlowToProbe()
    aside = BackgroundService(service, timing=BackgroundTiming(settle_seconds=30.0))
    with pytest.raises(NoAnswerYetError):
        aside.probe(ARN, ["slow 1", "slow 2"])
    began = time.monotonic()
    aside.wait_for_thread()
    assert time.monotonic() - began < 25  # of the 30 that it has patience for
    service.answers.set()


def test_as_a_program_begins_a_listing_is_tried_again(
    told: threading.Event,
) -> None:
    service = Slow()
    service.go.set()
    service.errors = [TransientError("500"), TransientError("500")]
    aside = BackgroundService(service, told.set, at_start=True)
    assert answer(lambda: aside.list_shards(ARN), told)
    assert service.errors == []


def test_a_listing_that_is_known_is_not_asked_for_once(told: threading.Event) -> None:
    service = Slow()
    service.go.set()
    known = CachedListing(service, service.list_shards(ARN))
    assert known.list_shards(ARN) and service.listings == 1
    assert known.list_shards(ARN) and service.listings == 2
