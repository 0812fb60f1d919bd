"""Every block of the README and of docs/ runs: commands on a table that is written to, Python too.

`console` blocks: each `$` command is run; one that would go on watching is ended as by Ctrl-C once
it has printed, a Spark job by `--once`. `python` blocks that begin with a file's name are that
file; the others are run.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dynamodb_local import DynamoDBLocal, MissingPart

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
# Pages that are about the same table; the others' tests are where their features' are.
_SAME = (
    *("watching", "handlers", "library", "metrics", "report", "spark", "output"),
    *("positions", "snapshot"),
)


def blocks(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


BLOCKS = [
    each
    for text in dict.fromkeys([README, *(PAGES[f"{name}.md"] for name in _SAME)])
    for each in blocks(text)
]
FILES = {
    text.splitlines()[0].removeprefix("# "): text
    for kind, text in BLOCKS
    if kind == "python" and re.match(r"# [\w/]+\.py\n", text)
}
PROGRAMS = [
    text
    for text in dict.fromkeys(text for kind, text in BLOCKS if kind == "python")
    if text not in FILES.values()
]


def commands(blocks: list[tuple[str, str]]) -> Iterator[str]:
    """What stands behind each `$`; a quotation may go on over lines."""
    for kind, text in blocks:
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:] if kind == "console" else ():
            lines = part.splitlines()
            command = lines.pop(0)
            while command.count('"') % 2 and "'" not in command.partition('"')[0]:
                command += "\n" + lines.pop(0)
            yield command


COMMANDS = list(dict.fromkeys(commands(BLOCKS)))
JOBS = ("query", "archive", "replicate", "metrics")
ON_SPARK = [
    line
    for line in COMMANDS
    if "--engine spark" in line or line.removeprefix("python -m watcher ").startswith(JOBS)
]
HERE = [
    line
    for line in COMMANDS
    if line.startswith("python -m watcher")
    and line not in ON_SPARK
    and "arn:" not in line
    # What needs a past is in tests/test_time_machine.py.
    and not line.startswith(("python -m watcher as-of", "python -m watcher undo"))
]


# Set while customers come. DynamoDB Local stamps whole minutes: "up to now" would take one.
BUSY = threading.Event()


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{name}" for name in PAGES)])
def test_every_file_that_it_links_to_is_there(page: str) -> None:
    linked = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / page).read_text())
    folder = (ROOT / page).parent
    assert [name for name in linked if not (folder / name).exists()] == []


def test_the_readme_is_short() -> None:
    assert README.count("\n") <= 150


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
    for name in ("index.html", "traps/index.html", "reference/index.html"):
        assert (tmp_path / name).exists()
    assert "--print-summary" in (tmp_path / "reference" / "index.html").read_text()


@pytest.fixture(scope="module")
def server() -> Iterator[DynamoDBLocal]:
    """A table like the README's, with some changes in it, and more while BUSY."""
    try:
        started = DynamoDBLocal().start()
    except MissingPart as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    with started:
        started.create_table("orders")
        open_ = threading.Event()
        open_.set()
        client = started.client()

        def trade() -> None:
            number = 0
            while open_.is_set():
                if number > 2500:
                    BUSY.wait(0.1)
                if number > 2500 and not BUSY.is_set():
                    continue
                key = {"PK": {"S": f"user-{number % 3}"}, "SK": {"S": f"order-{number % 5}"}}
                client.put_item(TableName="orders", Item={**key, "total": {"N": str(number)}})
                number += 125
                time.sleep(0.05)

        writer = threading.Thread(target=trade)
        writer.start()
        try:
            yield started
        finally:
            open_.clear()
            writer.join()


@pytest.fixture
def place(tmp_path: Path, server: DynamoDBLocal, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the README's handlers, where `python` is ours and AWS is the server."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "python").symlink_to(sys.executable)
    if shutil.which("jq") is None:  # a stand-in for the one filter that the README uses
        (binaries / "jq").write_text(
            f"#!{sys.executable}\nimport json, sys\nassert sys.argv[1:] == ['-r', '.eventName']\n"
            "for line in sys.stdin:\n    print(json.loads(line)['eventName'])\n"
        )
        (binaries / "jq").chmod(0o755)
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")
    # A symbolic link would lose the environment that its target stands in.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path[1:]]))
    return tmp_path


def run_until_it_prints(command: str, place: Path) -> tuple[int, str, str]:
    """The command's status and output; ended by SIGINT if it is one that goes on."""
    follows = "--no-follow" not in command and re.search(r"watcher (orders|demo)", command)
    if follows:
        BUSY.set()
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
        BUSY.clear()
        if follows:
            process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=40)
        finally:
            process.kill()
    return process.returncode, first + out, err


def test_the_first_screen_is_there() -> None:
    assert COMMANDS[0] == "scripts/demo"
    assert HERE
    assert ON_SPARK
    assert FILES
    assert PROGRAMS


@pytest.mark.parametrize("command", HERE)
def test_a_command_of_the_readme_works_as_written(command: str, place: Path) -> None:
    status, out, err = run_until_it_prints(command, place)
    assert status == 0, err
    assert out or "Wrote " in err, err
    assert "Traceback" not in err


def test_the_defaults_of_the_readme_are_gone_by(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WATCHER_CONFIG")
    (text,) = [text for kind, text in BLOCKS if kind == "toml"]
    (place / text.splitlines()[0].removeprefix("# ")).write_text(text)
    status, out, err = run_until_it_prints("python -m watcher orders --only insert", place)
    assert status == 0, err
    assert re.match(r"\[.+\] - INSERT - PK=user-0, SK=order-0\n", out)
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


@pytest.mark.parametrize("text", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_of_the_readme_works_as_written(text: str, place: Path) -> None:
    if "spark" in text:
        pytest.skip("tests/spark/test_source.py reads a stream this way")
    done = subprocess.run(
        ["python", "-c", text], cwd=place, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_handler_of_the_readme_prints_what_the_readme_shows(place: Path) -> None:
    _, out, _ = run_until_it_prints(
        "python -m watcher orders --big-orders --from 1h --no-follow", place
    )
    lines = out.splitlines()
    assert re.fullmatch(r"big order: \d+ user-\d", lines[0])
    assert re.fullmatch(r"\d+ big orders", lines[-1])


def test_the_demo_script_runs_in_an_environment_that_is_made(tmp_path: Path) -> None:
    stamp = Path(sys.prefix) / ".watcher-demo"
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
    shown = BLOCKS[0][1].splitlines()
    pattern = r"\[[^]]+\] - (INSERT|MODIFY|REMOVE) - PK=\w+, SK=order-\d+"
    assert all(re.fullmatch(pattern, line) for line in done.stdout.splitlines())
    assert [line for line in shown if re.fullmatch(pattern, line)]
    assert shown[-1] == done.stderr.splitlines()[-1]
