"""The live view: a watch in a thread, its changes in a list, its statistics in a line.

Over the list stand screens: a change, an item's history, the shards, the keys.
"""

from __future__ import annotations

import logging
import math
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

from watcher.aws.model import ShardKey
from watcher.errors import WatcherError, error_text
from watcher.formatting.differences import change_lines, shown_item
from watcher.formatting.text import counted, painted_alone, printable
from watcher.live.changes import ChangeBuffer, ChangeLine, ChangeList, parse_search
from watcher.observability.watch_stats import Rate, Totals, WatchStats
from watcher.records.record import Record

# The border and the scrollbar of a screen.
_FRAME_COLUMNS = 4

KEYS = """\
space      pause and follow again
up, down   one by one; page up, page down; g first, G or End newest
/          filter: text, NAME=VALUE of a key, or a filter pattern {…}
Enter      the change, attribute by attribute
k          the history of this item
s          shards, and how far behind each is
y          copy the wire JSON of this change
q          end the watch
Escape     back; in the list, clear the filter
Ctrl-Z     to the shell; fg comes back
"""


class TextScreen(ModalScreen[None]):
    """A scrolled text over the list; Escape closes it.

    A function returns the text for a number of columns: it may ask the service, in a thread.
    """

    BINDINGS = [Binding("escape,q", "app.pop_screen", "Back")]
    DEFAULT_CSS = """
    TextScreen { align: center middle; }
    TextScreen > VerticalScroll {
        width: 90%; height: 85%; border: round $accent; background: $surface;
    }
    """

    def __init__(self, title: str, text: str | Callable[[int], str]) -> None:
        super().__init__()
        self._title = title
        self._given = text
        # Made here: on a busy machine the screen is mounted before what is in its box.
        self._text = Static(id="text")

    def compose(self) -> ComposeResult:
        """Builds the scrolled text."""
        with VerticalScroll() as box:
            box.border_title = Text(self._title)  # a key may be `[/]`, which is markup
            yield self._text

    def on_mount(self) -> None:
        """Shows the text, or begins to read it."""
        if isinstance(self._given, str):
            self._show(self._given)
        else:
            self._show("reading the stream …")
            self._read(self._given, self.app.size.width * 9 // 10 - _FRAME_COLUMNS)

    @work(thread=True, exit_on_error=False)
    def _read(self, read: Callable[[int], str], columns: int) -> None:
        try:
            text = read(columns)
        except WatcherError as error:
            text = f"error: {error}"
        except Exception as error:
            text = f"error: {type(error).__name__}: {error_text(error)}"
        self.app.call_from_thread(self._show, text)

    def _show(self, text: str) -> None:
        """Shows a text in the colours of its escape sequences."""
        if self.is_attached:
            self._text.update(Text.from_ansi(painted_alone(text)))


def change_text(record: Record) -> str:
    """Returns a change attribute by attribute, and the item before and after it."""
    lines = [*change_lines(record), ""]
    for name, image in (("before", record.old), ("now", record.new)):
        if image is not None:
            lines.append(f"{name}: {shown_item(image, record.key)}")
    lines += ["", f"shard {printable(record.shard_id)}, number {record.sequence_number}"]
    return "\n".join(lines)


# From so many columns on, the change under the cursor is shown beside the list.
_WIDE = 100
# The delay between two looks for something to draw: more a second look no smoother.
_FRAME_SECONDS = 0.1
# The time for which a note stays: long enough to read two lines.
_NOTE_SECONDS = 10.0

RunWatch = Callable[
    [Callable[[Record], None], Callable[[WatchStats], None], threading.Event], Totals | None
]
"""Runs a watch until the event is set; passes on its records and its figures."""


class LiveView(App[Totals | None]):
    """The view; `watch` runs in a thread until the view ends, and its error ends the view."""

    TITLE = "watcher"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #figures, #notes {
        height: 1; background: $boost; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis;
    }
    #beside { display: none; width: 45%; border-left: solid $accent; padding: 0 1; }
    .-wide #beside { display: block; }
    #search { display: none; height: 3; }
    #search.open { display: block; }
    """
    BINDINGS = [
        Binding("space", "pause", "Pause"),
        Binding("slash", "search", "Filter"),
        Binding("k", "history", "History"),
        Binding("s", "shards", "Shards"),
        Binding("y", "copy", "Copy"),
        Binding("question_mark", "keys", "Keys"),
        Binding("q,ctrl+c", "end", "End"),
        Binding("escape", "clear", "Clear", show=False),
        Binding("ctrl+z", "suspend_process", "To the shell", show=False),
    ]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide")]

    def __init__(
        self,
        watch: RunWatch,
        history: Callable[[ChangeLine], Iterable[Record]],
        shards: Callable[[set[str], Mapping[ShardKey, float], int], str],
        buffer: ChangeBuffer | None = None,
    ) -> None:
        super().__init__()
        self.buffer = buffer or ChangeBuffer()
        self.error: BaseException | None = None
        """The error that ended the watch."""
        self._watch = watch
        self._history = history
        self._shards = shards
        self._stats = WatchStats()
        self._stop = _Stop()
        self.messages: deque[str] = deque(maxlen=1)
        """The latest message of another thread, for the line of notes."""
        self._totals: Totals | None = None
        self.watch_thread = threading.Thread(target=self._run_watch, name="watcher live")
        self._rate = Rate()
        self._note = ""
        self._note_until = math.inf
        self._filter = ""
        self._beside: ChangeLine | None = None
        self._figures = Text()
        self._streams: dict[str, None] = {}
        """The ARNs of the streams that had changes, in the order of their first one."""

    def compose(self) -> ComposeResult:
        """Builds the line of statistics, the list, the search box and the keys."""
        yield Static(id="figures")
        with Horizontal():
            yield ChangeList(self.buffer)
            with VerticalScroll(id="beside", can_focus=False):
                yield Static(id="change")
        yield Input(id="search", placeholder='text, NAME=VALUE, or {"eventName": ["REMOVE"]}')
        yield Static(id="notes")
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Starts the watch."""
        self.changes.focus()
        # After Ctrl-Z and fg the terminal is empty.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh())
        self.set_interval(_FRAME_SECONDS, self.draw)
        self.watch_thread.start()

    @property
    def changes(self) -> ChangeList:
        """The list of changes."""
        return self.query_one(ChangeList)

    def _run_watch(self) -> None:
        try:
            self._totals = self._watch(self._on_record, self._on_stats, self._stop)
        except BaseException as error:  # of any kind: it is raised once the view has ended
            self.error = error
        if _terminal_is_gone() and not self.is_headless:
            # The watch has saved its checkpoint. Textual can't leave a terminal that is not there:
            # its writes to it never end.
            os._exit(128 + signal.SIGHUP)

    def _on_record(self, record: Record) -> None:
        self._streams[record.stream] = None
        self.buffer.add(record)

    def _on_stats(self, stats: WatchStats) -> None:
        self._stats = stats

    def draw(self) -> None:
        """Shows new changes, statistics and notes; ends the view after the watch."""
        if not self.is_running:  # the view is ending
            return
        if not self.watch_thread.is_alive():
            if self._stop.is_set() or self.error is not None:
                self.exit(self._totals)
                return
            # A watch without --follow has ended by itself: its changes stay visible.
            self.messages.append("The watch has ended; q ends the view")
        if self.messages:
            self.note(self.messages[-1])
            self.messages.clear()
        changes = self.query_one(ChangeList)
        changes.take_new()
        now = self._stats
        parts = [
            counted(now.shards.open, "shard"),
            counted(self.buffer.taken, "change"),
            f"{self._rate.at(self.buffer.taken):,.0f}/s",
            f"lag {now.lag:.0f} s",
        ]
        if changes.test is not None:
            parts.append(f"{changes.shown:,} match")
        if self.buffer.fallen:
            parts.append(f"{self.buffer.fallen:,} fell out of view")
        if now.losses:
            parts.append(counted(now.losses, "DATA LOSS"))
        state = Text("FOLLOWING " if changes.following else "PAUSED ", "bold")
        figures = state + Text(" | ".join(parts))
        if figures != self._figures:
            # Each update draws the whole view anew, ten times a second over what lies on it.
            self._figures = figures
            self.query_one("#figures", Static).update(figures)
        if time.monotonic() > self._note_until:
            self._show_filter()
        self._show_beside()

    def _show_beside(self) -> None:
        """Shows the change under the cursor beside the list, where there is room for it."""
        entry = self.changes.selected
        if entry is self._beside or self.size.width < _WIDE:
            return
        self._beside = entry
        text = "" if entry is None else change_text(entry.record)
        self.query_one("#change", Static).update(Text.from_ansi(painted_alone(text)))

    def note(self, text: str, seconds: float = _NOTE_SECONDS) -> None:
        """Shows a message in the line above the keys, for a while."""
        self._note_until = time.monotonic() + seconds
        if text != self._note:
            self._note = text
            self.query_one("#notes", Static).update(Text(printable(text)))

    def _show_filter(self) -> None:
        self.note(f"only {self._filter} (Escape clears)" if self._filter else "", math.inf)

    def on_change_list_opened(self, message: ChangeList.Opened) -> None:
        """Opens the change that the user chose."""
        entry = message.entry
        title = self.buffer.tables[entry.table]
        self.push_screen(TextScreen(title, change_text(entry.record)))

    def on_input_submitted(self, message: Input.Submitted) -> None:
        """Filters the list."""
        try:
            self._search(message.value.strip())
        except WatcherError as error:
            self.note(f"error: {error}")
            return
        self._close_box()

    def _search(self, text: str) -> None:
        self.changes.search(parse_search(text, lambda arn: self.buffer.tables[arn]))
        self._filter = text
        self._show_filter()

    def action_clear(self) -> None:
        """Closes the box and keeps the filter as it was; without a box, clears it."""
        if self._box.has_class("open"):
            self._close_box()
            self._show_filter()
        else:
            self._search("")

    @property
    def _box(self) -> Input:
        return self.query_one("#search", Input)

    def _close_box(self) -> None:
        self._box.remove_class("open")
        self.changes.focus()

    def action_search(self) -> None:
        """Opens the box for the filter."""
        self._box.value = ""
        self._box.add_class("open")
        self._box.focus()

    def action_pause(self) -> None:
        """Stops following, or follows again."""
        if self.changes.following:
            self.changes.following = False
        else:
            self.changes.action_follow()

    def action_history(self) -> None:
        """Opens the history of the item under the cursor."""
        if (entry := self.changes.selected) is not None:
            self.push_screen(TextScreen(entry.key, lambda _: self._history_text(entry)))

    def _history_text(self, entry: ChangeLine) -> str:
        lines = [line for record in self._history(entry) for line in change_lines(record)]
        return "\n".join(lines) or "no change in what the stream holds"

    def action_shards(self) -> None:
        """Opens the lineage of every stream that had a change."""
        streams = {*self._streams}
        lags = self._stats.lags
        self.push_screen(TextScreen("shards", lambda columns: self._shards(streams, lags, columns)))

    def action_copy(self) -> None:
        """Copies the wire JSON of the change under the cursor."""
        if (entry := self.changes.selected) is not None:
            self.copy_to_clipboard(entry.raw.decode("utf-8", "replace"))
            self.note(f"copied: {entry.kind} {entry.key}")

    def action_keys(self) -> None:
        """Opens the list of keys."""
        self.push_screen(TextScreen("keys", KEYS))

    def action_end(self) -> None:
        """Stops the watch, and with it the view."""
        self.note("Stopping …")
        self._stop.set()

    def stop_on_signals(self) -> None:
        """Stops the watch on SIGTERM and SIGHUP."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: self._stop.set())

    def join(self) -> None:
        """Stops the watch, if it still runs, and waits for its end."""
        self._stop.set()
        if self.watch_thread.ident is not None:
            self.watch_thread.join()


class _Stop(threading.Event):
    """Set by who ends the view, and once the terminal is gone: not every one sends a SIGHUP."""

    def is_set(self) -> bool:
        return super().is_set() or _terminal_is_gone()


def _terminal_is_gone() -> bool:
    """True if nobody is at the other end of a terminal that is standard input."""
    poll = select.poll()
    poll.register(0, 0)  # it reports a hang-up whatever it is asked for
    return any(events & select.POLLHUP for _, events in poll.poll(0))


class NotesHandler(logging.Handler):
    """The log while the view has the terminal: shown in its line, warnings kept for its end."""

    def __init__(self, view: LiveView) -> None:
        super().__init__()
        self._view = view
        self.kept: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Shows a log record in the view's line of notes."""
        if record.levelno >= logging.WARNING:
            self.kept.append(record)
        self._view.messages.append(record.getMessage())
