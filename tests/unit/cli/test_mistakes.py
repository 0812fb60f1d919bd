"""Errors about values that the command line does not give say where those are from."""

from pathlib import Path

import pytest

from tests.support.program import run, told


def test_the_streams_of_an_endpoint_that_does_not_answer(tmp_path: Path) -> None:
    program = run("streams", env={"WATCHER_ENDPOINT_URL": "http://127.0.0.1:1"}, cwd=tmp_path)
    assert program.status == 3
    assert program.err[-1].endswith("(--endpoint-url is from WATCHER_ENDPOINT_URL)")


UNCLEAR = ("14:05 EST", "08:00-09:00", "10.11.2026", "2026-11", "5M", "5ss")


@pytest.mark.parametrize(
    "command",
    [
        *(f"{each} orders --from" for each in ("watch", "report", "count", "undo", "live")),
        *("history orders --key a=b --from", "history orders --key a=b --from 1h --until"),
        *("as-of orders", "undo orders --from 1h --until"),
        "watch orders --from 1h --until",
    ],
)
def test_a_time_that_could_be_several_is_refused_with_what_it_could_be(command: str) -> None:
    for text in UNCLEAR:
        (line,) = told(2, *command.split(), text).err
        assert f"can't read {text!r}" in line and "an age like 2h" in line
