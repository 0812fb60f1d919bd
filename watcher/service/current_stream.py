"""Which stream of a table is read: the one that DescribeTable names, or else ListStreams."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Protocol

from watcher.errors import DeniedError, ShardNotFoundError, StreamError
from watcher.service.errors_of import code_of, operation_of
from watcher.service.model import StreamName
from watcher.service.names import is_another, is_real, region_in, table_name, table_of

logger = logging.getLogger("watcher")

_READING = ("ENABLED", "ENABLING")
_ABOUT = ("region", "profile", "endpoint_url")


class Tables(Protocol):
    """What is asked here; see `client.StreamsClient`."""

    region: str

    def describe_table(self, table: str) -> dict[str, Any]:
        """DescribeTable's answer."""

    def list_streams(self, table: str | None = None) -> Iterator[StreamName]:
        """ListStreams' answers."""

    def status(self, arn: str) -> str:
        """A stream's own."""


def current_stream(tables: Tables, table: str) -> str:
    """The ARN of the current stream of a table, which its name or its ARN names.

    Raises StreamError where there is none, or where the service means another table.
    """
    try:
        described = _described(tables, table)
    except DeniedError as error:
        # Where it is the role, or the MFA code, that is refused, so is all else.
        if operation_of(error.__cause__).startswith("AssumeRole"):
            raise
        return _listed(tables, table, error)
    _refuse_another(table, described, tables.region)
    arn: str | None = described.get("LatestStreamArn")
    if arn is None:
        raise StreamError(
            f"table {table!r} has no stream; enable one: aws dynamodb update-table "
            f"--table-name {table} --stream-specification "
            "StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES"
        )
    return arn


def _described(tables: Tables, table: str) -> dict[str, Any]:
    """The table by its whole ARN, which may be another account's: a name would mean our own."""
    try:
        try:
            return tables.describe_table(table)
        except StreamError as error:
            # DynamoDB Local and others know tables by their names only.
            if table == table_name(table) or code_of(error.__cause__) != "ValidationException":
                raise
            return tables.describe_table(table_name(table))
    except ShardNotFoundError:
        raise StreamError(
            f"no table {table!r} in {tables.region}: check the name, --region and --profile",
            about=_ABOUT,
        ) from None


def _refuse_another(table: str, described: dict[str, Any], region: str) -> None:
    """An answer about a table of another account or region than was asked for is no answer."""
    if table == table_name(table):
        return
    own = str(described.get("TableArn") or table)
    # Alternator's streams may have another ARN than their tables.
    its_streams = table_of(described.get("LatestStreamArn") or own)
    if is_another(table, own) and is_another(table, its_streams):
        raise StreamError(
            f"no table {table!r} in {region}: what is there is {own}; "
            "check the ARN, --region and --profile",
            about=_ABOUT,
        )


def _listed(tables: Tables, table: str, denied: StreamError) -> str:
    """The newest enabled stream, for those who may read streams and not describe tables."""
    rows = sorted(streams_of(tables, table), key=lambda row: row.label, reverse=True)
    for row in rows:
        if tables.status(row.arn) in _READING:
            break
    else:
        if not rows:
            text = f"{denied}; ListStreams shows no stream of {table} in {tables.region}"
            raise StreamError(text, about=_ABOUT) from denied
        row = rows[0]  # disabled: it can be read for 24 hours more
    logger.debug(f"DescribeTable is not allowed; ListStreams names {row.arn}")
    return row.arn


def streams_of(tables: Tables, table: str) -> Iterator[StreamName]:
    """What ListStreams, which takes names only, shows of a table that may be named by its ARN."""
    return (row for row in tables.list_streams(table_name(table)) if _is_of(row, table))


def _is_of(row: StreamName, table: str) -> bool:
    """ListStreams is of our own account: it may show another table of the name asked for."""
    if row.table != table_name(table):
        return False
    own = table_of(row.arn)
    return table in (own, row.table) or not is_real(region_in(own))
