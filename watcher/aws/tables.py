"""DynamoDB tables: what they are like, all their items, and writes that are retried until done."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from botocore import exceptions as boto
from botocore.config import Config

from watcher.aws.arns import is_other_table, region_in, table_name
from watcher.aws.config import AwsConfig, Client, Operation, region_of
from watcher.aws.credentials import (
    SigningCredentials,
    ca_file,
    own_credentials,
    refuse_unusable_endpoint,
    session,
)
from watcher.aws.deadline import limit_answers
from watcher.aws.error_mapping import cancellation_codes, error_code, to_stream_error
from watcher.aws.fast_http import RawPages
from watcher.aws.json_text import read
from watcher.aws.key_schema import remember_key_schema
from watcher.aws.retry import RetryingClient
from watcher.aws.timing import TABLES, TableTiming
from watcher.clock import CLOCK, Clock
from watcher.errors import (
    StreamError,
    TransientError,
    without_passwords,
)
from watcher.version import __version__

BATCH = 25
"""How many writes BatchWriteItem takes."""

UNIT_BYTES = 4096
"""How much of a table a unit of a consistent read reads."""
_PAGE_UNITS = 256
"""The read units of a scan's page, of 1 MB."""
SEGMENT_BYTES = 1024 * 1024
"""A scan gets a further segment for each so many bytes of the table: a page's."""
MOST_SEGMENTS = 8
"""The most segments of a scan: memory holds a page of each."""
_CREDIT_SECONDS = 1.0
"""A scan that was kept waiting catches up with so much of its read units at once."""

Item = dict[str, dict[str, Any]]
Write = dict[str, Any]
Key = dict[str, dict[str, str]]
"""An item's key as the wire's JSON has it: B in base64."""


class Description(msgspec.Struct, frozen=True):
    """A table as DescribeTable shows it."""

    keys: list[dict[str, str]]
    attributes: list[dict[str, str]]
    size: int
    """In bytes, as it was within the last six hours."""
    created: datetime
    identity: str
    """Another one where the table was deleted and created anew, or is in another region."""
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
        """Each key's type, by its name."""
        return {name: kind for name, _, kind in self.key_types}

    @property
    def key_types(self) -> list[tuple[str, str, str]]:
        """Each key's name, its role (HASH, RANGE) and its type."""
        types = {each["AttributeName"]: each["AttributeType"] for each in self.attributes}
        return [
            (each["AttributeName"], each["KeyType"], types[each["AttributeName"]])
            for each in self.keys
        ]


class Condition(NamedTuple):
    """A condition that an item has to meet to be written."""

    expression: str
    names: dict[str, str]
    values: dict[str, Any]


class Written(NamedTuple):
    """A write that is done."""

    old: Item | None
    """The item that was there at that moment, whatever the condition could see of it."""
    units: float
    """The part of the table's write capacity that it took."""


class _Capacity(msgspec.Struct):
    CapacityUnits: float


class _ScanPage(msgspec.Struct):
    Items: list[msgspec.Raw]
    LastEvaluatedKey: Key | None = None
    ConsumedCapacity: _Capacity | None = None

    @property
    def units(self) -> float:
        """The read units that it took; where an emulator does not tell, a little too many."""
        if self.ConsumedCapacity is not None:
            return self.ConsumedCapacity.CapacityUnits
        return max(1, -(-sum(len(bytes(each)) for each in self.Items) // UNIT_BYTES))


_scan_page = msgspec.json.Decoder(_ScanPage)


class ReadPace:
    """Keeps a table's scan, in however many threads, to so many read units a second."""

    def __init__(self, limit: float | None, clock: Clock = CLOCK) -> None:
        self.units = 0.0
        """The units that were used so far."""
        self.due = 0.0
        """When (monotonic) the next page is due."""
        self.limit = limit
        self._clock = clock
        self._lock = threading.Lock()

    def segments(self, size: int) -> int:
        """Returns how many segments to scan a table of so many bytes in."""
        count = min(MOST_SEGMENTS, 1 + size // SEGMENT_BYTES)
        if self.limit is not None:
            # Else the first pages alone take many seconds' units.
            count = min(count, int(self.limit) // _PAGE_UNITS)
        return max(1, count)

    def note(self, units: float) -> float:
        """Notes what a page took; returns the seconds until the next one is due."""
        with self._lock:
            now = self._clock.monotonic()
            self.units += units
            if self.limit is not None:
                began = max(self.due, now - _CREDIT_SECONDS) if self.due else now
                self.due = began + units / self.limit
            return max(0.0, self.due - now)

    def on_units(self, units: float) -> None:
        """Notes what a page took, and waits until the next one is due."""
        if wait := self.note(units):
            self._clock.sleep(wait)


class TablesClient:
    """A client for DynamoDB's tables. Raises StreamError for what only the user can mend."""

    def __init__(
        self,
        connection: AwsConfig,
        arn_region: str | None = None,
        *,
        attempts: int = 8,
        call_seconds: float = 60.0,
        timing: TableTiming = TABLES,
        has_begun: bool = False,
    ) -> None:
        """`has_begun`: another process of this program has had its answers already."""
        self._timing = timing
        settings = Config(
            retries={"mode": "standard", "total_max_attempts": attempts},
            connect_timeout=call_seconds,
            read_timeout=call_seconds,
            user_agent_extra=f"watcher/{__version__}",
        )
        try:
            botocore_session = session(connection)
            region = region_of(connection, botocore_session, arn_region)
            credentials = own_credentials(connection, region)
            botocore_session.register_component(
                "credential_provider", SigningCredentials(credentials)
            )
            botocore_session.register_component("response_parser_factory", RawPages())
            self.api: Client = botocore_session.create_client(
                "dynamodb",
                region_name=region,
                endpoint_url=connection.endpoint_url,
                verify=ca_file(botocore_session),
                config=settings,
            )
            """Botocore's client."""
            limit_answers(self.api)
            refuse_unusable_endpoint(botocore_session, self.api.meta.endpoint_url)
            self._call = RetryingClient(credentials, has_begun=has_begun, timing=timing)
        except (boto.BotoCoreError, ValueError) as error:
            told = to_stream_error(error)
            told.option = connection.to_blame(error)
            raise told from error

    @property
    def endpoint(self) -> str:
        """The URL that it talks to, for people to read."""
        return without_passwords(self.api.meta.endpoint_url).rstrip("/")

    def close(self) -> None:
        """Close its connections."""
        self.api.close()

    def describe(self, table: str) -> Description | None:
        """The table; None where there is none."""
        try:
            return _description(self._call(self.api.describe_table, TableName=table)["Table"])
        except StreamError as error:
            if error_code(error.__cause__) == "ResourceNotFoundException":
                return None
            raise

    def named(self, arn: str) -> tuple[str, Description]:
        """The name by which calls reach the table of this ARN, and what it is like.

        That is the ARN itself, so that another account's table is never taken for one of ours that
        is called the same; emulators know only names. Raises StreamError where there is none.
        """
        for name in dict.fromkeys((arn, table_name(arn))):
            try:
                found = self.describe(name)
            except StreamError as error:
                if name == arn and error_code(error.__cause__) == "ValidationException":
                    continue
                raise
            if found is None:
                raise StreamError(f"no table {arn}: it was deleted")
            if is_other_table(arn, found.arn):
                raise StreamError(f"the stream is of {arn}; the table found here is {found.arn}")
            return name, found
        raise AssertionError

    def ttl_attribute(self, table: str) -> str | None:
        """The attribute that holds an item's time to live; None where there is none."""
        answer = self._call(self.api.describe_time_to_live, TableName=table)
        about = answer["TimeToLiveDescription"]
        # Absent where it is disabled.
        name: str | None = about.get("AttributeName")
        return name

    def get(self, table: str, key: Item) -> Item | None:
        """An item as it is at this moment; None where there is none."""
        answer = self._call(self.api.get_item, TableName=table, Key=key, ConsistentRead=True)
        item: Item | None = answer.get("Item")
        return item

    def put(self, table: str, item: Item, condition: Condition) -> Written | None:
        """Put an item if the condition holds; None where it does not."""
        return self._write_if(self.api.put_item, condition, TableName=table, Item=item)

    def put_all(self, table: str, items: Sequence[Item], condition: Condition) -> bool:
        """Put all or none: False where the condition does not hold for the first of them.

        That is one transaction, of 100 items and 4 MB at most, at twice the price.
        https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
        """
        puts: list[dict[str, Any]] = [{"Put": {"TableName": table, "Item": item}} for item in items]
        puts[0]["Put"] |= {
            "ConditionExpression": condition.expression,
            "ExpressionAttributeNames": condition.names,
        }
        if condition.values:
            puts[0]["Put"]["ExpressionAttributeValues"] = condition.values
        try:
            self._call(self.api.transact_write_items, TransactItems=puts)
        except StreamError as error:
            if "ConditionalCheckFailed" in cancellation_codes(error.__cause__):
                return False
            raise
        return True

    def delete(self, table: str, key: Item, condition: Condition) -> Written | None:
        """Delete an item if the condition holds; None where it does not."""
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
        """Create a table with the same keys, paid by request, and wait until it can be used."""
        names = {each["AttributeName"] for each in like.keys}
        attributes = [each for each in like.attributes if each["AttributeName"] in names]
        self.create_table(table, like.keys, attributes)
        return self.wait_for(table)

    def create_table(
        self, table: str, keys: list[dict[str, str]], attributes: list[dict[str, str]]
    ) -> None:
        """Have a table made, paid by request."""
        self._call(
            self.api.create_table,
            TableName=table,
            KeySchema=keys,
            AttributeDefinitions=attributes,
            BillingMode="PAY_PER_REQUEST",
        )

    def wait_for(self, table: str) -> Description:
        """Wait until a table that is being made can be used."""
        deadline = time.monotonic() + self._timing.create_seconds
        while time.monotonic() < deadline:
            made = self._call(self.api.describe_table, TableName=table)["Table"]
            if made["TableStatus"] == "ACTIVE":
                return _description(made)
            time.sleep(self._timing.active_poll_seconds)
        raise StreamError(f"table {table} is not active after {self._timing.create_seconds:.0f} s")

    def scan(
        self,
        table: str,
        segment: int,
        segments: int,
        limit: int | None = None,
        *,
        on_units: Callable[[float], None] | None = None,
    ) -> Iterator[list[msgspec.Raw]]:
        """The items of a part of the table, page by page, as they are (no stale reads).

        Each is the wire's JSON. `on_units` is told the read units of each page before the next.
        """
        query: dict[str, Any] = {} if limit is None else {"Limit": limit}
        if on_units is not None:
            query["ReturnConsumedCapacity"] = "TOTAL"
        after: Key | None = None
        while True:
            page = self._page(table, after, Segment=segment, TotalSegments=segments, **query)
            if on_units is not None:
                on_units(page.units)
            yield page.Items
            after = page.LastEvaluatedKey
            if not after:
                return

    def page(
        self, table: str, after: Key | None, **query: object
    ) -> tuple[list[msgspec.Raw], Key | None, float]:
        """The items behind a key, the key of the last (None: of all), and the units that took."""
        page = self._page(table, after, **query)
        return page.Items, page.LastEvaluatedKey or None, page.units

    def _page(self, table: str, after: Key | None, **query: object) -> _ScanPage:
        if after:
            query["ExclusiveStartKey"] = {
                name: {kind: base64.b64decode(text) if kind == "B" else text}
                for name, value in after.items()
                for kind, text in value.items()
            }
        return self._call(self.api.scan, _page_of, TableName=table, ConsistentRead=True, **query)

    def write(self, table: str, writes: list[Write]) -> None:
        """Carry out up to 25 puts and deletes of different items; all are done on return."""
        waiting = writes
        started = time.monotonic()
        refusals = 0
        while waiting:
            answer = self._call(self.api.batch_write_item, RequestItems={table: waiting})
            waiting = answer.get("UnprocessedItems", {}).get(table, [])
            if waiting:
                if time.monotonic() > started + self._timing.patience_seconds:
                    raise TransientError(
                        f"table {table} has refused {len(waiting)} writes for minutes: "
                        "raise its write capacity"
                    )
                refusals += 1
                time.sleep(self._timing.batch_backoff.after(refusals))


def _page_of(answer: dict[str, Any]) -> _ScanPage:
    try:
        return read(_scan_page, answer["Body"])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TransientError(f"an answer that is not a page of items: {error}") from None


@lru_cache(maxsize=8)
def tables(connection: AwsConfig) -> TablesClient:
    """One client for a program's life."""
    return TablesClient(connection)


@lru_cache(maxsize=8)
def for_task(connection: AwsConfig) -> TablesClient:
    """Returns a task's client: its driver has begun, so credentials that ended are waited for."""
    return TablesClient(connection, has_begun=True)


def _description(table: dict[str, Any]) -> Description:
    # Not every emulator gives an id.
    own = table.get("TableId") or table["CreationDateTime"].isoformat()
    remember_key_schema(table["KeySchema"])
    return Description(
        table["KeySchema"],
        table["AttributeDefinitions"],
        table.get("TableSizeBytes", 0),
        table["CreationDateTime"],
        f"{table['TableArn']} {own}",
        bool(table.get("Replicas")),
        table.get("ItemCount", 0),
    )


class TableItems:
    """Reads a table's items with one attempt for each call; its caller tries again.

    `called` says by what calls reach the table of a stream (see `StreamsClient.table`).

    Both raise StreamError, TransientError.
    """

    in_threads = True
    """Pages may be asked for in several threads."""
    time = None
    """Each page is of its own time."""

    def __init__(self, connection: AwsConfig, arn: str, called: Callable[[str], str]) -> None:
        self._connection = connection
        self._arn = arn
        self._called = called
        self._client: TablesClient | None = None
        self._table = ""

    def describe(self) -> Description:
        """The table as it is now."""
        self._client = self._client or TablesClient(
            self._connection,
            region_in(self._arn),
            attempts=1,
            call_seconds=TABLES.items_call_seconds,
            timing=TableTiming(patience_seconds=0.0),
        )
        self._table, description = self._client.named(self._called(self._arn))
        return description

    def page(
        self, after: Key | None, segment: int, segments: int
    ) -> tuple[list[msgspec.Raw], Key | None, float]:
        """The items of a segment behind this key, by a consistent read; as `TablesClient.page`."""
        assert self._client is not None
        query: dict[str, object] = {"ReturnConsumedCapacity": "TOTAL"}
        if segments > 1:
            query |= {"Segment": segment, "TotalSegments": segments}
        return self._client.page(self._table, after, **query)
