"""One item that is secret, hostile and odd, through every command and form that shows an item.

On a terminal it steers nothing, and its values are all there; with --redact, nothing of the secret
is printed, written or sent.
"""

import html
import json
import re
import shlex
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.simulator import Simulator
from tests.simulator.model import compact
from tests.support import trails
from tests.support.hand_clock import HandClock
from tests.support.hostile_text import HOSTILE, refuse_steering
from tests.support.http_server import PlayedServer
from tests.support.program import ROOT, run, run_on_a_terminal
from tests.support.secret import EVERYTHING, KEY, NUMBER, SECRET, refuse_traces
from tests.support.secret import secret_item as secret
from tests.support.terminal import Terminal
from tests.support.trails import deliver, role
from tests.support.wire import ODD_ITEM, ODD_VALUES
from watcher.delivery import handler_modules

HASH = f"{SECRET}{HOSTILE}"
NAME = "at\x1b[2J\x9btribute\u202e"
ALL = "orders --from trim-horizon --no-follow"
ITEM = f"--key pk={shlex.quote(HASH)} --key aa=s"
TTL = r"pk=.*, aa=s \(expired by TTL\)"
SERVICE = r'"PrincipalId":\s*"dynamodb.amazonaws.com"'
FAILS = r"raised ValueError|ValueError: |failed"


class Shown(NamedTuple):
    """What a command has to show of the item; `redacts` is whether it takes --redact."""

    pattern: str
    values: tuple[str, ...] = ODD_VALUES
    redacts: bool = True


KEYS_ONLY: tuple[str, ...] = ()
TABLE = {
    f"{ALL} --print-summary": Shown(TTL, KEYS_ONLY),
    f"{ALL} --print-record": Shown(r"\(expired by TTL\)\n  key \{pk: .*, aa: 's'\}"),
    f"{ALL} --print-json": Shown(SERVICE),
    f"{ALL} --print-json --color always": Shown("dynamodb.amazonaws.com", KEYS_ONLY),
    f"{ALL} --print-jsonl": Shown(r'"key":\{"pk":".*","aa":"s"\}.*"expiredByTtl":true'),
    f"{ALL} --print-csv": Shown(r'True,orders,"\{""pk"":"".*"",""aa"":""s""\}"'),
    f"{ALL} --print-table": Shown(r"TTL\x1b\[0m +pk=.*, aa=s", KEYS_ONLY),
    f"{ALL} --print-diff": Shown(TTL),
    f"{ALL} --print-template '{{kind}}~{{key}}~{{new}}~{{old}}~{{changes}}'": Shown(
        r"TTL~pk=.*, aa=s"
    ),
    f"{ALL} --sqlite out.db": Shown(r"""'\{"pk":".*","aa":"s"\}'.*, None, 1\)"""),
    f"{ALL} --jsonl-file out.jsonl": Shown(SERVICE),
    f"{ALL} --webhook URL": Shown(r'"aa":"s"\}.*"expiredByTtl":true'),
    f"{ALL} --print-summary --print-json --concurrency 2": Shown(TTL),
    f"{ALL} {ITEM} --where 'number = {NUMBER}' --print-json": Shown(SERVICE),
    f"{ALL} --grep {SECRET} --only modify --print-record": Shown("MODIFY"),
    "orders --tail 1 --no-follow --print-json": Shown(SERVICE),
    "orders --snapshot --no-follow --print-json": Shown("SNAPSHOT"),
    f"{ALL} --lambda failing.on_event": Shown(FAILS, KEYS_ONLY),
    f"{ALL} --call failing:handle --on-error stop -v": Shown(FAILS, KEYS_ONLY),
    f"{ALL} --call failing:handle --checkpoint c.json --on-error dead-letter:out.jsonl": Shown(
        SERVICE
    ),
    f"{ALL} --call seeing:handle --log-format json": Shown("TTL|REMOVE", KEYS_ONLY),
    "replay RAW --print-record": Shown(r"\(expired by TTL\)\n  key \{pk: .*, aa: 's'\}"),
    "replay RAW --call failing:handle --on-error dead-letter:out.jsonl -v": Shown(SERVICE),
    f"history orders {ITEM}": Shown(TTL),
    f"history orders {ITEM} -o json --who AWSLogs": Shown(r'"kind": "REMOVE",\s+"by_ttl": true'),
    f"history RAW {ITEM} -o json": Shown(r'"by_ttl": true'),
    "as-of orders AT": Shown("other"),
    "as-of orders AT --dynamodb-json --to out.jsonl": Shown("other"),
    f"as-of orders AT {ITEM}": Shown("seen-2"),
    **{
        f"count orders --by key,attribute -o {form}": Shown("city", KEYS_ONLY)
        for form in ("table", "json")
    },
    "count orders --by key,caller --who AWSLogs": Shown("role/api", KEYS_ONLY),
    "report orders --to out.html": Shown(r"aa=s</code> \(expired by TTL\)"),
    f"report orders {ITEM} --grep {SECRET} --to -": Shown("expired by TTL", KEYS_ONLY),
    "report RAW --to out.html": Shown("expired by TTL", KEYS_ONLY),
    "undo orders --from AT --plan out.jsonl": Shown("", KEYS_ONLY, redacts=False),
    "verify orders --with copy.jsonl": Shown("hidden", KEYS_ONLY, redacts=False),
    "verify orders --with copy.jsonl -o json": Shown("hidden", KEYS_ONLY, redacts=False),
    "shards orders": Shown("orders", KEYS_ONLY, redacts=False),
    "streams -o json": Shown("orders", KEYS_ONLY, redacts=False),
}
FAILING = """
def handle(record):
    raise ValueError(record, record.new, record.old, record.key, str(bytes(record.raw)))


def on_event(event, context):
    raise ValueError(event)
"""
SEEING = """
import pickle


def handle(record):
    seen = pickle.dumps(record), bytes(record.raw), repr(record.wire), repr(record.as_it_came())
    with open("out.seen", "a") as file:
        print(*seen, record, record.key, record.new, record.old, record.changes, file=file)
    with open("out.pickle", "ab") as file:
        file.write(pickle.dumps(record))
"""


def item(number: int, key: str = HASH) -> dict[str, Any]:
    odd = {name: value for name, value in ODD_ITEM.items() if name != "zz"}
    return {**odd, **secret(number), "pk": {"S": key}, "aa": {"S": "s"}, NAME: {"S": HOSTILE}}


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    """An item that is put, changed, and expires; another one stays."""
    now = time.time()
    with Simulator(table="orders", key_names=("pk", "aa"), clock=lambda: now - 600) as simulator:
        simulator.put(item(1))
        simulator.advance(60)
        simulator.put(item(2))
        simulator.put(item(3, f"other{HASH}"))
        simulator.advance(120)
        simulator.remove(compact({"pk": {"S": HASH}, "aa": {"S": "s"}}), ttl=True)
        simulator.advance(420)
        yield simulator


@pytest.fixture(scope="module")
def webhook() -> Iterator[PlayedServer]:
    with PlayedServer() as server:
        yield server


@pytest.fixture
def there(
    sim: Simulator, webhook: PlayedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Simulator:
    monkeypatch.setattr("watcher.time_machine.sources.CLOCK", HandClock())
    monkeypatch.chdir(tmp_path)
    for name, value in sim.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WATCHER_REDACT_KEY", KEY)
    monkeypatch.setenv("COLUMNS", "4000")
    for name, text in (("failing", FAILING), ("seeing", SEEING)):
        Path(f"{name}.py").write_text(text)
    key = {"pk": HASH, "aa": "s"}
    deliver(tmp_path, sim.now - 500, trails.put(sim.now - 600, key=key, by=role("api", "i-1")))
    changed = {"pk": f"other{HASH}", "aa": "s", "v": 7}
    Path("copy.jsonl").write_text(json.dumps(changed) + "\n")
    webhook.asked.clear()
    return sim


def words_of(command: str, sim: Simulator, webhook: PlayedServer) -> list[str]:
    if "RAW" in command:
        raw = run(*shlex.split(ALL), "--print-json", env={}).out
        Path("raw.in").write_text("\n".join(raw) + "\n")
    at = datetime.fromtimestamp(sim.now - 500, UTC).isoformat()
    given = {"AT": at, "RAW": "./raw.in", "URL": webhook.url}
    return [given.get(word, word) for word in shlex.split(command)]


def written(webhook: PlayedServer) -> Iterator[bytes]:
    """What a command has written elsewhere than to standard output."""
    for path in sorted(Path().glob("out.*")):
        yield path.read_bytes()
        if path.name == "out.db":
            with closing(sqlite3.connect(path)) as database:
                yield "\n".join(map(str, database.execute("SELECT * FROM changes"))).encode()
        path.unlink()
    yield from (each.body for each in webhook.asked)
    webhook.asked.clear()


@pytest.mark.parametrize("command", TABLE, ids=lambda each: ascii(each)[1:70])
def test_an_item_is_shown_as_it_is_steers_nothing_and_is_redacted(
    command: str, there: Simulator, webhook: PlayedServer
) -> None:
    shown, words = TABLE[command], words_of(command, there, webhook)
    status, out, err = run_on_a_terminal(*words, env={})
    assert status in (0, 1), err
    refuse_steering(out)
    refuse_steering(err)
    elsewhere = [html.unescape(each.decode(errors="replace")) for each in written(webhook)]
    text = "\n".join([out, err, *elsewhere])
    assert re.search(shown.pattern, text), text
    assert not [each for each in shown.values if not re.search(each, text)], text
    if shown.redacts:
        Path("c.json").unlink(missing_ok=True)
        ran = run(*words, *EVERYTHING, env={})
        assert ran.status == status, ran.err
        refuse_traces("\n".join(ran.out + ran.err).encode(), *written(webhook))


def test_every_handler_there_is_was_tried() -> None:
    tried = {word[2:].replace("-", "_") for command in TABLE for word in command.split()}
    # A topic has its test with the redaction.
    assert set(handler_modules.find()) - tried == {"kafka", "sqs"}


def test_a_pipe_gets_it_as_it_is(there: Simulator, webhook: PlayedServer) -> None:
    def piped(command: str) -> str:
        return "\n".join(run(*words_of(command, there, webhook), env={}).out)

    found = json.loads(piped("as-of orders AT " + ITEM))
    assert (found["pk"], found[NAME]) == (HASH, HOSTILE)
    for line in piped(f"{ALL} --print-jsonl --grep seen-1").split("\n"):
        assert json.loads(line)["key"]["pk"] == HASH


# A user's own text around values that are escaped; bytes to a pipe; what executors have escaped.
OTHERS = {"handlers/print_template.py", "handlers/print_json.py", "watcher/spark/jobs/watch.py"}


def test_there_is_one_way_to_a_terminal() -> None:
    """Item data goes through `formatting/text.py`."""
    found = []
    for place in (ROOT / "watcher" / "cli", ROOT / "watcher" / "spark", ROOT / "handlers"):
        for path in sorted(place.rglob("*.py")):
            if re.search(r"stdout\.(write|writelines|buffer)\(", path.read_text()):
                found.append(str(path.relative_to(ROOT)))
    assert set(found) <= OTHERS


# Textual writes sequences of its own; of these none is.
OF_THE_TABLE = "\x1b]0;owned", "\x1b[8m", "\x1b[31mred", "\x9b", "\x9d", "\u202e", "\u2066", "\x08"


@pytest.mark.proof
@pytest.mark.parametrize("redact", [(), EVERYTHING], ids=["shown", "redacted"])
def test_so_it_is_in_the_live_view(
    redact: tuple[str, ...], there: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its list, its screens, and in the line that quotes a handler's error."""
    monkeypatch.delenv("COLUMNS")  # Textual takes it for the terminal's
    words = ["orders", "--from", "trim-horizon", "--live", "--call", "failing:handle", *redact]
    command = sys.executable, "-m", "watcher", *words
    with Terminal(*command, env=there.environment, columns=200) as terminal:

        def sees(text: str) -> None:
            terminal.wait_for(lambda: any(text in line for line in terminal.screen.display))

        def misses(text: str) -> None:
            terminal.wait_for(lambda: not any(text in line for line in terminal.screen.display))

        sees("4 changes")
        terminal.press(b"k")
        sees("\u256d")  # the frame of a screen over the list
        sees("pk is redacted" if redact else "TTL")
        terminal.press(b"q")
        misses("\u256d")
        for key, text in ((b"\r", "before:"), (b"s", "shardId")):
            terminal.press(key)
            sees("\u256d")
            sees(text)
            terminal.press(b"q")
            misses("\u256d")
        terminal.press(b"q")
        assert terminal.end() == 0
        shown = bytes(terminal.written)
    if redact:
        refuse_traces(shown)
    assert not [ascii(each) for each in OF_THE_TABLE if each in shown.decode()]
