"""A folder that one has only come into runs nothing, writes nothing, sends nothing elsewhere."""

import logging
import os
from pathlib import Path

import pytest

from tests.simulator import Simulator
from tests.support.program import run
from watcher import cli
from watcher.cli import defaults, handler_flags
from watcher.cli.command_line import COMMANDS, CommandLine
from watcher.cli.handler_flags import Choice
from watcher.cli.invocation import Invocation
from watcher.errors import UsageError

EVIL = '"""Evil."""\nOPTIONS = {"level": ("N", "x")}\nopen("ran", "w").close()\n'
EVIL += "def configure(level=0): ...\ndef handle(record): ...\n"
REFUSED = "watcher.toml in this folder sets {}: look into it, and allow it by "


@pytest.fixture(autouse=True)
def here(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module in `handlers/`, and a home of the test's own."""
    monkeypatch.delenv("WATCHER_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (folder / "evil.py").write_text(EVIL)
    return tmp_path


def written(text: str) -> None:
    Path("watcher.toml").write_text(text)


def chosen(*arguments: str) -> Choice:
    """What a command line wants done."""
    words = CommandLine("watch", ["orders", *arguments])
    line = Invocation(words)
    return Choice(handler_flags.find_handlers(words), line.origins, line.values)


def loaded(*arguments: str) -> list[str]:
    """The names of the observers that it makes."""
    return [each.name for each in chosen(*arguments).load("print_record")]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('call = "app:bad"', "call"),
        ('lambda = "app.bad"', "lambda"),
        ('handlers = "handlers"', "handlers"),
        ("evil = true", "evil"),
        ("level = 5", "level"),
        ('jsonl-file = "lines"', "jsonl-file"),
        ('endpoint-url = "http://127.0.0.1:9"', "endpoint-url"),
        ('profile = "production"', "profile"),
        ('checkpoint = "state.json"', "checkpoint"),
        ('on-error = "dead-letter:letters"', "on-error"),
        ('filter = "@/etc/passwd"', "filter"),
        ('metrics-port = "0.0.0.0:9000"', "metrics-port"),
        (
            '[watch]\npoll-max = 3\ncheckpoint = "c"\nendpoint-url = "http://x"',
            "checkpoint and endpoint-url",
        ),
    ],
)
def test_what_runs_code_writes_files_or_reaches_elsewhere_has_to_be_allowed_once(
    text: str, named: str
) -> None:
    written(text)
    with pytest.raises(UsageError) as caught:
        loaded()
    assert str(caught.value).startswith(REFUSED.format(named))
    assert caught.value.exit_status == 2
    assert not Path("ran").exists()
    assert cli.main(["trust"]) == 0
    chosen()
    written(text + "\n# changed\n")
    with pytest.raises(UsageError, match="in this folder sets"):
        loaded()
    written(text)
    assert cli.main(["trust", "--forget"]) == 0
    with pytest.raises(UsageError, match="in this folder sets"):
        loaded()


@pytest.mark.parametrize(
    ("text", "arguments", "observers"),
    [
        ("print-summary = true", [], ["print_summary"]),
        (
            'from = "2h"\nfollow = false\nonly = "insert"\nregion = "eu-west-1"',
            [],
            ["print_record"],
        ),
        ('jmespath = "key"', [], ["print_json"]),
        ('time = "short"\nhighlight = ["ada"]', [], ["print_record"]),
        ('on-error = "stop"', [], ["print_record"]),
        ("evil = true", ["--print-json"], ["print_json"]),
        ("level = 5", ["--evil"], ["evil"]),
        ("evil = true", ["--evil"], ["evil"]),
        ('checkpoint = "c"', ["--checkpoint", "mine"], ["print_record"]),
    ],
)
def test_what_is_harmless_or_typed_anyway_needs_no_leave(
    text: str, arguments: list[str], observers: list[str]
) -> None:
    written(text)
    assert loaded(*arguments) == observers


def test_the_environment_and_the_users_own_file_may_do_everything(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHER_EVIL", "1")
    assert loaded() == ["evil"]
    monkeypatch.delenv("WATCHER_EVIL")
    (here / "home" / "watcher").mkdir(parents=True)
    (here / "home" / "watcher" / "config.toml").write_text("evil = true")
    assert loaded() == ["evil"]
    written('checkpoint = "c"')
    monkeypatch.setenv("WATCHER_CONFIG", "watcher.toml")
    assert loaded() == ["print_record"]


def test_what_is_used_of_the_folder_is_said_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "watcher")
    written('from = "2h"\nregion = "eu-west-1"\n[watch]\npoll-max = 2')
    loaded("--evil")
    used = "watcher.toml (from, region, poll-max), handlers/evil.py"
    assert caplog.messages == [f"From this folder: {used}"]
    caplog.clear()
    Path("watcher.toml").unlink()
    loaded("--print-json")
    assert caplog.messages == []


def test_a_copy_elsewhere_is_not_trusted(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written("evil = true")
    cli.main(["trust"])
    other = here / "other"
    (other / "handlers").mkdir(parents=True)
    (other / "handlers" / "evil.py").write_text(EVIL)
    monkeypatch.chdir(other)
    written("evil = true")
    with pytest.raises(UsageError, match="in this folder sets evil"):
        loaded()


def test_who_is_kept_out_of_their_home_trusts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    written("evil = true")
    for home in ("/proc/1/cwd/nowhere", "/dev/null/x", "x" * 5000):
        monkeypatch.setenv("XDG_DATA_HOME", home)
        with pytest.raises(UsageError, match="in this folder sets evil"):
            loaded()


def test_what_can_not_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    cli.main(["trust"])
    for text, words in ((None, "no watcher.toml in this folder"), ("x = [", "is not TOML")):
        if text is not None:
            written(text)
        with pytest.raises(UsageError, match=words):
            Invocation(CommandLine("trust", [])).run()
    written("poll-max = 3")
    Path("file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", "file")
    with pytest.raises(UsageError, match="can't write file/watcher/trusted/"):
        Invocation(CommandLine("trust", [])).run()


def test_every_option_whose_value_is_of_files_programs_or_places_needs_leave() -> None:
    for metavar in ("FILE", "PATH", "DIR", "URL", "MODULE:FUNCTION", "KEY=VALUE", "COORDINATES"):
        assert not defaults.is_harmless(metavar, "x")
    assert "trust" in COMMANDS


def test_on_the_command_line(here: Path) -> None:
    written('endpoint-url = "http://127.0.0.1:9"')
    program = run("orders", "--region", "us-east-1", env={}, cwd=here)
    assert program.process.returncode == 2
    assert program.err == [
        "error: watcher.toml in this folder sets endpoint-url: look into it, and allow it by "
        "`python -m watcher trust`, or leave it out by WATCHER_CONFIG=/dev/null"
    ]
    assert run("--help", env={}, cwd=here).process.returncode == 0
    trusting = run("trust", env={}, cwd=here)
    assert trusting.err == [
        f"Trusted until it changes: {here.resolve()}/watcher.toml (endpoint-url)"
    ]
    program = run("orders", "--region", "us-east-1", env={}, cwd=here)
    assert program.process.returncode == 3
    assert program.err[0] == "From this folder: watcher.toml (endpoint-url)"


def test_no_file_of_the_folder_stands_in_for_another_module(here: Path) -> None:
    for name in ("boto3", "signal", "logging", "argparse", "msgspec", "handlers/__init__"):
        (here / f"{name}.py").write_text('open("ran", "w").close()\nraise SystemExit(77)\n')
    (here / "app.py").write_text("import beside\ndef f(record): print(beside.word)")
    (here / "beside.py").write_text('word = "called"')
    (here / "handlers" / "mine.py").write_text("import beside\ndef handle(record): print('mine')")
    assert run("--help", env={}, cwd=here).process.returncode == 0
    with Simulator(table="orders") as sim:
        sim.write("a")
        words = ("orders", "--from", "trim-horizon", "--no-follow")
        for more, out in ((["-pj"], None), (["--mine"], ["mine"])):
            program = run(*words, *more, env=sim.environment, cwd=here)
            assert program.process.returncode == 0, program.err
            assert out is None or program.out == out
        assert not Path("ran").exists()
        for name in ("boto3", "signal", "logging", "argparse", "msgspec"):
            os.unlink(here / f"{name}.py")
        program = run(*words, "--call", "app:f", env=sim.environment, cwd=here)
        assert program.out == ["called"]
