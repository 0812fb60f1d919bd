"""Whatever is in a table steers no terminal, in any command and form; a pipe gets it as it is."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.simulator import Simulator
from tests.support.hostile_text import HOSTILE, refuse_steering
from tests.support.terminal import Terminal
from watcher.aws.model import Listing, Shard
from watcher.cli import main
from watcher.cli.streams import tree
from watcher.formatting.text import write_text

pytestmark = pytest.mark.proof

ROOT = Path(__file__).parents[2]
NAME = "at\x1b[2J\x9btribute\u202e"
WATCH = "--from", "trim-horizon", "--no-follow"
FORMS = "summary", "record", "json", "jsonl", "csv", "table", "diff", "debezium"
COMMANDS = [
    *(("watch", "orders", *WATCH, f"--print-{form}") for form in FORMS),
    ("watch", "orders", *WATCH, "--jmespath", "@"),
    ("watch", "orders", *WATCH, "--template", "{kind}~{key}~{new}~{old}~{changes}"),
    *(("replay", "FILE", f"--print-{form}") for form in FORMS),
    *(("history", "orders", "--key", f"pk={HOSTILE}", "-o", form) for form in ("text", "json")),
    ("history", "orders", "--key", f"pk={HOSTILE}", "-o", "csv"),
    ("history", "orders", "--key", f"pk={HOSTILE}", "-o", "csv", "--csv-raw"),
    *(("as-of", "orders", "AT", "-o", form) for form in ("json", "jsonl", "csv", "table")),
    ("as-of", "orders", "AT", "--dynamodb-json"),
    *(("count", "orders", "--by", "key,attribute", "-o", f) for f in ("table", "csv", "json")),
    *(
        ("undo", "orders", "--from", "AT", "--plan", "plan.jsonl", "-o", form)
        for form in ("text", "json")
    ),
    ("report", "orders", "--to", "-"),
    ("shards", "orders"),
    ("shards", "orders", "-o", "json"),
    ("streams",),
    ("streams", "-o", "json"),
    ("watch", "orders", *WATCH, "--call", "failing:handle", "-v"),
]


class Screen(io.StringIO):
    """A terminal, as far as what is written to it goes."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    now = time.time()
    with Simulator(table="orders", clock=lambda: now - 600) as simulator:
        put(simulator, 1)
        simulator.advance(120)
        put(simulator, 2)
        simulator.advance(480)
        yield simulator


def put(simulator: Simulator, number: int) -> None:
    inner = {NAME: {"S": HOSTILE}, "list": {"L": [{"S": HOSTILE}]}}
    simulator.put(
        {
            "pk": {"S": HOSTILE},
            "v": {"N": str(number)},
            NAME: {"S": HOSTILE + str(number)},
            "set": {"SS": [HOSTILE, "x"]},
            "map": {"M": inner},
        }
    )


@pytest.fixture
def there(sim: Simulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Simulator:
    """The hostile table, from a folder with a handler that fails."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, value in sim.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "4000")
    Path("failing.py").write_text("def handle(record): raise ValueError(record.new)\n")
    return sim


def piped(*command: str) -> str:
    """What a program on the other side of a pipe gets."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([*command]) == 0
    return out.getvalue()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: " ".join(each)[:60].strip())
def test_nothing_of_it_steers_a_terminal(
    command: tuple[str, ...], there: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "FILE" in command:
        Path("FILE").write_text(piped("watch", "orders", *WATCH, "--print-json"))
    between = datetime.fromtimestamp(there.now - 540, UTC).isoformat()
    command = tuple(between if word == "AT" else word for word in command)
    out, err = Screen(), Screen()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    assert main([*command]) in (0, 1), err.getvalue()
    assert out.getvalue() or "failing" in command[-2]
    refuse_steering(out.getvalue())
    refuse_steering(err.getvalue())


@pytest.mark.parametrize("form", ["text", "json"])
def test_nor_does_what_verify_finds(
    form: str, there: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = {"pk": HOSTILE, "v": 7, NAME: "other"}
    foreign = {"pk": HOSTILE + "!", NAME: HOSTILE}
    Path("copy.jsonl").write_text("".join(json.dumps(each) + "\n" for each in (changed, foreign)))
    with Simulator(table="orders") as ticking:
        put(ticking, 1)
        monkeypatch.setenv("AWS_ENDPOINT_URL", ticking.endpoint)
        out, err = Screen(), Screen()
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        assert main(["verify", "orders", "--with", "copy.jsonl", "-o", form]) == 1, err.getvalue()
    assert "hidden" in out.getvalue()
    refuse_steering(out.getvalue())
    refuse_steering(err.getvalue())


def test_so_it_is_on_a_terminal_with_a_status_line(there: Simulator) -> None:
    command = sys.executable, "-m", "watcher", "orders", *WATCH, "--print-diff"
    with Terminal(*command, env=there.environment, columns=4000) as terminal:
        assert terminal.end() == 0
        written = terminal.written.decode().replace("\r\n", "\n")
    assert "spoofed" in written
    refuse_steering(written)


# Textual writes sequences of its own; of these none is.
OF_THE_TABLE = "\x1b]0;owned", "\x1b[8m", "\x1b[31mred", "\x9b", "\x9d", "\u202e", "\u2066", "\x08"


def test_so_it_is_in_the_live_view(
    there: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its list, its screens, and in the line that quotes a handler's error."""
    monkeypatch.delenv("COLUMNS")  # Textual takes it for the terminal's
    place = tmp_path / "handlers"
    place.mkdir()
    (place / "raising.py").write_text(
        "def handle(record): raise ValueError(chr(27) + ']0;owned' + record.key['pk'])\n"
    )
    words = ["orders", *WATCH[:2], "--live", "--raising", "--handlers", str(place)]
    command = sys.executable, "-m", "watcher", *words
    with Terminal(*command, env=there.environment, columns=200) as terminal:

        def sees(text: str) -> None:
            terminal.wait_for(lambda: any(text in line for line in terminal.screen.display))

        def misses(text: str) -> None:
            terminal.wait_for(lambda: not any(text in line for line in terminal.screen.display))

        sees("2 changes")
        sees("handler raising")
        for key, text in ((b"\r", "before:"), (b"k", "INSERT"), (b"s", "shardId")):
            terminal.press(key)
            sees("\u256d")  # the frame of a screen over the list
            sees(text)
            misses("reading the stream")
            terminal.press(b"q")
            misses("\u256d")
        terminal.press(b"q")
        assert terminal.end() == 0
        written = terminal.written.decode()
    assert "hidden" in written
    assert not [ascii(each) for each in OF_THE_TABLE if each in written]


def test_a_pipe_gets_it_as_it_is(there: Simulator) -> None:
    now = datetime.fromtimestamp(there.now, UTC).isoformat()
    (item,) = json.loads(piped("as-of", "orders", now, "-o", "json"))
    assert (item["pk"], item[NAME]) == (HOSTILE, f"{HOSTILE}2")
    rows = csv.DictReader(io.StringIO(piped("as-of", "orders", now, "-o", "csv", "--csv-raw"), ""))
    assert [row["pk"] for row in rows] == [HOSTILE]
    key = f"pk={HOSTILE}"
    (*_, last) = json.loads(piped("history", "orders", "--key", key, "-o", "json"))
    assert last["item"]["pk"] == HOSTILE
    text = piped("history", "orders", "--key", key, "-o", "csv", "--csv-raw")
    assert HOSTILE in {row["new"] for row in csv.DictReader(io.StringIO(text, ""))}
    for line in piped("watch", "orders", *WATCH, "--print-jsonl").split("\n")[:-1]:
        assert json.loads(line)["key"]["pk"] == HOSTILE


def test_a_tree_of_shards_shows_what_an_endpoint_calls_them() -> None:
    listing = Listing(
        arn=f"arn:aws:dynamodb:us-east-1:1:table/{HOSTILE}/stream/x",
        table=HOSTILE,
        status="ENABLED",
        view_type=HOSTILE,
        shards=[Shard(HOSTILE, None, HOSTILE, None)],
        pages=1,
        time=datetime.now(UTC),
    )
    screen = Screen()
    for line in tree(listing):
        write_text(line + "\n", screen)
    refuse_steering(screen.getvalue())


# A user's own text around values that are escaped; bytes to a pipe; what executors have escaped.
OTHERS = {
    "handlers/print_template.py",
    "handlers/print_json.py",
    "watcher/spark/jobs/watch.py",
}


def test_there_is_one_way_to_a_terminal() -> None:
    """Item data goes through `formatting/text.py`."""
    found = []
    for place in (ROOT / "watcher" / "cli", ROOT / "watcher" / "spark", ROOT / "handlers"):
        for path in sorted(place.rglob("*.py")):
            if re.search(r"stdout\.(write|writelines|buffer)\(", path.read_text()):
                found.append(str(path.relative_to(ROOT)))
    assert set(found) <= OTHERS
