"""The live view: a watch in a thread, its changes in a list, its figures in a line."""

from __future__ import annotations

import logging
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.widgets import Footer, Input, Static

from watcher.aws.model import Listing
from watcher.errors import UsageError
from watcher.formatting.text import counted
from watcher.live.buffer import ChangeBuffer, Shown, search
from watcher.live.changes import ChangeList
from watcher.live.screens import (
    ChangeScreen,
    HistoryScreen,
    KeysScreen,
    ShardsScreen,
    TablesScreen,
)
from watcher.observability.watch_stats import Display, Rate, Totals, WatchStats
from watcher.records.record import Record

logger = logging.getLogger("watcher")

_FRAME_SECONDS = 0.1

Watch = Callable[[Callable[[Record], Any], Display, threading.Event], Totals | None]
"""Runs a watch until the event is set: its observer, its display."""


class Newest(Display):
    """The newest figures, for whoever asks."""

    def __init__(self) -> None:
        self.snapshot = WatchStats()

    def show(self, snapshot: WatchStats) -> None:
        """Keep them."""
        self.snapshot = snapshot

    def close(self) -> None:
        """Nothing is held."""


class LiveView(App[Totals | None]):
    """`watch` runs in a thread, until the view ends; its error ends the view, and is in `error`."""

    TITLE = "watcher"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #figures, #notes {
        height: 1; background: $boost; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis;
    }
    #search { display: none; height: 3; }
    #search.open { display: block; }
    """
    BINDINGS = [
        Binding("space", "pause", "Pause"),
        Binding("slash", "search", "Filter"),
        Binding("k", "history", "History"),
        Binding("s", "shards", "Shards"),
        Binding("t", "tables", "Tables"),
        Binding("y", "copy", "Copy"),
        Binding("question_mark", "keys", "Keys"),
        Binding("q,ctrl+c", "end", "End"),
    ]

    def __init__(
        self,
        watch: Watch,
        history: Callable[[Shown], Iterable[Record]],
        listings: Callable[[set[str]], Sequence[Listing]],
        ring: ChangeBuffer | None = None,
    ) -> None:
        super().__init__()
        self.ring = ring or ChangeBuffer()
        self.error: BaseException | None = None
        self._watch = watch
        self._history = history
        self._listings = listings
        self._latest = Newest()
        self._stop = threading.Event()
        self.said: deque[str] = deque(maxlen=1)
        """What other threads have to say."""
        self._totals: Totals | None = None
        self._thread = threading.Thread(target=self._run_watch, name="watcher live")
        self._rate = Rate()
        self._streams: dict[str, None] = {}
        """Those that changes have come of, by their ARNs."""

    def compose(self) -> ComposeResult:
        """The figures, the changes, the search, the keys."""
        yield Static(id="figures")
        yield ChangeList(self.ring)
        yield Input(placeholder='text, NAME=VALUE, or {"eventName": ["REMOVE"]}', id="search")
        yield Static(id="notes")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to watch."""
        self.changes.focus()
        self.set_interval(_FRAME_SECONDS, self._frame)
        self._thread.start()

    @property
    def changes(self) -> ChangeList:
        """The list."""
        return self.query_one(ChangeList)

    def _run_watch(self) -> None:
        try:
            self._totals = self._watch(self._take, self._latest, self._stop)
        except BaseException as error:  # whatever it is, the view's end tells it
            self.error = error

    def _take(self, record: Record) -> None:
        self._streams[record.stream] = None
        self.ring.add(record)

    def _frame(self) -> None:
        if not self.is_running:  # it is being taken down
            return
        if not self._thread.is_alive():
            if self._stop.is_set() or self.error is not None:
                self.exit(self._totals)
                return
            # All up to now has been shown: what there is stays in sight.
            self.said.append("The watch has ended; q ends the view")
        if self.said:
            self.note(self.said[-1])
            self.said.clear()
        changes = self.query_one(ChangeList)
        changes.take_new()
        now = self._latest.snapshot
        parts = [
            counted(now.shards.open, "shard"),
            counted(self.ring.taken, "change"),
            f"{self._rate.at(self.ring.taken):,.0f}/s",
            f"lag {now.lag:.0f} s",
        ]
        if changes.test is not None or changes.hidden:
            parts.append(f"{changes.shown:,} match")
        if self.ring.fallen:
            parts.append(f"{self.ring.fallen:,} fell out of view")
        if now.losses:
            parts.append(counted(now.losses, "DATA LOSS"))
        state = Text("FOLLOWING " if changes.following else "PAUSED ", "bold")
        self.query_one("#figures", Static).update(state + Text(" | ".join(parts)))

    def note(self, text: str) -> None:
        """Say something that matters now, in the line above the keys."""
        self.query_one("#notes", Static).update(Text(text))

    def on_change_list_opened(self, message: ChangeList.Opened) -> None:
        """Enter: the change in full."""
        entry = message.entry
        self.push_screen(ChangeScreen(self.ring.tables[entry.table], entry.record))

    def on_input_submitted(self, message: Input.Submitted) -> None:
        """A search is for what there is, and for what is to come."""
        try:
            self.changes.sift(search(message.value, lambda arn: self.ring.tables[arn]))
        except UsageError as error:
            self.note(f"error: {error}")
            return
        self.note(f"only {message.value}" if message.value.strip() else "")
        self._close_search()

    def on_key(self, event: Any) -> None:
        """Escape leaves the search as it was."""
        if event.key == "escape" and self.query_one("#search").has_class("open"):
            self._close_search()

    def _close_search(self) -> None:
        self.query_one("#search").remove_class("open")
        self.changes.focus()

    def action_search(self) -> None:
        """Ask what to look for."""
        box = self.query_one("#search", Input)
        box.add_class("open")
        box.focus()

    def action_pause(self) -> None:
        """Stay where it is, or go on to the newest."""
        if self.changes.following:
            self.changes.following = False
        else:
            self.changes.action_follow()

    def action_history(self) -> None:
        """The life of the item that the cursor is on."""
        if (entry := self.changes.selected) is not None:
            self.push_screen(HistoryScreen(entry.key, lambda: self._history(entry)))

    def action_shards(self) -> None:
        """The lineage of every stream that a change has come of."""
        streams = {*self._streams}
        lags = self._latest.snapshot.lags
        self.push_screen(ShardsScreen(lambda: self._listings(streams), lambda: lags))

    def action_tables(self) -> None:
        """Which tables are shown."""
        tables = dict(sorted(self.ring.tables.items(), key=lambda table: table[1]))

        def hide(hidden: set[str] | None) -> None:
            self.changes.hide(hidden or set())

        self.push_screen(TablesScreen(tables, self.changes.hidden), hide)

    def action_copy(self) -> None:
        """The wire JSON of the change that the cursor is on."""
        if (entry := self.changes.selected) is not None:
            self.copy_to_clipboard(entry.raw.decode("utf-8", "replace"))
            self.note(f"copied: {entry.kind} {entry.key}")

    def action_keys(self) -> None:
        """What the keys do."""
        self.push_screen(KeysScreen())

    def action_end(self) -> None:
        """End the watch, and with it the view."""
        self.note("Stopping …")
        self._stop.set()

    def end_by_signals(self) -> None:
        """SIGTERM and SIGHUP are as good as the key."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: self._stop.set())

    def join(self) -> None:
        """Wait for the watch's end, whatever ended the view."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()


class Notes(logging.Handler):
    """The log while the terminal is the view's: warnings and errors in its line, all at its end."""

    def __init__(self, view: LiveView) -> None:
        super().__init__()
        self._view = view
        self.kept: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Show it in the view's line of notes."""
        if record.levelno >= logging.WARNING:
            self.kept.append(record)
        self._view.said.append(record.getMessage())
