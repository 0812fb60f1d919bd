"""Errors about values that the command line does not give say where those are from."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulator import RemoteSimulator, Simulator
from tests.support.program import run
from watcher import Stream, as_of, undo, watch
from watcher.cli import main
from watcher.cli.command_line import CommandLine
from watcher.cli.handler_flags import Choice
from watcher.cli.invocation import Invocation
from watcher.delivery.handler_modules import find
from watcher.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, and a home without files of defaults."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WATCHER_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture(scope="module")
def sim() -> Iterator[RemoteSimulator]:
    with Simulator.spawn(table="orders") as simulator:
        simulator.bulk(5)
        yield simulator


def test_the_streams_of_an_endpoint_that_does_not_answer(folder: Path) -> None:
    program = run("streams", env={"WATCHER_ENDPOINT_URL": "http://127.0.0.1:1"}, cwd=folder)
    assert program.status == 3
    assert program.err[-1].endswith("(--endpoint-url is from WATCHER_ENDPOINT_URL)")


def test_a_watch_that_a_default_stops_says_which(sim: RemoteSimulator, folder: Path) -> None:
    (folder / "app.py").write_text("def bad(record): 1 / 0")
    environment = {**sim.environment, "WATCHER_ON_ERROR": "stop", "WATCHER_CALL": "app:bad"}
    program = run("orders", "--from", "trim-horizon", "--no-follow", env=environment, cwd=folder)
    assert program.status == 1
    origins = "(--on-error is from WATCHER_ON_ERROR, --call is from WATCHER_CALL)"
    assert program.err[-1].endswith(f"stopped before it {origins}")


@pytest.mark.parametrize("words", ["no good: {level}", "--level {level}: no"])
def test_a_handlers_own_value_that_is_refused_says_where_it_is_from(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    (folder / "handlers").mkdir()
    (folder / "handlers" / "cfg.py").write_text(
        'OPTIONS = {"level": ("N", "how much")}\n'
        f"def configure(level): raise ValueError(f'{words}')\ndef handle(record): ..."
    )
    (folder / "watcher.toml").write_text("level = 5")
    monkeypatch.setenv("WATCHER_CONFIG", "watcher.toml")
    line = Invocation(CommandLine("watch", ["orders"]))
    with pytest.raises(UsageError) as caught:
        Choice(find(), line.origins, line.values).load()
    text = words.format(level=5)
    assert line.explain(caught.value) == f"handler cfg: {text} (--level is from watcher.toml)"


@pytest.mark.parametrize("word", ["none", "null"])
@pytest.mark.parametrize(
    ("option", "said"),
    [("--tail", "is not a whole number"), ("--poll-max", "give a duration")],
)
def test_a_number_that_need_not_be_given_is_a_number(option: str, said: str, word: str) -> None:
    with pytest.raises(UsageError, match=f"{option} '?{word}'?:? {said}"):
        Invocation(CommandLine("watch", ["orders", option, word]))


UNCLEAR = ("14:05 EST", "08:00-09:00", "10.11.2026", "2026-11", "5M", "5ss")


@pytest.mark.parametrize(
    "command",
    [
        *("watch orders --from", "report orders --from", "count orders --from"),
        *("history orders --key a=b --from", "history orders --key a=b --from 1h --until"),
        *(
            "as-of orders",
            "as-of orders --at",
            "undo orders --from",
            "undo orders --from 1h --until",
        ),
        *(
            "replay /dev/null --print-record --until",
            "watch orders --from 1h --until",
            "live orders --from",
        ),
    ],
)
def test_a_time_that_could_be_several_is_refused_with_what_it_could_be(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in UNCLEAR:
        assert main([*command.split(), text]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"can't read {text!r}" in line and "an age like 2h" in line


def test_so_it_is_in_a_program() -> None:
    for text in UNCLEAR:
        for call in (
            lambda start: watch("orders", [print], start=start),
            lambda start: watch("orders", [print], start="1h", until=start),
            lambda start: Stream("orders", start, region="us-east-1"),
            lambda start: undo("orders", start=start, region="us-east-1"),
            lambda start: as_of("orders", at=start, region="us-east-1"),
        ):
            with pytest.raises(UsageError, match=r"can't read .* an age like 2h"):
                call(text)
