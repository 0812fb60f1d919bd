"""A command calls what the table of docs/aws.md says that it calls, and nothing else."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from tests.simulator import Simulator
from tests.support.pages import PAGES
from watcher import cli

pytestmark = pytest.mark.proof

# It is asked for where a stream ends: the table may have another one.
SUCCESSOR = {"DescribeTable"}
# Of a global table alone: a replica's stream does not say what expired.
REPLICA = {"DescribeTimeToLive"}
# The table of the positions is there.
MADE = {"CreateTable"}

ROWS = {
    what: {*re.findall(r"dynamodb:(\w+)", actions)}
    for what, actions in re.findall(r"^\| (.+?) \| (`\w+:.+?) \|", PAGES["aws.md"], re.MULTILINE)
}
READ = "a command that reads a stream"
TABLE = "a table named by its name or ARN"


def actions(*rows: str) -> set[str]:
    """Those of the table's rows that have these texts between their commas."""
    granted = set[str]()
    for text in rows:
        found = [named for what, named in ROWS.items() if text in re.split(", |; ", what)]
        assert found, text
        granted.update(*found)
    return granted


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    """A table, of whose changes some are from four and some from two hours ago; and positions'."""
    monkeypatch.chdir(tmp_path)
    began = time.time() - 4 * 3600
    with Simulator(table="orders", clock=lambda: began) as simulator:
        for name, value in simulator.environment.items():
            monkeypatch.setenv(name, value)
        simulator.write("a")
        simulator.write("b")
        simulator.advance(2 * 3600)
        simulator.write("a", 2)
        simulator.remove("b")
        simulator.write("c")
        simulator.advance(2 * 3600)
        simulator.add_table("leases", 0, key="name")
        yield simulator


@pytest.mark.parametrize(
    ("rows", "commands", "more"),
    [
        ((), ["orders --from trim-horizon --no-follow"], set()),
        (("`--snapshot`",), ["orders --snapshot --no-follow"], set()),
        (("a glob",), ["ord* --from trim-horizon --no-follow"], SUCCESSOR),
        (("`--tag`",), ["--tag env=prod --from trim-horizon --no-follow"], SUCCESSOR),
        (
            ("`--checkpoint dynamodb://…`",),
            ["orders --checkpoint dynamodb://leases/orders --from trim-horizon --no-follow"],
            MADE,
        ),
        ((), ["count orders --by kind"], set()),
        ((), ["report orders --from 5h --to page.html"], set()),
        (("`history`",), ["history orders --key pk=a"], set()),
        (("`as-of`",), ["as-of orders 3h"], set()),
        (("`as-of` of one item",), ["as-of orders 3h --key pk=a"], set()),
        (("`undo`",), ["undo orders --from 3h --plan plan"], REPLICA),
        (
            ("`undo`", "`undo --apply`"),
            ["undo orders --from 3h --plan plan", "undo --apply plan", "undo --revert plan"],
            REPLICA,
        ),
        (("`mirror`",), ["mirror orders --to mirrored --no-follow"], set()),
        (
            ("`verify`",),
            ["mirror orders --to mirrored --no-follow", "verify orders --with ./mirrored"],
            set(),
        ),
    ],
)
def test_a_command_that_reads_a_stream_calls_what_its_rows_say(
    rows: tuple[str, ...], commands: list[str], more: set[str], orders: Simulator
) -> None:
    tags = [{"Key": "env", "Value": "prod"}]
    boto3.client("dynamodb").tag_resource(ResourceArn=orders.table_arn, Tags=tags)
    for each in commands:
        assert cli.main(each.split()) == 0, each
    assert {*orders.calls} - {"TagResource"} == actions(READ, TABLE, *rows) - more


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (("`streams`",), "streams"),
        ((TABLE, "`shards`"), "shards orders"),
    ],
)
def test_a_listing_calls_what_its_rows_say(
    rows: tuple[str, ...], words: str, orders: Simulator
) -> None:
    assert cli.main(words.split()) == 0
    assert {*orders.calls} == actions(*rows)
