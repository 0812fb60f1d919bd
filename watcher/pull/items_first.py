"""Pulls a table's items, too: a page of them in turn with what has changed meanwhile."""

from __future__ import annotations

import logging
import math
from collections import deque
from typing import Any

from watcher.aws.model import AfterSequence, Position, Service
from watcher.errors import TransientError
from watcher.pull.merged import MergedReader
from watcher.pull.table_snapshot import Items, TableSnapshot
from watcher.records import page as pages
from watcher.records.record import Record
from watcher.retry import backoff, worth_logging
from watcher.streams.token import Token, TokenSnapshot

logger = logging.getLogger("watcher")

# So many changes at most stand between two pages of items.
_CHANGES = 1_000
_AGAIN_SECONDS = 1.0
_AGAIN_SECONDS_MAX = 30.0


class ItemsFirst(MergedReader):
    """A puller that keeps the rule of `reading.snapshot`; goes on where its token says.

    With `only_anew`, where the items are to be handed over only as that is too old.
    """

    def __init__(
        self,
        service: Service,
        arn: str,
        start: Position | Token,
        *arguments: Any,
        items: Items,
        only_anew: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(service, arn, start, *arguments, **options)
        stored = start.snapshot if isinstance(start, Token) else None
        self._left_alone, self._stored = only_anew and not self._anew, stored
        if self._left_alone:
            stored = TokenSnapshot(done=True)
        self._items = TableSnapshot(arn, items, None if self._anew else stored, self._clock)
        self._shown: deque[Record] = deque()
        self._changes_left = 0
        self._failures = 0
        self._again_at = -math.inf

    def begin_reads(self, *, at_once: bool = False) -> None:
        """See `MergedReader`; while there are items to come, `look` says whose turn it is."""
        if self._items.is_done:
            super().begin_reads(at_once=at_once)

    def look(self, *, at_once: bool = False) -> float | None:
        """As `MergedReader.look`; an item comes before all changes. Raises StreamError."""
        if not self._shown and self._changes_left > 0:
            if (found := super().look()) is not None:
                return found
            self._changes_left = 0
        if not self._shown and self._is_items_turn():
            self._read_items()
        return -math.inf if self._shown else super().look(at_once=at_once)

    def take_read(self) -> Record:
        """See `MergedReader`."""
        if not self._shown:
            self._changes_left -= 1
            return super().take_read()
        record = self._shown.popleft()
        self._items.shard.position = AfterSequence(record.sequence_number)
        return record

    @property
    def next_at(self) -> float | None:
        """See `MergedReader`."""
        return -math.inf if self._shown else super().next_at

    @property
    def token(self) -> Token:
        """See `MergedReader`."""
        token = super().token
        token.snapshot = self._stored if self._left_alone else self._items.stored()
        return token

    def _is_items_turn(self) -> bool:
        if self._items.is_done or self._clock.monotonic() < self._again_at:
            return False
        return not self._coordinator.lineage.awaits_latest

    def _read_items(self) -> None:
        try:
            page = self._items.read()
        except TransientError as error:
            self._failures += 1
            pause = backoff(self._failures, _AGAIN_SECONDS, _AGAIN_SECONDS_MAX)
            self._again_at = self._clock.monotonic() + pause
            if worth_logging(self._failures):
                text = f"Can't read the items of {self.listing.table}, trying again: {error}"
                logger.warning(text, extra={"stream": self.arn})
            return
        self._failures, self._changes_left = 0, _CHANGES
        self._shown.extend(pages.records(page.body, self._items.origin))
