"""Finds the streams that a user names: by names, ARNs, globs and tags, or all of a region."""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import msgspec

from watcher.aws.arns import is_aws_region, is_other_table, region_in, table_name, table_of
from watcher.aws.config import ParsedAnswer
from watcher.aws.error_mapping import error_code, error_operation
from watcher.aws.model import Service, StreamName
from watcher.errors import (
    MAY_PASS,
    DeniedError,
    ServiceError,
    ShardNotFoundError,
    StreamError,
    UsageError,
    WatcherError,
    texts,
)

logger = logging.getLogger("watcher")

_ABOUT = ("region", "profile", "endpoint_url")
# At 100 streams a call, the search for a misspelled name takes a second or two.
_MOST_NAMES = 1000
_CLOSE = 0.7


class Tables(Protocol):
    """The calls that find a table's stream; see `client.StreamsClient`."""

    region: str

    def describe_table(self, table: str) -> ParsedAnswer:
        """Returns DescribeTable's answer."""

    def list_streams(self, table: str | None = None) -> Iterator[StreamName]:
        """Yields ListStreams' answers."""


def current_stream(tables: Tables, table: str) -> str:
    """Returns the ARN of a table's current stream, given the table's name or ARN.

    Raises StreamError where there is none, or where the service answers for another table.
    """
    try:
        described = _described(tables, table)
    except DeniedError as error:
        # A refused role or MFA code would be refused for the other call too.
        if error_operation(error.__cause__).startswith("AssumeRole"):
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


def newer_stream(service: Service, arn: str, table: str = "") -> str | None:
    """Returns the ARN of the newer stream of a stream's table; None if there is none.

    `table` is its name, for a stream whose ARN has no table in it. Raises TransientError,
    CredentialsError, UnexpectedAnswerError, which leave it open.
    """
    try:
        # By its ARN: a name would mean a table of our own account.
        its_table = table_of(arn)
        newest = service.latest_stream(table or arn if its_table == arn else its_table)
    except MAY_PASS:
        raise
    except (ServiceError, StreamError) as error:
        logger.debug(f"No new stream: {error}")
        return None
    return newest if newest != arn else None


def _described(tables: Tables, table: str) -> ParsedAnswer:
    """Returns the table's description, by its ARN: a name would mean our own account's."""
    try:
        try:
            return tables.describe_table(table)
        except StreamError as error:
            # DynamoDB Local and others accept only names.
            if table == table_name(table) or error_code(error.__cause__) != "ValidationException":
                raise
            return tables.describe_table(table_name(table))
    except ShardNotFoundError:
        near = _nearest(tables, table_name(table))
        hint = f"did you mean {near!r}?" if near else "check the name, --region and --profile"
        raise StreamError(f"no table {table!r} in {tables.region}: {hint}", about=_ABOUT) from None


def _nearest(tables: Tables, name: str) -> str | None:
    """Returns the name of a table with a stream that may be meant, from ListStreams; or None."""
    try:
        rows = list(itertools.islice(tables.list_streams(), _MOST_NAMES))
    except WatcherError as error:
        logger.debug(f"Can't list the streams: {error}")
        return None
    names = {row.table.casefold(): row.table for row in rows if row.table != name}
    close = difflib.get_close_matches(name.casefold(), names, 1, _CLOSE)
    return names[close[0]] if close else None


def _refuse_another(table: str, described: ParsedAnswer, region: str) -> None:
    """Raises StreamError for an answer about a table of another account or region."""
    if table == table_name(table):
        return
    own = str(described.get("TableArn") or table)
    # Alternator's streams may have another ARN than their tables.
    its_streams = table_of(described.get("LatestStreamArn") or own)
    if is_other_table(table, own) and is_other_table(table, its_streams):
        raise StreamError(
            f"no table {table!r} in {region}: there is {own}; "
            "check the ARN, --region and --profile",
            about=_ABOUT,
        )


def _listed(tables: Tables, table: str, denied: StreamError) -> str:
    """Returns the newest stream, for users who may read streams but not describe tables."""
    # ListStreams takes only names.
    rows = [row for row in tables.list_streams(table_name(table)) if _is_of(row, table)]
    if not rows:
        text = f"{denied}; ListStreams shows no stream of {table} in {tables.region}"
        raise StreamError(text, about=_ABOUT) from denied
    row = max(rows, key=lambda row: row.label)
    logger.debug(f"DescribeTable is not allowed; ListStreams names {row.arn}")
    return row.arn


def _is_of(row: StreamName, table: str) -> bool:
    """True if a listed stream belongs to this table, in its account."""
    if row.table != table_name(table):
        return False
    own = table_of(row.arn)
    return table in (own, row.table) or not is_aws_region(region_in(own))


_GLOB = re.compile(r"[*?\[]")

Tags = Mapping[str, str]


def _accepted_tags(given: Iterable[str] | None) -> dict[str, set[str]]:
    """Returns each tag's accepted values; empty for any value. Raises UsageError."""
    accepted: dict[str, set[str]] = {}
    for text in texts(given, "tags"):
        name, equals, value = text.partition("=")
        if not name:
            raise UsageError("give NAME=VALUE, or NAME", "tags", text)
        accepted.setdefault(name, set()).update([value] if equals else ())
    return accepted


class WantedStreams(msgspec.Struct, frozen=True, kw_only=True):
    """The streams that a user has named. Tags narrow down a glob's matches, or all streams."""

    names: tuple[str, ...] = ()
    """Streams and tables by name or ARN, each of which has to exist."""
    globs: tuple[str, ...] = ()
    """Globs of tables' names, or of their ARNs in a region; "*" for all."""
    exclude: tuple[str, ...] = ()
    tags: tuple[tuple[str, frozenset[str]], ...] = ()
    """The required tags, each with its accepted values; empty: any value."""

    @classmethod
    def parse(
        cls,
        named: str | Iterable[str],
        everything: bool = False,
        tags: Iterable[str] | None = None,
        exclude: Iterable[str] | None = None,
    ) -> WantedStreams:
        """Returns the streams named in `watch()`'s arguments. Raises UsageError."""
        names = list(dict.fromkeys(texts(named, "stream")))
        accepted, exclude = _accepted_tags(tags), texts(exclude, "exclude")
        globs = list(filter(is_glob, names))
        is_narrowed = bool(names)
        names = [name for name in names if name not in globs]
        if everything or (accepted and not is_narrowed):
            globs = ["*"]
        if not (names or globs):
            raise UsageError("give a stream: its ARN, a table, a glob like 'shop-*', or --all")
        if accepted and not globs:
            raise UsageError("it chooses among the tables of a glob or --all: give one", "tags")
        return cls(
            names=tuple(name for name in names if not _any(exclude, table_name(name))),
            globs=tuple(globs),
            exclude=tuple(exclude),
            tags=tuple((name, frozenset(values)) for name, values in accepted.items()),
        )

    @property
    def are_several(self) -> bool:
        """True where it may be more than one stream."""
        return bool(self.globs) or len(self.names) > 1

    def by_region(self) -> list[WantedStreams]:
        """Returns its globs by region: each region's streams are listed separately."""
        regions: dict[str | None, list[str]] = {}
        for glob in self.globs:
            regions.setdefault(region_in(glob), []).append(glob)
        made = msgspec.structs.replace
        return [made(self, names=(), globs=tuple(globs)) for globs in regions.values()]

    def newest(
        self, rows: Iterable[StreamName], tags_of: Callable[[str], Tags]
    ) -> dict[str, StreamName]:
        """Returns the newest of the listed streams for each matching table.

        `tags_of` returns a table's tags by its ARN, or by its name where the stream's ARN differs;
        it is called only for tables whose names match.
        """
        found: dict[str, StreamName] = {}
        for row in rows:
            if not any(_matches(row, glob) for glob in self.globs):
                continue
            if _any(self.exclude, row.table):
                continue
            if row.table not in found or found[row.table].label < row.label:
                found[row.table] = row
        return {name: row for name, row in found.items() if self._has_tags(row, tags_of)}

    def unmatched(self, rows: Iterable[StreamName]) -> list[str]:
        """Returns the globs that match none of these streams' tables."""
        rows = list(rows)
        return [glob for glob in self.globs if not any(_matches(row, glob) for row in rows)]

    def nothing_matches(self, globs: Iterable[str]) -> StreamError:
        """Returns the error for globs without a match."""
        text = f"no table with a stream matches {' or '.join(map(repr, globs))}"
        if self.tags or self.exclude:
            text += ", or its tags or --exclude leave them out"
        return StreamError(f"{text}; see: python -m watcher streams")

    def _has_tags(self, row: StreamName, tags_of: Callable[[str], Tags]) -> bool:
        if not self.tags:
            return True
        # Alternator's streams have an id, or an ARN that differs from their tables'.
        arn = table_of(row.arn)
        tags = tags_of(arn if arn.endswith(f":table/{row.table}") else row.table)
        return all(
            name in tags and (not values or tags[name] in values) for name, values in self.tags
        )


def is_glob(text: str) -> bool:
    """True for a pattern of names."""
    return _GLOB.search(text) is not None


def _matches(row: StreamName, glob: str) -> bool:
    if glob.startswith("arn:"):
        return fnmatch.fnmatchcase(table_of(row.arn), table_of(glob))
    return fnmatch.fnmatchcase(row.table, glob)


def _any(globs: Iterable[str], table: str) -> bool:
    return any(fnmatch.fnmatchcase(table, glob) for glob in globs)
