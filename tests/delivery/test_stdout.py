"""Standard output that is closed, full, or gone."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable

import pytest

from tests.wire import record
from watcher.delivery import stdout
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.observer import Observer
from watcher.delivery.on_error import OnError
from watcher.delivery.stdout import OutputClosed
from watcher.errors import ObserverError
from watcher.record.record import Record


def dispatcher(*handles: Callable[[Record], object]) -> Dispatcher:
    return Dispatcher([Observer("o", handle) for handle in handles], OnError())


class Output(io.StringIO):
    """A standard output whose flush fails."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def flush(self) -> None:
        raise self.error


def test_a_closed_pipe_ends_the_watch_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(record: Record) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    reading, writing = os.pipe()
    os.close(reading)
    output = os.fdopen(writing, "w")
    monkeypatch.setattr(sys, "stdout", output)
    with pytest.raises(OutputClosed):
        dispatcher(write).deliver(record(1))
    output.write("something")
    with pytest.raises(OutputClosed):
        stdout.flush()
    with contextlib.suppress(BrokenPipeError):
        output.close()


def test_output_that_cannot_be_written_stops_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Output(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(ObserverError, match="can't write standard output: No space left"):
        stdout.flush()


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
