"""Every page of help fits a screen, and every way that people ask for it works."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.program import run
from watcher.cli.command_line import COMMANDS, GROUPS, CommandLine, parameters

SCREEN = {"COLUMNS": "80"}
ON_SPARK = ("query", "archive", "replicate")


def printed(*arguments: str, cwd: Path | None = None) -> list[str]:
    program = run(*arguments, env=SCREEN, cwd=cwd)
    assert program.status == 0, program.err
    assert program.err == []
    return program.out


def fits(lines: list[str], height: int = 40) -> bool:
    return len(lines) <= height and all(len(line) <= 80 for line in lines)


def test_the_first_page_fits_a_screen_and_names_everything(tmp_path: Path) -> None:
    (tmp_path / "handlers").mkdir()
    (tmp_path / "handlers" / "mine.py").write_text('"""Do 100% of it."""\n')
    lines = printed("--help", cwd=tmp_path)
    assert fits(lines)
    text = "\n".join(lines)
    assert all(f"  {name} " in text for name in COMMANDS if name not in ("watch", "help"))
    assert all(f"  {name} " in text for name in GROUPS)
    assert "  handlers     --mine " in text
    assert "Do 100% of it." in "\n".join(printed("--help", "handlers", cwd=tmp_path))


@pytest.mark.parametrize("topic", [*GROUPS, "defaults"])
def test_each_group_fits_a_screen(topic: str) -> None:
    assert fits(printed("--help", topic))


def test_each_option_stands_in_one_group_and_in_all() -> None:
    everything = printed("--help", "all")
    for argument in parameters(CommandLine("watch")):
        names = ", ".join(argument.shown)
        rows = [line for line in everything if line.startswith((f"  {names} ", f"  {names}\n"))]
        assert argument.is_operand or len(rows) == 1, names
    titles = [line.removesuffix(":") for line in everything if line and line[0] != " "]
    assert titles[1:] == [
        "See every change of a DynamoDB table, live and in order.",
        "arguments",
        "options",
        *GROUPS,
    ]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(name, marks=[pytest.mark.spark] if name in ON_SPARK else [])
        for name in COMMANDS
        if name not in ("watch", "help")
    ],
)
def test_each_commands_help_fits_a_screen(command: str) -> None:
    lines = printed(command, "--help")
    assert fits(lines)
    assert lines[0].startswith(f"usage: python -m watcher {command} ")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["help"], ["--help"]),
        (["-h"], ["--help"]),
        (["orders", "--help"], ["--help"]),
        (["help", "filters"], ["--help", "filters"]),
        (["help", "shards"], ["shards", "--help"]),
        (["--help", "shards"], ["shards", "--help"]),
        (["help", "watch"], ["--help"]),
        (["shards", "-h"], ["shards", "--help"]),
        (["--help=filters"], ["--help", "filters"]),
        (["orders", "-hfilters"], ["--help", "filters"]),
        (["orders", "-vh", "filters"], ["--help", "filters"]),
        (["shards", "--help=aws"], ["shards", "--help", "aws"]),
        (["shards", "x", "--help="], ["shards", "--help"]),
        (["orders", "--version"], ["--version"]),
        (["orders", "--from", "1h", "--no-such", "--help"], ["--help"]),
    ],
)
def test_there_are_several_ways_to_ask(one: list[str], other: list[str]) -> None:
    assert printed(*one) == printed(*other)


@pytest.mark.parametrize("words", ["--help filtres", "--help=filtres", "orders -hfiltres"])
def test_an_unknown_topic_is_told_the_nearest(words: str) -> None:
    program = run(*words.split(), env={})
    assert program.status == 2
    assert program.err == ["error: no help on filtres: did you mean filters?"]


def test_a_version_that_can_not_be_written_is_an_error_in_a_line() -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "watcher", "--version"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    told = "error: can't write standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (3, told)
