"""The pages of one listing: one that takes long is said, and one that does not end is given up."""

from __future__ import annotations

import functools
import logging
from typing import ClassVar

from watcher.errors import TransientError

logger = logging.getLogger("watcher")

# At DescribeStream's 4 a second ten thousand shards (100 pages) take 25 s, and these four minutes.
_MOST_PAGES = 1000
_MOST_SECONDS = 300.0
_SAID_FROM_SECONDS = 10.0
_SAID_EVERY_SECONDS = 30.0


class Pages:
    """Counts them as they come. `what` is listed of the stream `arn` ("": of a region)."""

    _usual: ClassVar[dict[tuple[str, str], int]] = {}
    """How many the last whole listing had: a watch of a large stream lists it all the time."""

    def __init__(self, what: str, arn: str = "") -> None:
        self.count = 0
        self._what = what
        self._arn = arn
        self._keys: set[str] = set()
        self._seconds = 0.0
        self._said_at = _SAID_FROM_SECONDS - _SAID_EVERY_SECONDS

    def is_last(self, key: str | None, found: int, seconds: float) -> bool:
        """Whether a page that took so long was the last; the next one would begin behind `key`.

        `found` is how many there are by now. Raises TransientError where there is no end.
        """
        self.count += 1
        self._seconds += seconds
        if not key or key in self._keys:
            if key:
                _say_circle(self._what, self._arn)
            self._usual[self._what, self._arn] = self.count
            return True
        self._keys.add(key)
        if self.count >= _MOST_PAGES or self._seconds >= _MOST_SECONDS:
            text = f"a listing of {self._what} that does not end, after {self._told(found)}"
            raise TransientError(text, overdue=True)
        self._say_if_long(found)
        return False

    def _say_if_long(self, found: int) -> None:
        is_news = self.count > 2 * self._usual.get((self._what, self._arn), 0)
        if is_news and self._seconds >= self._said_at + _SAID_EVERY_SECONDS:
            self._said_at = self._seconds
            about = {"stream": self._arn} if self._arn else {}
            text = f"Still listing {self._what}: {self._told(found)} so far"
            logger.info(text, extra=about)

    def _told(self, found: int) -> str:
        return f"{self.count:,} pages in {self._seconds:.0f} s ({found:,} {self._what})"


@functools.cache
def _say_circle(what: str, arn: str) -> None:
    """Once is enough: there is a listing every few seconds."""
    text = f"The listing of {what} comes back to a page that it has shown: taken for its end"
    logger.warning(text, extra={"stream": arn} if arn else {})
