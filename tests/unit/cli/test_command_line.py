"""How the words of a command line are read, and what is said of those that can't be."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.simulator import Simulator
from watcher.cli import main
from watcher.cli.command_line import CommandLine, command_line, parameters
from watcher.cli.completion import complete_value
from watcher.cli.invocation import Invocation
from watcher.cli.options import REQUIRED
from watcher.errors import UsageError
from watcher.records.record import Record


@pytest.mark.parametrize(
    ("alias", "ours"),
    [
        ("--since=2h -f", "--from=2h --follow"),
        ("-n 3 --once", "--tail 3 --no-follow"),
        ("--where total", "--filter total"),
    ],
)
def test_an_alias_is_its_option(alias: str, ours: str) -> None:
    read = [Invocation(CommandLine("watch", ["orders", *each.split()])) for each in (alias, ours)]
    assert read[0].values == read[1].values


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("--max-records=5", "max_records", 5),
        ("--max-records 5 --max-records 6", "max_records", 6),
        ("--batch-size 9 --lambda a.f", "batch_size", 9),
        ("-q", "quiet", True),
        ("-ojson", "output", "json"),
        ("-o jsonl", "output", "jsonl"),
        ("--no-follow", "follow", False),
        ("--no-follow --follow", "follow", True),
        ("--utc --no-utc", "utc", False),
        ("--key a=-5 --key=b=1", "key", ["a=-5", "b=1"]),
        ("--key=-5", "key", ["-5"]),
        ("--key - --checkpoint -", "key", ["-"]),
        ("--key - --checkpoint -", "checkpoint", "-"),
        ("--only insert,modify --only remove", "only", ["insert,modify", "remove"]),
        ('--filter {"a":[1]} --filter [1,2]', "filters", ['{"a":[1]}', "[1,2]"]),
        ("--from=none", "start", "none"),
        ("--poll-max 500ms", "poll_max", 0.5),
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
        ("orders --print-sumary", "unknown --print-sumary; did you mean --print-summary?"),
        ("orders --no-max-records", "unknown --no-max-records; did you mean --max-records?"),
        ("orders -v5", "--verbose: it takes no value"),
        ("orders -psv", "unknown -psv; did you mean -ps?"),
        ("orders -p", "unknown -p; "),
        ("orders --grep --help", "--grep: give a value (TEXT)"),
        ("orders --region us-esat-1 --nofollow", "unknown --nofollow; did you mean --no-follow?"),
        ("orders --from", "--from: give a value (START)"),
        ("orders --from -2h", "--from: give a value (START)"),
        ("orders --max-records 1.7", "--max-records 1.7 is not a whole number"),
        ("orders --max-records -", "--max-records - is not a whole number"),
        ("orders --poll-max soon", "--poll-max soon: give a duration such as 500ms"),
        ("orders --utc=maybe", "--utc: it takes no value"),
        ("orders --engine flink", "--engine flink: use processes or spark"),
    ],
)
def test_what_is_wrong_is_said_in_a_line_of_ours(words: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Invocation(CommandLine("watch", words.split()))
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("verfy orders --with x", "; did you mean the command verify?"),
        ("orders --with x", "; --help lists the options"),
        ("watch verfy --with x", "; --help lists the options"),
    ],
)
def test_an_unknown_option_behind_a_mistyped_command_names_that_command(
    words: str, advice: str
) -> None:
    with pytest.raises(UsageError) as caught:
        Invocation(command_line(words.split()))
    assert str(caught.value) == f"unknown --with{advice}"


def test_a_fault_of_ours_ends_with_a_status_that_says_nothing_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Invocation) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(Invocation, "run", fail)
    assert main(["orders"]) == 3
    assert capsys.readouterr().err.endswith("ZeroDivisionError\n")


def test_a_table_may_have_any_name_and_a_command_stands_first() -> None:
    for words, name, rest in (
        ("-q report orders", "report", ["-q", "orders"]),
        ("-v orders", "watch", ["-v", "orders"]),
        ("teams users", "watch", ["teams", "users"]),
        ("tail ls", "watch", ["tail", "ls"]),
        ("-q ls", "watch", ["-q", "ls"]),
        ("watch shards", "watch", ["shards"]),
        ("-- shards", "watch", ["--", "shards"]),
    ):
        line = command_line(words.split())
        assert (line.name, line.words) == (name, rest)


@pytest.mark.parametrize("words", ["watch shards", "-- shards", "teams shards", "top", "diff tail"])
def test_a_table_named_like_a_command_is_watched(
    words: str, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [each for each in words.split() if each not in ("watch", "--")]
    for name in names:
        simulator.add_table(name)
    simulator.set_environment(monkeypatch.setenv)
    monkeypatch.setenv("WATCHER_NO_FOLLOW", "1")
    assert main(words.split()) == 0


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
    assert Invocation(CommandLine("report", ["-", "--to", "-"])).values["to"] == "-"
    assert Invocation(CommandLine("replay", ["--", "-ps"]))
    assert Invocation(CommandLine("replay", ["-- the file of yesterday"]))
    assert Invocation(CommandLine("replay", ["-ps", "-"]))
    for words in (["--bogus"], ["--bogus", "x"], ["x", "--bogus"]):
        with pytest.raises(UsageError, match="unknown --bogus"):
            Invocation(CommandLine("replay", words))


@pytest.mark.spark
@pytest.mark.parametrize(("words", "missing"), [([], "STREAM, SQL"), (["orders"], "SQL")])
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
        "x" if each.is_operand else f"{each.flags[0]}=x"
        for each in declared
        if each.default is REQUIRED
    ]
    read = Invocation(CommandLine(name, [*words, "--verbose"])).values
    options = [each for each in declared if not each.is_operand and each.default is not REQUIRED]
    expected = {each.name: each.default for each in options}
    assert read.items() >= (expected | {"verbose": True}).items()


def test_one_word_too_many_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shards", "orders", "more"]) == 2
    assert capsys.readouterr().err == "error: one word too many: more\n"


def test_every_value_that_a_tab_offers_is_one_that_the_option_takes() -> None:
    offered = 0
    options = {each.flags[0]: each for each in parameters(CommandLine("watch"))}
    for name in (
        "--from",
        "--only",
        "--on-error",
        "--color",
        "--engine",
        "--log-format",
        "--output",
    ):
        for value in complete_value(options[name], ""):
            word = value + {"retry:": "3", "dead-letter:": "x"}.get(value, "")
            assert Invocation(CommandLine("watch", ["orders", name, word]))
            offered += 1
    assert offered == 27


def test_no_two_options_of_a_command_have_a_name_together() -> None:
    for name in ("watch", "streams", "shards", "report", "replay", "demo"):
        known = parameters(CommandLine(name))
        names = [name for each in known for name in (*each.names, *each.negatives)]
        assert len(names) == len(set(names)), name


def test_two_names_for_one_checkpoint_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["orders", "--checkpoint", "a.json", "--checkpoint", "dynamodb://t/n"]) == 2
    told = "error: --checkpoint: give one: it holds all streams of a watch\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("1.5m", 90), ("2h", 7200), ("5", 5)])
def test_seconds_may_have_a_unit(text: str, seconds: float) -> None:
    line = CommandLine("watch", ["orders", "--stop-timeout", text])
    assert Invocation(line).values["stop_timeout"] == seconds


def test_a_template_that_shows_nothing_of_a_change_is_refused() -> None:
    line = Invocation(CommandLine("watch", ["orders", "--print-template", "{{.Message}}"]))
    with pytest.raises(UsageError, match="it has no field"):
        line.run()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("shrads", "no table 'shrads' in us-east-1: check the name, --region and --profile; did "),
        ("order", "no table 'order' in us-east-1: did you mean 'orders'?"),
    ],
)
def test_a_word_that_is_no_table_is_told_the_nearest_name(
    words: str, told: str, simulator: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [words, "--region", "us-east-1", "--endpoint-url", simulator.endpoint]
    assert main(line) == 3
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        ("main(['--version'])", {"logging", "inspect", "watcher.cli.program"}),
        ("main(['--help'])", {"argcomplete", "msgspec", "botocore", "multiprocessing"}),
        ("main(['--wrong'])", {"msgspec", "boto3", "botocore"}),
        ("import watcher.stream", {"argparse", "boto3"}),
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
    ["", "--no-follow", "--max-records 50"],
)
def test_a_signal_ends_any_watch_with_0(
    options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(record: Record) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        return ""

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "stopped_by", SimpleNamespace(one=stop))
    with Simulator(table="orders", clock=lambda: time.time() - 3600) as simulator:
        simulator.set_environment(monkeypatch.setenv)
        simulator.bulk(20)
        handlers = ["--call", "stopped_by:one"]
        assert main(["orders", "--from", "trim-horizon", *options.split(), *handlers]) == 0


@pytest.mark.parametrize(
    "name",
    ["watch", "mirror", *(pytest.param(each, marks=pytest.mark.spark) for each in ("archive",))],
)
@pytest.mark.parametrize("flag", ["--no-follow", "--once"])
def test_every_command_ends_at_now_by_the_same_option(name: str, flag: str) -> None:
    pytest.importorskip("pyarrow")
    values = Invocation(CommandLine(name, ["orders", *["--to=x"] * (name != "watch"), flag])).values
    assert values.get("once", True) and not values.get("follow")
