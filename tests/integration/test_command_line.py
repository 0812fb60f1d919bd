"""Bad input and odd places: what the command line says, and its exit status."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulator import Simulator
from tests.support.program import Program, run

NOWHERE = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_DEFAULT_REGION": "us-east-1"}
ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2026-11-21T00:00:00.000"


OTHER_SPARK = "io.delta:delta-spark_3.5_2.13:1"
APP = """
class Shop:
    def sell(record): print('sell', record['eventName'])

def note(record): print('note', record.key['pk'])
def two(record, more): ...
def once(event): ...
async def later(*given): ...
"""


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    with Simulator(table="orders") as simulator:
        simulator.bulk(20)
        yield simulator


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], 2, "python -m watcher --help "),  # after what to begin with
        (['"orders"'], 2, '"orders" has quotes: leave them out'),
        (["not an arn!"], 3, "neither a stream ARN, nor a table ARN, nor a table name"),
        (["orders"], 3, "127.0.0.1:9"),
        ([ARN], 3, "can't reach the stream"),
        ([ARN, "--profile", "nobody"], 3, "--profile: The config profile (nobody)"),
        ([ARN, "--endpoint-url", "nonsense"], 3, "--endpoint-url: Invalid endpoint: nonsense"),
        ([ARN, "--region", "not a region"], 3, "--region: "),
        ([ARN, "--from", "2100-01-01"], 2, "is in the future"),
        ([ARN, "--from", "someday"], 2, "--from: can't read 'someday' as a position"),
        ([ARN, "--max-records", "0"], 2, "--max-records 0: give 1 or more"),
        ([ARN, "--only", "insrt"], 2, "did you mean insert?"),
        ([ARN, "--on-error", "panic"], 2, "--on-error: can't read 'panic'"),
        ([ARN, "--handlers", "/no/such/folder"], 2, "--handlers /no/such/folder: no folder"),
        ([ARN, "--checkpoint", "/proc/nowhere/c.json"], 2, "--checkpoint /proc/nowhere/c.json"),
        ([ARN, "--broken"], 2, "broken.py:1: "),
        ([ARN, "--no-handle"], 2, "no_handle.py has no function handle(record)"),
        ([ARN, "--no-import"], 2, "no_import.py can't be imported: ModuleNotFoundError"),
        ([ARN, "--call", "app"], 2, "app: give MODULE:FUNCTION, such as app.changes:handle"),
        ([ARN, "--call", "app:two"], 2, "called with (record): missing a required argument"),
        ([ARN, "--call", "nosuch:f"], 2, "nosuch can't be imported: ModuleNotFoundError"),
        ([ARN, "--call", "app:nosuch"], 2, "app has no function nosuch"),
        ([ARN, "--lambda", "handler"], 2, "--lambda: handler: give MODULE.FUNCTION"),
        ([ARN, "--lambda", "app.once"], 2, "can't be called with (event, context): too many"),
        ([ARN, "--lambda", "app.later"], 2, "app:later is async, and nothing would await it"),
        ([ARN, "--batch-size", "0", "--lambda", "app.two"], 2, "--batch-size 0: give 1 to 10000"),
        (["shards", "orders"], 3, "127.0.0.1:9"),
        (["undo", "orders", "--from", "2h", "--redact", "pk=hash"], 2, "error: --redact: "),
        (["verify", "orders", "--with", "copy.jsonl", "--redact", "pk"], 2, "error: --redact: "),
        (
            ["replicate", "a", "--to", "b", "--checkpoint", "c", "--redact", "d"],
            2,
            "error: --redact",
        ),
        (
            ["mirror", "a", "--engine", "spark", "--to", "b", "--packages", OTHER_SPARK],
            2,
            "error: delta-spark_3.5_2.13 is for Spark 3.5, and this is 4.",
        ),
        (["verify", "orders", "--with", "postgresql://x/y"], 2, "export a database to Parquet"),
        (["verify", "orders", "--with", "./app.py"], 2, "give files of one kind"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_done_is_said_in_one_line_with_its_exit_status(
    tmp_path: Path, arguments: list[str], status: int, words: str
) -> None:
    folder = tmp_path / "handlers"
    folder.mkdir()
    (folder / "broken.py").write_text("def handle(:\n")
    (folder / "no_handle.py").write_text("x = 1\n")
    (folder / "no_import.py").write_text("import no_such_module\n")
    (tmp_path / "app.py").write_text(APP)
    program = run(*arguments, env=NOWHERE, cwd=tmp_path)
    assert program.status == status
    assert program.out == []
    assert words in program.err[-1]
    assert not any("Traceback" in line for line in program.err)


def test_missing_credentials_and_region_are_said(tmp_path: Path) -> None:
    no_keys = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    program = run("orders", "--region", "us-east-1", env=no_keys)
    assert program.status == 3
    assert "aws configure" in program.err[-1]
    program = run("orders", env={})
    assert program.status == 3
    assert "--region" in program.err[-1]


def test_a_table_without_a_stream_is_told_how_to_get_one(sim: Simulator) -> None:
    sim.add_table("plain", shards=0)
    with Simulator(table="orders") as bare:
        bare.delete_stream()
        program = run("orders", env=bare.environment)
    assert program.status == 3
    assert "aws dynamodb update-table --table-name orders" in program.err[-1]


def test_handlers_and_functions_run_in_the_order_in_which_they_were_chosen(
    sim: Simulator, tmp_path: Path
) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    for name in ("first", "second"):
        (folder / f"{name}.py").write_text(
            f'"""The {name}."""\nOPTIONS = {{"{name}_word": ("WORD", "what to say, at 100%")}}\n'
            f"word = '{name}'\n"
            f"def configure({name}_word=word):\n    global word\n    word = {name}_word\n"
            f'def handle(record): print(word)\ndef close(): print("{name} closed")\n'
        )
    (tmp_path / "app.py").write_text(APP)
    program = run(
        *("orders", "--from", "trim-horizon", "--max-records", "1", "--call", "app:note"),
        *("--handlers", "more", "--second", "--call", "app:Shop.sell", "--first"),
        *("--second-word", "2nd"),
        env=sim.environment,
        cwd=tmp_path,
    )
    said = ["note k0", "2nd", "sell INSERT", "first"]
    assert program.out == [*said, "second closed", "first closed"]
    words = ("--help", "handlers", "--handlers", "more")
    listed = run(*words, env=sim.environment, cwd=tmp_path).out
    assert any("--second" in line and "The second." in line for line in listed)


def test_json_is_the_wires_byte_for_byte(sim: Simulator) -> None:
    wire = (
        '{"eventID":"1","eventName":"INSERT",   "dynamodb":{"Keys":{"pk":{"S":"\\u00e9 é\\u001b"}},'
        '"SequenceNumber":"%s"}, "unknown": 1.50}'
    )
    with Simulator(table="odd") as odd:
        (number,) = odd.write("a")
        text = wire % (int(number) + 1)
        odd.append(json.loads(text))
        program = run("odd", "--from", "trim-horizon", "--no-follow", "-pj", env=odd.environment)
        client = odd.client()
        shard = odd.shards[0].id
        iterator = client.get_shard_iterator(
            StreamArn=odd.stream_arn, ShardId=shard, ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        bodies: list[bytes] = []
        client.meta.events.register(
            "before-parse.dynamodb-streams.GetRecords",
            lambda response_dict, **_: bodies.append(response_dict["body"]),
        )
        client.get_records(ShardIterator=iterator)
    assert len(program.out) == 2
    assert all(line.encode() in bodies[0] for line in program.out)


def test_ctrl_c_ends_the_demo(tmp_path: Path) -> None:
    with Program("demo", "--seconds", "60", env={}) as program:
        program.wait_for_lines(2, timeout=60)
        os.killpg(program.process.pid, signal.SIGINT)
        assert program.wait(60) == 0
    assert program.err[-1].startswith("Done: ")


def test_ctrl_c_before_the_watch_begins_ends_it_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import sys, time\nprint('importing', file=sys.stderr, flush=True)\ntime.sleep(60)\n"
    )
    with Program("orders", "--call", "slow:f", env=NOWHERE, cwd=tmp_path) as program:
        program.wait_for_status("importing")
        assert program.end(signal.SIGINT) == -signal.SIGINT  # 130 to a shell
    assert program.err == ["importing"]
