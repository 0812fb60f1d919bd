"""What a program may give as its checkpoint: an object of its own."""

from __future__ import annotations

from typing import Protocol


class Positions(Protocol):
    """Keeps a watch's positions wherever it likes. Both methods are called in `watch()`'s thread.

    Whatever `save` raises is said, and the watch goes on; the next save comes about a second later.
    """

    def load(self) -> str | bytes | None:
        """What was saved last; None where nothing was."""

    def save(self, token: str) -> object:
        """Keep a token (JSON text) in the place of the former one."""
