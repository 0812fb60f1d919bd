"""`positions`: shows and rewinds checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from watcher.aws.arns import table_name
from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.model import AtTime, Latest, TrimHorizon
from watcher.cli import options
from watcher.clock import CLOCK
from watcher.declared import Opt
from watcher.errors import ServiceError, StreamError, UsageError
from watcher.formatting.style import time_text
from watcher.formatting.text import counted, grouped, printable, write_document, write_text
from watcher.options import WatchOptions
from watcher.pull.rewind import rewound
from watcher.stores.open_store import claimed, read_positions
from watcher.streams.checkpoint_format import Token, TokenShard, all_to_dict
from watcher.streams.lineage import RETENTION
from watcher.streams.start_times import parse_start

if TYPE_CHECKING:
    from watcher.cli.command_line import CommandLine

logger = logging.getLogger("watcher")

_ACTIONS = ("show", "rewind")
_Action = Annotated[
    str,
    Opt(
        "show STORE, or rewind STORE --from TIME",
        name="ACTION",
        choices=_ACTIONS,
    ),
]
_Store = Annotated[
    str,
    Opt(
        "as --checkpoint names it: a file, dynamodb://TABLE/NAME or s3://BUCKET/KEY",
        name="STORE",
    ),
]
_Start = Annotated[
    str | None,
    Opt("where rewind goes: an age (2h), a time, or trim-horizon", "START", name="--from"),
]
_Apply = Annotated[
    bool,
    Opt("do it (without, a plan); a watch that uses the store refuses it", negative=""),
]


def positions_command(line: CommandLine) -> options.Command:
    """Shows a checkpoint, or moves it back."""
    return options.with_options(_positions, options.declared_by(WatchOptions, *options.AWS))


def _positions(
    action: _Action,
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
    if action == "rewind":
        if start is None or "start" not in origins.typed:  # a default is for watches
            raise UsageError("give a time such as 2h, or trim-horizon", "start")
        if "output" in origins.typed:
            raise UsageError("it goes with show", "output")
        return _rewind(store, start, connection, apply=apply)
    for name in ("start", "apply"):
        if name in origins.typed:
            raise UsageError("it goes with rewind", name)
    if not (tokens := read_positions(store, connection)):
        raise UsageError(f"nothing is stored in {store}")
    return _show(tokens, output)


# What is stored


def _show(tokens: Sequence[Token], output: str) -> int:
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
    return 0


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
        raise UsageError("it would skip unread records: rewind only moves back", "start")
    if isinstance(position, AtTime) and position.time < now - RETENTION:
        logger.warning("A stream holds 24 hours: it can't deliver older changes again")
    if not (tokens := read_positions(store, connection)):
        raise UsageError(f"{store}: nothing is stored there")
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
