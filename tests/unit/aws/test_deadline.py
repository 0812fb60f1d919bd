"""A call that can't be ended is left to itself; what keeps its caller waiting is told."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from watcher.aws import deadline
from watcher.aws.deadline import log_if_slow, with_deadline
from watcher.errors import TransientError


def asked(call: Callable[..., Any], seconds: float = 5) -> Any:
    return with_deadline(call, seconds=seconds, before=lambda: None)()


def test_what_takes_longer_is_trouble_of_an_endpoint() -> None:
    end = threading.Event()
    began = time.monotonic()
    with pytest.raises(TransientError, match=r"no whole answer within 0\.05 s") as caught:
        asked(end.wait, 0.05)
    end.set()
    assert time.monotonic() - began < 60
    assert caught.value.unreachable


def test_what_is_not_is_said_now_and_then_unless_there_is_nothing_to_say(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(deadline, "SLOW_FROM_SECONDS", 0.01)
    monkeypatch.setattr(deadline, "SLOW_EVERY_SECONDS", 0.02)
    asked: list[float] = []
    enough = threading.Event()

    def text(seconds: float) -> str | None:
        asked.append(seconds)
        if len(asked) == 3:
            enough.set()
        return None if len(asked) == 2 else f"for {seconds:.2f} s"

    with log_if_slow(lambda seconds: "not in time"):
        pass
    with log_if_slow(text):
        assert enough.wait(60)
    assert caplog.messages[:2] == ["for 0.01 s", "for 0.05 s"]
