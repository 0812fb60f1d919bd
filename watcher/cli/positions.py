"""`positions`: shows, rewinds, copies and compares checkpoints."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, NamedTuple

from watcher.aws.arns import table_name
from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.model import AtTime, Latest, TrimHorizon
from watcher.cli import completers, options
from watcher.clock import CLOCK
from watcher.declared import Opt
from watcher.errors import ServiceError, StreamError, UsageError
from watcher.formatting.style import time_text
from watcher.formatting.text import counted, grouped, printable, write_document, write_text
from watcher.options import WatchOptions
from watcher.pull.rewind import rewound
from watcher.records.filters import record_filter
from watcher.stores.open_store import claimed, leave_request, read_left_requests, read_positions
from watcher.streams.checkpoint_format import (
    SnapshotRequest,
    Token,
    TokenShard,
    TokenSnapshot,
    all_to_dict,
    newest_request,
)
from watcher.streams.lineage import RETENTION
from watcher.streams.start_times import parse_start

if TYPE_CHECKING:
    from watcher.cli.command_line import CommandLine

logger = logging.getLogger("watcher")

_ACTIONS = ("show", "rewind", "copy", "diff", "snapshot", "cancel")
_Action = Annotated[
    str,
    Opt(
        "show STORE, rewind STORE --to TIME, copy STORE OTHER, diff STORE OTHER (exit status "
        "1 where they differ), snapshot STORE (ask its watch to deliver the present items), or "
        "cancel STORE (end the snapshot that was asked for)",
        name="ACTION",
        choices=_ACTIONS,
        completer=completers.words(*_ACTIONS),
    ),
]
_Store = Annotated[
    str,
    Opt(
        "as --checkpoint names it: a file, dynamodb://TABLE/NAME or s3://BUCKET/KEY",
        name="STORE",
        completer=completers.files,
    ),
]
_Other = Annotated[
    str | None, Opt("the second store of copy and diff", name="[OTHER]", completer=completers.files)
]
_To = Annotated[str | None, Opt("where rewind goes: an age (2h), a time, or trim-horizon", "TIME")]
_Table = Annotated[list[str] | None, Opt("only this table of several; repeatable", "TABLE")]
_Key = Annotated[
    list[str] | None, Opt("snapshot only items with this key, as for a watch", "NAME=VALUE")
]
_Where = Annotated[
    list[str] | None, Opt("snapshot only items that match, as for a watch", "PATTERN")
]
_Apply = Annotated[
    bool,
    Opt(
        "do it (without, a plan); a watch that uses the store refuses rewind and copy", negative=()
    ),
]


def positions_command(line: CommandLine) -> Callable[..., int]:
    """Shows a checkpoint, compares two, copies or moves one back, asks for a snapshot."""
    return options.with_options(_positions, options.declared_by(WatchOptions, *options.AWS))


def _positions(
    action: _Action,
    store: _Store,
    other: _Other = None,
    /,
    *,
    to: _To = None,
    table: _Table = None,
    key: _Key = None,
    where: _Where = None,
    apply: _Apply = False,
    output: options.Output = "text",
    origins: options.OriginsArgument,
    **values: options.Value,
) -> int:
    _refuse_misplaced(action, store, other, origins)
    connection = options.connection(values)
    if action == "rewind":
        return _rewind(store, to, table, _How(connection, apply, output))
    if action in ("snapshot", "cancel"):
        request = SnapshotRequest(
            secrets.token_hex(4), table, key or [], where or [], cancels=action == "cancel"
        )
        return _request_snapshot(store, request, connection, apply=apply)
    if action == "show":
        requests = read_left_requests(store, connection) if output == "text" else []
        return _show(read_positions(store, connection), requests, output)
    assert other is not None
    if action == "copy":
        return _copy(store, other, _How(connection, apply, output))
    found = _differences(read_positions(store, connection), read_positions(other, connection))
    _print(found, output)
    logger.info(f"{grouped(len(found), 'position')} different")
    return 1 if found else 0


def _refuse_misplaced(action: str, store: str, other: str | None, origins: options.Origins) -> None:
    """Raises UsageError for an option that an action lacks or does not take."""
    if "apply" in origins.defaults:
        raise UsageError(f"type it; it is from {origins.defaults['apply']}", "apply")
    if (other is None) == (action in ("copy", "diff")):
        raise UsageError(f"{action} is about {'one store' if other else 'two stores: give OTHER'}")
    if other == store:
        raise UsageError(f"{store} twice: give another store")
    belongs = {
        "to": ("rewind",),
        "table": ("rewind", "snapshot", "cancel"),
        "key": ("snapshot",),
        "where": ("snapshot",),
        "apply": ("rewind", "copy", "snapshot", "cancel"),
    }
    for name, actions in belongs.items():
        if name in origins.typed and action not in actions:
            raise UsageError(f"it goes with {' and '.join(actions)}", name)
    if action in ("snapshot", "cancel") and "output" in origins.typed:
        raise UsageError("it prints nothing on standard output", "output")
    if action == "rewind" and "to" not in origins.typed:
        raise UsageError("give a time such as 2h, or trim-horizon", "to")


# What is stored


def _show(tokens: Sequence[Token], requests: Sequence[SnapshotRequest], output: str) -> int:
    if not tokens:
        logger.info("Nothing is stored there yet")
    elif output == "json":
        write_document(all_to_dict(tokens))
    for token in tokens if output == "text" else ():
        saved = f"  saved {time_text(token.saved_at.astimezone())}" if token.saved_at else ""
        write_text(f"{printable(f'{table_name(token.stream_arn)}  {token.stream_arn}')}{saved}\n")
        if token.snapshot is not None:
            write_text(f"  snapshot {_progress(token.snapshot)}\n")
        if (request := _newest(token, requests)) is not None:
            write_text(printable(f"  requested snapshot{_about(request)}") + "\n")
        for shard in token.shards:
            write_text(printable(f"  {shard.shard_id}  {_position(shard)}") + "\n")
    return 0


def _progress(snapshot: TokenSnapshot) -> str:
    return f"{'done' if snapshot.done else 'under way'}: {counted(snapshot.items, 'item')}"


def _newest(token: Token, requests: Sequence[SnapshotRequest]) -> SnapshotRequest | None:
    """Returns the newest request for a stream's table, with its progress once a watch has begun."""
    left = newest_request(requests, table_name(token.stream_arn))
    if left is None or (token.request is not None and token.request.id == left.id):
        return token.request
    return left


def _chosen(request: SnapshotRequest) -> str:
    """Returns which items a request is of; "" for all."""
    chosen = " ".join((*request.key, *request.where))
    return f" ({chosen})" if chosen else ""


def _about(request: SnapshotRequest) -> str:
    """Returns which items a request is of, and its progress."""
    text, progress = _chosen(request), request.progress
    if not request.cancels:
        return f"{text} {'not begun' if progress is None else _progress(progress)}"
    items = "" if progress is None else f": {counted(progress.items, 'item')}"
    return f"{text} cancelled{items}"


def _position(shard: TokenShard | None) -> str:
    if shard is None:
        return "none"
    if shard.finished:
        return "read to its end"
    if shard.time is not None:
        return f"from {time_text(shard.time.astimezone())}"
    named = (shard.iterator_type or "trim_horizon").replace("_sequence", "").replace("_", " ")
    return f"{named} {shard.sequence_number}" if shard.sequence_number else named


class _Difference(NamedTuple):
    """A shard's position in two stores, or before and after."""

    stream: str
    shard: str
    before: TokenShard | None
    after: TokenShard | None


def _differences(before: Sequence[Token], after: Sequence[Token]) -> list[_Difference]:
    tokens = [{token.stream_arn: token for token in each} for each in (before, after)]
    found = []
    for stream in sorted({**tokens[0], **tokens[1]}):
        shards = [
            {shard.shard_id: shard for shard in each[stream].shards} if stream in each else {}
            for each in tokens
        ]
        for name in sorted({**shards[0], **shards[1]}):
            one, two = (each.get(name) for each in shards)
            if one is None or two is None or _position(one) != _position(two):
                found.append(_Difference(stream, name, one, two))
    return found


def _print(found: Sequence[_Difference], output: str) -> None:
    if output == "json":
        rows = [
            {**each._asdict(), "before": _position(each.before), "after": _position(each.after)}
            for each in found
        ]
        write_document(rows)
        return
    for each in found:
        name = f"{table_name(each.stream)}  {each.shard}"
        change = f"{_position(each.before)} -> {_position(each.after)}"
        write_text(printable(f"{name}  {change}") + "\n")


# What is written


class _How(NamedTuple):
    """The connection, and whether to write or only plan."""

    connection: AwsConfig
    apply: bool
    output: str


@contextmanager
def _opened(
    store: str, how: _How, *, is_new: bool = False
) -> Iterator[tuple[list[Token], Callable[[Sequence[Token]], object]]]:
    """Yields a store's tokens and its save function, which saves nothing without `--apply`.

    Raises UsageError if nothing is stored, unless it `is_new`.
    """
    if not (is_new or read_positions(store, how.connection)):
        raise UsageError(f"{store}: nothing is stored there")
    if how.apply:
        with claimed(store, how.connection) as opened:
            yield opened.load(), opened.save
    else:
        yield read_positions(store, how.connection), lambda _: None


def _copy(store: str, other: str, how: _How) -> int:
    with _opened(store, how) as (tokens, _), _opened(other, how, is_new=True) as (there, save):
        save(tokens)
    return _finish(_differences(there, tokens), how)


def _rewind(store: str, to: str | None, tables: list[str] | None, how: _How) -> int:
    now = datetime.fromtimestamp(CLOCK.time(), UTC)
    position = parse_start(to or "", now)
    if isinstance(position, Latest):
        raise UsageError("it would skip unread records: rewind only moves back", "to")
    if isinstance(position, AtTime) and position.time < now - RETENTION:
        logger.warning("A stream holds 24 hours: it can't deliver older changes again")
    with _opened(store, how) as (tokens, save):
        moved = [*_moved(tokens, position, tables, how.connection)]
        save(moved)
    return _finish(_differences(tokens, moved), how)


def _moved(
    tokens: Sequence[Token],
    to: AtTime | TrimHorizon,
    tables: list[str] | None,
    connection: AwsConfig,
) -> Iterator[Token]:
    """Yields the rewound tokens. Raises UsageError for a table without positions."""
    _refuse_other_tables(tokens, tables)
    for token in tokens:
        if tables and table_name(token.stream_arn) not in tables:
            yield token
            continue
        service, _ = connect(token.stream_arn, connection)
        try:
            yield rewound(service, token, to)
        except ServiceError as error:
            raise StreamError(str(error), about=("endpoint_url", "region")) from error


def _refuse_other_tables(tokens: Sequence[Token], tables: list[str] | None) -> None:
    there = {table_name(token.stream_arn) for token in tokens}
    for name in tables or ():
        if name not in there:
            named = ", ".join(sorted(there)) or "no table"
            raise UsageError(f"no positions of {name} are stored, but of {named}", "table")


def _request_snapshot(
    store: str, request: SnapshotRequest, connection: AwsConfig, *, apply: bool
) -> int:
    record_filter(request.where, request.key)  # refuses what is no filter
    if files := [each for each in request.where if each.startswith("@")]:
        raise UsageError("the watch may run elsewhere: give the pattern itself", "where", files[0])
    if not (tokens := read_positions(store, connection)):
        raise UsageError(f"{store}: nothing is stored there")
    _refuse_other_tables(tokens, request.tables)
    left, stands = read_left_requests(store, connection), False
    for token in tokens:
        name, last = table_name(token.stream_arn), _newest(token, left)
        if request.tables and name not in request.tables:
            continue
        if last is None or last.is_done or last.cancels:
            nothing = f"No snapshot of {name} is left to cancel"
            text = nothing if request.cancels else f"Snapshot of {name}{_chosen(request)}"
        else:
            new = (
                "Cancel the"
                if request.cancels
                else f"Snapshot of {name}{_chosen(request)}; ends the"
            )
            text, stands = f"{new} snapshot of {name}{_about(last)}", True
        logger.info(printable(text))
    if request.cancels and not stands:
        return 0
    if not apply:
        logger.info("Plan: nothing was written; to do it, add --apply")
        return 0
    leave_request(store, connection, request)
    does = "ends" if request.cancels else "begins"
    logger.info(f"Requested: a running watch {does} it within seconds, or the next one does")
    return 0


def _finish(found: Sequence[_Difference], how: _How) -> int:
    _print(found, how.output)
    count = grouped(len(found), "position")
    if how.apply:
        logger.info(f"Written: {count}")
    elif found:
        logger.info(f"Plan: {count}; nothing was written; to do it, add --apply")
    else:
        logger.info("Plan: nothing to do")
    return 0
