"""The list of changes: draws the lines that are in sight, so that its length costs nothing."""

from __future__ import annotations

import math
from typing import Final

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from watcher.formatting.style import time_of_day
from watcher.live.buffer import MOST, ChangeBuffer, Shown, Test

_COLORS: Final = {"INSERT": "green", "MODIFY": "yellow", "REMOVE": "red", "TTL": "magenta"}
_PLAIN: Final = Style()
# With fewer columns a key is worth more than a date.
_NARROW: Final = 70


class ChangeList(ScrollView, can_focus=True):
    """Changes, the newest at the bottom; it follows them until somebody moves up."""

    BINDINGS = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "first", "First", show=False),
        Binding("end,G", "follow", "Follow"),
        Binding("enter", "open", "Open"),
    ]

    following = reactive(True)

    class Opened(Message):
        """Somebody wants to see this change."""

        def __init__(self, entry: Shown) -> None:
            super().__init__()
            self.entry = entry

    def __init__(self, ring: ChangeBuffer) -> None:
        super().__init__()
        self._ring = ring
        self._shown: list[Shown] = []
        self._seen = 0
        self._cursor = 0
        self.test: Test | None = None
        self.hidden: set[str] = set()
        """The tables that are not shown, by their ARNs."""

    @property
    def selected(self) -> Shown | None:
        """The change that the cursor is on."""
        return self._shown[self._cursor] if 0 <= self._cursor < len(self._shown) else None

    @property
    def shown(self) -> int:
        """How many changes the list has."""
        return len(self._shown)

    def take_new(self) -> None:
        """Add what has come; while it does not follow, what is in sight stays where it is."""
        new = self._ring.since(self._seen)
        if not new:
            return
        self._seen = new[-1].number
        self._shown += [each for each in new if self._fits(each)]
        if (surplus := len(self._shown) - MOST) > 0:
            del self._shown[:surplus]
            self._cursor = max(0, self._cursor - surplus)
            if not self.following:
                self.scroll_to(y=max(0, self.scroll_offset.y - surplus), animate=False, force=True)
        self._arrange()

    def sift(self, test: Test | None) -> None:
        """Show only what fits a search (None: all), of what there is and what is to come."""
        self.test = test
        self._again()

    def hide(self, tables: set[str]) -> None:
        """Show no changes of these tables."""
        self.hidden = tables
        self._again()

    def _again(self) -> None:
        selected = self.selected
        every = self._ring.since(0)
        self._seen = every[-1].number if every else self._seen
        self._shown = [each for each in every if self._fits(each)]
        last = max(0, len(self._shown) - 1)
        number = selected.number if selected else math.inf
        fitting = (at for at, each in enumerate(self._shown) if each.number >= number)
        self._cursor = next(fitting, last)
        self._arrange()

    def _fits(self, entry: Shown) -> bool:
        return entry.table not in self.hidden and (self.test is None or self.test(entry))

    def _arrange(self) -> None:
        self.virtual_size = Size(1, len(self._shown))
        if self.following:
            self._cursor = max(0, len(self._shown) - 1)
            self.scroll_end(animate=False, immediate=True, force=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One change, cut where the terminal ends."""
        at = y + self.scroll_offset.y
        if at >= len(self._shown):
            return Strip.blank(self.size.width)
        entry, tables = self._shown[at], self._ring.tables
        color = Style(color=_COLORS.get(entry.kind))
        segments = [
            Segment(f"{self._time(entry)} ", Style(dim=True)),
            Segment(f"{entry.kind:<6} ", color),
            *([Segment(f"{tables[entry.table]} ", Style(color="cyan"))] if len(tables) > 1 else []),
            Segment(entry.key, _PLAIN),
        ]
        strip = Strip(segments).adjust_cell_length(self.size.width)
        return strip.apply_style(Style(reverse=True)) if at == self._cursor else strip

    def _time(self, entry: Shown) -> str:
        """As `--time` says; where there is little room, only the time of day of it."""
        return time_of_day(entry.time) if self.size.width < _NARROW else entry.time

    def action_move(self, by: int) -> None:
        """Go up or down; at the last change it follows again."""
        self._cursor = min(max(0, self._cursor + by), max(0, len(self._shown) - 1))
        self.following = self._cursor >= len(self._shown) - 1
        top, height = self.scroll_offset.y, max(1, self.size.height)
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False, force=True)
        elif self._cursor >= top + height:
            self.scroll_to(y=self._cursor - height + 1, animate=False, force=True)
        self.refresh()

    def action_page(self, by: int) -> None:
        """Go up or down by what is in sight."""
        self.action_move(by * max(1, self.size.height - 1))

    def action_first(self) -> None:
        """Go to the oldest."""
        self.action_move(-len(self._shown))

    def action_follow(self) -> None:
        """Go to the newest, and stay there."""
        self.following = True
        self._arrange()

    def action_open(self) -> None:
        """Show the change in full."""
        if self.selected is not None:
            self.post_message(self.Opened(self.selected))
