"""The ledger on Amazon's DynamoDB Local, whose changes are stamped with whole minutes."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import msgspec

from tests.ledger.ledger import Item, Ledger, an_item
from tests.support.dynamodb_local import DynamoDBLocal
from tests.support.hand_clock import HandClock
from watcher.aws.config import AwsConfig
from watcher.records.record import wire_item

_BATCH = 25
# Nothing is written so near to the next minute: in which one it would be stamped is not known.
_MARGIN = 5.0


class _Place:
    """What the ledger asks of a simulator."""

    def __init__(self, stream_arn: str) -> None:
        self.stream_arn = stream_arn
        self.shards = ()


class LocalLedger(Ledger):
    """Writes in batches; between them hours pass, and the shards are rotated."""

    longest = 4 * 3600

    def __init__(self, seed: int, keys: int = 40) -> None:
        self.clock = HandClock()
        self.random = random.Random(seed)
        self.now: dict[str, Item] = {}
        self._keys = [f"item-{number}" for number in range(keys)]
        self.past: dict[str, list[tuple[int, Item | None]]] = {}
        self.server = DynamoDBLocal()

    def __enter__(self) -> LocalLedger:
        os.environ.update(AWS_ACCESS_KEY_ID="local", AWS_SECRET_ACCESS_KEY="local")
        self.server.start()
        self._client = self.server.client()
        made = self._client.create_table(
            TableName="orders",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
        place: Any = _Place(made["TableDescription"]["LatestStreamArn"])
        self.simulator = place
        self.age()
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.stop()

    @property
    def connection(self) -> AwsConfig:
        return AwsConfig(region="us-east-1", endpoint_url=self.server.endpoint_url)

    @property
    def second(self) -> int:
        return int(time.time()) // 60 * 60

    def write(self, count: int, a_second: int = 5) -> None:
        for first in range(0, count, _BATCH):
            keys = {self._keys[0] if self.random.random() < 0.25 else self.any_key()}
            while len(keys) < min(_BATCH, count - first, len(self._keys)):
                keys.add(self.any_key())
            requests = {key: self._request(key) for key in sorted(keys)}
            if (over := time.time() % 60 + _MARGIN - 60) > 0:
                time.sleep(_MARGIN - over + 0.1)
            batch = [request for request, _ in requests.values()]
            answer = self._client.batch_write_item(RequestItems={"orders": batch})
            assert not answer["UnprocessedItems"]
            for key, (_, item) in requests.items():
                self.note(key, item)

    def _request(self, key: str) -> tuple[Any, Item | None]:
        if key in self.now and self.random.random() < 0.3:
            return {"DeleteRequest": {"Key": {"pk": {"S": key}}}}, None
        item = {"pk": {"S": key}, **an_item(self.random)}
        return {"PutRequest": {"Item": wire_item(msgspec.json.encode(item))}}, item

    def age(self, hours: int = 1) -> None:
        """Some hours pass: what was written until now was written earlier by so much."""
        self.server.rollover()
        self.server.dilate_time(hours)
        self.past = {
            key: [(second - 3600 * hours, item) for second, item in past]
            for key, past in self.past.items()
        }
