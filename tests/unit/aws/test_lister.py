"""A service that is asked while its caller goes on."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.hand_clock import HandClock
from tests.support.play import ARN, PlayedService
from watcher.aws.lister import Lister
from watcher.aws.model import Latest
from watcher.errors import NoAnswerYetError, TransientError


class Held(PlayedService):
    """Answers no question about a stream or a shard that is held."""

    def __init__(self) -> None:
        super().__init__(HandClock())
        self.add("a")
        self.held: set[str] = set()
        self.go = threading.Event()

    def _wait(self, name: str) -> None:
        if name in self.held:
            self.go.wait(60)

    def list_shards(self, arn: str) -> Any:
        self._wait(arn)
        return super().list_shards(arn)

    def list_children(self, arn: str, shard_id: str) -> Any:
        self._wait(shard_id)
        return super().list_children(arn, shard_id)


@pytest.fixture
def service() -> Iterator[Held]:
    made = Held()
    yield made
    made.go.set()


def answered(call: Callable[[], Any]) -> Any:
    """The answer, once it is there."""
    got: list[Any] = []

    def is_there() -> bool:
        with contextlib.suppress(NoAnswerYetError):
            got.append(call())
        return bool(got)

    eventually(is_there)
    return got[0]


def test_an_answer_or_an_error_comes_the_next_time_and_is_told(service: Held) -> None:
    told = threading.Event()
    lister = Lister(service, told.set)
    service.errors = [TransientError("500")]
    service.held = {ARN}
    with pytest.raises(NoAnswerYetError):
        lister.list_shards(ARN)
    service.go.set()
    assert told.wait(60)
    with pytest.raises(TransientError, match="500"):
        answered(lambda: lister.list_shards(ARN))
    assert [shard.id for shard in answered(lambda: lister.list_shards(ARN)).shards] == ["a"]
    assert answered(lambda: lister.list_children(ARN, "a")) == []
    assert answered(lambda: lister.latest_stream("orders")) == ARN


def test_an_answer_waits_until_the_loop_turns_however_late(
    service: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Event()
    lister = Lister(service, told.set)
    service.held = {ARN}
    with pytest.raises(NoAnswerYetError):
        lister.list_shards(ARN)
    service.go.set()
    assert told.wait(60)
    later = time.monotonic() + 3600
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert lister.list_shards(ARN)
    assert service.listings == 1, "asked once"


def test_what_hangs_is_asked_once_and_keeps_nothing_else(service: Held) -> None:
    lister = Lister(service)
    service.held = {ARN, "a"}
    for _ in range(100):
        for call in (lister.list_shards, lister.latest_stream):
            with contextlib.suppress(NoAnswerYetError):
                call(ARN)
        with pytest.raises(NoAnswerYetError):
            lister.list_children(ARN, "a")
    assert service.listings == 0
    assert answered(lambda: lister.list_shards(f"{ARN}2"))
    assert answered(lambda: lister.list_children(ARN, "b")) == []


def test_all_else_is_asked_as_ever(service: Held) -> None:
    lister = Lister(service)
    assert lister.get_iterator(ARN, "a", Latest())[0] == "iterator"
    lister.renew_credentials()
    assert service.renewed == 1
    assert lister.counters is service.counters
