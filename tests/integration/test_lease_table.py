"""The item of a shared checkpoint, in DynamoDB Local, and as its answers are errors."""

import random

import pytest

from tests.simulator import Simulator
from tests.support.dynamodb_local import DynamoDBLocal
from tests.support.moto_server import patient_leases as patient_leases
from watcher import watch
from watcher.aws.config import AwsConfig
from watcher.aws.lease_storage import LeaseRecord, LeaseTable
from watcher.errors import CheckpointError, UsageError
from watcher.streams.checkpoint_format import Token, TokenShard, encode_all

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2026-11-21T08:00:00.000"


pytestmark = pytest.mark.usefixtures("patient_leases")


@pytest.fixture
def table(dynamodb_local: DynamoDBLocal, monkeypatch: pytest.MonkeyPatch) -> LeaseTable:
    for name, value in dynamodb_local.environment.items():
        monkeypatch.setenv(name, value)  # AWS_ENDPOINT_URL is gone by
    return opened()


def opened(name: str = "a/b") -> LeaseTable:
    made = LeaseTable.from_url(f"dynamodb://lease-table/{name}", AwsConfig(), None)
    made.prepare()
    return made


def token(shards: int) -> bytes:
    rng = random.Random(shards)

    def number() -> str:
        return str(rng.randrange(10**20, 10**21))

    names = [f"shardId-{number()}-{rng.randbytes(4).hex()}" for _ in range(shards)]
    rows = [TokenShard(name, "after_sequence", number(), parent=names[0]) for name in names]
    return encode_all([Token(ARN, names, rows)])


def test_an_item_is_written_only_over_what_was_seen(table: LeaseTable) -> None:
    table.prepare()  # it already exists
    assert table.get() is None
    first = LeaseRecord("one", 1, 6.0, token(3))
    assert table.replace(first, None)
    assert not table.replace(first, None)
    assert table.get() == first
    second = LeaseRecord("two", 2, 6.0, b"")
    assert table.replace(second, first)
    assert not table.replace(LeaseRecord("one", 2, 6.0, b"x"), first)
    assert table.get() == second


@pytest.mark.parametrize("shards", [5, 100, 4_000])
def test_a_token_of_thousands_of_shards_fits(
    table: LeaseTable, dynamodb_local: DynamoDBLocal, shards: int
) -> None:
    there = table.get()
    large = LeaseRecord("one", 10, 6.0, token(shards))
    assert table.replace(large, there)
    assert table.get() == large
    key = {"name": {"S": "a/b"}}
    item = dynamodb_local.client().get_item(TableName="lease-table", Key=key)["Item"]
    assert ("record" in item) == (shards < 50), "text, as long as it is small"


def test_another_table_is_refused(table: LeaseTable, dynamodb_local: DynamoDBLocal) -> None:
    dynamodb_local.create_table("not-positions", None)
    other = LeaseTable.from_url("dynamodb://not-positions/a", AwsConfig(), None)
    with pytest.raises(UsageError, match="its key has to be `name`"):
        other.prepare()


def test_whether_the_table_itself_has_answered_is_told(table: LeaseTable) -> None:
    gone = LeaseTable.from_url("dynamodb://no-such-table/a", AwsConfig(), None)
    with pytest.raises(CheckpointError) as answered:
        gone.get()
    assert answered.value.answered
    nobody = AwsConfig(endpoint_url="http://127.0.0.1:9")
    with pytest.raises(CheckpointError) as unanswered:
        LeaseTable.from_url("dynamodb://lease-table/a", nobody, None).get()
    assert not unanswered.value.answered


def test_a_table_without_permission_is_said_with_the_action_that_is_missing(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in simulator.environment.items():
        monkeypatch.setenv(name, value)
    simulator.set_faults(auth_error="AccessDeniedException", auth_operations=("GetItem",))
    with pytest.raises(UsageError) as told:
        watch("orders", [print], checkpoint="dynamodb://positions/orders", follow=False)
    text = str(told.value)
    assert text.startswith("checkpoint dynamodb://positions/orders: no permission (")
    assert text.endswith("; the role needs dynamodb:GetItem on positions")
