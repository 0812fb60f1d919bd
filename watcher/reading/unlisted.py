"""Parents that only their child's listing names: gone since long, or not listed yet."""

from __future__ import annotations

import logging
import math
import time

from watcher.errors import CredentialsError, ServiceError, ShardNotFoundError
from watcher.reading.lineage import Status, Tracked
from watcher.service.client import StreamsClient
from watcher.service.model import Listing, TrimHorizon
from watcher.service.patience import patiently

logger = logging.getLogger("watcher")

# A shard that is there, though no listing shows it, will be listed soon; if ever.
_HIDDEN_SECONDS = 60.0
_PAUSE_SECONDS = 1.0


class Unlisted:
    """Says whether such a parent can be read.

    Its own parent is unknown: if the listing only lags, there may be one that has to be read
    before it. Most are gone, which the service tells when it is asked for an iterator.
    """

    def __init__(self) -> None:
        self.due = math.inf
        """When to ask again (`time.monotonic`)."""
        self._hidden_since: dict[str, float] = {}

    def may_begin(self, streams: StreamsClient, arn: str, shard: Tracked) -> bool:
        """Whether to read this ready shard now. One that is gone is marked as finished."""
        if shard.expected:
            self._hidden_since.pop(shard.id, None)
            return True
        now = time.monotonic()
        self.due = now + _PAUSE_SECONDS
        try:
            streams.iterator(arn, shard.id, TrimHorizon())
        except ShardNotFoundError:
            shard.status = Status.FINISHED
            self._hidden_since.pop(shard.id, None)
            return False
        except (ServiceError, CredentialsError) as error:
            logger.debug(f"Can't tell whether shard {shard.id} is there: {error}")
            return False
        # It is there, so the listing lags, and will show it and its parent; if ever.
        if now - self._hidden_since.setdefault(shard.id, now) < _HIDDEN_SECONDS:
            return False
        del self._hidden_since[shard.id]
        return True


def without_gaps(streams: StreamsClient, arn: str) -> Listing:
    """A listing in which no shard is missing that a child names and that can be read.

    For those who ask once. Waits for a listing that lags as long as a watch does. Raises
    StreamError.
    """
    gone: set[str] = set()
    until = time.monotonic() + _HIDDEN_SECONDS
    while True:
        listing = patiently(lambda: streams.listing(arn))
        listed = {shard.id for shard in listing.shards}
        named = {shard.parent for shard in listing.shards if shard.parent} - listed - gone
        gone |= {parent for parent in named if _is_gone(streams, arn, parent)}
        if named <= gone or time.monotonic() >= until:
            return listing
        time.sleep(_PAUSE_SECONDS)


def _is_gone(streams: StreamsClient, arn: str, shard_id: str) -> bool:
    try:
        patiently(lambda: streams.iterator(arn, shard_id, TrimHorizon()))
    except ShardNotFoundError:
        return True
    return False
