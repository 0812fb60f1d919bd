"""`shards`: a stream's lineage as a tree."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from watcher.aws.connect import connect
from watcher.aws.model import Listing, Shard, opened_at
from watcher.aws.price import dollars, polling
from watcher.cli import options
from watcher.errors import ServiceError, StreamError
from watcher.formatting.differences import shortened
from watcher.formatting.terminal import write_json
from watcher.formatting.text import counted, printable
from watcher.options import WatchOptions
from watcher.options import price as checked_price

if TYPE_CHECKING:
    from watcher.cli.command_line import CommandLine

logger = logging.getLogger("watcher")

_ANY_COLUMNS = 100_000
_GUIDE = 4
# Of a shard's id in a narrow terminal: shardId-…-5ee6d958
_FEW = 18


class _Form(Enum):
    """The details of a shard that fit into the terminal."""

    WHOLE = "with its numbers"
    DATED = "with its age"
    SHORT = "with its age, and the ends of its id"
    SHORTEST = "with the ends of its id"


def shards_command(line: CommandLine) -> Callable[..., int]:
    """Shows a stream's shards, each below its parent."""
    return options.with_options(_shards, options.of(WatchOptions, "price", *options.AWS))


def _shards(
    stream: options.Stream, /, *, output: options.Output = "text", **values: options.Value
) -> int:
    price = checked_price(values["price"])
    streams, arn = connect(stream, options.connection(values))
    try:
        listing = streams.list_shards(arn)
    except ServiceError as error:
        raise StreamError(str(error)) from error
    if output == "json":
        write_json(json.dumps(as_json(listing), indent=2) + "\n")
        return 0
    # In a file or a pipe a line each, however long: the tree may go to grep.
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else _ANY_COLUMNS
    console = Console(file=sys.stdout, highlight=False, width=columns)
    console.print(tree(listing, columns), no_wrap=True, overflow="ellipsis", crop=True)
    is_open = len(listing.shards) - len(listing.closed())
    pauses = [(pause, dollars(polling(is_open, pause, price))) for pause in (1, 5, 60)]
    costs = ", ".join(f"{cost} with --poll-max {pause}" for pause, cost in pauses)
    logger.info(f"To watch {counted(is_open, 'open shard')} while idle costs a month: {costs}")
    return 0


def as_json(listing: Listing) -> dict[str, Any]:
    """Returns the listing as plain values for JSON."""
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


def tree(listing: Listing, columns: int = _ANY_COLUMNS) -> Tree:
    """Returns the lineage as a tree; shards whose parent is gone are roots.

    The lines carry as many details as fit into the columns.
    """
    for form in _Form:
        made = _tree(listing, form)
        if _width(made) <= columns:
            break
    return made


def _width(branch: Tree) -> int:
    widest, below = 0, [(branch, 0)]
    while below:
        each, level = below.pop()
        widest = max(widest, cell_len(str(each.label)) + _GUIDE * level)
        below += [(child, level + 1) for child in each.children]
    return widest


def _tree(listing: Listing, form: _Form) -> Tree:
    name = listing.arn if form is _Form.WHOLE else listing.table
    title = f"{name} ({listing.status.lower()}, {listing.view_type})"
    whole = Tree(Text(printable(title)))
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
            branches[each.id] = place.add(_line(each, listing.time, is_open, form))
    return whole


def _line(shard: Shard, now: datetime, is_open: bool, form: _Form) -> Text:
    is_short = form in (_Form.SHORT, _Form.SHORTEST)
    # Whatever an endpoint calls it.
    name = printable(shard.id)
    line = Text(shortened(name, _FEW) if is_short else name)
    line.append("  ").append("open" if is_open else "closed", "green" if is_open else "")
    if form is _Form.WHOLE:
        line.append(printable(f"  {shard.start or '?'}..{shard.end or ''}"))
    return line if form is _Form.SHORTEST else line.append(_age(shard, now))


def _age(shard: Shard, now: datetime) -> str:
    since = opened_at(shard.id)
    if since is None:
        return ""
    return f"  opened {options.age(since, now)} ago"
