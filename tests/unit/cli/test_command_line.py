"""How the words of a command line are read, and what is said of those that can't be."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.simulator import Simulator
from tests.support.program import told
from watcher.cli import main
from watcher.cli.command_line import CommandLine, command_line
from watcher.cli.invocation import Invocation
from watcher.errors import UsageError
from watcher.records.record import Record

SPARK = pytest.mark.spark


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
        ("--max-records 5 --max-records 6", "max_records", 6),
        ("-ojson", "output", "json"),
        ("--no-follow --follow", "follow", True),
        ("--utc --no-utc", "utc", False),
        ("--key a=-5 --key=b=1", "key", ["a=-5", "b=1"]),
        ("--key=-5", "key", ["-5"]),
        ("--key - --checkpoint -", "key", ["-"]),
        ("--only insert,modify --only remove", "only", ["insert,modify", "remove"]),
        ('--filter {"a":[1]} --filter [1,2]', "filters", ['{"a":[1]}', "[1,2]"]),
        ("--poll-max 500ms", "poll_max", 0.5),
    ],
)
def test_options_are_read_as_people_write_them(words: str, name: str, value: object) -> None:
    assert Invocation(CommandLine("watch", ["orders", *words.split()])).values[name] == value


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("orders --frm=1h", "unknown --frm; did you mean --from?"),
        ("orders --print-sumary", "unknown --print-sumary; did you mean --print-summary?"),
        ("orders --no-max-records", "unknown --no-max-records; did you mean --max-records?"),
        ("orders --region us-esat-1 --nofollow", "unknown --nofollow; did you mean --no-follow?"),
        ("orders -psv", "unknown -psv; did you mean -ps?"),
        ("orders -p", "unknown -p; "),
        ("orders --utc=maybe", "--utc: it takes no value"),
        ("orders --grep --help", "--grep: give a value (TEXT)"),
        ("orders --from -2h", "--from: give a value (START)"),
        ("orders --max-records 1.7", "--max-records 1.7 is not a whole number"),
        ("orders --poll-max soon", "--poll-max soon: give a duration such as 500ms"),
        ("orders --engine flink", "--engine flink: use processes or spark"),
        ("verfy orders --with x", "unknown --with; did you mean the command verify?"),
        ("orders --with x", "unknown --with; --help lists the options"),
        ("watch verfy --with x", "unknown --with; --help lists the options"),
        ("history \"'orders'\"", "'orders' has quotes: leave them out"),
        ("history ''", "a word is empty: is a variable unset?"),
        ("orders --checkpoint ''", "--checkpoint: it is empty: is a variable unset?"),
        ("shards orders more", "one word too many: more"),
        ("shards", "the following arguments are required: STREAM"),
        *(
            pytest.param(words, f"the following arguments are required: {missing}", marks=SPARK)
            for words, missing in (
                ("query", "STREAM, SQL"),
                ("archive orders", "--to"),
            )
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_line_of_ours(words: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Invocation(command_line(shlex.split(words)))
    assert str(caught.value).startswith(text)


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


def test_a_fault_of_ours_ends_with_a_status_that_says_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(self: Invocation) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(Invocation, "run", fail)
    assert told(3, "orders").said.endswith("ZeroDivisionError")


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


def test_without_a_word_a_few_lines_say_where_to_begin() -> None:
    done = told(UsageError.exit_status)
    assert done.out == [] and len(done.err) == 5
    assert "watcher demo" in done.said
    assert "--help" in done.said


def test_two_names_for_one_checkpoint_are_refused() -> None:
    done = told(2, "orders", "--checkpoint", "a.json", "--checkpoint", "dynamodb://t/n")
    assert done.err == ["error: --checkpoint: give one: it holds all streams of a watch"]


@pytest.mark.usefixtures("simulator")
def test_a_word_that_is_no_table_may_be_a_mistyped_command() -> None:
    said = "no table 'shrads' in us-east-1: check the name, --region and --profile; did "
    assert said in told(3, "shrads").said


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


@pytest.mark.parametrize("options", ["", "--no-follow", "--max-records 50"])
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
