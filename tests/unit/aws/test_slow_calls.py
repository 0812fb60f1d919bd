"""What keeps its caller waiting is said, and nothing else is."""

from __future__ import annotations

import threading

import pytest

from watcher.aws import deadline as module
from watcher.aws.deadline import log_if_slow


def test_what_is_done_in_time_is_not_said_and_leaves_no_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = set(threading.enumerate())
    with log_if_slow(lambda seconds: "no"):
        pass
    assert set(threading.enumerate()) <= before, "another test's may be about to end"
    assert caplog.messages == []


def test_what_is_not_is_said_now_and_then_unless_there_is_nothing_to_say(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_FROM_SECONDS", 0.01)
    monkeypatch.setattr(module, "_EVERY_SECONDS", 0.02)
    asked: list[float] = []
    enough = threading.Event()

    def text(seconds: float) -> str | None:
        asked.append(seconds)
        if len(asked) == 3:
            enough.set()
        return None if len(asked) == 2 else f"for {seconds:.2f} s"

    with log_if_slow(text):
        assert enough.wait(10)
    assert caplog.messages[:2] == ["for 0.01 s", "for 0.05 s"]
