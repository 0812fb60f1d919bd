"""Standard output that is closed, full, or gone."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable

import pytest

from tests.support.wire import record
from watcher.delivery import output
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.handler import Handler
from watcher.delivery.output import OutputClosed
from watcher.errors import HandlerError
from watcher.records.record import Record


def dispatcher(*handles: Callable[[Record], object]) -> Dispatcher:
    return Dispatcher([Handler("o", handle) for handle in handles], FailurePolicy())


def test_a_closed_pipe_ends_the_watch_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(record: Record) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    reading, writing = os.pipe()
    os.close(reading)
    stdout = os.fdopen(writing, "w")
    monkeypatch.setattr(sys, "stdout", stdout)
    with pytest.raises(OutputClosed):
        dispatcher(write).deliver(record(1))
    stdout.write("something")
    with pytest.raises(OutputClosed):
        output.flush()
    with contextlib.suppress(BrokenPipeError):
        stdout.close()


def test_output_that_cannot_be_written_stops_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = open("/dev/full", "w")
    stdout.write("something")
    monkeypatch.setattr(sys, "stdout", stdout)
    with pytest.raises(HandlerError, match="can't write standard output: No space left"):
        output.flush()
    with contextlib.suppress(OSError):
        stdout.close()


@pytest.mark.parametrize("how", ["closed", "none"])
def test_an_observer_may_close_standard_output(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    output.close()
    monkeypatch.setattr(sys, "stdout", output if how == "closed" else None)

    def fail(record: Record) -> None:
        raise ValueError("no")

    made = dispatcher(fail)
    made.deliver(record(1))
    made.flush()
