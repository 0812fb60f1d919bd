"""How the words of a command line are read, and what is said of those that can't be."""

import importlib
import os
import re
import signal
import subprocess
import sys
import time
from inspect import Parameter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.simulator import Simulator
from watcher.cli import main
from watcher.cli.command_line import COMMANDS, CommandLine, named, parameters
from watcher.cli.completion import candidates
from watcher.cli.invocation import Invocation, app, arguments
from watcher.cli.options import flags_of
from watcher.errors import UsageError
from watcher.records.record import Record

KNOWN_ELSEWHERE = [
    # kubectl, stern
    "--since=1h",
    "-f",
    "-o json",
    "--no-follow",
    # the aws CLI
    "--query x",
    "--output json",
    "--max-items 5",
    "--debug",
    "--profile p",
    "--region r",
    "--endpoint-url u",
    # jq, gh
    "--jq .key",
    "--limit 5",
    "--json",
    # all of them
    "-v",
    "--no-color",
]


@pytest.mark.parametrize("words", KNOWN_ELSEWHERE)
def test_an_option_that_other_tools_have_under_another_name_works(words: str) -> None:
    assert Invocation(CommandLine("watch", ["orders", *words.split()]))


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("--since 2h -f", "--from 2h --follow"),
        ("--since=2h", "--from=2h"),
        ("--limit 3 --no-color --debug", "--max-records 3 --color never --verbose"),
        ("--max-items 3 --once", "--max-records 3 --no-follow"),
        ("--query x --json", "--jmespath x --print-json"),
        ("--jq=x", "--jmespath=x"),
    ],
)
def test_an_option_of_another_tool_is_ours(typed: str, ours: str) -> None:
    read = [Invocation(CommandLine("watch", ["orders", *each.split()])) for each in (typed, ours)]
    assert read[0].values == read[1].values


def test_what_a_command_has_no_option_for_stays_as_it_was_typed() -> None:
    with pytest.raises(UsageError, match="unknown --limit"):
        Invocation(CommandLine("shards", ["orders", "--limit", "3"]))
    with pytest.raises(UsageError, match="one word too many: --since"):
        Invocation(CommandLine("shards", ["orders", "--", "--since"]))


def test_a_commands_own_option_wins_over_another_tools() -> None:
    pytest.importorskip("pyspark")
    line = Invocation(CommandLine("archive", ["orders", "--to", "x", "--once"]))
    assert line.values["once"] is True


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("--limit=5", "max_records", 5),
        ("--limit 5", "max_records", 5),
        ("--max-records=5", "max_records", 5),
        ("--max-records 5 --max-records 6", "max_records", 6),
        ("--retries -1 --lambda a.f", "retries", -1),
        ("--retries=-1 --lambda a.f", "retries", -1),
        ("-q", "quiet", True),
        ("-ojson", "output", "json"),
        ("-o jsonl", "output", "jsonl"),
        ("--prefix", "prefix", True),
        ("--summary", "handler_print_summary", True),
        ("--diff", "handler_print_diff", True),
        ("--no-follow", "follow", False),
        ("--no-follow --follow", "follow", True),
        ("--utc --no-utc", "utc", False),
        ("--no-status", "status", False),
        ("--status", "status", True),
        ("--key a=-5 --key=b=1", "key", ["a=-5", "b=1"]),
        ("--key=-5", "key", ["-5"]),
        ("--key - --checkpoint -", "key", ["-"]),
        ("--key - --checkpoint -", "checkpoint", "-"),
        ("--only insert,modify --only remove", "only", ["insert,modify", "remove"]),
        ('--filter {"a":[1]} --filter [1,2]', "filters", ['{"a":[1]}', "[1,2]"]),
        ("--from=none", "start", "none"),
        ("--poll-max 1e3", "poll_max", 1000.0),
        ("", "only", None),
        ("", "on_error", None),
    ],
)
def test_options_are_read_as_people_write_them(words: str, name: str, value: object) -> None:
    assert Invocation(CommandLine("watch", ["orders", *words.split()])).values[name] == value


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("orders --zzz", "unknown --zzz; --help lists the options"),
        ("orders --frm=1h", "unknown --frm; did you mean --from?"),
        ("orders --sumary", "unknown --sumary; did you mean --print-summary?"),
        ("orders --jsno", "unknown --jsno; did you mean --print-json?"),
        ("orders -json", "unknown -json; did you mean --print-json?"),
        ("orders --form=1h", "unknown --form; did you mean --from, --output or --log-format?"),
        ("orders --xyzzy", "unknown --xyzzy; --help lists the options"),
        ("orders --no-max-records", "unknown --no-max-records; did you mean --max-records?"),
        ("orders --empty-only", "unknown --empty-only; did you mean --only?"),
        ("orders -psv", "unknown -psv; did you mean -ps?"),
        ("orders -v5", "unknown -v5; did you mean -v?"),
        ("orders -vps", "unknown -vps; did you mean -ps?"),
        ("orders --from", "--from: give a value (START)"),
        ("orders --from -2h", "--from: give a value (START)"),
        ("orders --max-records 1.7", "--max-records 1.7 is not a whole number"),
        ("orders -n 3", "-n: say --tail 3 (the last 3, then go on; --no-follow: only those) or "),
        ("orders -n3", "-n3: say --tail 3"),
        ("orders --max-records -", "--max-records - is not a whole number"),
        ("orders --poll-max soon", "--poll-max soon is not a number"),
        ("orders --utc=maybe", "--utc maybe is not yes or no"),
        ("orders --engine flink", "--engine flink: use processes or spark"),
    ],
)
def test_what_is_wrong_is_said_in_a_line_of_ours(words: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Invocation(CommandLine("watch", words.split()))
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("words", "tail"),
    [
        ("tail orders", 10),
        ("tail orders -n 5", 5),
        ("tail -n5 orders", 5),
        ("tail orders --tail 3", 3),
        ("tail orders --from 2h", None),
        ("orders", None),
    ],
)
def test_tail_begins_with_the_last_changes(words: str, tail: int | None) -> None:
    name, rest = named(words.split())
    assert Invocation(CommandLine(name, rest)).values["tail"] == tail


def test_ls_lists_streams_and_a_table_may_be_called_tail() -> None:
    assert named(["ls", "--region", "r"]) == ("streams", ["--region", "r"])
    assert named(["tail"]) == ("watch", ["tail"])


def test_a_quiet_or_verbose_may_stand_before_the_command() -> None:
    assert named(["-q", "report", "orders"]) == ("report", ["-q", "orders"])
    assert named(["--verbose", "orders"]) == ("watch", ["--verbose", "orders"])


@pytest.mark.parametrize(
    ("name", "words", "advice"),
    [
        ("watch", ["orders", "--key", "PK=a", "SK=5"], "'SK=5': say --key SK=5"),
        ("watch", ["orders", "--key", "PK=a", "--tag", "b=c", "d=e"], "'d=e': say --tag d=e"),
        ("history", ["orders", "PK=a"], "'PK=a': say --key PK=a"),
        ("history", ["orders", "--key", "PK=a", "SK=5"], "'SK=5': say --key SK=5"),
        ("shards", ["orders", "SK=5"], "'SK=5': it names no stream"),
        ("watch", ["a", "--filter", '{"b":', '["C"]}'], """'["C"]}': quote the JSON"""),
    ],
)
def test_what_no_quotes_have_kept_with_its_option_is_named(
    name: str, words: list[str], advice: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(f"can't use {advice}")):
        Invocation(CommandLine(name, words))


def test_without_a_word_a_few_lines_say_where_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == UsageError.exit_status
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 5
    assert "watcher demo" in told.err
    assert "--help" in told.err


def test_quiet_leaves_only_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    with Simulator(table="orders") as sim:
        sim.bulk(2)
        words = "orders --from trim-horizon --no-follow -q -ps --region us-east-1 --endpoint-url"
        assert main([*words.split(), sim.endpoint]) == 0
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 2
    assert told.err == ""


def test_a_dash_is_an_operand_and_behind_two_nothing_is_an_option(tmp_path: Path) -> None:
    assert Invocation(CommandLine("report", ["-", "-o", "-"])).values["output"] == "-"
    assert Invocation(CommandLine("replay", ["--", "-ps"]))
    assert Invocation(CommandLine("replay", ["-- the file of yesterday"]))
    assert Invocation(CommandLine("replay", ["-ps", "-"]))
    for words in (["--bogus"], ["--bogus", "x"], ["x", "--bogus"]):
        with pytest.raises(UsageError, match="unknown --bogus"):
            Invocation(CommandLine("replay", words))


def test_advice_names_only_what_the_command_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shards", "orders", "--last", "1h"]) == 2
    assert capsys.readouterr().err == "error: unknown --last; --help lists the options\n"


def test_a_text_with_a_space_is_one_word_too_many() -> None:
    with pytest.raises(UsageError, match=r"^one word too many: --foo bar; it is"):
        Invocation(CommandLine("shards", ["orders", "--foo bar"]))


def test_the_first_of_several_words_too_many_is_named() -> None:
    with pytest.raises(UsageError, match=r"^one word too many: x; say --table x$"):
        Invocation(CommandLine("streams", ["x", "y"]))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("words", "missing"), [([], "STREAM, [STREAM…] SQL"), (["orders"], "[STREAM…] SQL")]
)
def test_each_missing_operand_is_named(words: list[str], missing: str) -> None:
    with pytest.raises(
        UsageError, match=f"^the following arguments are required: {re.escape(missing)}$"
    ):
        Invocation(CommandLine("query", words))


@pytest.mark.spark
def test_an_option_that_has_to_be_given_is_named() -> None:
    with pytest.raises(UsageError, match=r"^the following arguments are required: --to$"):
        Invocation(CommandLine("archive", ["orders"]))


@pytest.mark.parametrize("name", ["watch", "count", "undo", "verify", "mirror", "report"])
def test_options_that_a_line_does_not_give_have_their_declared_values(name: str) -> None:
    declared = parameters(CommandLine(name))
    words = [
        "x" if each.kind is not each.KEYWORD_ONLY else f"{flags_of(each)[0]}=x"
        for each in declared
        if each.default is each.empty
    ]
    read = Invocation(CommandLine(name, [*words, "--verbose"])).values
    expected = {each.name: each.default for each in declared if each.kind is each.KEYWORD_ONLY}
    expected = {name: value for name, value in expected.items() if value is not Parameter.empty}
    assert read.items() >= (expected | {"verbose": True}).items()


def test_one_word_too_many_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shards", "orders", "more"]) == 2
    assert capsys.readouterr().err == "error: one word too many: more; it is about one STREAM\n"


def test_every_value_that_a_tab_offers_is_one_that_the_option_takes() -> None:
    offered = 0
    for option in ("--from", "--only", "--on-error", "--color", "--engine", "--log-format", "-o"):
        for value, _ in candidates(["orders", option, ""]):
            word = value + {"retry:": "3", "dead-letter:": "x"}.get(value, "")
            assert Invocation(CommandLine("watch", ["orders", option, word]))
            offered += 1
    assert offered == 27


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_stands_where_the_table_says(name: str) -> None:
    module = importlib.import_module(f"watcher.cli.{COMMANDS[name].module}")
    assert callable(getattr(module, f"{name.replace('-', '_')}_command"))


def test_no_two_options_of_a_command_have_a_name_together() -> None:
    for name in ("watch", "streams", "shards", "report", "replay", "demo"):
        names = [each for argument in arguments(app(CommandLine(name))) for each in argument.names]
        assert len(names) == len(set(names)), name


def test_two_names_for_one_checkpoint_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["orders", "--checkpoint", "a.json", "--checkpoint", "dynamodb://t/n"]) == 2
    told = "error: --checkpoint: give one: it holds all streams of a watch\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        ("main(['--version'])", {"logging", "inspect", "watcher.cli.program"}),
        ("main(['--help'])", {"cyclopts", "msgspec", "botocore", "rich", "multiprocessing"}),
        ("main(['--wrong'])", {"msgspec", "boto3", "botocore", "rich"}),
        ("import watcher.stream", {"cyclopts", "boto3", "rich"}),
    ],
)
def test_a_start_imports_only_what_it_needs(program: str, absent: set[str]) -> None:
    code = f"from watcher.cli import main; {program}; import sys; print(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert not absent & set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "options",
    ["", "--no-follow", "--no-follow --print-summary --who .", "--max-records 50"],
)
def test_a_signal_ends_any_watch_with_0(
    options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(record: Record) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        return ""

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("watcher.cli.history_commands.summary_line", stop)  # with --who
    monkeypatch.setitem(sys.modules, "stopped_by", SimpleNamespace(one=stop))
    with Simulator(table="orders", clock=lambda: time.time() - 3600) as simulator:
        for name, value in simulator.environment.items():
            monkeypatch.setenv(name, value)
        simulator.bulk(20)
        handlers = [] if "--who" in options else ["--call", "stopped_by:one"]
        assert main(["orders", "--from", "trim-horizon", *options.split(), *handlers]) == 0
