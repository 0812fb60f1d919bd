"""DynamoDB tables: descriptions, all items, and writes that are retried until done."""

from __future__ import annotations

import base64
import functools
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from watcher.aws.arns import is_other_table, region_in, table_name
from watcher.aws.boto_clients import BotoClients
from watcher.aws.config import AwsConfig, Client, Operation, ParsedAnswer
from watcher.aws.error_mapping import error_code
from watcher.aws.json_text import read
from watcher.aws.key_schema import remember_key_schema
from watcher.aws.model import WireItem
from watcher.aws.retry import PATIENCE_SECONDS, RetryingClient
from watcher.clock import CLOCK, Clock
from watcher.errors import StreamError, TransientError, without_passwords
from watcher.retry import Backoff

# The delays between the parts of a batch that exceeds the write capacity.
_BATCH_BACKOFF = Backoff(first_seconds=0.05, longest_seconds=5.0, jitter=0.5)
# The longest wait for a table to become active, and the delay between checks.
_CREATE_SECONDS = 300.0
_ACTIVE_POLL_SECONDS = 0.5
# The time of unused read units that a delayed scan may catch up with at once.
_CREDIT_SECONDS = 1.0
# The timeout of one page of a table's items, during which no change is delivered.
_ITEMS_CALL_SECONDS = 10.0

BATCH = 25
"""The largest number of writes in BatchWriteItem."""

UNIT_BYTES = 4096
"""The bytes of a table that one unit of a consistent read reads."""
_PAGE_UNITS = 256
"""The read units of a scan's page, of 1 MB."""
SEGMENT_BYTES = 1024 * 1024
"""The bytes of a table for each further segment of its scan: a page's."""
MOST_SEGMENTS = 8
"""The largest number of segments of a scan: memory holds a page of each."""

Write = dict[str, Any]
Key = dict[str, dict[str, str]]
"""An item's key in the wire's JSON form: B in base64."""


class Description(msgspec.Struct, frozen=True):
    """A table as DescribeTable shows it."""

    keys: list[dict[str, str]]
    attributes: list[dict[str, str]]
    size: int
    """The size in bytes, up to six hours old."""
    created: datetime
    identity: str
    """The ARN and an id: differs for a table that was deleted and created again."""
    is_replicated: bool = False
    """True for a replica of a global table."""
    items: int = 0
    """The number of items, as old as `size`."""

    @property
    def arn(self) -> str:
        """The table's ARN."""
        return self.identity.partition(" ")[0]

    @property
    def types(self) -> dict[str, str]:
        """Each key attribute's type, by its name."""
        return {name: kind for name, _, kind in self.key_types}

    @property
    def key_types(self) -> list[tuple[str, str, str]]:
        """Each key attribute's name, its role (HASH, RANGE) and its type."""
        types = {each["AttributeName"]: each["AttributeType"] for each in self.attributes}
        return [
            (each["AttributeName"], each["KeyType"], types[each["AttributeName"]])
            for each in self.keys
        ]


class Condition(NamedTuple):
    """A condition for a write of an item."""

    expression: str
    names: dict[str, str]
    values: dict[str, Any]


class Written(NamedTuple):
    """A completed write."""

    old: WireItem | None
    """The item that it replaced, even where the condition could not see all of it."""
    units: float
    """The consumed write capacity."""


class _Capacity(msgspec.Struct):
    CapacityUnits: float


class _Page(msgspec.Struct):
    Items: list[msgspec.Raw]
    LastEvaluatedKey: Key | None = None
    ConsumedCapacity: _Capacity | None = None

    @property
    def units(self) -> float:
        """The consumed read units; an estimate, a little too high, where an emulator omits them."""
        if self.ConsumedCapacity is not None:
            return self.ConsumedCapacity.CapacityUnits
        return max(1, -(-sum(len(bytes(each)) for each in self.Items) // UNIT_BYTES))


_decoder = msgspec.json.Decoder(_Page)


class ReadPace:
    """Limits a table's scan, in any number of threads, to a number of read units a second."""

    def __init__(self, limit: float | None, clock: Clock = CLOCK) -> None:
        self.units = 0.0
        """The read units used so far."""
        self.due_at = 0.0
        """The time (monotonic) at which the next page is due."""
        self.limit = limit
        self._clock = clock
        self._lock = threading.Lock()

    def segments(self, size: int) -> int:
        """Returns the number of segments for the scan of a table of `size` bytes."""
        count = min(MOST_SEGMENTS, 1 + size // SEGMENT_BYTES)
        if self.limit is not None:
            # Otherwise the first pages alone would take the units of many seconds.
            count = min(count, int(self.limit) // _PAGE_UNITS)
        return max(1, count)

    def note(self, units: float) -> float:
        """Notes a page's read units; returns the seconds until the next page is due."""
        with self._lock:
            now = self._clock.monotonic()
            self.units += units
            if self.limit is not None:
                began = max(self.due_at, now - _CREDIT_SECONDS) if self.due_at else now
                self.due_at = began + units / self.limit
            return max(0.0, self.due_at - now)

    def on_units(self, units: float) -> None:
        """Notes a page's read units, and waits until the next page is due."""
        if wait := self.note(units):
            self._clock.sleep(wait)


class TablesClient:
    """A client for DynamoDB's tables. Raises StreamError for errors that only the user can fix."""

    def __init__(
        self,
        connection: AwsConfig,
        arn_region: str | None = None,
        *,
        call_seconds: float = 60.0,
        patience_seconds: float = PATIENCE_SECONDS,
        has_begun: bool = False,
    ) -> None:
        """`has_begun`: another process of this program has had answers already."""
        clients = BotoClients(connection, arn_region, read_seconds=call_seconds)
        self.connection = msgspec.structs.replace(connection, region=clients.region)
        """What another process needs to reach the same tables."""
        self.api: Client = clients.new("dynamodb")
        """Botocore's client."""
        self._patience_seconds = patience_seconds
        self._call = RetryingClient(
            clients.credentials, has_begun=has_begun, patience_seconds=patience_seconds
        )

    @property
    def endpoint(self) -> str:
        """The endpoint's URL, for messages."""
        return without_passwords(self.api.meta.endpoint_url).rstrip("/")

    def close(self) -> None:
        """Closes its connections."""
        self.api.close()

    def describe(self, table: str) -> Description | None:
        """Returns the table's description; None where there is no such table."""
        try:
            return _description(self._call(self.api.describe_table, TableName=table)["Table"])
        except StreamError as error:
            if error_code(error.__cause__) == "ResourceNotFoundException":
                return None
            raise

    def named(self, arn: str) -> tuple[str, Description]:
        """Returns the name for calls of the table with this ARN, and its description.

        The name is the ARN itself, so that another account's table is never taken for ours of the
        same name; emulators accept only names. Raises StreamError where there is none.
        """
        for name in dict.fromkeys((arn, table_name(arn))):
            try:
                found = self.describe(name)
            except StreamError as error:
                if name == arn and error_code(error.__cause__) == "ValidationException":
                    continue
                raise
            if found is None:
                raise StreamError(
                    f"no table {arn}: check the name, region and profile; or it was deleted"
                )
            if is_other_table(arn, found.arn):
                raise StreamError(
                    f"the stream belongs to {arn}; the table found here is {found.arn}"
                )
            return name, found
        raise AssertionError

    def ttl_attribute(self, table: str) -> str | None:
        """Returns the attribute with an item's time to live; None where there is none."""
        answer = self._call(self.api.describe_time_to_live, TableName=table)
        about = answer["TimeToLiveDescription"]
        # Absent where it is disabled.
        name: str | None = about.get("AttributeName")
        return name

    def get(self, table: str, key: WireItem) -> WireItem | None:
        """Returns an item, by a consistent read; None where there is none."""
        answer = self._call(self.api.get_item, TableName=table, Key=key, ConsistentRead=True)
        item: WireItem | None = answer.get("Item")
        return item

    def put(self, table: str, item: WireItem, condition: Condition) -> Written | None:
        """Writes an item if the condition holds; None where it does not."""
        return self._write_if(self.api.put_item, condition, TableName=table, Item=item)

    def delete(self, table: str, key: WireItem, condition: Condition) -> Written | None:
        """Deletes an item if the condition holds; None where it does not."""
        return self._write_if(self.api.delete_item, condition, TableName=table, Key=key)

    def _write_if(
        self, operation: Operation, condition: Condition, **query: object
    ) -> Written | None:
        if condition.values:
            query["ExpressionAttributeValues"] = condition.values
        try:
            answer = self._call(
                operation,
                ConditionExpression=condition.expression,
                ExpressionAttributeNames=condition.names,
                ReturnValues="ALL_OLD",
                ReturnConsumedCapacity="TOTAL",
                **query,
            )
        except StreamError as error:
            if error_code(error.__cause__) == "ConditionalCheckFailedException":
                return None
            raise
        used = answer.get("ConsumedCapacity", {}).get("CapacityUnits", 1.0)
        return Written(answer.get("Attributes") or None, used)

    def create(self, table: str, like: Description) -> Description:
        """Creates a table with the same keys, paid by request, and waits until it is active."""
        names = {each["AttributeName"] for each in like.keys}
        attributes = [each for each in like.attributes if each["AttributeName"] in names]
        self.create_table(table, like.keys, attributes)
        return self.wait_for(table)

    def create_table(
        self, table: str, keys: list[dict[str, str]], attributes: list[dict[str, str]]
    ) -> None:
        """Creates a table, paid by request; `wait_for` waits for it."""
        self._call(
            self.api.create_table,
            TableName=table,
            KeySchema=keys,
            AttributeDefinitions=attributes,
            BillingMode="PAY_PER_REQUEST",
        )

    def wait_for(self, table: str) -> Description:
        """Waits until a table is active."""
        deadline = time.monotonic() + _CREATE_SECONDS
        while time.monotonic() < deadline:
            description = self._call(self.api.describe_table, TableName=table)["Table"]
            if description["TableStatus"] == "ACTIVE":
                return _description(description)
            time.sleep(_ACTIVE_POLL_SECONDS)
        raise StreamError(f"table {table} is not active after {_CREATE_SECONDS:.0f} s")

    def scan(
        self,
        table: str,
        segment: int,
        segments: int,
        *,
        on_units: Callable[[float], None] | None = None,
    ) -> Iterator[list[msgspec.Raw]]:
        """Yields the items of a segment of the table, page by page, by consistent reads.

        Each item is the wire's JSON. `on_units` gets the read units of each page before the next
        one.
        """
        query: dict[str, object] = {"Segment": segment, "TotalSegments": segments}
        if on_units is not None:
            query["ReturnConsumedCapacity"] = "TOTAL"
        after: Key | None = None
        while True:
            items, after, units = self.page(table, after, **query)
            if on_units is not None:
                on_units(units)
            yield items
            if not after:
                return

    def page(
        self, table: str, after: Key | None, **query: object
    ) -> tuple[list[msgspec.Raw], Key | None, float]:
        """Returns the items behind a key, by a consistent read, the last one's key, and the units.

        The key is None on the last page.
        """
        if after:
            query["ExclusiveStartKey"] = _native(after)

        @functools.wraps(self.api.scan)
        def scan(**query: object) -> _Page:
            return _page_of(self.api.scan(**query))

        page = self._call(scan, TableName=table, ConsistentRead=True, **query)
        return page.Items, page.LastEvaluatedKey or None, page.units

    def write(self, table: str, writes: list[Write]) -> None:
        """Makes up to 25 puts and deletes of different items; returns once all are done."""
        waiting = writes
        started = time.monotonic()
        refusals = 0
        while waiting:
            answer = self._call(self.api.batch_write_item, RequestItems={table: waiting})
            waiting = answer.get("UnprocessedItems", {}).get(table, [])
            if waiting:
                if time.monotonic() > started + self._patience_seconds:
                    raise TransientError(
                        f"table {table} has refused {len(waiting)} writes for minutes: "
                        "raise its write capacity"
                    )
                refusals += 1
                time.sleep(_BATCH_BACKOFF.after(refusals))


def _native(key: Key) -> WireItem:
    """Returns a key as botocore takes it: B in bytes."""
    return {
        name: {kind: base64.b64decode(text) if kind == "B" else text}
        for name, value in key.items()
        for kind, text in value.items()
    }


def _page_of(answer: ParsedAnswer) -> _Page:
    try:
        return read(_decoder, answer["Body"])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TransientError(f"an answer that is not a page of items: {error}") from None


@functools.lru_cache(maxsize=8)
def for_task(connection: AwsConfig) -> TablesClient:
    """Returns a task's client, which waits for renewed credentials: its driver has worked."""
    return TablesClient(connection, has_begun=True)


def _description(table: ParsedAnswer) -> Description:
    # Not every emulator has ids, or tells when a table was made.
    created = table.get("CreationDateTime") or datetime.fromtimestamp(0, UTC)
    own = table.get("TableId") or created.isoformat()
    remember_key_schema(table["KeySchema"])
    return Description(
        table["KeySchema"],
        table["AttributeDefinitions"],
        table.get("TableSizeBytes", 0),
        created,
        f"{table['TableArn']} {own}",
        bool(table.get("Replicas")),
        table.get("ItemCount", 0),
    )


class TableItems:
    """Reads a table's items with one attempt per call; the caller retries.

    `called` returns the name for calls of a stream's table (see `StreamsClient.table`).

    Both methods raise StreamError, TransientError.
    """

    in_threads = True
    """True: pages may be read in several threads."""

    def __init__(self, connection: AwsConfig, arn: str, called: Callable[[str], str]) -> None:
        self._connection = connection
        self._arn = arn
        self._called = called
        self._client: TablesClient | None = None
        self._table = ""

    def describe(self) -> Description:
        """Returns the table's current description."""
        self._client = self._client or TablesClient(
            self._connection,
            region_in(self._arn),
            call_seconds=_ITEMS_CALL_SECONDS,
            patience_seconds=0.0,
        )
        self._table, description = self._client.named(self._called(self._arn))
        return description

    def page(
        self, after: Key | None, segment: int, segments: int
    ) -> tuple[list[msgspec.Raw], Key | None, float]:
        """Returns a segment's items behind this key; see `TablesClient.page`."""
        assert self._client is not None
        query: dict[str, object] = {"ReturnConsumedCapacity": "TOTAL"}
        if segments > 1:
            query |= {"Segment": segment, "TotalSegments": segments}
        return self._client.page(self._table, after, **query)
