"""Options that handler modules declare, and how their values get there."""

from pathlib import Path
from typing import Any

import pytest

from tests.simulator import Simulator
from tests.support.program import Program
from watcher.cli.command_line import CommandLine
from watcher.cli.handler_flags import Choice
from watcher.cli.invocation import Invocation
from watcher.delivery import handler_modules
from watcher.errors import UsageError

TALLY = """
OPTIONS = {"out_file": ("PATH", "where to"), "loud": (None, "100% louder")}
given = None
def configure(**options):
    global given
    given = options
def handle(record):
    return given
"""


def chosen(*arguments: str) -> list[Any]:
    """What each of the chosen handlers was configured with."""
    line = Invocation(CommandLine("watch", ["orders", *arguments]))
    loaded = Choice(handler_modules.find(), line.origins, line.values).load()
    return [observer.handle(None) for observer in loaded]  # type: ignore[arg-type]


def test_those_given_reach_the_module_before_its_first_record(folder: Path) -> None:
    (folder / "counters.py").write_text(TALLY)
    assert chosen("--counters") == [{}]
    assert chosen("--counters", "--out-file", "x", "--loud") == [{"out_file": "x", "loud": True}]
    assert chosen("--loud") == [{"loud": True}], "an option chooses its handler"


def test_one_that_two_declare_is_theirs_together(folder: Path) -> None:
    (folder / "counters.py").write_text(TALLY)
    (folder / "other.py").write_text(TALLY)
    assert chosen("--counters", "--other", "--loud") == [{"loud": True}] * 2
    assert chosen("--other", "--loud") == [{"loud": True}]
    with pytest.raises(
        UsageError, match="--loud is an option of --counters and --other: choose one"
    ):
        chosen("--loud")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("OPTIONS = {'x': ('V', 'h')}\ndef handle(r): ...", "OPTIONS, but no function configure"),
        ("OPTIONS = dict(x=1)\ndef handle(r): ...", "counters.py: write OPTIONS as a literal"),
        ("OPTIONS = {'x': 1}\ndef handle(r): ...", "counters.py: write OPTIONS as a literal"),
        (
            TALLY + "def configure(**o): raise ValueError('--x 3: no')",
            "handler counters: --x 3: no",
        ),
        (TALLY + "def configure(**o): open('/nosuch/y')", "can't open /nosuch/y: No such file"),
        (TALLY + "def configure(**o): 1/0", "counters.py can't be configured: ZeroDivisionError"),
    ],
)
def test_a_module_that_cannot_be_configured_is_refused(folder: Path, text: str, words: str) -> None:
    (folder / "counters.py").write_text(text)
    with pytest.raises(UsageError) as caught:
        chosen("--counters")
    assert words in str(caught.value)


def test_an_option_of_watchers_own_is_refused_by_the_files_name(folder: Path) -> None:
    (folder / "counters.py").write_text("OPTIONS = {'verbose': (None, 'x')}")
    with pytest.raises(UsageError, match=r"counters\.py: --verbose is an option of watcher"):
        chosen()


def names(*words: str) -> list[str]:
    line = Invocation(CommandLine("watch", ["orders", *words]))
    return Choice(handler_modules.find(), line.origins, line.values).chosen


def test_a_short_name_is_that_of_the_help(folder: Path) -> None:
    (folder / "process_stats.py").write_text("def handle(record): ...")
    assert names("-ps") == ["--print-summary"]
    assert names("-ps", "--process-stats") == ["--print-summary", "--process-stats"]


def test_a_setting_of_lambda_that_changes_nothing_needs_no_function(folder: Path) -> None:
    assert names("-ps", "--batch-size", "100") == ["--print-summary"]
    with pytest.raises(UsageError, match="--batch-size is a setting of --lambda: give"):
        names("-ps", "--batch-size", "3")


@pytest.mark.parametrize(
    "words", ["-ps --region us-east-1", "--only=insert -ps", "--no-follow -ps"]
)
def test_a_module_that_is_called_like_an_option_is_passed_over(folder: Path, words: str) -> None:
    for name in ("region", "only", "no_follow"):
        (folder / f"{name}.py").write_text("def handle(record): ...")
    assert names(*words.split()) == ["--print-summary"]


def test_no_file_of_the_folder_stands_in_for_another_module(folder: Path) -> None:
    here = folder.parent
    for name in ("boto3", "signal", "logging", "argparse", "msgspec", "handlers/__init__"):
        (here / f"{name}.py").write_text('open("ran", "w").close()\nraise SystemExit(77)\n')
    (here / "beside.py").write_text('word = "beside"')
    (folder / "mine.py").write_text("import beside\ndef handle(record): print(beside.word)")
    with Simulator(table="orders") as sim:
        sim.write("a")
        words = ("orders", "--from", "trim-horizon", "--no-follow", "--mine")
        with Program(*words, env=sim.environment, cwd=here) as program:
            assert program.wait() == 0, program.err
    assert program.out == ["beside"] and not (here / "ran").exists()
