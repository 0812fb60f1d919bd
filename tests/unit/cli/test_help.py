"""Every page of help fits a screen, and every way that people ask for it works."""

from pathlib import Path

import pytest

from tests.support.program import run
from watcher.cli.command_line import COMMANDS, GROUPS

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


@pytest.mark.parametrize(
    "words",
    [
        *(f"--help {topic}" for topic in (*GROUPS, "defaults")),
        *(
            pytest.param(f"{name} --help", marks=[pytest.mark.spark] if name in ON_SPARK else [])
            for name in COMMANDS
            if name not in ("watch", "help")
        ),
    ],
)
def test_each_page_fits_a_screen(words: str) -> None:
    lines = printed(*words.split())
    assert fits(lines)
    assert words.startswith("-") or lines[0].startswith(f"usage: python -m watcher {words[:-7]} ")


WAYS = {
    "--help": ["help", "-h", "orders --help", "help watch", "orders --from 1h --no-such --help"],
    "--help filters": ["help filters", "--help=filters", "orders -hfilters", "orders -vh filters"],
    "shards --help": ["help shards", "--help shards", "shards -h", "shards x --help="],
    "shards --help aws": ["shards --help=aws"],
    "--version": ["orders --version"],
}


@pytest.mark.parametrize(("way", "others"), WAYS.items())
def test_there_are_several_ways_to_ask(way: str, others: list[str]) -> None:
    page = printed(*way.split())
    for each in others:
        assert printed(*each.split()) == page, each


@pytest.mark.parametrize("words", ["--help filtres", "--help=filtres", "orders -hfiltres"])
def test_an_unknown_topic_is_told_the_nearest(words: str) -> None:
    program = run(*words.split(), env={})
    assert program.status == 2
    assert program.err == ["error: no help on filtres: did you mean filters?"]
