"""The changes that a live view can still show: the last ones, and how many fell out."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable

import msgspec

from watcher.aws.arns import apart, table_name, table_of
from watcher.aws.model import ShardKey
from watcher.errors import UsageError
from watcher.formatting.style import shown_time
from watcher.formatting.text import printable_key
from watcher.records.filters import record_filter
from watcher.records.record import Record

MOST = 20_000
"""So many changes are kept."""


class Shown(msgspec.Struct, frozen=True, gc=False):
    """A change as a line, and what it takes to make the record again."""

    number: int
    """Counted from 1 in the order of arrival."""
    time: str
    kind: str
    key: str
    raw: bytes
    """The wire JSON: a copy, so that a page of which one record is kept can go."""
    origin: ShardKey

    @property
    def table(self) -> str:
        """The ARN of the table that was changed: two may have one name."""
        return table_of(self.origin.stream)

    @property
    def record(self) -> Record:
        """The whole record."""
        return Record.from_json(self.raw, self.origin.shard_id, self.origin.stream)


class ChangeBuffer:
    """Written by the watch's thread, read by the view's."""

    def __init__(self, most: int = MOST) -> None:
        self._entries: deque[Shown] = deque(maxlen=most)
        self._lock = threading.Lock()
        self.taken = 0
        """How many changes have come."""
        self.tables: dict[str, str] = {}
        """What to call each table that one has come of, by its ARN."""

    def add(self, record: Record) -> None:
        """Take one more change; the oldest falls out of a full ring."""
        kind = "TTL" if record.expired_by_ttl else record.event_name
        key = printable_key(record["dynamodb"]["Keys"])
        time, raw = shown_time(record.created_at), bytes(record.raw)
        if (table := table_of(record.stream)) not in self.tables:
            self.tables = apart([*self.tables, table])
        with self._lock:
            self.taken += 1
            self._entries.append(Shown(self.taken, time, kind, key, raw, record.origin))

    def since(self, number: int) -> list[Shown]:
        """Those that came after the one of this number, oldest first."""
        with self._lock:
            new = min(self.taken - number, len(self._entries))
            return list(itertools.islice(self._entries, len(self._entries) - new, None))

    @property
    def fallen(self) -> int:
        """How many are no longer there to be shown."""
        return self.taken - len(self._entries)


Test = Callable[[Shown], bool]


def search(text: str, called: Callable[[str], str] = table_name) -> Test | None:
    """Which changes a search is for; None: all. `called` says what a table's ARN is shown as.

    A text that begins with `{` is a filter pattern as `--filter` takes it; NAME=VALUE, of a key's
    attribute, is `--key`'s; any other is looked for in the line and the wire JSON, whatever its
    case. Raises UsageError for a pattern that can't be.
    """
    text = text.strip()
    if not text:
        return None
    if text.startswith(("{", "[")):
        return _matching(record_filter(filters=[text]))
    name, equals, _ = text.partition("=")
    if equals and name.isidentifier():
        return _matching(record_filter(key=[text]))
    word = text.lower()
    inside = word.encode()
    return lambda entry: (
        word in f"{entry.kind} {entry.key} {called(entry.table)}".lower()
        or inside in entry.raw.lower()
    )


def _matching(test: Callable[[Record], bool] | None) -> Test:
    if test is None:
        raise UsageError("an empty pattern")
    return lambda entry: test(entry.record)
