"""A shard's reads: one after the other, as often as is allowed, the next sent ahead of its turn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from watcher.clock import Clock
from watcher.errors import TransientError
from watcher.reading.read_rate import ReadRate
from watcher.record import page
from watcher.service.model import Service

FULL_BYTES = 500_000
"""A full page is about 1 MB; from here on more is likely to follow at once."""


class Reads:
    """Asks for a shard's pages, one at a time."""

    def __init__(self, clock: Clock) -> None:
        self._rate = ReadRate(clock)
        self._ahead: tuple[str, Callable[[], bytes] | None] = "", None

    def page(self, streams: Service, iterator: str) -> bytes:
        """A page's body. Raises as `Service.records`."""
        (asked, answer), self._ahead = self._ahead, ("", None)
        if asked != iterator or answer is None:
            answer = partial(streams.records, iterator)
        self._rate.begin()
        try:
            body = answer()
        except TransientError as error:
            if error.throttled:
                self._rate.throttled()
            raise
        self._rate.came_through()
        return body

    def ask_ahead(self, streams: Service, body: bytes) -> None:
        """A shortcut: behind a full page, ask for the next before this one is taken apart.

        Only where that read would begin at once anyway. Whatever comes of it is kept for `page`;
        if that asks for something else, it was in vain.
        """
        if len(body) >= FULL_BYTES and not self._rate.pause():
            following = page.next_iterator(body)
            if following is not None:
                self._ahead = following, streams.ask(following)

    def pause(self) -> float:
        """Seconds until the next read may begin."""
        return self._rate.pause()
