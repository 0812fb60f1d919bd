"""The JSON format of stored positions: bloop's token with a few more keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec

from watcher.aws.model import AfterSequence, AtSequence, AtTime, Latest, Position, TrimHorizon
from watcher.errors import UsageError
from watcher.streams.lineage import Lineage, ShardStatus, TrackedShard
from watcher.streams.start_times import at_time

# The version that is written. A change that an older watcher would misread gets the next number.
# All earlier ones can be read (tests/fixtures/checkpoints), also bloop's, without a version.
_VERSION = 1
# AWS's have 21 to 40 digits, emulators' 1 to 60: each service gets its own numbers back.
_SEQUENCE_NUMBER = re.compile(r"[0-9]+")
# Stored times are the service's; our clock may be behind it.
_CLOCKS_APART = timedelta(hours=1)

_T = TypeVar("_T")
TokenJson: TypeAlias = dict[str, Any]
"""A token's JSON, decoded."""
Version = Annotated[int, msgspec.Meta(ge=1)]
IteratorType = Literal["trim_horizon", "latest", "at_sequence", "after_sequence"]


class TokenShard(msgspec.Struct, omit_defaults=True):
    """One shard's stored position.

    `time` beside `trim_horizon` means "at this time". `since` is the time from which an unread
    shard was ours to read. `finished` means "read to its end, and no child was known yet",
    `unlisted` "no listing has shown it yet". `created` is the creation time of the record that the
    position is behind: a stream that starts from scratch has another one of its number. bloop,
    which knows none of these, then reads more than it must, never less.
    """

    shard_id: str
    iterator_type: IteratorType | None = None
    sequence_number: str | None = None
    parent: str | None = None
    time: datetime | None = None
    since: datetime | None = None
    finished: bool = False
    unlisted: bool = False
    created: float | None = None

    def hold(self, number: str) -> None:
        """Moves back to this record, which is not processed yet, although later ones were read."""
        self.iterator_type, self.sequence_number, self.time = "at_sequence", number, None


class TokenSegment(msgspec.Struct, omit_defaults=True):
    """The progress of one segment of a table's scan."""

    after: dict[str, dict[str, str]] | None = None
    """The key (wire types) of the last delivered item."""
    done: bool = False


class TokenSnapshot(msgspec.Struct, omit_defaults=True):
    """The progress of a table's snapshot; bloop ignores it."""

    items: int = 0
    """The number of delivered items."""
    done: bool = False
    segments: list[TokenSegment] | None = None
    """All segments in order; None before the first page, and where it is done."""

    @classmethod
    def of(cls, segments: Sequence[TokenSegment], items: int) -> TokenSnapshot:
        """Returns the progress of these segments."""
        if all(each.done for each in segments):
            return cls(items=items, done=True)
        return cls(items=items, segments=[*segments])

    def split(self, count: int) -> list[TokenSegment]:
        """Returns its segments: the existing ones, or `count` new ones before the start."""
        if self.segments is not None:
            return [*self.segments]
        return [TokenSegment(done=True)] if self.done else [TokenSegment()] * count


class Token(msgspec.Struct, omit_defaults=True):
    """The positions of a whole stream."""

    stream_arn: str
    active: list[str]
    shards: list[TokenShard]
    saved_at: datetime | None = None
    snapshot: TokenSnapshot | None = None
    created: datetime | None = None
    """The time at which the stream was created."""
    # A default from a function, as `omit_defaults` would leave out a constant one.
    version: Version = msgspec.field(default_factory=lambda: _VERSION)

    @property
    def stream_since(self) -> datetime | None:
        """A time by which its stream was there, where known."""
        return self.created or self.saved_at


class _Tokens(msgspec.Struct):
    """The tokens of several streams."""

    streams: list[Token] | None = None
    version: Version = _VERSION


class _Form(msgspec.Struct):
    """The key that every version has; a newer one may differ in everything else."""

    version: int = _VERSION


def make(
    arn: str,
    lineage: Lineage,
    now: datetime,
    latest: datetime | None = None,
    created: datetime | None = None,
) -> Token:
    """Returns the token of a lineage at the time `now`; no time in it is later.

    A LATEST shard that was not read yet is stored as the time `latest`, or else as `now`.
    `created` is the stream's.
    """
    latest = min(latest or now, now)
    shards = [
        shard
        for shard in lineage.shards.values()
        if shard.status is not ShardStatus.FINISHED or not lineage.children(shard.id)
    ]
    unfinished = {shard.id for shard in shards if shard.status is not ShardStatus.FINISHED}
    return Token(
        stream_arn=arn,
        active=[shard.id for shard in shards if shard.parent not in unfinished],
        shards=[_stored(shard, latest, now) for shard in shards],
        saved_at=now,
        created=created,
    )


def resume(token: Token, now: datetime) -> list[TrackedShard]:
    """Returns the shards of a token, for `Lineage(resumed=…)`.

    Raises UsageError for a broken token, and for one with times later than `now`.
    """
    parents = {shard.shard_id: shard.parent for shard in token.shards}
    for shard_id in parents:
        seen = {shard_id}
        parent = parents[shard_id]
        while parent is not None:
            if parent in seen:
                raise UsageError(f"shard {shard_id} of the token descends from itself")
            seen.add(parent)
            parent = parents.get(parent)
    latest = max(now, token.saved_at or now)
    return [_tracked(shard, latest) for shard in token.shards]


def encode_all(tokens: Sequence[Token]) -> bytes:
    """Returns a watch's tokens as JSON: a single one by itself, several as `{"streams": [...]}`."""
    return msgspec.json.encode(_one_document(tokens))


def all_to_dict(tokens: Sequence[Token]) -> TokenJson:
    """Returns the tokens of a watch as plain JSON values."""
    plain: dict[str, Any] = msgspec.to_builtins(_one_document(tokens))
    return plain


def _one_document(tokens: Sequence[Token]) -> Token | _Tokens:
    return tokens[0] if len(tokens) == 1 else _Tokens([*tokens])


def all_from_json(text: TokenJson | str | bytes) -> list[Token]:
    """Returns the tokens that `encode_all` has encoded. Raises UsageError for other text."""
    if newer := _newer(text):
        raise UsageError(f"the token was {newer}")
    try:
        tokens = _decoded(text, _Tokens).streams
        if tokens is None:
            tokens = [_decoded(text, Token)]
        for token in tokens:
            token.saved_at, token.created = _aware(token.saved_at), _aware(token.created)
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
        raise UsageError(f"not a stream token: {error}") from None
    if not tokens:  # nothing writes that, and a watch would begin without a word at its start
        raise UsageError("not a stream token: it names no stream")
    return tokens


def from_json(text: TokenJson | str | bytes) -> Token:
    """Returns the token of one stream. Raises UsageError where there is none."""
    return all_from_json(text)[0]


def from_checkpoint(text: bytes | str, name: str, remedy: str) -> list[Token]:
    """Returns the tokens of a checkpoint. Raises UsageError, with its name and the `remedy`.

    For a newer watcher's checkpoint the remedy is an upgrade: no user must delete it.
    """
    if newer := _newer(text):
        raise UsageError(f"it was {newer}", "checkpoint", name)
    try:
        return all_from_json(text)
    except UsageError as error:
        raise UsageError(f"can't be read ({error}); {remedy}", "checkpoint", name) from None


def _decoded(text: TokenJson | str | bytes, form: type[_T]) -> _T:
    if isinstance(text, dict):
        return msgspec.convert(text, form)
    return msgspec.json.decode(text, type=form)


def _newer(text: TokenJson | str | bytes) -> str:
    """Returns why this watcher can't read a newer version; "" where it can, or it is no token."""
    try:
        version = _decoded(text, _Form).version
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    if version <= _VERSION:
        return ""
    read = f"version {version}; this one reads up to {_VERSION}"
    return f"written by a newer watcher ({read}): upgrade this one"


def _aware(time: datetime | None) -> datetime | None:
    """Returns the time in UTC; a time without a zone is local time."""
    return None if time is None else time.astimezone(UTC)


def _stored(shard: TrackedShard, latest: datetime, now: datetime) -> TokenShard:
    stored = TokenShard(
        shard.id,
        parent=shard.parent,
        finished=shard.status is ShardStatus.FINISHED,
        unlisted=not shard.expected,
    )
    match shard.position:
        case Latest():
            stored.iterator_type, stored.time, stored.since = "latest", latest, shard.since
        case TrimHorizon():
            stored.iterator_type, stored.since = "trim_horizon", shard.since
        case AtTime(time):
            # A single answer's `Date` may be hours ahead.
            stored.iterator_type, stored.time = "trim_horizon", min(time, now)
            stored.since = shard.since
        case AtSequence(number):
            stored.iterator_type, stored.sequence_number = "at_sequence", number
        case AfterSequence(number):
            stored.iterator_type, stored.sequence_number = "after_sequence", number
            stored.created = shard.created
    return stored


def _tracked(stored: TokenShard, latest: datetime) -> TrackedShard:
    status = ShardStatus.FINISHED if stored.finished else ShardStatus.WAITING
    position, expected = _position(stored, latest), not stored.unlisted
    try:
        since = _aware(stored.since)
    except (OverflowError, ValueError):
        since = None  # out of datetime's range
    shard = TrackedShard(stored.shard_id, stored.parent, position, status, expected, since)
    shard.created = stored.created
    return shard


def _position(stored: TokenShard, latest: datetime) -> Position:
    if stored.time is not None:
        try:
            return at_time(stored.time, latest + _CLOCKS_APART)
        except (UsageError, OverflowError) as error:
            raise UsageError(f"shard {stored.shard_id} of the token: {error}") from None
    if stored.iterator_type == "latest":
        return Latest()
    if stored.iterator_type in ("at_sequence", "after_sequence"):
        number = stored.sequence_number
        if number is None or not _SEQUENCE_NUMBER.fullmatch(number):
            raise UsageError(f"shard {stored.shard_id} of the token has no sequence number")
        return (
            AtSequence(number) if stored.iterator_type == "at_sequence" else AfterSequence(number)
        )
    return TrimHorizon()
