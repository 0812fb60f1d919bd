"""A checkpoint shared through DynamoDB: an item of a table that is created on demand."""

from __future__ import annotations

import logging
import re
import zlib

import msgspec
from botocore import exceptions as boto

from watcher.aws.config import AwsConfig
from watcher.aws.error_mapping import error_code, to_watcher_error
from watcher.aws.model import WireItem, WireValue
from watcher.aws.tables import Condition, TablesClient
from watcher.aws.timing import TABLES, TableTiming
from watcher.clock import CLOCK
from watcher.errors import (
    CheckpointError,
    CredentialsError,
    StreamError,
    TransientError,
    UsageError,
)

logger = logging.getLogger("watcher")

SCHEME = "dynamodb://"
_TABLE = re.compile(r"[a-zA-Z0-9_.-]{3,255}")
_KEY = {"AttributeName": "name", "KeyType": "HASH"}
_TYPE = {"AttributeName": "name", "AttributeType": "S"}
# A token up to this size is stored as text, readable for people and bloop; each KB costs money.
_PLAIN_BYTES = 16 * 1024
# DynamoDB's limit for an item is 400 KB; the rest is for the other attributes.
_MOST_BYTES = 396 * 1024
# A longer token is in further items; a transaction writes up to 4 MB.
_PART_BYTES = 390_000
_MOST_PARTS = 10
# The attempts at a read during writes.
_READS = 5
# The largest decompressed token.
_LARGEST = 64 * 1024 * 1024


class LeaseRecord(msgspec.Struct, frozen=True):
    """The item: the lease and the tokens."""

    holder: str
    """The id of the lease's holder; "" without one."""
    counter: int
    """The number of writes."""
    seconds: float
    """The time after each write in which the holder may deliver."""
    token: bytes
    """The tokens' JSON text; empty where none was stored."""

    @property
    def process(self) -> str:
        """The holder's host and process, for messages."""
        return self.holder.rpartition(":")[0]


class _Parts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Replaces a token that is in further items.

    An older watcher, which does not know it, keeps it unchanged, and refuses it as a token.
    """

    parts: int
    counter: int
    """The write that stored all parts together; they contain it too."""


class LeaseTable:
    """A lease in one item, written only if it is unchanged.

    A larger token is in further items, written in one transaction with it. All methods raise
    CheckpointError where the service refuses.
    """

    def __init__(self, client: TablesClient, table: str, name: str) -> None:
        self.name = f"{SCHEME}{table}/{name}"
        self._client = client
        self._table = table
        self._name = name
        self._key = {"name": {"S": name}}
        self._seen: LeaseRecord | None = None
        self._parts: _Parts | None = None  # of `_seen`'s token

    @classmethod
    def from_url(cls, url: str, connection: AwsConfig, region: str | None) -> LeaseTable:
        """Returns the item of a URL (`dynamodb://TABLE/NAME`). Raises UsageError, StreamError."""
        table, _, name = url.removeprefix(SCHEME).partition("/")
        if not _TABLE.fullmatch(table) or not name:
            raise UsageError(f"give {SCHEME}TABLE/NAME", "checkpoint", url)
        quick = TablesClient(
            connection,
            region,
            attempts=1,
            call_seconds=TABLES.lease_call_seconds,
            timing=TableTiming(patience_seconds=0.0),
        )
        return cls(quick, table, name)

    def prepare(self) -> None:
        """Creates the table if it does not exist. Raises UsageError for one with another key."""
        try:
            self._client.get(self._table, self._key)
        except (StreamError, TransientError) as error:
            code = error_code(error.__cause__)
            if code == "ValidationException":
                text = f"table {self._table} is not one for positions: its key has to be `name`"
                raise UsageError(f"{text}, a text, alone", "checkpoint", self.name) from error
            if code != "ResourceNotFoundException":
                raise self._error(error) from error
            self._create()

    def _create(self) -> None:
        logger.info(f"Creating table {self._table}, paid by request, for the positions")
        try:
            self._client.create_table(self._table, [_KEY], [_TYPE])
        except (StreamError, TransientError) as error:
            # Another program may be creating it.
            if error_code(error.__cause__) != "ResourceInUseException":
                raise self._error(error) from error
        try:
            self._client.wait_for(self._table)
        except (StreamError, TransientError) as error:
            raise self._error(error) from error

    def get(self) -> LeaseRecord | None:
        """Returns the lease in the item; None where there is none."""
        torn = set[bytes]()
        for _ in range(_READS):
            if (item := self._item(self._key)) is None:
                return None
            found = self._decoded(item)
            if (parts := _parts(found.token)) is None:
                self._seen, self._parts = found, None
                return found
            if (packed := self._together(parts)) is not None:
                token = zlib.decompressobj().decompress(packed, _LARGEST)
                self._seen = msgspec.structs.replace(found, token=token)
                self._parts = parts
                return self._seen
            torn.add(found.token)
            CLOCK.sleep(TABLES.torn_seconds)
        if len(torn) == 1:  # it was not written meanwhile
            text = f"an item that holds a part of it is gone ({found.token.decode()}): delete all "
            text += "items of this name to start again, or choose another name"
            raise UsageError(text, "checkpoint", self.name)
        text = "it is written faster than it can be read"
        raise CheckpointError(text, "checkpoint", self.name, answered=True)

    def _item(self, key: WireItem) -> WireItem | None:
        try:
            return self._client.get(self._table, key)
        except (StreamError, TransientError) as error:
            raise self._error(error) from error

    def _together(self, parts: _Parts) -> bytes | None:
        """Returns the parts of one write; None if another write came in between."""
        found = []
        for number in range(1, parts.parts + 1):
            item = self._item(self._part_key(number))
            if item is None or item.get("counter") != {"N": str(parts.counter)}:
                return None
            found.append(bytes(item["token_zlib"]["B"]))
        return b"".join(found)

    def _part_key(self, number: int) -> WireItem:
        return {"name": {"S": f"{self._name} (part {number})"}}

    def replace(self, record: LeaseRecord, seen: LeaseRecord | None) -> bool:
        """Writes the item if `seen` is still there; False where it is not."""
        names = {"#holder": "holder", "#counter": "counter"}
        condition = Condition("attribute_not_exists(#name)", {"#name": "name"}, {})
        if seen is not None:
            values = {":holder": {"S": seen.holder}, ":counter": {"N": str(seen.counter)}}
            text = "#holder = :holder AND #counter = :counter"
            condition = Condition(text, names, values)
        # A renewal does not write the parts again.
        is_same = seen is not None and seen == self._seen and seen.token == record.token
        kept = self._parts if is_same else None
        items, parts = self._encoded(record) if kept is None else ([self._head(record, kept)], kept)
        try:
            if len(items) == 1:
                written = self._client.put(self._table, items[0], condition) is not None
            else:
                written = self._client.put_all(self._table, items, condition)
        except (StreamError, TransientError) as error:
            raise self._error(error) from error
        if written:
            self._seen, self._parts = record, parts
        return written

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()

    def _encoded(self, record: LeaseRecord) -> tuple[list[WireItem], _Parts | None]:
        """Returns the items that hold the lease and the token; the lease comes first."""
        if len(record.token) <= _PLAIN_BYTES:
            plain = {"token": {"S": record.token.decode()}} if record.token else {}
            return [{**self._head(record), **plain}], None
        packed = zlib.compress(record.token)
        if len(packed) <= _MOST_BYTES:
            return [{**self._head(record), "token_zlib": {"B": packed}}], None
        parts = _Parts(-(-len(packed) // _PART_BYTES), record.counter)
        if parts.parts > _MOST_PARTS:
            text = f"the token takes {len(packed) // 1000:,} KB, compressed, and DynamoDB writes "
            text += f"{_MOST_PARTS * _PART_BYTES // 1000:,} at once: give a file, s3://BUCKET/KEY, "
            text += "or an object with load() and save(token)"
            raise CheckpointError(text, "checkpoint", self.name)
        rest = [
            {
                **self._part_key(number),
                "counter": {"N": str(parts.counter)},
                "token_zlib": {"B": packed[(number - 1) * _PART_BYTES : number * _PART_BYTES]},
            }
            for number in range(1, parts.parts + 1)
        ]
        return [self._head(record, parts), *rest], parts

    def _head(self, record: LeaseRecord, parts: _Parts | None = None) -> WireItem:
        item: dict[str, WireValue] = {
            **self._key,
            "holder": {"S": record.holder},
            "counter": {"N": str(record.counter)},
            "seconds": {"N": f"{record.seconds:g}"},
        }
        if parts is not None:
            item["token"] = {"S": msgspec.json.encode(parts).decode()}
        return item

    def _decoded(self, item: WireItem) -> LeaseRecord:
        try:
            return LeaseRecord(
                item["holder"]["S"],
                int(item["counter"]["N"]),
                float(item["seconds"]["N"]),
                _token(item),
            )
        except (KeyError, ValueError, zlib.error) as error:
            text = f"the item there was not written by a watch ({error!r}): choose another name"
            raise UsageError(text, "checkpoint", self.name) from None

    def _error(self, error: StreamError | TransientError) -> CheckpointError:
        return checkpoint_error(error, self.name)


def checkpoint_error(error: StreamError | TransientError, name: str) -> CheckpointError:
    """Returns the error for a shared checkpoint that can't be read or written."""
    cause = error.__cause__
    answered = isinstance(cause, boto.ClientError)
    if answered and isinstance(to_watcher_error(cause), CredentialsError):  # type: ignore[arg-type]
        answered = False  # the fault of our credentials
    return CheckpointError(str(error), "checkpoint", name, answered=answered)


def _token(item: WireItem) -> bytes:
    if "token_zlib" in item:
        packed = item["token_zlib"]["B"]
        return zlib.decompressobj().decompress(packed, _LARGEST)
    text: str = item.get("token", {"S": ""})["S"]
    return text.encode()


def _parts(token: bytes) -> _Parts | None:
    """Returns the place of a token that is in further items; None for a plain token."""
    try:
        return msgspec.json.decode(token, type=_Parts)
    except msgspec.MsgspecError:
        return None
