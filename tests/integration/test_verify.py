"""Every block of docs/verify.md runs as it is written."""

import csv
import errno
import io
import json
import os
import re
import shlex
import sqlite3
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

from deltalake import DeltaTable, write_deltalake

from tests.simulator import Simulator
from tests.support.hand_clock import HandClock
from tests.support.program import Program
from watcher.cli import main
from watcher.errors import ResourceError

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "verify.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [
    line.removeprefix("python -m watcher ")
    for kind, text in BLOCKS
    for line in text.splitlines()
    # Another table is test_verify_local's.
    if kind == "sh" and "--with orders-copy" not in line and "--apply" not in line
]

CONSOLE = [text for kind, text in BLOCKS if kind == "console"]


def key(name: str, order: int) -> dict[str, dict[str, str]]:
    return {"PK": {"S": name}, "SK": {"S": f"order-{order}"}}


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Simulator]:
    """Orders of an hour ago, and a few changes since."""
    began = time.time() - 3600
    monkeypatch.setattr("watcher.time_machine.sources.CLOCK", HandClock())
    monkeypatch.chdir(tmp_path)
    with Simulator(table="orders", key_names=("PK", "SK"), clock=lambda: began) as simulator:
        for name, value in simulator.environment.items():
            monkeypatch.setenv(name, value)
        for number in range(29):
            simulator.put({**key("user", number), "total": {"N": str(number)}})
        simulator.put({**key("eve", 9), "city": {"S": "Koeln"}})
        simulator.put({**key("ada", 7), "total": {"N": "250"}})
        simulator.put({**key("bob", 2), "total": {"N": "7"}})
        simulator.advance(1800)
        simulator.put({**key("ada", 7), "total": {"N": "260"}})
        simulator.client("dynamodb").delete_item(TableName="orders", Key=key("bob", 2))
        simulator.advance(1800)
        yield simulator


class _Full(io.BytesIO):
    def write(self, data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_an_error_of_one_line(
    shop: Simulator, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("copy.jsonl").write_text('{"PK": "eve", "SK": "order-9", "city": "Koeln"}\n')
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda *args, **options: _Full())
    assert main(["verify", "orders", "--with", "copy.jsonl"]) == ResourceError.exit_status
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: No space left on device: the folder of temporary files is full; "
        "free some space, or set TMPDIR to another folder"
    )


def test_the_first_block_shows_what_is_printed(
    shop: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split("mirror orders --to mirror/orders --once")) == 0
    command = "verify orders --with ./mirror/orders"
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out.endswith(": 31 items, 0 differ\n")
    table = DeltaTable("mirror/orders")
    table.update(updates={"total": "250"}, predicate="PK = 'ada'")
    table.update(updates={"city": "'Köln'"}, predicate="PK = 'eve'")
    rows = table.to_pyarrow_table()
    # The one with the total of the item that was removed.
    keys = list(zip(rows["PK"].to_pylist(), rows["SK"].to_pylist(), strict=True))
    bob = rows.slice(keys.index(("user", "order-7")), 1)
    for at, text in enumerate(("bob", "order-2")):
        bob = bob.set_column(at, rows.schema.field(at), [[text]])
    write_deltalake(table, bob, mode="append")
    capsys.readouterr()

    assert main(shlex.split(command)) == 1
    printed = capsys.readouterr().out
    shown, _ = CONSOLE
    first, *rest = shown.splitlines()
    assert first == f"$ python -m watcher {command}"
    assert pattern("\n".join(rest)) == pattern(printed.rstrip("\n"))

    assert main([*shlex.split(command), "-o", "json"]) == 1
    compared = capsys.readouterr().out
    found = json.loads(compared)
    assert (found["items"], found["differ"]) == (32, 3)
    assert {each["cause"] for each in found["differences"]} == {"missing", "unexplained"}
    assert main([*shlex.split(command), "--ignore", "city"]) == 1
    assert "32 items, 2 differ" in capsys.readouterr().out

    Path("differences.json").write_text(compared)
    command = "report orders --verify differences.json -o report.html"
    assert f"python -m watcher {command}\n" in (DOCS / "report.md").read_text()
    assert main(shlex.split(command)) == 0
    _, _, copy = Path("report.html").read_text().partition("<h2>Differences of the copy</h2>")
    words = " ".join(re.sub("<[^>]*>", " ", copy).split())
    assert "32 items, 3 differ" in words
    for line in printed.splitlines()[1:]:
        name, difference, reason = line.strip().split("   ")
        assert f"{name} {difference} {reason}" in words
    Path("differences.json").write_text("[]")
    assert main(shlex.split(command)) == 2
    error = "--verify differences.json: it is not what verify -o json writes: "
    assert error in capsys.readouterr().err


def pattern(text: str) -> str:
    """Without what is another each time: times, versions and sequence numbers."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:]+[+-]\d\d:\d\d", "TIME", text)
    text = re.sub(r"change \S+ ", "change ID ", text)
    return re.sub(r"version \d+: \d+", "version V: N", text)


def test_a_consumers_log_is_compared_with_the_stream(
    shop: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split("orders --from trim-horizon --no-follow --print-json")
    assert main(words) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    numbers = [row["dynamodb"]["SequenceNumber"] for row in rows]
    of_ada = [at for at, row in enumerate(rows) if row["dynamodb"]["Keys"] == key("ada", 7)]
    assert len(of_ada) == 2
    ((of_3,), (of_5,)) = (
        [at for at, row in enumerate(rows) if row["dynamodb"]["Keys"] == key("user", each)]
        for each in (3, 5)
    )
    Path("processed.txt").write_text("\n".join(numbers))
    assert main(["verify", "orders", "--log", "processed.txt"]) == 0
    assert capsys.readouterr().out == "processed.txt: 34 changes, 0 of them wrong\n"

    order = [*numbers, numbers[of_5]]
    first, second = of_ada
    order[first], order[second] = order[second], order[first]
    del order[of_3]
    Path("processed.txt").write_text("\n".join(order))
    assert main(["verify", "orders", "--log", "processed.txt"]) == 1
    printed = capsys.readouterr().out
    _, shown = CONSOLE
    assert sorted(log_pattern(shown).splitlines()[1:]) == sorted(log_pattern(printed).splitlines())
    assert main(["verify", "orders", "--log", "processed.txt", "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [each["fault"] for each in found["faults"]].count("missed") == 1


def test_a_counters_changes_that_explain_it_equally_well_are_counted(
    shop: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    for count in (5, 6, 7):
        shop.put({**key("ada", 9), "n": {"N": str(count)}})
    make_copies(shop, capsys, wrong=False)
    rows = Path("export.jsonl").read_text().replace('"n": 7.0', '"n": 8')
    Path("export.jsonl").write_text(rows)
    assert main(["verify", "orders", "--with", "./export.jsonl", "-o", "json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["differences"]
    assert (found["cause"], found["change"]["others_alike"]) == ("twice", 1)
    assert found["reason"].endswith(
        "was applied twice there; 1 other change would explain it as well"
    )


def test_a_sample_and_its_cost_are_told(
    shop: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    make_copies(shop, capsys, wrong=False)
    command = "verify orders --with ./export.jsonl --sample 50% --read-limit 0.5"
    assert main(shlex.split(command)) == 0
    printed = capsys.readouterr()
    assert re.search(r"= export.jsonl: \d+ items in a sample of 50%, 0 differ\n$", printed.out)
    first, *_ = printed.err.splitlines()
    assert first == (
        "Compares orders with export.jsonl; the table's scan takes 1 read unit: at 0.5 a second 2 s"
    )


def test_it_goes_on_comparing_and_metrics_and_probe_tell_how_it_stands(
    shop: Simulator, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    make_copies(shop, capsys, wrong=False)
    shop_url = {**shop.environment, "PYTHONUNBUFFERED": "1"}
    words = ["verify", "orders", "--with", "./export.jsonl", "--every", "1s", "--metrics-port", "0"]
    with Program(*words, env=shop_url, cwd=tmp_path) as program:
        program.wait_for_status("Metrics: ")
        (line,) = [each for each in program.err if "Metrics: " in each]
        base = line.partition("Metrics: ")[2].removesuffix("/metrics")
        program.wait_for(lambda: answered(f"{base}/readyz") == (200, "ok\n"))
        assert "watcher_verify_differences{" in answered(f"{base}/metrics")[1]
        make_copies(shop, capsys, wrong=True)
        differs = (503, "orders differs from ./export.jsonl in 1 of 31 items\n")
        program.wait_for(lambda: answered(f"{base}/readyz") == differs)
        assert re.search(
            r'^watcher_verify_differences{copy="./export.jsonl",table="orders"} 1.0$',
            answered(f"{base}/metrics")[1],
            re.MULTILINE,
        )
        assert answered(f"{base}/livez") == (200, "ok\n")
        Path("export.jsonl").write_text("{")
        program.wait_for_status("This comparison failed: can't read export.jsonl")
        program.wait_for(lambda: "the last comparison of orders" in answered(f"{base}/readyz")[1])
        assert program.end() == 0
    assert any(each.endswith("31 items, 0 differ") for each in program.out)
    assert any(each.endswith("31 items, 1 differ") for each in program.out)


def answered(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_other_table_may_be_of_another_account_and_region(
    shop: Simulator,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    with Simulator(table="orders", key_names=("PK", "SK")) as other:
        Path("config").write_text(
            f"[profile theirs]\nregion = eu-west-1\nendpoint_url = {other.endpoint}\n"
            "aws_access_key_id = x\naws_secret_access_key = x\n"
        )
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        for item in shop.client("dynamodb").scan(TableName="orders")["Items"]:
            other.client("dynamodb").put_item(TableName="orders", Item=item)
        command = ["verify", "orders", "--endpoint-url", shop.endpoint, "--with", "orders"]
        assert main([*command, "--with-profile", "theirs"]) == 0
        other.client("dynamodb").delete_item(TableName="orders", Key=key("ada", 7))
        assert main([*command, "--with-profile", "theirs", "--with-region", "eu-west-1"]) == 1
        assert "PK=ada, SK=order-7   only here" in capsys.readouterr().out
    assert main(["verify", "orders", "--with", "./config", "--with-region", "x"]) == 2
    assert "--with-region: it is for another table" in capsys.readouterr().err


def test_an_archive_is_a_log_and_no_copy(
    shop: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("lake", "_spark_metadata").mkdir(parents=True)
    assert main(["verify", "orders", "--with", "./lake"]) == 2
    assert "it holds changes, not items: compare it by --log ./lake" in capsys.readouterr().err
    assert main(["verify", "orders", "--log", "./lake"]) == 1
    assert capsys.readouterr().out.startswith("./lake: 34 changes, 34 of them wrong\n")


def log_pattern(text: str) -> str:
    """Without what is another each time, or depends on the shards' order."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:]+[+-]\d\d:\d\d", "TIME", text)
    return re.sub(r"\d+…\d+|(?<=[ (]line )\d+|(?<=lines )\d+, \d+", "N", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_finds_an_equal_copy_equal_and_a_wrong_value_wrong(
    command: str, shop: Simulator, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for wrong in (False, True):
        make_copies(shop, capsys, wrong=wrong)
        assert main(shlex.split(command)) == int(wrong), capsys.readouterr()
        out = capsys.readouterr().out
        assert f" items, {int(wrong)} differ\n" in out
        if wrong:
            assert "PK=user, SK=order-3   total: 3.5 there, 3 here   no change explains it" in out


def make_copies(shop: Simulator, capsys: pytest.CaptureFixture[str], *, wrong: bool) -> None:
    """Copies of all kinds that the page shows, in the working folder."""
    client = shop.client("dynamodb")
    items = client.scan(TableName="orders")["Items"]
    for item in items:
        if wrong and item["SK"]["S"] == "order-3":
            item["total"] = {"N": "3.5"}
    rows = [{name: next(iter(value.values())) for name, value in item.items()} for item in items]
    with open("export.jsonl", "w") as file:
        for row in rows:
            numbers = {name: float(row[name]) for name in ("total", "n") if name in row}
            typed = {**row, **numbers}
            file.write(json.dumps(typed) + "\n")
    with open("export.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["customer", "number", "total", "city"])
        for row in rows:
            writer.writerow([row["PK"], row["SK"], row.get("total"), row.get("city")])
    Path("shop.db").unlink(missing_ok=True)
    with sqlite3.connect("shop.db") as database:
        database.execute("CREATE TABLE orders (PK TEXT, SK TEXT, total NUMERIC)")
        for row in rows:
            total = Decimal(row["total"]) if "total" in row else None
            values = row["PK"], row["SK"], None if total is None else float(total)
            database.execute("INSERT INTO orders VALUES (?, ?, ?)", values)
    database.close()
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", "name a copy or a log"),
        ("--with ./x.jsonl --repair p", "only a table can be repaired"),
        ("--with postgresql+psycopg://x/y", "give ?table=NAME"),
        ("--with ./nothing", "there is no such file"),
        ("--with sqlite:///x.db", "give sqlite:///FILE?table=NAME"),
        ("--with ./x.jsonl --map PK", "give ATTRIBUTE=COLUMN"),
        ("--with ./x.jsonl --read-limit 0", "more than 0 read units"),
        ("--with ./x.jsonl --metrics-port 0", "give --every"),
        ("--with ./x.jsonl --every soon", "soon"),
        ("--with ./x.jsonl --every 1h --repair p", "leave out --every"),
        ("--with ./x.jsonl --sample 1", "a part in percent"),
        ("--with ./x.jsonl --sample 200%", "a part in percent"),
    ],
)
def test_what_can_not_be_compared_is_said_in_a_line(
    shop: Simulator, capsys: pytest.CaptureFixture[str], words: str, text: str
) -> None:
    Path("x.jsonl").write_text("{}\n")
    assert main(["verify", "orders", *shlex.split(words)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert text in line


def test_a_database_takes_an_extra(
    shop: Simulator, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "watcher.time_machine.sql_copy", raising=False)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    assert main(["verify", "orders", "--with", "postgresql://x/y?table=z"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "reading a database needs SQLAlchemy: pip install" in line


def test_every_file_that_it_links_to_is_there() -> None:
    linked = re.findall(r"\]\((?!https?:|#)([^)#]+)", PAGE)
    assert [name for name in linked if not (DOCS / name).exists()] == []
