"""`positions`: shows and rewinds checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import msgspec

from watcher.aws.arns import table_name
from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.model import (
    AtSequence,
    AtTime,
    Latest,
    Service,
    Shard,
    TrimHorizon,
    without_circles,
)
from watcher.cli import options
from watcher.clock import CLOCK
from watcher.declared import Opt
from watcher.errors import (
    ServiceError,
    ShardNotFoundError,
    StreamError,
    TrimmedDataError,
    UsageError,
)
from watcher.formatting.style import time_text
from watcher.formatting.text import counted, grouped, printable, write_document, write_text
from watcher.options import WatchOptions
from watcher.records import page as pages
from watcher.records.record import creation_time
from watcher.stores.open_store import claimed, read_positions
from watcher.streams.checkpoint_format import Token, TokenShard, all_to_dict
from watcher.streams.lineage import RETENTION
from watcher.streams.start_times import parse_start

if TYPE_CHECKING:
    from watcher.cli.command_line import CommandLine

logger = logging.getLogger("watcher")

# Records may follow an empty page.
_PAGES = 3

_Store = Annotated[
    str,
    Opt(
        "as --checkpoint names it: a file, dynamodb://TABLE/NAME or s3://BUCKET/KEY",
        name="STORE",
    ),
]
_Start = Annotated[
    str | None,
    Opt("move them back to here: an age (2h), a time, or trim-horizon", "START", name="--from"),
]
_Apply = Annotated[
    bool,
    Opt("with --from: do it, where no watch uses the store (without, a plan)", negative=""),
]


def positions_command(line: CommandLine) -> options.Command:
    """Shows a checkpoint, or moves it back."""
    return options.with_options(_positions, options.declared_by(WatchOptions, *options.AWS))


def _positions(
    store: _Store,
    /,
    *,
    start: _Start = None,
    apply: _Apply = False,
    output: options.Output = "text",
    origins: options.Origins,
    **values: options.Value,
) -> int:
    if "apply" in origins.defaults:
        raise UsageError(f"type it; it is from {origins.defaults['apply']}", "apply")
    connection = options.connection(values)
    if start is not None and "start" in origins.typed:  # a default is for watches
        if "output" in origins.typed:
            raise UsageError("it is for positions as they are: leave out --from", "output")
        return _rewind(store, start, connection, apply=apply)
    if apply:
        raise UsageError("it goes with --from", "apply")
    _show(_stored(store, connection), output)
    return 0


def _stored(store: str, connection: AwsConfig) -> list[Token]:
    if not (tokens := read_positions(store, connection)):
        raise UsageError(f"nothing is stored in {store}")
    return tokens


# What is stored


def _show(tokens: Sequence[Token], output: str) -> None:
    if output == "json":
        write_document(all_to_dict(tokens))
    for token in tokens if output == "text" else ():
        saved = f"  saved {time_text(token.saved_at.astimezone())}" if token.saved_at else ""
        write_text(f"{printable(f'{table_name(token.stream_arn)}  {token.stream_arn}')}{saved}\n")
        if token.snapshot is not None:
            progress = "done" if token.snapshot.done else "under way"
            write_text(f"  snapshot {progress}: {counted(token.snapshot.items, 'item')}\n")
        for shard in token.shards:
            write_text(printable(f"  {shard.shard_id}  {_position(shard)}") + "\n")


def _position(shard: TokenShard | None) -> str:
    if shard is None:
        return "none"
    if shard.finished:
        return "read to its end"
    if shard.time is not None:
        return f"from {time_text(shard.time.astimezone())}"
    named = (shard.iterator_type or "trim_horizon").replace("_sequence", "").replace("_", " ")
    return f"{named} {shard.sequence_number}" if shard.sequence_number else named


def _changes(before: Sequence[Token], after: Sequence[Token]) -> Iterator[str]:
    """Yields a line for each shard whose position is another one."""
    for old, new in zip(before, after, strict=True):
        olds, news = ({shard.shard_id: shard for shard in each.shards} for each in (old, new))
        for name in sorted({**olds, **news}):
            was, becomes = _position(olds.get(name)), _position(news.get(name))
            if was != becomes:
                yield f"{table_name(old.stream_arn)}  {name}  {was} -> {becomes}"


def _rewind(store: str, start: str, connection: AwsConfig, *, apply: bool) -> int:
    now = datetime.fromtimestamp(CLOCK.time(), UTC)
    position = parse_start(start, now)
    if isinstance(position, Latest):
        raise UsageError("it would skip unread records: positions only move back", "start")
    if isinstance(position, AtTime) and position.time < now - RETENTION:
        logger.warning("A stream holds 24 hours: it can't deliver older changes again")
    tokens = _stored(store, connection)
    if apply:
        with claimed(store, connection) as opened:
            tokens = opened.load()
            moved = [*_moved(tokens, position, connection)]
            opened.save(moved)
    else:
        moved = [*_moved(tokens, position, connection)]
    changes = list(_changes(tokens, moved))
    for line in changes:
        write_text(printable(line) + "\n")
    count = grouped(len(changes), "position")
    if apply:
        logger.info(f"Written: {count}")
    elif changes:
        logger.info(f"Plan: {count}; nothing was written; to do it, add --apply")
    else:
        logger.info("Plan: nothing to do")
    return 0


def _moved(
    tokens: Sequence[Token], to: AtTime | TrimHorizon, connection: AwsConfig
) -> Iterator[Token]:
    """Yields the rewound tokens."""
    for token in tokens:
        service, _ = connect(token.stream_arn, connection)
        try:
            yield rewound(service, token, to)
        except ServiceError as error:
            raise StreamError(str(error), about=("endpoint_url", "region")) from error


def rewound(service: Service, token: Token, to: AtTime | TrimHorizon) -> Token:
    """Returns the token with all positions at `to`; earlier positions stay.

    Shards that the token no longer holds, as they were read, return if they are still listed.
    Raises StreamError, ServiceError.
    """
    listing = service.list_shards(token.stream_arn)
    shards = {
        each.shard_id: _at(to, each.shard_id, each.parent, listing.time)
        if _is_later(service, token.stream_arn, each, to)
        else each
        for each in token.shards
    }
    # No record was read of the descendants of the token's shards: these begin at the trim horizon.
    unread = _below(shards, listing.shards)
    for shard in without_circles(listing.shards):
        if shard.id not in shards and shard.id not in unread:
            shards[shard.id] = _at(to, shard.id, shard.parent, listing.time)
    active = [name for name, shard in shards.items() if shard.parent not in shards]
    return msgspec.structs.replace(token, active=active, shards=[*shards.values()])


def _at(to: AtTime | TrimHorizon, name: str, parent: str | None, now: datetime) -> TokenShard:
    time = to.time if isinstance(to, AtTime) else None
    return TokenShard(name, "trim_horizon", parent=parent, time=time, since=now)


def _below(shards: dict[str, TokenShard], listed: list[Shard]) -> set[str]:
    """Returns the listed shards that descend from these."""
    parents = {shard.id: shard.parent for shard in without_circles(listed)}
    below = set()
    for name in parents:
        parent = parents[name]
        while parent is not None and parent not in shards:
            parent = parents.get(parent)
        if parent is not None:
            below.add(name)
    return below


def _is_later(service: Service, arn: str, shard: TokenShard, to: AtTime | TrimHorizon) -> bool:
    """True where all unread records of the shard were written at or after `to`."""
    if shard.finished:
        return True
    if shard.iterator_type == "trim_horizon" and shard.time is None:
        return False
    if isinstance(to, TrimHorizon):
        return True
    if shard.sequence_number is None:
        return shard.time is None or shard.time > to.time
    try:
        time = _time_at(service, arn, shard.shard_id, shard.sequence_number)
    except (TrimmedDataError, ShardNotFoundError):
        return False  # the watch that resumes there reports the loss
    return time is None or time >= to.time


def _time_at(service: Service, arn: str, shard_id: str, number: str) -> datetime | None:
    """Returns the time of the first record from this number on; None without one."""
    iterator: str | None = service.get_iterator(arn, shard_id, AtSequence(number))[0]
    for _ in range(_PAGES):
        if iterator is None:
            break
        page = pages.decode(service.get_records(iterator, 1))
        if page.Records:
            written = page.Records[0].dynamodb.ApproximateCreationDateTime
            return None if written is None else creation_time(written)
        iterator = page.NextShardIterator
    return None
