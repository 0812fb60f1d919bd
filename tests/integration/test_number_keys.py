"""DynamoDB Local's records have a number key as UpdateItem wrote it: 1 and 1.0 are one item."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support.dynamodb_local import DynamoDBLocal
from tests.support.hand_clock import HandClock
from watcher.cli import main

pytestmark = pytest.mark.proof


@pytest.fixture
def numbers(
    fresh_dynamodb_local: DynamoDBLocal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> str:
    """Returns the name of a table, one of whose items was written as 1, 1.0, 1E0 and 1.00."""
    server = fresh_dynamodb_local
    monkeypatch.setattr("watcher.time_machine.sources.CLOCK", HandClock())
    monkeypatch.chdir(tmp_path)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.client().create_table(
        TableName="numbers",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "N"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    # The minute in which a change is stamped begins after the stream did.
    server.dilate_time(1)
    for text, total in (("1", "10"), ("2", "7"), ("1.0", "20"), ("1E0", "30"), ("1.00", "40")):
        update(server, text, total)
    return "numbers"


def update(server: DynamoDBLocal, text: str, total: str) -> None:
    server.client().update_item(
        TableName="numbers",
        Key={"id": {"N": text}},
        UpdateExpression="SET #t = :total",
        ExpressionAttributeNames={"#t": "total"},
        ExpressionAttributeValues={":total": {"N": total}},
    )


def out(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main([*words]) == 0
    return capsys.readouterr().out


def test_a_watch_chooses_all_changes_of_the_item_and_keeps_the_wire_s_bytes(
    numbers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = numbers, "--from", "trim-horizon", "--no-follow", "--print-json", "--key", "id=1.000"
    lines = out(capsys, *words).splitlines()
    keys = [json.loads(line)["dynamodb"]["Keys"]["id"]["N"] for line in lines]
    assert len(keys) == 4 and len(set(keys)) > 1, "or DynamoDB Local normalizes them by now"


def test_the_time_machine_sees_one_item(numbers: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "history", numbers, "--key", "id=1.0", "-o", "json")
    assert [row["kind"] for row in json.loads(text)] == ["INSERT", *["MODIFY"] * 3, "NOW"]
    assert json.loads(out(capsys, "as-of", numbers, "1s", "-o", "json")) in (
        [{"id": 1, "total": 40}, {"id": 2, "total": 7}],
        [{"id": 2, "total": 7}, {"id": 1, "total": 40}],
    )
    assert out(capsys, "as-of", numbers, "30m", "-o", "json") == "[]\n"
    rows = json.loads(out(capsys, "count", numbers, "--by", "key", "-o", "json"))
    assert rows == [{"key": "id=1", "changes": 4}, {"key": "id=2", "changes": 1}]
    plan = json.loads(out(capsys, "undo", numbers, "--from", "30m", "-o", "json"))
    assert sorted((row["kind"], row["changes"]) for row in plan) == [("REMOVE", 1), ("REMOVE", 4)]
    (path,) = Path().glob("undo-*.jsonl")
    assert main(["undo", "--apply", str(path)]) == 0
    assert json.loads(out(capsys, "as-of", numbers, "0s", "-o", "json")) == []


@pytest.mark.parametrize("words", [[], ["--history"], ["--columns", "id string"]])
def test_a_mirror_has_one_row_of_the_item(
    words: list[str], numbers: str, fresh_dynamodb_local: DynamoDBLocal, tmp_path: Path
) -> None:
    pytest.importorskip("deltalake")
    from deltalake import DeltaTable

    mirror = ["mirror", numbers, "--to", str(tmp_path / "lake"), "--no-follow", *words]
    assert main(mirror) == 0
    for text, total in (("1", "50"), ("1.0", "60"), ("3.0", "9")):
        update(fresh_dynamodb_local, text, total)
    fresh_dynamodb_local.client().delete_item(TableName=numbers, Key={"id": {"N": "2.0"}})
    assert main(mirror) == 0
    rows = DeltaTable(str(tmp_path / "lake")).to_pyarrow_table().to_pylist()
    last = [row for row in rows if row.get("_valid_to") is None]
    assert {Decimal(row["id"]): int(row["total"]) for row in last} == {1: 60, 3: 9}
    assert len(last) == 2
