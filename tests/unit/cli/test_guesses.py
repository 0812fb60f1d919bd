"""First guesses of people used to other tools, of which `scripts/bench guesses` keeps the score."""

from collections import Counter

import pytest

from scripts.benchmarks import guesses
from tests.simulator import Simulator
from watcher import cli
from watcher.cli.command_line import CommandLine
from watcher.cli.invocation import Invocation
from watcher.errors import UsageError


def test_of_100_guesses_95_work_or_are_redirected_and_none_does_something_else() -> None:
    results = list(guesses.judged(guesses.read()))
    outcomes = Counter(each.outcome for each in results)
    others = [each for each in results if each.outcome not in ("works", "redirected")]
    assert len(results) >= 100
    assert outcomes["misled"] == 0, others
    assert len(others) <= len(results) / 20, others


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("1.5m", 90), ("2h", 7200), ("5", 5)])
def test_seconds_may_have_a_unit(text: str, seconds: float) -> None:
    line = CommandLine("watch", ["orders", "--max-seconds", text])
    assert Invocation(line).values["max_seconds"] == seconds


def test_undo_at_a_time_is_undo_to_it() -> None:
    assert Invocation(CommandLine("undo", ["orders", "--at", "1h"])).values["to"] == "1h"


@pytest.mark.parametrize("word", [".NewImage.total", "select(.total)", "changes.sql", "app.py"])
def test_a_later_word_that_is_no_tables_name_starts_no_watch(
    word: str, simulator: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["orders", word, "--region", "us-east-1", "--endpoint-url", simulator.endpoint]
    assert cli.main([*line, "--no-follow"]) == 3
    assert repr(word) in capsys.readouterr().err


def test_a_template_that_shows_nothing_of_a_change_is_refused() -> None:
    line = Invocation(CommandLine("watch", ["orders", "--template", "{{.Message}}"]))
    with pytest.raises(UsageError, match="it has no field"):
        line.run()


def test_a_jmespath_may_begin_as_jqs_do(
    simulator: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    simulator.bulk(1)
    line = ["orders", "--region", "us-east-1", "--endpoint-url", simulator.endpoint]
    words = ["--jq", ".eventName", "--from", "trim-horizon", "--no-follow"]
    assert cli.main([*line, *words]) == 0
    assert capsys.readouterr().out.strip() == '"INSERT"'
