"""The latest changes, the search in them, and the list that shows them.

The list draws only the visible lines, so that its length costs nothing.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from watcher.aws.arns import short_table_names, table_name, table_of
from watcher.aws.model import ShardKey
from watcher.errors import UsageError
from watcher.formatting.style import time_of_day, time_text
from watcher.formatting.text import printable
from watcher.formatting.values import printable_key
from watcher.records.filters import record_filter
from watcher.records.record import Record

MAX_CHANGES = 20_000
"""The number of changes that a view keeps, while they are small."""
MAX_BYTES = 64_000_000
"""The size of their wire JSON: 20,000 large items would take 16 GB."""


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

    def __init__(self, most: int = MAX_CHANGES, most_bytes: int = MAX_BYTES) -> None:
        self.most, self.most_bytes = most, most_bytes
        self._lines: deque[ChangeLine] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self.taken = 0
        """The number of all changes so far."""
        self.tables: dict[str, str] = {}
        """The name shown for each table with a change, by the table's ARN."""

    def add(self, record: Record) -> None:
        """Adds a change; the oldest fall out of a full buffer."""
        kind = "TTL" if record.expired_by_ttl else record.event_name
        key = printable_key(record["dynamodb"]["Keys"])
        time, raw = time_text(record.created_at), bytes(record.raw)
        if (table := table_of(record.stream)) not in self.tables:
            self.tables = short_table_names([*self.tables, table])
        with self._lock:
            self.taken += 1
            self._lines.append(ChangeLine(self.taken, time, kind, key, raw, record.shard_key))
            self._bytes += len(raw)
            while len(self._lines) > self.most or self._bytes > self.most_bytes:
                self._bytes -= len(self._lines.popleft().raw)

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


_COLORS: Final = {"INSERT": "green", "MODIFY": "yellow", "REMOVE": "red", "TTL": "magenta"}
_PLAIN: Final = Style()
# With fewer columns, the key needs the room of the date.
_NARROW: Final = 70


class ChangeList(ScrollView, can_focus=True):
    """The changes, the newest at the bottom; the list follows them until the user moves up."""

    BINDINGS = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "first", "First", show=False),
        Binding("end,G", "follow", "Follow", show=False),
        Binding("enter", "open", "Open"),
    ]

    following = reactive(True)

    class Opened(Message):
        """Sent when the user opens a change."""

        def __init__(self, entry: ChangeLine) -> None:
            super().__init__()
            self.entry = entry

    def __init__(self, buffer: ChangeBuffer) -> None:
        super().__init__()
        self._buffer = buffer
        self._lines: list[ChangeLine] = []
        self._seen = 0
        self._cursor = 0
        self._bytes = 0
        self.test: LineTest | None = None

    @property
    def selected(self) -> ChangeLine | None:
        """The change under the cursor."""
        return self._lines[self._cursor] if 0 <= self._cursor < len(self._lines) else None

    @property
    def newest(self) -> ChangeLine | None:
        """The last change of the list."""
        return self._lines[-1] if self._lines else None

    @property
    def shown(self) -> int:
        """The number of changes in the list."""
        return len(self._lines)

    def take_new(self) -> None:
        """Adds new changes; unless the list follows them, the visible lines stay in place."""
        new = self._buffer.since(self._seen)
        if not new:
            return
        self._seen = new[-1].number
        fitting = [each for each in new if self._fits(each)]
        self._lines += fitting
        self._bytes += sum(len(each.raw) for each in fitting)
        self._drop_oldest()
        self._arrange()

    def _drop_oldest(self) -> None:
        """Keeps to the buffer's bounds; with a filter, the list has older changes than it."""
        surplus = 0
        while (
            len(self._lines) - surplus > self._buffer.most or self._bytes > self._buffer.most_bytes
        ):
            self._bytes -= len(self._lines[surplus].raw)
            surplus += 1
        del self._lines[:surplus]
        self._cursor = max(0, self._cursor - surplus)
        if surplus and not self.following:
            self.scroll_to(y=max(0, self.scroll_offset.y - surplus), animate=False, force=True)

    def search(self, test: LineTest | None) -> None:
        """Shows only changes that pass a search (None: all), old ones and new ones."""
        self.test = test
        self._rebuild()

    def _rebuild(self) -> None:
        selected = self.selected
        every = self._buffer.since(0)
        self._seen = every[-1].number if every else self._seen
        self._lines = [each for each in every if self._fits(each)]
        self._bytes = sum(len(each.raw) for each in self._lines)
        last = max(0, len(self._lines) - 1)
        number = selected.number if selected else math.inf
        fitting = (at for at, each in enumerate(self._lines) if each.number >= number)
        self._cursor = next(fitting, last)
        self._arrange()

    def _fits(self, entry: ChangeLine) -> bool:
        return self.test is None or self.test(entry)

    def _arrange(self) -> None:
        self.virtual_size = Size(1, len(self._lines))
        if self.following:
            self._cursor = max(0, len(self._lines) - 1)
            self.scroll_end(animate=False, immediate=True, force=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draws one change, cut at the terminal's edge."""
        at = y + self.scroll_offset.y
        if at >= len(self._lines):
            return Strip.blank(self.size.width)
        entry, tables = self._lines[at], self._buffer.tables
        color = Style(color=_COLORS.get(entry.kind))
        segments = [
            Segment(f"{self._time(entry)} ", Style(dim=True)),
            Segment(printable(f"{entry.kind:<6} "), color),
            *(
                [Segment(printable(f"{tables[entry.table]} "), Style(color="cyan"))]
                if len(tables) > 1
                else []
            ),
            Segment(entry.key, _PLAIN),
        ]
        strip = Strip(segments).adjust_cell_length(self.size.width)
        return strip.apply_style(Style(reverse=True)) if at == self._cursor else strip

    def _time(self, entry: ChangeLine) -> str:
        """Returns the time; on a narrow terminal only the time of day."""
        return time_of_day(entry.time) if self.size.width < _NARROW else entry.time

    def action_move(self, by: int) -> None:
        """Moves the cursor; at the last change the list follows again."""
        self._cursor = min(max(0, self._cursor + by), max(0, len(self._lines) - 1))
        self.following = self._cursor >= len(self._lines) - 1
        top, height = self.scroll_offset.y, max(1, self.size.height)
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False, force=True)
        elif self._cursor >= top + height:
            self.scroll_to(y=self._cursor - height + 1, animate=False, force=True)
        self.refresh()

    def action_page(self, by: int) -> None:
        """Moves the cursor by a page."""
        self.action_move(by * max(1, self.size.height - 1))

    def action_first(self) -> None:
        """Moves the cursor to the oldest change."""
        self.action_move(-len(self._lines))

    def action_follow(self) -> None:
        """Moves the cursor to the newest change, and follows."""
        self.following = True
        self._arrange()

    def action_open(self) -> None:
        """Opens the change under the cursor."""
        if self.selected is not None:
            self.post_message(self.Opened(self.selected))
