"""The screens over the list: a change, an item's history, shards, tables, the keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList, SelectionList, Static, Tree
from textual.widgets.tree import TreeNode

from watcher.aws.arns import short_table_names, table_of
from watcher.aws.model import Listing, ShardKey, opened_at
from watcher.errors import WatcherError
from watcher.formatting.differences import change_lines, shortened, shown_item
from watcher.formatting.text import painted_alone, printable
from watcher.records.record import Record

# Each level of the tree is indented by so much; the mark that folds a line is as wide.
_GUIDE = 2
_FIRST_LEVEL = 3  # below the stream, with the mark
# The length of a shard's id on a narrow terminal: shardId-…-5ee6d958
_FEW, _ANY = 18, 1_000

KEYS = """\
space      pause and follow again
up, down   one by one; page up, page down; g first, G or End newest
/          one more filter: text, NAME=VALUE of a key, or a filter pattern {…}
1 to 9     a filter on and off
w, v       save the filters under a name; show a saved view
Enter      the change, attribute by attribute
k          the history of this item
s          shards, and how far behind each is
t          tables on and off
y          copy the wire JSON of this change
q          end the watch
Escape     back; in the list, clear the filters
Ctrl-Z     to the shell; fg comes back
"""


class TextScreen(ModalScreen[None]):
    """A scrolled text over the list; Escape closes it."""

    BINDINGS = [
        Binding("escape,q", "app.pop_screen", "Back"),
        Binding("y", "copy", "Copy"),
    ]
    DEFAULT_CSS = """
    TextScreen { align: center middle; }
    TextScreen > VerticalScroll {
        width: 90%; height: 85%; border: round $accent; background: $surface;
    }
    """

    def __init__(self, title: str, copied: str = "") -> None:
        super().__init__()
        self._title = title
        self._copied = copied

    def compose(self) -> ComposeResult:
        """Builds the scrolled text."""
        with VerticalScroll() as box:
            box.border_title = Text(self._title)  # a key may be `[/]`, which is markup
            yield Static(id="text")

    def show_text(self, text: str) -> None:
        """Shows a text in the colours of its escape sequences."""
        self.query_one("#text", Static).update(Text.from_ansi(painted_alone(text)))

    def action_copy(self) -> None:
        """Copies the wire JSON to the clipboard."""
        if self._copied:
            self.app.copy_to_clipboard(self._copied)
            self.app.notify("Copied")


def change_text(record: Record) -> str:
    """Returns a change attribute by attribute, and the item before and after it."""
    lines = [*change_lines(record), ""]
    for name, image in (("before", record.old), ("now", record.new)):
        if image is not None:
            lines.append(f"{name}: {shown_item(image, record.key)}")
    lines += ["", f"shard {printable(record.shard_id)}, number {record.sequence_number}"]
    return "\n".join(lines)


class ChangeScreen(TextScreen):
    """One change, attribute by attribute, and the item in full."""

    def __init__(self, table: str, record: Record) -> None:
        super().__init__(table, str(record.raw, "utf-8", "replace"))
        self._record = record

    def on_mount(self) -> None:
        """Fills the screen with the change and the item."""
        self.show_text(change_text(self._record))


class HistoryScreen(TextScreen):
    """An item's history, as far as the stream goes back."""

    def __init__(self, title: str, changes: Callable[[], Iterable[Record]]) -> None:
        super().__init__(title)
        self._changes = changes

    def on_mount(self) -> None:
        """Asks the service in a thread."""
        self.show_text("reading the stream …")
        self._read()

    @work(thread=True, exit_on_error=False)
    def _read(self) -> None:
        try:
            lines = [line for record in self._changes() for line in change_lines(record)]
            text = "\n".join(lines) or "no change in what the stream holds"
        except WatcherError as error:
            text = f"error: {error}"
        self.app.call_from_thread(self._show_if_open, text)

    def _show_if_open(self, text: str) -> None:
        if self.is_attached:
            self.show_text(text)


class KeysScreen(TextScreen):
    """The list of keys."""

    def __init__(self) -> None:
        super().__init__("keys")

    def on_mount(self) -> None:
        """Shows the fixed text."""
        self.show_text(KEYS)


class ShardsScreen(ModalScreen[None]):
    """Each stream's lineage, with the lag of the shards being read."""

    BINDINGS = [Binding("escape,q,s", "app.pop_screen", "Back")]
    DEFAULT_CSS = """
    ShardsScreen { align: center middle; }
    ShardsScreen > Tree { width: 90%; height: 85%; border: round $accent; }
    """

    def __init__(
        self,
        listings: Callable[[], Sequence[Listing]],
        lags: Callable[[], Mapping[ShardKey, float]],
    ) -> None:
        super().__init__()
        self._listings = listings
        self._lags = lags

    def compose(self) -> ComposeResult:
        """Builds a tree, empty until the service has answered."""
        yield Tree("reading the listings …")

    def on_mount(self) -> None:
        """Asks the service in a thread."""
        self._list()

    @work(thread=True, exit_on_error=False)
    def _list(self) -> None:
        try:
            listings, error_text = self._listings(), ""
        except WatcherError as error:
            listings, error_text = [], f"error: {error}"
        self.app.call_from_thread(self._fill, listings, error_text)

    def _fill(self, listings: Sequence[Listing], error_text: str) -> None:
        if not self.is_attached:
            return
        tree: Tree[None] = self.query_one(Tree)
        tree.root.set_label(Text(printable(error_text) or "streams"))
        tree.guide_depth = _GUIDE
        names = short_table_names(listing.arn for listing in listings)
        for listing in listings:
            shown_name = names[table_of(listing.arn)]
            name = shown_name if "/" in shown_name else listing.table
            stream = tree.root.add(
                Text(printable(f"{name} ({listing.status.lower()})")), expand=True
            )
            add_lineage(stream, listing, self._lags(), tree.size.width)
        tree.root.expand()


def add_lineage(
    root: TreeNode[None], listing: Listing, lags: Mapping[ShardKey, float], columns: int
) -> None:
    """Adds each shard below its parent, in labels short enough for the columns."""
    levels: dict[str, int] = {}
    for shard in listing.shards:
        levels[shard.id] = levels.get(shard.parent or "", _FIRST_LEVEL - 1) + 1
    closed = listing.closed()
    for most, is_dated in ((_ANY, True), (_FEW, True), (_FEW, False)):
        labels = {
            shard.id: _label(
                shortened(shard.id, most),
                is_open=shard.id not in closed,
                lag=lags.get(ShardKey(listing.arn, shard.id)),
                opened=opened_at(shard.id) if is_dated else None,
            )
            for shard in listing.shards
        }
        widths = (_GUIDE * levels[name] + label.cell_len for name, label in labels.items())
        if max(widths, default=0) <= columns:
            break
    nodes: dict[str, TreeNode[None]] = {}
    for shard in listing.shards:
        above = nodes.get(shard.parent or "", root)
        nodes[shard.id] = above.add(labels[shard.id], expand=True)


def _label(shard_id: str, *, is_open: bool, lag: float | None, opened: datetime | None) -> Text:
    label = Text(f"{printable(shard_id)} ")
    label.append("open" if is_open else "closed", "green" if is_open else "dim")
    if lag is not None:
        label.append(f"  lag {lag:.0f} s", "yellow" if lag > 10 else "")
    if opened is not None:
        label.append(f"  since {_clock(opened)}", "dim")
    return label


def _clock(time: datetime) -> str:
    return time.astimezone().strftime("%H:%M")


class TablesScreen(ModalScreen[set[str]]):
    """The choice of tables to show; it returns the ARNs of the hidden ones."""

    BINDINGS = [Binding("escape,q,t", "done", "Back")]
    DEFAULT_CSS = """
    TablesScreen { align: center middle; }
    TablesScreen > SelectionList { width: 60%; height: 60%; border: round $accent; }
    """

    def __init__(self, tables: Mapping[str, str], hidden: set[str]) -> None:
        super().__init__()
        self._tables = tables
        self._hidden = hidden

    def compose(self) -> ComposeResult:
        """Builds a box for each table."""
        if not self._tables:
            yield Label("no change has come yet")
        rows = [
            (Text(printable(name)), arn, arn not in self._hidden)
            for arn, name in self._tables.items()
        ]
        yield SelectionList[str](*rows)

    def action_done(self) -> None:
        """Returns the tables that are off."""
        on = {*self.query_one(SelectionList).selected}
        self.dismiss({*self._tables} - on)


class ViewsScreen(ModalScreen[list[str]]):
    """The choice of saved views; it returns the filters of the chosen one."""

    BINDINGS = [Binding("escape,q,v", "app.pop_screen", "Back")]
    DEFAULT_CSS = """
    ViewsScreen { align: center middle; }
    ViewsScreen > OptionList { width: 80%; height: auto; border: round $accent; }
    """

    def __init__(self, views: Mapping[str, list[str]]) -> None:
        super().__init__()
        self._views = [*views.values()]
        self._names = [*views]

    def compose(self) -> ComposeResult:
        """Builds a line for each view, with its filters."""
        named = zip(self._names, self._views, strict=True)
        yield OptionList(*(Text(printable(f"{name}: {', '.join(on)}")) for name, on in named))

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        """Returns the chosen view's filters."""
        self.dismiss(self._views[message.option_index])
