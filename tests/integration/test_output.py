"""How changes are printed through the real command line, on a pipe and on a terminal."""

import html
import json
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tests.simulator import RemoteSimulator, Simulator
from tests.support import wire
from tests.support.program import run, run_on_a_terminal
from watcher.cli import main

ALL = ("orders", "--from", "trim-horizon", "--max-records", "3")


@pytest.fixture(scope="module")
def sim() -> Iterator[RemoteSimulator]:
    """An item that is put, changed and removed."""
    with Simulator.spawn(table="orders") as simulator:
        lines = {"L": [{"M": {"qty": {"N": "1"}}}]}
        simulator.put({"pk": {"S": "a"}, "total": {"N": "100"}, "lines": lines})
        more = {"L": [{"M": {"qty": {"N": "2"}}}]}
        simulator.modify("a", {"total": {"N": "250.5"}, "lines": more})
        simulator.remove("a")
        yield simulator


def on_a_terminal(sim: RemoteSimulator, *options: str, **environment: str) -> str:
    """What `watcher` writes to a pseudo-terminal."""
    return run_on_a_terminal(*ALL, *options, env={**sim.environment, **environment})


def test_kinds_have_colours_on_a_terminal(sim: RemoteSimulator) -> None:
    text = on_a_terminal(sim, "-ps")
    for color, kind in ((32, "INSERT"), (33, "MODIFY"), (31, "REMOVE")):
        assert f" - \x1b[{color}m{kind}\x1b[0m - pk=a\n" in text
    bare = on_a_terminal(sim, "-ps", NO_COLOR="1")
    assert "\x1b" not in bare
    assert bare == re.sub(r"\x1b\[\d+m", "", text)
    assert on_a_terminal(sim, "-ps", "--color", "never") == bare
    assert "\x1b[32m" in on_a_terminal(sim, "-pd")


def test_a_pipe_gets_none_unless_asked_for(sim: RemoteSimulator) -> None:
    plain = run(*ALL, "-ps", "--utc", env=sim.environment)
    assert len(plain.out) == 3
    for line, kind in zip(plain.out, ("INSERT", "MODIFY", "REMOVE"), strict=True):
        assert re.fullmatch(rf"\[[-0-9]+T[:0-9]+\+00:00\] - {kind} - pk=a", line)
    always = run(*ALL, "-ps", "--color=always", env=sim.environment)
    assert "\x1b[32mINSERT\x1b[0m" in always.out[0]
    refused = run(*ALL, "-ps", "--color", "sometimes", env=sim.environment)
    assert refused.process.returncode == 2
    assert "use auto, always or never" in refused.err[-1]


def test_times_follow_the_zone_or_utc(sim: RemoteSimulator) -> None:
    zone = {**sim.environment, "TZ": "Asia/Kolkata"}
    assert "+05:30] - " in run(*ALL, "-ps", env=zone).out[0]
    for handler in ("-ps", "-pr", "-pd"):
        assert "+00:00" in run(*ALL, handler, "--utc", env=zone).out[0]


def test_a_diff_shows_what_changed(sim: RemoteSimulator) -> None:
    lines = run(*ALL, "--print-diff", "--utc", env=sim.environment).out
    heads = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert heads == ["INSERT", "MODIFY", "REMOVE"]
    assert "  ~ total: 100 -> 250.5" in lines
    assert "  ~ lines[0].qty: 1 -> 2" in lines
    assert "  - total: 250.5" in lines


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("new.total", ["100", "250.5", "null"]),
        ("[eventName, key.pk]", ['["INSERT", "a"]', '["MODIFY", "a"]', '["REMOVE", "a"]']),
        ("old.total > `100`", ["null", "false", "true"]),
        (
            "[new.lines[:1].qty, `[1, 2]`[::-1]]",
            ["[[1], [2, 1]]", "[[2], [2, 1]]", "[null, [2, 1]]"],
        ),
        ("sum(new.lines[].qty || `[]`)", ["1", "2", "0"]),
    ],
)
def test_jmespath_prints_a_line_for_each_record(
    sim: RemoteSimulator, expression: str, expected: list[str]
) -> None:
    assert run(*ALL, "--jmespath", expression, env=sim.environment).out == expected


def test_lines_of_json_go_to_a_file_beside_another_handler(
    sim: RemoteSimulator, tmp_path: Path
) -> None:
    for count in (3, 6):
        program = run(*ALL, "-ps", "--jsonl-file", "all.jsonl", env=sim.environment, cwd=tmp_path)
        assert all(" - pk=a" in line for line in program.out)
        lines = (tmp_path / "all.jsonl").read_text().splitlines()
        assert len(lines) == count
    assert [json.loads(line)["eventName"] for line in lines[:3]] == ["INSERT", "MODIFY", "REMOVE"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--jmespath", "new["], "--jmespath 'new[': "),
        (["--jmespath", "[key.pk, foo(new)]"], "there is no function foo()"),
        (["--jsonl-file", "/nosuch/file"], "can't open /nosuch/file: No such file"),
    ],
)
def test_a_bad_option_of_a_handler_is_said_in_one_line(
    sim: RemoteSimulator, options: list[str], words: str
) -> None:
    program = run(*ALL, *options, env=sim.environment)
    assert program.process.returncode == 2
    assert words in program.err[-1]
    assert len(program.err) == 1


def test_o_chooses_the_handler_that_prints_it(sim: RemoteSimulator) -> None:
    lines = run(*ALL, "-o", "debezium", env=sim.environment).out
    assert [json.loads(line)["op"] for line in lines] == ["c", "u", "d"]
    lines = run(*ALL, "--output=csv", "-pc", env=sim.environment).out
    assert [line.split(",")[1] for line in lines] == ["kind", "INSERT", "MODIFY", "REMOVE"]
    refused = run(*ALL, "-o", "yaml", env=sim.environment)
    assert refused.process.returncode == 2
    assert "use json, jsonl, csv, table or debezium" in refused.err[-1]


KEYS_ONLY = ("--print-summary", "--template {kind}:{key}")
FORMS = {
    KEYS_ONLY[0]: r"zz=p, aa=s \(expired by TTL\)",
    KEYS_ONLY[1]: r"TTL:zz=p, aa=s",
    "--print-record": r"\(expired by TTL\)\n  key {zz: 'p', aa: 's'}",
    "--print-diff": r"zz=p, aa=s \(expired by TTL\)",
    "--print-json": r'"principalId":\s*"dynamodb.amazonaws.com"',
    "--jsonl-file out.jsonl": r'"principalId":\s*"dynamodb.amazonaws.com"',
    "--print-table": r"TTL +zz=p, aa=s",
    "--print-jsonl": r'"key":{"zz":"p","aa":"s"}.*"expiredByTtl":true',
    "--webhook URL": r'"key":{"zz":"p","aa":"s"}.*"expiredByTtl":true',
    "--print-csv": r'True,orders,"{""zz"":""p"",""aa"":""s""}"',
    "--print-debezium": r'"by_ttl":true',
    # Its arithmetic is with doubles, as --help says.
    "--jmespath [key,expiredByTtl,old.city]": r'\[{"zz": "p", "aa": "s"}, true, ',
    "--template {kind}:{key}:{old}": r"TTL:zz=p, aa=s:{",
    # Its key is an item's identity in the file, and sorted, so that it stays the same.
    "--sqlite out.db": r"""'{"aa":"s","zz":"p"}', '\{.*, None, 1\)""",
    "history --key zz=p --key aa=s": r"zz=p, aa=s \(expired by TTL\)",
    "history -o json --key zz=p --key aa=s": r'"kind": "REMOVE",\s+"by_ttl": true',
    "report --to page.html": r"zz=p, aa=s</code> \(expired by TTL\)",
}


@pytest.fixture(scope="module")
def odd() -> Iterator[Simulator]:
    """A table with one item of odd values: put, changed, expired."""
    with Simulator(table="orders", key_names=("zz", "aa")) as simulator:
        for change in wire.odd_changes():
            simulator.append(change)
        yield simulator


class Receiver(BaseHTTPRequestHandler):
    """Keeps the bodies that a webhook gets."""

    bodies: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(204)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def receiver() -> Iterator[str]:
    """The URL of a webhook."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def written(folder: Path) -> Iterator[str]:
    """Yields what a form has written elsewhere than to standard output."""
    for file in folder.glob("out.db"):
        with closing(sqlite3.connect(file)) as database:
            yield "\n".join(map(str, database.execute("SELECT * FROM changes")))
    for file in (*folder.glob("*.html"), *folder.glob("*.jsonl")):
        yield html.unescape(file.read_text())
    yield from Receiver.bodies
    Receiver.bodies.clear()


@pytest.mark.proof
@pytest.mark.parametrize("form", FORMS)
def test_every_form_agrees_on_keys_removals_by_ttl_digits_and_text(
    form: str,
    odd: Simulator,
    receiver: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in odd.environment.items():
        monkeypatch.setenv(name, value)
    command, *words = form.replace("URL", receiver).split()
    line = [command, "orders", *words]
    if command.startswith("--"):
        line = [*ALL, command, *words]
    assert main(line) == 0
    text = "\n".join([capsys.readouterr().out, *written(tmp_path)])
    assert re.search(FORMS[form], text), text
    values: tuple[str, ...] = wire.ODD_VALUES
    if form in KEYS_ONLY:
        values = ()
    elif "jmespath" in form:
        values = ("東京",)
    missing = [each for each in values if not re.search(each, text)]
    assert not missing, text
