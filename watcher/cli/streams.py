"""`streams` and `shards`: list streams, and draw the lineage of one stream's shards."""

from __future__ import annotations

import logging
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from watcher.aws.model import Listing, Shard, ShardKey, opened_at
from watcher.cli import options
from watcher.errors import ServiceError, StreamError
from watcher.files import is_terminal
from watcher.formatting.rows import cut
from watcher.formatting.text import (
    cell_width,
    counted,
    padded,
    printable,
    write_document,
    write_text,
)
from watcher.options import WatchOptions
from watcher.times import duration_text

# boto3 is imported by the work itself: help does without.
if TYPE_CHECKING:
    from watcher.aws.client import StreamsClient
    from watcher.aws.model import StreamName
    from watcher.cli.command_line import CommandLine

logger = logging.getLogger("watcher")

_COLUMNS = ("TABLE", "LABEL", "ARN", "VIEW TYPE", "SHARDS")


def streams_command(line: CommandLine) -> options.Command:
    """Prints a line per stream: table, label, ARN, view type and open shards."""
    return options.with_options(_streams, options.declared_by(WatchOptions, *options.AWS))


def _streams(*, output: options.Output = "text", **values: object) -> int:
    from watcher.aws.client import StreamsClient

    streams = StreamsClient(options.connection(values))
    names = _names(streams)
    if not names:
        logger.info("No streams in this region")
    rows = _rows(streams, names)
    if output == "json":
        write_document(list(rows))
        return 0
    for line in lines(names, map(_texts, rows), header=is_terminal(sys.stdout)):
        write_text(line + "\n")
        sys.stdout.flush()
    return 0


def lines(names: Sequence[StreamName], rows: Iterator[list[str]], *, header: bool) -> Iterator[str]:
    """Yields the rows as lines for programs, or below a header for people."""
    if not header:
        yield from map("\t".join, rows)
        return
    columns = zip(*[[each.table, each.label, each.arn] for each in names], strict=True)
    widths = [max(map(cell_width, column)) for column in columns]
    widths += [len("NEW_AND_OLD_IMAGES"), 0]
    for row in [[*_COLUMNS], *rows] if names else ():
        yield "  ".join(map(padded, row, widths)).rstrip()


def _names(streams: StreamsClient) -> list[StreamName]:
    """Returns the streams by table, a table's newest stream first."""
    try:
        found = list(streams.list_streams())
    except ServiceError as error:
        raise StreamError(str(error), about=("endpoint_url", "region")) from error
    found.sort(key=lambda name: name.label, reverse=True)
    return sorted(found, key=lambda name: name.table)


def _rows(streams: StreamsClient, names: Sequence[StreamName]) -> Iterator[dict[str, Any]]:
    """Yields a row for each stream, as soon as its listing is there."""
    for name in names:
        row = {"table": name.table, "label": name.label, "arn": name.arn}
        try:
            listing = streams.list_shards(name.arn)
        except (ServiceError, StreamError) as error:
            yield {**row, "error": str(error)}
        else:
            count = len(listing.shards) - len(listing.closed())
            state = {"viewType": listing.view_type, "status": listing.status}
            yield {**row, **state, "openShards": count}


def _texts(row: dict[str, Any]) -> list[str]:
    texts = [row["table"], row["label"], row["arn"]]
    if "error" in row:
        return [*texts, row["error"]]
    state = "" if row["status"] == "ENABLED" else f", {row['status'].lower()}"
    return [*texts, row["viewType"], counted(row["openShards"], "open shard") + state]


# `shards`


def shards_command(line: CommandLine) -> options.Command:
    """Shows a stream's shards, each below its parent."""
    return options.with_options(_shards, options.declared_by(WatchOptions, *options.AWS))


def _shards(
    stream: options.Stream, /, *, output: options.Output = "text", **values: options.Value
) -> int:
    from watcher.aws.connect import connect

    streams, arn = connect(stream, options.connection(values))
    try:
        listing = streams.list_shards(arn)
    except ServiceError as error:
        raise StreamError(str(error)) from error
    if output == "json":
        write_document(as_json(listing))
        return 0
    is_shown = is_terminal(sys.stdout)
    columns = shutil.get_terminal_size().columns
    for text in tree(listing, header=is_shown):
        # In a file or a pipe however long: the tree may go to grep.
        write_text((cut(text, columns) if is_shown else text) + "\n")
    return 0


def as_json(listing: Listing) -> dict[str, object]:
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


def tree(
    listing: Listing, *, header: bool = False, lags: Mapping[ShardKey, float] | None = None
) -> Iterator[str]:
    """Yields the lineage's lines; shards whose parent is gone are roots.

    Those being read have their lag.
    """
    yield printable(f"{listing.arn} ({listing.status.lower()}, {listing.view_type})")
    if header:
        yield "    SHARD  STATE  AGE  SEQUENCE NUMBERS"
    known = {shard.id for shard in listing.shards}
    below: dict[str | None, list[Shard]] = defaultdict(list)
    for shard in listing.shards:
        below[shard.parent if shard.parent in known else None].append(shard)
    waiting = [(each, "", each is below[None][-1]) for each in reversed(below[None])]
    is_plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    while waiting:
        shard, before, is_last = waiting.pop()
        guide = ("+-- ", "`-- ")[is_last] if is_plain else ("├── ", "└── ")[is_last]
        # A parent with a child has ended, though it may still look open.
        line = f"{shard.id}  {'open' if shard.end is None and shard.id not in below else 'closed'}"
        if (lag := (lags or {}).get(ShardKey(listing.arn, shard.id))) is not None:
            line += f"  lag {lag:.0f} s"
        if since := opened_at(shard.id):
            line += f"  opened {duration_text((listing.time - since).total_seconds())} ago"
        yield before + guide + printable(f"{line}  {shard.start or '?'}..{shard.end or ''}")
        before += "    " if is_last else ("|   " if is_plain else "│   ")
        children = below.get(shard.id, [])
        waiting += [(each, before, each is children[-1]) for each in reversed(children)]
