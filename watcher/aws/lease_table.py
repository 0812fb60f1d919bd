"""A checkpoint shared through DynamoDB: an item of a table that is made on demand."""

from __future__ import annotations

import logging
import re
import zlib
from typing import Any

import msgspec
from botocore import exceptions as boto

from watcher.aws.config import AwsConfig
from watcher.aws.error_mapping import error_code, to_watcher_error
from watcher.aws.tables import Condition, Item, TablesClient
from watcher.aws.timing import TABLES, TableTiming
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
# Up to here the token is text that people and bloop can read; each KB of an item is paid for.
_PLAIN_BYTES = 16 * 1024
# DynamoDB's limit for an item is 400 KB; the rest is for the other attributes.
_MOST_BYTES = 396 * 1024
# What of a token no compression can be meant to become.
_LARGEST = 64 * 1024 * 1024


class Leased(msgspec.Struct, frozen=True):
    """The item: who holds the lease, and the tokens."""

    holder: str
    """Who has the lease; "" where nobody has."""
    counter: int
    """One more with each write."""
    seconds: float
    """How long the holder may deliver after each write."""
    token: bytes
    """The tokens' JSON text; empty where none was stored."""


class LeaseTable:
    """One item, written only if it still is what was seen.

    All raise CheckpointError where that can't be.
    """

    def __init__(self, client: TablesClient, table: str, name: str) -> None:
        self.name = f"{SCHEME}{table}/{name}"
        self._client = client
        self._table = table
        self._key = {"name": {"S": name}}

    @classmethod
    def from_url(cls, url: str, connection: AwsConfig, region: str | None) -> LeaseTable:
        """The item of a URL (`dynamodb://TABLE/NAME`). Raises UsageError, StreamError."""
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

    def make(self) -> None:
        """Have the table there. Raises UsageError where it is of another kind."""
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
            # Else somebody else is making it.
            if error_code(error.__cause__) != "ResourceInUseException":
                raise self._error(error) from error
        try:
            self._client.wait_for(self._table)
        except (StreamError, TransientError) as error:
            raise self._error(error) from error

    def get(self) -> Leased | None:
        """Returns the item as it is now; None where there is none."""
        try:
            item = self._client.get(self._table, self._key)
        except (StreamError, TransientError) as error:
            raise self._error(error) from error
        return None if item is None else self._decoded(item)

    def replace(self, leased: Leased, seen: Leased | None) -> bool:
        """Write it in the place of what was seen; False where that is not there any more."""
        names = {"#holder": "holder", "#counter": "counter"}
        condition = Condition("attribute_not_exists(#name)", {"#name": "name"}, {})
        if seen is not None:
            values = {":holder": {"S": seen.holder}, ":counter": {"N": str(seen.counter)}}
            text = "#holder = :holder AND #counter = :counter"
            condition = Condition(text, names, values)
        try:
            return self._client.put(self._table, self._encoded(leased), condition) is not None
        except (StreamError, TransientError) as error:
            raise self._error(error) from error

    def _encoded(self, leased: Leased) -> Item:
        item: Item = {
            **self._key,
            "holder": {"S": leased.holder},
            "counter": {"N": str(leased.counter)},
            "seconds": {"N": f"{leased.seconds:g}"},
        }
        if len(leased.token) > _PLAIN_BYTES:
            packed = zlib.compress(leased.token)
            if len(packed) > _MOST_BYTES:
                text = f"the token takes {len(packed) // 1024:,} KB, compressed, and an item holds "
                text += "400: give a file, or an object with load() and save(token)"
                raise CheckpointError(text, "checkpoint", self.name)
            item["token_zlib"] = {"B": packed}
        elif leased.token:
            item["token"] = {"S": leased.token.decode()}
        return item

    def _decoded(self, item: Item) -> Leased:
        try:
            return Leased(
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
        answered = False  # that is our own trouble
    return CheckpointError(str(error), "checkpoint", name, answered=answered)


def _token(item: dict[str, Any]) -> bytes:
    if "token_zlib" in item:
        packed = item["token_zlib"]["B"]
        return zlib.decompressobj().decompress(packed, _LARGEST)
    text: str = item.get("token", {"S": ""})["S"]
    return text.encode()
