"""Moves stored positions back, to a time or the trim horizon, but never forward."""

from __future__ import annotations

from datetime import datetime

import msgspec

from watcher.aws.model import AtSequence, AtTime, Service, Shard, TrimHorizon, without_circles
from watcher.errors import ShardNotFoundError, TrimmedDataError
from watcher.records import page as pages
from watcher.records.record import creation_time
from watcher.streams.checkpoint_format import Token, TokenShard

# Records may follow an empty page.
_PAGES = 3


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
