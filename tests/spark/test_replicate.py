"""A table that follows another, through the real command line."""

from pathlib import Path
from typing import Any

import boto3
import pytest

pytest.importorskip("pyspark")

from tests.integration.conftest import fresh_dynamodb_local
from tests.spark.conftest import Done, Run
from tests.support.dynamodb_local import DynamoDBLocal
from watcher.testing import NewTable

__all__ = ["fresh_dynamodb_local"]  # a fixture

pytest_plugins = ["watcher.testing"]

pytestmark = pytest.mark.spark


@pytest.fixture
def server(fresh_dynamodb_local: DynamoDBLocal) -> DynamoDBLocal:
    return fresh_dynamodb_local


def replicate(command: Run, arn: str, endpoint: str, place: Path, *more: str) -> Done:
    here = ["--endpoint-url", endpoint, "--region", "us-east-1", "--checkpoint", str(place)]
    return command("replicate", arn, "--to", "copy", "--once", *here, *more)


def put(client: Any, table: str, *numbers: int) -> None:
    for number in numbers:
        item = {"PK": {"S": f"k{number}"}, "SK": {"S": "s"}, "raw": {"B": bytes([number])}}
        client.put_item(TableName=table, Item=item)


def keys(client: Any, table: str) -> set[str]:
    return {item["PK"]["S"] for item in client.scan(TableName=table)["Items"]}


def test_items_are_copied_and_then_changes_applied(
    command: Run, server: DynamoDBLocal, tmp_path: Path
) -> None:
    arn = server.create_table("shop")
    client = server.client()
    put(client, "shop", 1, 2, 3)

    first = replicate(command, arn, server.endpoint_url, tmp_path, "--create")
    put(client, "shop", 4, 5)
    client.delete_item(TableName="shop", Key={"PK": {"S": "k1"}, "SK": {"S": "s"}})
    second = replicate(command, arn, server.endpoint_url, tmp_path)

    assert (first.status, second.status) == (0, 0), second.err
    assert "Created table copy" in first.err and "Copied 3 items of shop to copy" in first.err
    assert "Copied" not in second.err
    assert keys(client, "copy") == {"k2", "k3", "k4", "k5"}


@pytest.mark.proof
def test_the_copy_may_be_in_another_region(
    command: Run, new_table: NewTable, embedded_dynamodb: str, tmp_path: Path
) -> None:
    """On a server that keeps regions apart, as AWS does and DynamoDB Local does not."""
    west = boto3.client("dynamodb", endpoint_url=embedded_dynamodb, region_name="us-east-1")
    there = boto3.client("dynamodb", endpoint_url=embedded_dynamodb, region_name="eu-west-1")
    table = new_table({"PK": "S", "SK": "S"}, "NEW_IMAGE")
    put(west, table.name, 1, 2)

    options = ["--create", "--to-region", "eu-west-1", "--to-endpoint-url", embedded_dynamodb]
    done = replicate(command, table.stream_arn, embedded_dynamodb, tmp_path, *options)

    assert done.status == 0, done.err
    assert keys(there, "copy") == {"k1", "k2"}
    assert "copy" not in west.list_tables()["TableNames"]
    assert table.name not in there.list_tables()["TableNames"]


@pytest.mark.proof
def test_a_checkpoint_is_of_one_target(command: Run, server: DynamoDBLocal, tmp_path: Path) -> None:
    arn = server.create_table("shop")
    put(server.client(), "shop", *range(10))
    url = server.endpoint_url

    mistyped = replicate(command, arn, url, tmp_path)
    first = replicate(command, arn, url, tmp_path, "--create")
    other = replicate(command, arn, url, tmp_path, "--create", "--to", "other")
    again = replicate(command, arn, f"{url}/", tmp_path)
    server.client().delete_table(TableName="copy")
    gone = replicate(command, arn, url, tmp_path, "--create")
    server.create_table("copy", None)
    empty = replicate(command, arn, url, tmp_path)
    anew = replicate(command, arn, url, tmp_path / "anew")

    assert [each.status for each in (mistyped, first, again, anew)] == [2, 0, 0, 0]
    for each in (other, gone, empty):
        assert each.status == 2
        assert "the checkpoint belongs to another table than " in each.err.splitlines()[-1]
    assert "other" not in server.client().list_tables()["TableNames"]
    assert len(keys(server.client(), "copy")) == 10


@pytest.mark.proof
def test_what_can_be_no_replica_is_refused(
    command: Run, server: DynamoDBLocal, tmp_path: Path
) -> None:
    arn = server.create_table("shop")
    keys_only = server.create_table("keys-only", "KEYS_ONLY")
    url = server.endpoint_url

    absent = replicate(command, arn, url, tmp_path)
    server.create_table("copy", None, sort_key=False)
    other_keys = replicate(command, arn, url, tmp_path)
    no_images = replicate(command, keys_only, url, tmp_path)
    itself = replicate(command, arn, url, tmp_path, "--to", "shop")
    again = url.replace("127.0.0.1", "localhost") + "/"
    as_another = replicate(command, arn, url, tmp_path, "--to", "shop", "--to-endpoint-url", again)

    statuses = [each.status for each in (absent, other_keys, no_images, itself, as_another)]
    assert statuses == [2, 2, 3, 2, 2]
    assert "shop is the stream's own table" in as_another.err
    assert "no table copy: create it, or give --create" in absent.err
    assert "copy has other keys than the stream's table" in other_keys.err
    assert "view type is KEYS_ONLY: set NEW_AND_OLD_IMAGES to copy a table" in no_images.err
    assert "shop is the stream's own table" in itself.err
