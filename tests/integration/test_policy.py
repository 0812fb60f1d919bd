"""A command works with what its policy allows, and calls all that it allows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.support.dynamodb_local import DynamoDBLocal
from tests.support.iam import GuardedEndpoint
from tests.support.moto_server import moto_server
from watcher import cli

FAILING = "def handle(record):\n    raise ValueError\n"
DEAD = "--from trim-horizon --no-follow --failing --on-error dead-letter:"
# It is asked for where a stream ends: the table may have another one.
SUCCESSOR = {"dynamodb:DescribeTable"}
# Of a global table alone: a replica's stream does not say what expired.
REPLICA = {"dynamodb:DescribeTimeToLive"}
STORE = "--checkpoint dynamodb://leases/orders"


@pytest.fixture(scope="module")
def others() -> Iterator[str]:
    """A queue, a topic and a bucket."""
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


def allow(guard: GuardedEndpoint, capsys: pytest.CaptureFixture[str], policy: str) -> set[str]:
    """Puts the printed policy in charge, and returns its actions."""
    capsys.readouterr()
    assert cli.main(["policy", *policy.split()]) == 0
    guard.statements = json.loads(capsys.readouterr().out)["Statement"]
    return {action for each in guard.statements for action in each["Action"]}


@pytest.mark.parametrize(
    ("policy", "commands", "more"),
    [
        ("orders", ["orders --from trim-horizon --no-follow"], set()),
        ("orders --snapshot", ["orders --snapshot --no-follow"], set()),
        ("ord*", ["ord* --from trim-horizon --no-follow"], SUCCESSOR),
        ("--tag env=prod", ["--tag env=prod --from trim-horizon --no-follow"], SUCCESSOR),
        (f"orders {STORE}", [f"orders {STORE} --from trim-horizon --no-follow"], set()),
        ("orders --on-error dead-letter:sqs://dead", [f"orders {DEAD}sqs://dead"], set()),
        ("orders --on-error dead-letter:s3://dead/of", [f"orders {DEAD}s3://dead/of"], set()),
        ("orders --sqs dead", ["orders --sqs dead --from trim-horizon --no-follow"], set()),
        ("orders --for count", ["count orders --by kind"], set()),
        ("orders --for report", ["report orders --from 5h -o page.html"], set()),
        ("orders --for history", ["history orders --key PK=a --key SK=1"], set()),
        ("orders --for as-of", ["as-of orders 3h", "as-of orders 3h --key PK=a --key SK=1"], set()),
        ("orders --for undo", ["undo orders --from 3h --to plan"], REPLICA),
        (
            "orders --for undo-apply",
            ["undo orders --from 3h --to plan", "undo --apply plan", "undo --revert plan"],
            REPLICA,
        ),
        ("* --for streams", ["streams"], set()),
        ("orders --for streams", ["streams --table orders"], set()),
        ("orders --for shards", ["shards orders"], set()),
        ("orders --for mirror", ["mirror orders --to mirrored --once"], set()),
        (
            "orders --for verify",
            ["mirror orders --to mirrored --once", "verify orders --with ./mirrored"],
            set(),
        ),
    ],
)
def test_a_command_works_with_its_policy_and_calls_all_that_it_allows(
    policy: str,
    commands: list[str],
    more: set[str],
    guarded: GuardedEndpoint,
    capsys: pytest.CaptureFixture[str],
) -> None:
    granted = allow(guarded, capsys, policy)
    for each in commands:
        failed = "dead-letter" in each
        assert (cli.main(each.split()), capsys.readouterr().err)[0] == failed, each
    assert not guarded.refused
    assert guarded.called == granted - more
