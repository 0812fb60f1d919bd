"""A command works with what the table of docs/aws.md allows it, and calls all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.support.dynamodb_local import DynamoDBLocal
from tests.support.iam import GuardedEndpoint
from tests.support.moto_server import moto_server
from watcher import cli

pytestmark = pytest.mark.proof

FAILING = "def handle(record):\n    raise ValueError\n"
DEAD = "--from trim-horizon --no-follow --failing --on-error dead-letter:"
# It is asked for where a stream ends: the table may have another one.
SUCCESSOR = {"dynamodb:DescribeTable"}
# Of a global table alone: a replica's stream does not say what expired.
REPLICA = {"dynamodb:DescribeTimeToLive"}


@pytest.fixture(scope="module")
def others() -> Iterator[str]:
    """A queue and a bucket."""
    with moto_server() as url:
        there: dict[str, Any] = {
            "endpoint_url": url,
            "region_name": "us-east-1",
            "aws_access_key_id": "here",
            "aws_secret_access_key": "here",
        }
        boto3.client("sqs", **there).create_queue(QueueName="dead")
        boto3.client("s3", **there).create_bucket(Bucket="dead")
        yield url


@pytest.fixture
def guarded(
    fresh_dynamodb_local: DynamoDBLocal,
    others: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[GuardedEndpoint]:
    """A table whose changes are two and four hours old; nothing is allowed yet."""
    monkeypatch.chdir(tmp_path)
    Path("handlers").mkdir()
    Path("handlers", "failing.py").write_text(FAILING)
    server = fresh_dynamodb_local
    server.create_table("orders")
    client = server.client()
    first, second, third = ({"PK": {"S": "a"}, "SK": {"S": each}} for each in "123")
    client.put_item(TableName="orders", Item=first)
    client.put_item(TableName="orders", Item=second)
    server.dilate_time(2)
    client.put_item(TableName="orders", Item={**first, "v": {"N": "1"}})
    client.delete_item(TableName="orders", Key=second)
    client.put_item(TableName="orders", Item=third)
    server.dilate_time(2)
    with GuardedEndpoint(server.endpoint_url, others) as guard:
        here = {"AWS_ACCESS_KEY_ID": "here", "AWS_REGION": "us-east-1"}
        for name, value in {**server.environment, **here, "AWS_ENDPOINT_URL": guard.url}.items():
            monkeypatch.setenv(name, value)
        tags = {"Tags": [{"Key": "env", "Value": "prod"}]}
        guard.answers = {"dynamodb:ListTagsOfResource": tags}
        yield guard


PAGE = (Path(__file__).parents[2] / "docs" / "aws.md").read_text()
ROWS = {
    what: {*re.findall(r"\w+:\w+", actions)}
    for what, actions in re.findall(r"^\| (.+?) \| (`\w+:.+?) \|", PAGE, re.MULTILINE)
}


def allow(guard: GuardedEndpoint, *rows: str) -> set[str]:
    """Allows the actions of the table's rows that have these texts between their commas."""
    granted = set[str]()
    for text in rows:
        found = [actions for what, actions in ROWS.items() if text in re.split(", |; ", what)]
        assert found, text
        granted.update(*found)
    guard.statements = [{"Action": granted, "Resource": ["*"]}]
    return granted


READ = "a command that reads a stream"
TABLE = "a table named by its name or ARN"
POSITIONS = "--checkpoint dynamodb://leases/orders"


@pytest.mark.parametrize(
    ("rows", "commands", "more"),
    [
        ((), ["orders --from trim-horizon --no-follow"], set()),
        (("`--snapshot`",), ["orders --snapshot --no-follow"], set()),
        (("a glob",), ["ord* --from trim-horizon --no-follow"], SUCCESSOR),
        (("`--tag`",), ["--tag env=prod --from trim-horizon --no-follow"], SUCCESSOR),
        (
            ("`--checkpoint dynamodb://…`",),
            [f"orders {POSITIONS} --from trim-horizon --no-follow"],
            set(),
        ),
        (("`dead-letter:sqs://…`",), [f"orders {DEAD}sqs://dead"], set()),
        (("`dead-letter:s3://…`",), [f"orders {DEAD}s3://dead/of"], set()),
        (("`--sqs`",), ["orders --sqs dead --from trim-horizon --no-follow"], set()),
        ((), ["count orders --by kind"], set()),
        ((), ["report orders --from 5h --to page.html"], set()),
        (("`history`",), ["history orders --key PK=a --key SK=1"], set()),
        (("`as-of`",), ["as-of orders 3h"], set()),
        (("`as-of` of one item",), ["as-of orders 3h --key PK=a --key SK=1"], set()),
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
def test_a_command_that_reads_a_stream_calls_what_its_rows_allow(
    rows: tuple[str, ...],
    commands: list[str],
    more: set[str],
    guarded: GuardedEndpoint,
    capsys: pytest.CaptureFixture[str],
) -> None:
    works(guarded, capsys, (READ, TABLE, *rows), commands, more)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (("`streams`",), "streams"),
        (("`streams`",), "streams --table orders"),
        ((TABLE, "`shards`"), "shards orders"),
    ],
)
def test_a_listing_calls_what_its_rows_allow(
    rows: tuple[str, ...],
    words: str,
    guarded: GuardedEndpoint,
    capsys: pytest.CaptureFixture[str],
) -> None:
    works(guarded, capsys, rows, [words], set())


def works(
    guarded: GuardedEndpoint,
    capsys: pytest.CaptureFixture[str],
    rows: tuple[str, ...],
    commands: list[str],
    more: set[str],
) -> None:
    granted = allow(guarded, *rows)
    for each in commands:
        failed = "dead-letter" in each
        assert (cli.main(each.split()), capsys.readouterr().err)[0] == failed, each
    assert not guarded.refused
    assert guarded.called == granted - more
