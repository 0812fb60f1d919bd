"""The protocols of checkpoint stores: the loop's, and a caller's own object's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

# The command line imports this for its help, which needs no token.
if TYPE_CHECKING:
    from watcher.streams.checkpoint_format import Token


class Store(Protocol):
    """Stores a watch's checkpoint: a token for each stream.

    A store for one watch implements `name`, `load`, `save` and `close`, and inherits the rest. One
    that several watches share implements all of it: only the watch that holds its lease delivers.
    `peek`, `load` and `save` raise UsageError for a checkpoint that can't be used.
    """

    @property
    def name(self) -> str:
        """Its name in messages."""

    def load(self) -> list[Token]:
        """Returns the stored tokens; an empty list before the first save."""

    def save(self, tokens: Sequence[Token]) -> None:
        """Stores these tokens in place of the former ones."""

    def close(self) -> None:
        """Releases its lock or its lease."""
        return

    # Several watches of one checkpoint

    def peek(self) -> list[Token]:
        """Returns the stored tokens before `stand_by`, while another watch may use them."""
        return []

    def stand_by(self, must_stop: Callable[[], bool]) -> bool:
        """Waits for the lease; returns False where the watch has to stop first."""
        return True

    @property
    def raise_unless_held(self) -> Callable[[], object] | None:
        """The check before each delivery, which raises LeaseLostError; None without a lease."""
        return None

    @property
    def in_doubt(self) -> bool:
        """True while delivery waits, because the lease has expired and can't be renewed."""
        return False

    @property
    def is_lost(self) -> bool:
        """True once another watch has the lease; the next save raises LeaseLostError."""
        return False

    @property
    def trouble(self) -> str:
        """Why it can't be used now, as far as is known before a save; else \"\"."""
        return ""


class CheckpointStorage(Protocol):
    """Stores one watch's positions. `watch()`'s thread calls both methods.

    An exception of `save` is logged, the watch continues, and calls it again a second later.
    """

    def load(self) -> str | bytes | None:
        """Returns the token that was saved last; None without one."""

    def save(self, token: str) -> object:
        """Stores a token (JSON text) in place of the former one."""
