"""`positions`: shows a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from watcher.aws.arns import table_name
from watcher.cli import options
from watcher.declared import Opt
from watcher.errors import UsageError
from watcher.formatting.style import local_time
from watcher.formatting.text import counted, printable, write_document, write_text
from watcher.options import WatchOptions
from watcher.stores.open_store import read_positions
from watcher.streams.checkpoint_format import Token, TokenShard, all_to_dict

if TYPE_CHECKING:
    from watcher.cli.command_line import CommandLine

_Store = Annotated[
    str,
    Opt(
        "as --checkpoint names it: a file, dynamodb://TABLE/NAME or s3://BUCKET/KEY",
        name="STORE",
    ),
]


def positions_command(line: CommandLine) -> options.Command:
    """Shows a checkpoint."""
    return options.with_options(_positions, options.declared_by(WatchOptions, *options.AWS))


def _positions(
    store: _Store, /, *, output: options.Output = "text", **values: options.Value
) -> int:
    if not (tokens := read_positions(store, options.connection(values))):
        raise UsageError(f"nothing is stored in {store}")
    _show(tokens, output)
    return 0


def _show(tokens: Sequence[Token], output: str) -> None:
    if output == "json":
        write_document(all_to_dict(tokens))
    for token in tokens if output == "text" else ():
        saved = f"  saved {local_time(token.saved_at)}" if token.saved_at else ""
        write_text(f"{printable(f'{table_name(token.stream_arn)}  {token.stream_arn}')}{saved}\n")
        if token.snapshot is not None:
            progress = "done" if token.snapshot.done else "under way"
            write_text(f"  snapshot {progress}: {counted(token.snapshot.items, 'item')}\n")
        for shard in token.shards:
            write_text(printable(f"  {shard.shard_id}  {_position(shard)}") + "\n")


def _position(shard: TokenShard) -> str:
    if shard.finished:
        return "read to its end"
    if shard.time is not None:
        return f"from {local_time(shard.time)}"
    named = (shard.iterator_type or "trim_horizon").replace("_sequence", "").replace("_", " ")
    return f"{named} {shard.sequence_number}" if shard.sequence_number else named
