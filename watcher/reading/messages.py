"""What a reader has to say: the messages that cross from the shards' processes to the manager."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The shard has an iterator; records written after `time` (the service's) will be read."""

    time: datetime


class Page(msgspec.Struct, frozen=True, tag="page"):
    """Records `first:last` of the body that goes with this message."""

    first: int
    last: int
    last_sequence_number: str
    body: bytes = b""


class Loss(msgspec.Struct, frozen=True, tag="loss"):
    """Records were gone before they could be read: from `since` on, up to what comes next."""

    shard_id: str
    since: str
    reason: str


class Trouble(msgspec.Struct, frozen=True, tag="trouble"):
    """The service keeps refusing; the reader goes on trying."""

    text: str
    failures: int


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """Nothing more will come: the shard is `closed`, or all up to now was read (`until`).

    `gone` says that the service knows no such shard.
    """

    closed: bool
    gone: bool = False


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The reading can't go on: `fatal` if only the user can help, else after a restart."""

    text: str
    fatal: bool


Message = Started | Page | Loss | Trouble | Finished | Failed
