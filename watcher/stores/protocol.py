"""The protocols of a checkpoint's store: ours, and the one that an object of the caller keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

# The command line reads the declarations here for its help alone.
if TYPE_CHECKING:
    from watcher.streams.checkpoint_format import Token


class Store(Protocol):
    """Where a watch's checkpoint is kept: a token for each stream.

    A store whose checkpoint only one watch can use implements `name`, `load`, `save` and `close`,
    and derives the rest from here; one that several watches share also has to say whose turn it is.
    `peek`, `load` and `save` raise UsageError where that can't be.
    """

    @property
    def name(self) -> str:
        """Its name in messages."""

    def load(self) -> list[Token]:
        """Returns the stored tokens; none where nothing was stored yet."""

    def save(self, tokens: Sequence[Token]) -> None:
        """Store these in the place of the former ones."""

    def close(self) -> None:
        """Give back what it holds: a lock, a lease."""
        return

    @property
    def snapshot_requests(self) -> bytes:
        """The `SnapshotRequest`s that commands have left here, as JSON; makes no call."""
        return b""

    # Several watches of one checkpoint

    def peek(self) -> list[Token]:
        """Returns what is stored while it may be another watch's turn, before `stand_by`."""
        return []

    def stand_by(self, must_stop: Callable[[], bool]) -> bool:
        """Wait until it is this watch's turn to deliver; False where it has to stop first."""
        return True

    @property
    def raise_unless_held(self) -> Callable[[], object] | None:
        """Called before each delivery: raises LeaseLostError where it is another's turn now.

        None where that can't be.
        """
        return None

    @property
    def in_doubt(self) -> bool:
        """True while delivery waits, as nobody knows whose turn it is."""
        return False

    @property
    def is_lost(self) -> bool:
        """True once it is another's turn: the next save raises that."""
        return False

    @property
    def trouble(self) -> str:
        """Why it can't be used just now, as far as that is known without a save."""
        return ""


@runtime_checkable
class SharedStorage(Protocol):
    """Keeps the positions of watches that take over from each other: one delivers at a time.

    That is one text, which holds the lease, too. No two writes are the same, so what a watch writes
    late, after another one has taken over, replaces nothing. The thread that renews the lease calls
    both methods, too, but never two at once. Each may be an `async def`.
    """

    def load(self) -> str | bytes | Awaitable[str | bytes | None] | None:
        """Returns what is kept now; None where nothing is."""

    def replace(self, new: str, old: str | None) -> bool | Awaitable[bool]:
        """In one step, keeps `new` if just now `old` is kept (None: nothing is).

        Returns whether it did. What it raises is retried, until the lease runs out.
        """


class CheckpointStorage(Protocol):
    """Keeps one watch's positions wherever it likes. `watch()`'s thread calls both methods.

    Each may be an `async def`: it runs in an event loop that the store has for itself. Where `save`
    raises, that is logged, and the watch goes on; it is called again a second later.
    """

    def load(self) -> str | bytes | Awaitable[str | bytes | None] | None:
        """Returns what was saved last; None where nothing was."""

    def save(self, token: str) -> object:
        """Keep a token (JSON text) in the place of the former one."""
