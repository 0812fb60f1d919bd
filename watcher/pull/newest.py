"""Finds out when a stream was last changed, by a few reads of its open shards."""

from __future__ import annotations

from datetime import datetime, timedelta

from watcher.aws.model import AtTime, Position, Service, TrimHorizon
from watcher.errors import TimestampRefusedError
from watcher.records import page as pages
from watcher.records.record import creation_time

# A change is looked for in the last of these first; each is billed for a page or two.
_AGES = (timedelta(minutes=1), timedelta(minutes=15), timedelta(hours=2), timedelta(hours=24))
# A page may be empty though records follow; and a busy shard is not read to its end for this.
_PAGES = 3
_PAGES_FROM_HORIZON = 50


def newest_change(service: Service, arn: str, shard_id: str, now: datetime) -> datetime | None:
    """The creation time of a late change of the shard; None if there seems to be none.

    Of a busy shard it is one of the last minute, not the very last. Raises ServiceError,
    StreamError.
    """
    for age in _AGES:
        try:
            found = _last(service, arn, shard_id, AtTime(now - age), _PAGES)
        except TimestampRefusedError:
            return _last(service, arn, shard_id, TrimHorizon(), _PAGES_FROM_HORIZON)
        if found is not None:
            return found
    return None


def _last(
    service: Service, arn: str, shard_id: str, position: Position, most: int
) -> datetime | None:
    iterator: str | None = service.get_iterator(arn, shard_id, position)[0]
    last = None
    for _ in range(most):
        if iterator is None:
            break
        page = pages.decode(service.get_records(iterator))
        if page.Records:
            last = page.Records[-1].dynamodb.ApproximateCreationDateTime or last
        elif last is not None:
            break
        iterator = page.NextShardIterator
    return None if last is None else creation_time(last)
