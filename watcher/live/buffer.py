"""The latest changes, kept for the live view, and the search in them."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable

import msgspec

from watcher.aws.arns import short_table_names, table_name, table_of
from watcher.aws.model import ShardKey
from watcher.errors import UsageError
from watcher.formatting.style import shown_time
from watcher.formatting.values import printable_key
from watcher.records.filters import record_filter
from watcher.records.record import Record

MAX_CHANGES = 20_000
"""The number of changes that a view keeps."""


class ChangeLine(msgspec.Struct, frozen=True, gc=False):
    """A change as one line of the view, with the bytes to make its record again."""

    number: int
    """The place in the order of arrival, from 1."""
    time: str
    kind: str
    key: str
    raw: bytes
    """A copy of the wire JSON: the record itself would keep its whole page in memory."""
    shard_key: ShardKey

    @property
    def table(self) -> str:
        """The ARN of the changed table; two tables may have one name."""
        return table_of(self.shard_key.stream)

    @property
    def record(self) -> Record:
        """The record, made again."""
        return Record.from_json(self.raw, self.shard_key.shard_id, self.shard_key.stream)


class ChangeBuffer:
    """The latest changes; the watch's thread writes them, the view's reads them."""

    def __init__(self, most: int = MAX_CHANGES) -> None:
        self._lines: deque[ChangeLine] = deque(maxlen=most)
        self._lock = threading.Lock()
        self.taken = 0
        """The number of all changes so far."""
        self.tables: dict[str, str] = {}
        """The name shown for each table with a change, by the table's ARN."""

    def add(self, record: Record) -> None:
        """Adds a change; the oldest falls out of a full buffer."""
        kind = "TTL" if record.expired_by_ttl else record.event_name
        key = printable_key(record["dynamodb"]["Keys"])
        time, raw = shown_time(record.created_at), bytes(record.raw)
        if (table := table_of(record.stream)) not in self.tables:
            self.tables = short_table_names([*self.tables, table])
        with self._lock:
            self.taken += 1
            self._lines.append(ChangeLine(self.taken, time, kind, key, raw, record.shard_key))

    def since(self, number: int) -> list[ChangeLine]:
        """Returns the changes after the one of this number, oldest first."""
        with self._lock:
            new = min(self.taken - number, len(self._lines))
            return list(itertools.islice(self._lines, len(self._lines) - new, None))

    @property
    def fallen(self) -> int:
        """The number of changes that fell out of the buffer."""
        return self.taken - len(self._lines)


LineTest = Callable[[ChangeLine], bool]


def parse_search(text: str, shown_name: Callable[[str], str] = table_name) -> LineTest | None:
    """Returns the test of a search; None where it is empty. `shown_name` names a table's ARN.

    A text that begins with `{` is a filter pattern, as for `--filter`; NAME=VALUE of a key's
    attribute works as `--key`; any other text is searched for in the line and in the wire JSON,
    in any case. Raises UsageError for a bad pattern.
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
        word in f"{entry.kind} {entry.key} {shown_name(entry.table)}".lower()
        or inside in entry.raw.lower()
    )


def _matching(test: Callable[[Record], bool] | None) -> LineTest:
    if test is None:
        raise UsageError("an empty pattern")
    return lambda entry: test(entry.record)
