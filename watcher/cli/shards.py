"""`shards`: a stream's lineage as a tree."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.tree import Tree

from watcher import arguments
from watcher.cli import options
from watcher.errors import ServiceError, StreamError
from watcher.printing.plural import counted
from watcher.service.connect import connect
from watcher.service.model import Listing, Shard, opened_at
from watcher.service.price import dollars, polling
from watcher.watching import watch

logger = logging.getLogger("watcher")


def command(words: Sequence[str]) -> Callable[..., int]:
    """The stream's shards, each below its parent."""
    return options.spelled(_shards, options.of(watch, "price", *options.AWS))


def _shards(stream: options.Stream, /, *, output: options.Output = "text", **values: Any) -> int:
    price = arguments.price(values["price"])
    streams, arn = connect(stream, options.connection(values))
    try:
        listing = streams.listing(arn)
    except ServiceError as error:
        raise StreamError(str(error)) from error
    if output == "json":
        sys.stdout.write(json.dumps(as_json(listing), indent=2) + "\n")
        return 0
    # A line each, however long: the tree may go to grep.
    Console(file=sys.stdout, highlight=False, width=100_000).print(tree(listing))
    is_open = len(listing.shards) - len(listing.closed())
    pauses = [(pause, dollars(polling(is_open, pause, price))) for pause in (1, 5, 60)]
    costs = ", ".join(f"{cost} with --poll-max {pause}" for pause, cost in pauses)
    logger.info(f"To watch {counted(is_open, 'open shard')} while idle costs a month: {costs}")
    return 0


def as_json(listing: Listing) -> dict[str, Any]:
    """The listing in plain values."""
    return {
        "arn": listing.arn,
        "table": listing.table,
        "status": listing.status,
        "viewType": listing.view_type,
        "shards": [
            {
                "id": shard.id,
                "parent": shard.parent,
                "open": listing.is_open(shard.id),
                "start": shard.start,
                "end": shard.end,
                "openedAt": opened.isoformat() if (opened := opened_at(shard.id)) else None,
            }
            for shard in listing.shards
        ],
    }


def tree(listing: Listing) -> Tree:
    """The lineage; a shard whose parent is gone stands at the top, as does one without."""
    whole = Tree(f"{listing.arn} ({listing.status.lower()}, {listing.view_type})")
    branches: dict[str, Tree] = {}
    known = {shard.id: shard for shard in listing.shards}
    parents = {shard.parent for shard in listing.shards}

    for shard in listing.shards:
        missing = []
        above: Shard | None = shard
        while above is not None and above.id not in branches:
            missing.append(above)
            above = known.get(above.parent or "")
        for each in reversed(missing):
            # A parent with a child has ended, though it may still look open.
            is_open = each.end is None and each.id not in parents
            place = branches.get(each.parent or "", whole)
            branches[each.id] = place.add(_line(each, listing.time, is_open))
    return whole


def _line(shard: Shard, now: datetime, is_open: bool) -> str:
    state = "[green]open[/green]" if is_open else "closed"
    return f"{shard.id}  {state}  {shard.start or '?'}..{shard.end or ''}{_age(shard, now)}"


def _age(shard: Shard, now: datetime) -> str:
    since = opened_at(shard.id)
    if since is None:
        return ""
    return f"  opened {options.age(since, now)} ago"
