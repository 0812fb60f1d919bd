"""Defaults from the environment and from files: who wins, and what is said of mistakes."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.program import run
from watcher.cli import handler_flags
from watcher.cli.command_line import CommandLine
from watcher.cli.handler_flags import Choice
from watcher.cli.invocation import Invocation
from watcher.delivery.handler_modules import find
from watcher.errors import UsageError

Write = Callable[[str], None]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, without files of defaults, and a home without them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WATCHER_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the file of defaults."""

    def write(text: str) -> None:
        (folder / "watcher.toml").write_text(text)
        monkeypatch.setenv("WATCHER_CONFIG", "watcher.toml")

    return write


def parsed(*arguments: str) -> SimpleNamespace:
    """The options, and as `chosen` what is to be done with each change."""
    words = CommandLine("watch", ["orders", *arguments])
    line, handlers = Invocation(words), handler_flags.find_handlers(words)
    return SimpleNamespace(**line.values, chosen=Choice(handlers, line.origins, line.values).chosen)


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    written: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parsed().start == "latest"
    written('from = "1h"\npoll-max = 3\n')
    assert (parsed().start, parsed().poll_max) == ("1h", 3.0)
    monkeypatch.setenv("WATCHER_FROM", "3h")
    assert parsed().start == "3h"
    assert parsed("--from", "4h").start == "4h"


def test_the_users_own_file_is_read_where_no_other_is_named(written: Write, folder: Path) -> None:
    place = folder / "home" / "watcher"
    place.mkdir(parents=True)
    (place / "config.toml").write_text('from = "2h"\npoll-max = 3')
    assert (parsed().start, parsed().poll_max) == ("2h", 3.0)
    written('from = "5h"')
    assert (parsed().start, parsed().poll_max) == ("5h", None)


@pytest.mark.parametrize(
    ("text", "arguments", "dest", "value"),
    [
        ("utc = true", (), "utc", True),
        ("utc = true", ("--no-utc",), "utc", False),
        ("no-follow = true", (), "follow", False),
        ("follow = false", ("--follow",), "follow", True),
        ("max-records = 5", ("--max-records", "6"), "max_records", 6),
        ("from = 2026-11-21T08:00:00Z", (), "start", "2026-11-21 08:00:00+00:00"),
        ('key = ["a=1", "b=2"]', (), "key", ["a=1", "b=2"]),
        ('key = "a=1"', (), "key", ["a=1"]),
        ('key = ["a=1", "b=2"]', ("--key", "c=3"), "key", ["c=3"]),
        ("[watch]\nutc = true", (), "utc", True),
        ("utc = false\n[watch]\nutc = true", (), "utc", True),
        ("every = '1m'", (), "start", "latest"),  # of another command
        ("print-summary = true", (), "chosen", ["--print-summary"]),
        ("print-summary = true", ("--print-json",), "chosen", ["--print-json"]),
        ("print-summary = false", (), "chosen", []),
        ('call = "app:f"\nprint-json = true', (), "chosen", ["--call app:f", "--print-json"]),
        ('print-json = true\ncall = "app:f"', (), "chosen", ["--print-json", "--call app:f"]),
        ('call = "app:f"', ("--lambda", "a.g", "-pj"), "chosen", ["--lambda a.g", "--print-json"]),
    ],
)
def test_a_file_has_the_options_names(
    written: Write, text: str, arguments: tuple[str, ...], dest: str, value: object
) -> None:
    written(text)
    assert getattr(parsed(*arguments), dest) == value


@pytest.mark.parametrize(
    ("name", "text", "dest", "value"),
    [
        ("WATCHER_UTC", "1", "utc", True),
        ("WATCHER_NO_FOLLOW", "true", "follow", False),
        ("WATCHER_FOLLOW", "0", "follow", False),
        ("WATCHER_MAX_RECORDS", "", "max_records", None),
        ("WATCHER_KEY", "a=1\na=2, or not", "key", ["a=1", "a=2, or not"]),
        ("WATCHER_FILTER", '{"eventName": ["INSERT"]}', "filters", ['{"eventName": ["INSERT"]}']),
        ("WATCHER_KEY", '["a=1", "a=2"]', "key", ["a=1", "a=2"]),
        ("WATCHER_PRINT_JSON", "1", "chosen", ["--print-json"]),
        ("WATCHER_VENV", "/somewhere", "utc", False),
    ],
)
def test_a_variable_has_the_options_name_in_capitals(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, dest: str, value: object
) -> None:
    monkeypatch.setenv(name, text)
    assert getattr(parsed(), dest) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("frm = '1h'", r"^watcher\.toml: no option frm; did you mean from\?$"),
        ("endpoint_url = 'x'", "no option endpoint_url; did you mean endpoint-url"),
        (
            "[archiv]\nonce = true",
            r"^watcher\.toml: \[archiv\] is no command; did you mean archive",
        ),
        ("[watch]\nevery = '1m'", r"^\[watch\] in watcher\.toml: no option every"),
        ("max-records = 'many'", r"^watcher\.toml: max-records: 'many' is not a whole number$"),
        ("utc = 'yes'", r"^watcher\.toml: utc: 'yes': give true or false$"),
        ("from = true", r"^watcher\.toml: from: True: give one value"),
        ("engine = 'flink'", r"^watcher\.toml: engine: 'flink': use processes or spark$"),
        ("from = ", r"^watcher\.toml is not TOML: Invalid value"),
    ],
)
def test_a_mistake_in_a_file_names_the_file_the_key_and_the_nearest_name(
    written: Write, text: str, words: str
) -> None:
    written(text)
    with pytest.raises(UsageError, match=words):
        parsed()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("WATCHER_MAX_RECORDS", "many", r"^WATCHER_MAX_RECORDS: 'many' is not a whole number$"),
        ("WATCHER_UTC", "maybe", r"^WATCHER_UTC: 'maybe': give 1 or 0$"),
        ("WATCHER_CONFIG", "nosuch.toml", r"can't read nosuch\.toml: No such file"),
    ],
)
def test_a_mistake_in_a_variable_names_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=words):
        parsed()


def test_a_variable_that_resembles_an_option_is_told_and_others_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("watcher"), "propagate", False)
    monkeypatch.setattr(logging.getLogger("watcher"), "handlers", [caplog.handler])
    monkeypatch.setenv("WATCHER_REGON", "eu-west-1")
    monkeypatch.setenv("WATCHER_FORM", "1h")
    monkeypatch.setenv("WATCHER_EVERY", "1m")
    monkeypatch.setenv("WATCHER_UNRELATED", "x")
    parsed()
    assert caplog.messages == [
        "WATCHER_REGON sets no option; did you mean region?",
        "WATCHER_FORM sets no option; did you mean from?",
    ]


def test_the_folders_of_handlers_may_be_a_default(written: Write, folder: Path) -> None:
    (folder / "more").mkdir()
    (folder / "more" / "extra.py").write_text('"""More."""')
    written('handlers = ["more"]\nextra = true')
    assert parsed().chosen == ["--extra"]
    written('handlers = ["nowhere"]')
    with pytest.raises(UsageError, match=r"^--handlers nowhere: .* \(from watcher.toml\)$"):
        parsed()


OUT = """
OPTIONS = {"out_file": ("PATH", "where to")}
def configure(out_file=None): print("configured", out_file)
def handle(record): ...
"""


def loaded(*arguments: str) -> list[str]:
    line = Invocation(CommandLine("watch", ["orders", *arguments]))
    return [each.name for each in Choice(find(), line.origins, line.values).load()]


def test_a_default_for_a_handlers_option_chooses_it_only_where_nothing_else_is_chosen(
    written: Write, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "handlers").mkdir()
    (folder / "handlers" / "counters.py").write_text(OUT)
    written('out-file = "counters.txt"')
    assert loaded() == ["counters"]
    assert loaded("--counters") == ["counters"]
    assert capsys.readouterr().out == "configured counters.txt\n" * 2
    assert loaded("--print-summary") == ["print_summary"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("FROM", "someday", "(from WATCHER_FROM)"),
        ("MAX_RECORDS", "0", "(from WATCHER_MAX_RECORDS)"),
        ("PROFILE", "nobody", "(from WATCHER_PROFILE)"),
        ("REGION", "eu-central-1", "(--region is from WATCHER_REGION)"),
        ("ENDPOINT_URL", "http://127.0.0.1:1", "(--endpoint-url is from WATCHER_ENDPOINT_URL)"),
        ("ENDPOINT_URL", "x", ": Invalid endpoint: x (from WATCHER_ENDPOINT_URL)"),
        ("PRINT_TEMPLATE", "[", "(--print-template is from WATCHER_PRINT_TEMPLATE)"),
        ("JSONL_FILE", "/no/such", "(--jsonl-file is from WATCHER_JSONL_FILE)"),
    ],
)
@pytest.mark.usefixtures("simulator")
def test_an_error_about_a_value_says_where_it_comes_from(
    folder: Path, name: str, value: str, words: str
) -> None:
    table = "orderz" if name == "REGION" else "orders"
    program = run(table, env={f"WATCHER_{name}": value}, cwd=folder)
    assert program.status in (2, 3)
    assert words in program.err[-1]


def test_help_and_completion_are_there_where_a_file_is_broken(tmp_path: Path) -> None:
    (tmp_path / "watcher.toml").write_text("x = [")
    for command in (["--help", "defaults"], ["--version"], ["completion", "bash"]):
        program = run(*command, env={"WATCHER_CONFIG": "watcher.toml"}, cwd=tmp_path)
        assert (program.status, program.err) == (0, []), command
        assert program.out
    variables = {"WATCHER_CONFIG": "watcher.toml", "WATCHER_LOG_FORMAT": "json"}
    json_line = run("orders", env=variables, cwd=tmp_path).err[0]
    assert json.loads(json_line)["message"].startswith("watcher.toml is not TOML")
