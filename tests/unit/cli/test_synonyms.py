"""What hands used to other tools type: it works, or the line that does is named."""

from __future__ import annotations

import logging

import pytest

from tests.simulator import Simulator
from watcher import cli
from watcher.cli.command_line import COMMANDS, CommandLine, named
from watcher.cli.invocation import Invocation
from watcher.cli.synonyms import ADVICE, OPTIONS, VERBS, command_for
from watcher.errors import UsageError


def values(words: str) -> dict[str, object]:
    name, rest = named(words.split())
    return Invocation(CommandLine(name, rest)).values


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("orders --csv", "handler_print_csv", True),
        ("orders --table", "handler_print_table", True),
        ("orders --format jsonl", "output", "jsonl"),
        ("orders --start-time 2h", "start", "2h"),
        ("orders --end-time=1h", "until", "1h"),
        ("orders --from-beginning", "start", "trim-horizon"),
        ("orders --lines 3", "tail", 3),
        ("orders --timeout 5", "max_seconds", 5.0),
        ("orders --event-type INSERT", "only", ["INSERT"]),
        ("orders --no-color", "color", "never"),
        ("orders --no-colour", "color", "never"),
        ("orders --summary", "handler_print_summary", True),
        ("orders --aws-region r", "region", "r"),
        ("orders --events INSERT", "only", ["INSERT"]),
        ("list-streams --table-name orders", "table", "orders"),
    ],
)
def test_other_tools_options_work(words: str, name: str, value: object) -> None:
    assert values(words)[name] == value


@pytest.mark.parametrize(
    "words", ["--table-name orders", "--table-name=orders", "--stream-arn orders", "--arn orders"]
)
def test_what_stands_behind_a_table_option_is_the_stream(words: str, simulator: Simulator) -> None:
    line = [*words.split(), "--from", "trim-horizon", "--no-follow", "--region", "us-east-1"]
    assert cli.main([*line, "--endpoint-url", simulator.endpoint]) == 0


def test_list_tables_and_version_are_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("list", "tables", "list-tables", "list-streams", "ls"):
        assert named([word, "--region", "r"]) == ("streams", ["--region", "r"])
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out.startswith("watcher ")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("rollback orders --from 1h", "python -m watcher undo orders --from 1h"),
        ("blame orders --key PK=a", "python -m watcher history orders --key PK=a"),
        ("logs orders", "python -m watcher orders"),
        ("stats orders", "python -m watcher count orders"),
        ("clone orders orders2", "python -m watcher replicate orders --to orders2"),
        ("copy orders ./lake", "python -m watcher mirror orders --to ./lake"),
        ("stash orders", "python -m watcher archive orders"),
        ("archve orders", "python -m watcher archive orders"),
        ("rolback orders", "python -m watcher undo orders"),
        ("describe table orders", "python -m watcher shards orders"),
        ("get streams -o wide", "python -m watcher streams"),
        ("show orders@1h", "python -m watcher as-of orders 1h"),
        ("blame orders PK=a SK=b", "python -m watcher history orders --key PK=a --key SK=b"),
        ("stats orders --no-stream 1", "python -m watcher count orders"),
        ("dynamodb scan --table-name orders", "python -m watcher as-of orders"),
    ],
)
def test_an_unknown_word_before_a_table_starts_no_watch(
    words: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "watcher")
    with pytest.raises(UsageError) as caught:
        Invocation(CommandLine("watch", words.split())).run()
    assert f"did you mean: {line} (" in f"{caught.value} ("


def test_a_first_word_that_is_no_table_starts_no_watch(
    simulator: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["activate", "orders", "--region", "us-east-1", "--endpoint-url", simulator.endpoint]
    assert cli.main([*line, "--no-follow"]) == 3
    told = capsys.readouterr().err
    assert "no table 'activate' in us-east-1: check the name" in told
    assert "to watch the rest: python -m watcher orders" in told
    assert cli.main(["orders", "nope", *line[2:], "--no-follow"]) == 3
    assert "the others are watched" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("orders --since 1hr ago", "an age is one word: 1h, or '1h ago' in quotes"),
        ("orders history user-1", "the command stands first: python -m watcher history orders"),
    ],
)
def test_a_later_word_that_is_known_for_something_else_starts_no_watch(
    words: str, says: str, simulator: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [*words.split(), "--region", "us-east-1", "--endpoint-url", simulator.endpoint]
    assert cli.main(line) == 3
    assert says in capsys.readouterr().err


def test_a_watch_of_all_streams_has_no_first_word(simulator: Simulator) -> None:
    line = ["--all", "--region", "us-east-1", "--endpoint-url", simulator.endpoint]
    assert cli.main([*line, "--no-follow"]) == 0


def test_a_wrong_option_of_a_mistyped_command_names_the_command() -> None:
    line = "python -m watcher archive orders --to x"
    with pytest.raises(UsageError, match=f"unknown --to; did you mean: {line}"):
        values("archve orders --to x")


def test_every_synonym_leads_to_something_that_there_is() -> None:
    assert not set(VERBS) & set(COMMANDS)
    assert set(VERBS.values()) <= set(COMMANDS)
    taken = Invocation(CommandLine("watch", ["orders"])).values
    assert taken
    for ours in filter(None, OPTIONS.values()):
        flag = ours.split()[0]
        with pytest.raises(UsageError) as caught:
            Invocation(CommandLine("watch", ["orders", flag, "--no-such"]))
        assert f"unknown {flag};" not in str(caught.value)


def test_a_word_that_is_near_to_nothing_may_be_a_table() -> None:
    assert command_for("customers", COMMANDS) is None


@pytest.mark.parametrize(
    "option", sorted({*ADVICE} - {*OPTIONS, "--from", "--yes", "--json", "--table"})
)
def test_an_option_that_nothing_stands_for_is_answered_with_what_to_do(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["orders", option, "x"]) == 2
    assert capsys.readouterr().err == f"error: unknown {option}; {ADVICE[option]}\n"


def test_tail_takes_no_part_of_a_word_for_its_count() -> None:
    name, words = named(["tail", "my-new-table", "-n", "3", "--no-follow"])
    invocation = Invocation(CommandLine(name, words))
    assert invocation.operands == ["my-new-table"]
    assert (invocation.values["tail"], invocation.values["follow"]) == (3, False)
