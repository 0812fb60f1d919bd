"""A handler that is written while it runs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.support.hand_clock import HandClock
from tests.support.wire import record
from watcher.aws.model import ShardKey
from watcher.delivery import handler_modules
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.reloading import Reloading

SHARD = ShardKey("", "shard-0")


def test_the_newest_takes_what_comes_and_what_is_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "watcher")
    file = tmp_path / "mine.py"

    def write(text: str) -> None:
        before = file.stat().st_mtime_ns if file.exists() else 0
        while not (file.exists() and file.stat().st_mtime_ns != before):
            # Again, where the kernel's clock for files has not moved since the last time.
            file.write_text(f"def handle(record):\n    {text}\ndef close():\n    print('closed')\n")

    class Typing(HandClock):
        """Somebody mends the handler while a record waits to be tried again."""

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.passed > 1:
                write("print('three')")

    write("print('one')")
    clock = Typing()
    made = Reloading(lambda: handler_modules.load(handler_modules.described(file)), file, clock)
    dispatcher = Dispatcher([made], FailurePolicy.parse("retry:9"), clock=clock)

    def next_page(number: int) -> None:
        dispatcher.deliver(record(number))
        dispatcher.page_end(SHARD)
        clock.passed += 0.3

    next_page(1)
    write("print('two')")  # as long, and within the same second
    next_page(2)
    next_page(3)
    write("print('")
    next_page(4)
    next_page(5)
    file.unlink()
    next_page(6)
    write("1 / 0")
    next_page(7)
    clock.passed = 0.9
    next_page(8)
    dispatcher.close()
    printed = capsys.readouterr().out.split()
    assert " ".join(printed) == "one one closed two two two two two closed closed three closed"
    assert dispatcher.failures == 0
    said = [text for text in caplog.messages if text.startswith("handler ")]
    assert "mine.py:2: " in said[0] and "stays in use" in said[0]
    assert said[1].endswith("; trying again")
    assert said[2].endswith(" of shard-0 (pk=a) after 1 s and 4 tries") and len(said) == 3
    assert sum(text.startswith("Reloaded: ") for text in caplog.messages) == 3


@pytest.mark.parametrize("kind", ["", "async "])
def test_what_the_older_one_keeps_back_is_brought_out_before_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """Else a checkpoint would pass it, and nobody had it."""
    file = tmp_path / "mine.py"
    text = "kept = []\ndef handle(record): kept.append('{}')\n"
    text += f"{kind}def flush(): print(*kept), kept.clear()\n"
    file.write_text(text.format("one"))
    clock = HandClock()
    made = Reloading(lambda: handler_modules.load(handler_modules.described(file)), file, clock)
    dispatcher = Dispatcher([made], FailurePolicy(), clock=clock)
    dispatcher.deliver(record(1))
    file.write_text(text.format("another"))
    clock.passed += 0.3
    dispatcher.page_end(SHARD)
    dispatcher.deliver(record(2))
    dispatcher.flush()
    dispatcher.close()
    assert capsys.readouterr().out.split() == ["one", "another"]
