"""Finds the time of a shard's last change, by a few reads."""

from __future__ import annotations

from datetime import datetime, timedelta

from watcher.aws.model import AtTime, Position, Service, TrimHorizon
from watcher.errors import TimestampRefusedError
from watcher.records import page as pages
from watcher.records.record import creation_time

# The periods that are searched, the shortest first; each costs a page or two.
_AGES = (timedelta(minutes=1), timedelta(minutes=15), timedelta(hours=2), timedelta(hours=24))
# Records may follow an empty page; and a busy shard is not read to its end for this.
_PAGES = 3
_PAGES_FROM_HORIZON = 50


def newest_change(service: Service, arn: str, shard_id: str, now: datetime) -> datetime | None:
    """Returns the creation time of a late change of the shard; None if there seems to be none.

    In a busy shard it is a change of the last minute, not the very last. Raises ServiceError,
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
    service: Service, arn: str, shard_id: str, position: Position, max_pages: int
) -> datetime | None:
    iterator: str | None = service.get_iterator(arn, shard_id, position)[0]
    last = None
    for _ in range(max_pages):
        if iterator is None:
            break
        page = pages.decode(service.get_records(iterator))
        if page.Records:
            last = page.Records[-1].dynamodb.ApproximateCreationDateTime or last
        elif last is not None:
            break
        iterator = page.NextShardIterator
    return None if last is None else creation_time(last)
