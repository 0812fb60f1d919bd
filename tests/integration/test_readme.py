"""Every block of the README and of docs/ runs as a newcomer runs it: on the shop of `demo --keep`.

`console` blocks: each `$` command is run; one that would go on watching is ended as by Ctrl-C once
it has printed, a Spark job by `--once`. `python` blocks that begin with a file's name are that
file; the others are run.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import watcher
from tests.support.pages import PAGES, README, ROOT, blocks, commands, files, of_kind
from tests.support.program import Program

# Pages that are about the same table; the others' tests are where their features' are.
_SAME = (
    *("watching", "handlers", "library", "metrics", "spark", "output"),
    *("positions", "snapshot", "tables", "time-machine"),
)
TEXT = "\n".join([README, *(PAGES[f"{name}.md"] for name in _SAME)])
FILES = files(TEXT)
_ALL = [text for text in dict.fromkeys(of_kind("python", TEXT)) if text not in FILES.values()]
PROGRAMS = [text for text in _ALL if "spark" not in text]
PROGRAMS_ON_SPARK = [text for text in _ALL if "spark" in text]
COMMANDS = list(dict.fromkeys(commands(TEXT)))
OF_README = {*commands(README), *of_kind("python", README)}
JOBS = ("query", "archive", "replicate")
ON_SPARK = [
    line
    for line in COMMANDS
    if "--engine spark" in line or line.removeprefix("python -m watcher ").startswith(JOBS)
]
HERE = [line for line in COMMANDS if line.startswith("python -m watcher") and line not in ON_SPARK]


def fast_in_readme(texts: list[str]) -> list[Any]:
    """The README's own are for each commit; the pages' are long proofs."""
    return [
        text if text in OF_README else pytest.param(text, marks=pytest.mark.proof) for text in texts
    ]


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{name}" for name in PAGES)])
def test_every_file_that_it_links_to_is_there(page: str) -> None:
    linked = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / page).read_text())
    folder = (ROOT / page).parent
    assert [name for name in linked if not (folder / name).exists()] == []


def test_the_readme_is_short() -> None:
    assert README.count("\n") <= 150


@pytest.mark.proof
def test_the_site_is_built_without_a_loose_end(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    done = subprocess.run(
        [*build, "-f", ROOT / "scripts" / "site" / "mkdocs.yml", "-d", tmp_path],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    navigation = (ROOT / "scripts" / "site" / "mkdocs.yml").read_text()
    assert [name for name in PAGES if name not in navigation] == []
    for name in ("index.html", "traps/index.html", "changelog/index.html"):
        assert (tmp_path / name).exists()

    def page(name: str) -> str:
        return (tmp_path / name / "index.html").read_text()

    assert "--print-summary" in page("reference")
    assert [name for name in watcher.__all__ if f'id="{name.lower()}"' not in page("api")] == []
    for message in ("no AWS credentials", "in the future: give a time", "DataLossError"):
        assert message in page("troubleshooting")


def reached(program: Program) -> dict[str, str]:
    """What the line that `demo --keep` prints gives another terminal."""
    program.wait_for_status("and there", timeout=90)
    (line,) = [line for line in program.err if " && export AWS_" in line]
    ask = "python -c 'import json, os; print(json.dumps(dict(os.environ)))'"
    told = subprocess.check_output(["bash", "-c", f"{line} && {ask}"])
    return {name: value for name, value in json.loads(told).items() if name[:4] == "AWS_"}


@pytest.fixture(scope="module")
def shop() -> Iterator[dict[str, str]]:
    """The way to the demo's shop, which is open."""
    with Program("demo", "--keep", "--seconds", "1", env={}) as program:
        yield reached(program)
        assert program.end(signal.SIGINT) == 0
    assert program.err[-1] == "The shop is closed."


@pytest.fixture
def place(tmp_path: Path, shop: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the README's handlers, where `python` is ours and AWS is the demo's shop."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    (tmp_path / "AWSLogs").mkdir()  # the shop has no trail: test_time_machine has one
    for name, value in shop.items():
        monkeypatch.setenv(name, value)
    binaries = tmp_path / "bin"
    binaries.mkdir()
    if shutil.which("jq") is None:  # a stand-in for the one filter that the README uses
        (binaries / "jq").write_text(
            f"#!{sys.executable}\nimport json, sys\nassert sys.argv[1:] == ['-r', '.eventName']\n"
            "for line in sys.stdin:\n    print(json.loads(line)['eventName'])\n"
        )
        (binaries / "jq").chmod(0o755)
    monkeypatch.setenv(
        "PATH",
        os.pathsep.join([str(binaries), str(Path(sys.executable).parent), os.environ["PATH"]]),
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path[1:]]))
    return tmp_path


def run_until_it_prints(command: str, place: Path) -> tuple[int, str, str]:
    """The command's status and output; ended by SIGINT if it is one that goes on."""
    ends = re.search("--no-follow|--max-records", command)
    follows = not ends and re.search(r"watcher (orders|demo|--all|--tag)", command)
    # A test's neighbours may have the port.
    command = command.replace("--metrics-port 9464", "--metrics-port 0")
    with subprocess.Popen(
        ["bash", "-c", f"exec {command}" if "|" not in command else command],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        if follows:
            process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=40)
        finally:
            process.kill()
    return process.returncode, first + out, err


def test_the_first_screen_is_there() -> None:
    assert COMMANDS[0] == "scripts/demo --keep"
    assert HERE
    assert ON_SPARK
    assert FILES
    assert PROGRAMS
    assert PROGRAMS_ON_SPARK


@pytest.mark.parametrize("command", fast_in_readme(HERE))
def test_a_command_of_the_readme_works_as_written(command: str, place: Path) -> None:
    for name in ("--apply plan.jsonl", "--with before.jsonl"):
        if name in command:
            made = re.compile(f"--(to|plan) {name.split()[1]}")
            before = next(line for line in HERE if made.search(line))
            run_until_it_prints(before, place)
    status, out, err = run_until_it_prints(command, place)
    # One of the items that it puts back was changed since.
    assert status == ("--apply" in command or "verify" in command), err
    assert out or "Wrote " in err or " items to before.jsonl" in err, err
    assert "Traceback" not in err


def test_the_defaults_of_the_readme_are_gone_by(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text,) = of_kind("toml", TEXT)
    (place / "config.toml").write_text(text)
    monkeypatch.setenv("WATCHER_CONFIG", str(place / "config.toml"))
    status, out, err = run_until_it_prints(
        "python -m watcher orders --only insert --no-follow", place
    )
    assert status == 0, err
    assert re.match(r"\[.+\] - INSERT - PK=user-\d+, SK=order-\d+\n", out)
    assert "filtered out" in err.splitlines()[-1]


def test_the_test_of_the_readme_passes(place: Path) -> None:
    done = subprocess.run(
        ["python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("text", fast_in_readme(PROGRAMS), ids=range(len(PROGRAMS)))
def test_a_program_of_the_readme_works_as_written(text: str, place: Path) -> None:
    done = subprocess.run(
        ["python", "-c", text], cwd=place, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("text", PROGRAMS_ON_SPARK, ids=range(len(PROGRAMS_ON_SPARK)))
def test_a_program_on_spark_has_imports_and_options_that_there_are(text: str) -> None:
    """What comes of the changes is shown by tests/spark."""
    from watcher.spark.options import parse

    played = mock.MagicMock()
    with mock.patch("watcher.spark.register"):
        exec(compile(text, "docs", "exec"), {"spark": played, "query": played})
    given = dict(re.findall(r'\.option\("(\w+)", "([^"]+)"\)', text))
    if "dynamodb_export" not in text:
        parse({**given, "stream": "orders"}, streaming="readStream" in text)


def test_the_demo_script_runs_in_an_environment_that_is_made(tmp_path: Path) -> None:
    stamp = Path(sys.prefix) / ".watcher-demo,live"
    stamp.touch()  # this environment has what the demo needs; a fresh one takes half a minute
    done = subprocess.run(
        [ROOT / "scripts" / "demo", "--seconds", "1"],
        env={**os.environ, "WATCHER_VENV": sys.prefix},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown, ends = blocks(TEXT)[0][1].partition("...\n")[::2]
    pattern = r"\[[^]]+\] - (INSERT|MODIFY|REMOVE) - PK=\w+, SK=order-\d+"
    printed = done.stdout.splitlines()
    assert printed and all(re.fullmatch(pattern, line) for line in printed)
    assert [line for line in shown.splitlines() if re.fullmatch(pattern, line)]
    # How many shards of those that opened last had been begun is a matter of milliseconds.
    assert done.stderr.splitlines()[-1].startswith(ends.partition(", ")[0])
