"""Asks for a roster what is due, and keeps nobody waiting for the listing of a large stream."""

from __future__ import annotations

from concurrent.futures import Future
from typing import cast

from watcher.reading.asks import Question
from watcher.reading.roster import Roster
from watcher.service.model import Listing, Service
from watcher.side_by_side import SideBySide


class Asking:
    """What is due for one roster; a listing of several pages is made aside by `calls`."""

    def __init__(self, roster: Roster, service: Service, calls: SideBySide) -> None:
        self._roster = roster
        self._service = service
        self._calls = calls
        self._listing: Future[Listing] | None = None

    def attend(self) -> None:
        """As `Roster.attend`; a listing is taken in once it is there. Raises StreamError."""
        while (ask := self._roster.due()) is not None:
            if ask.question is not Question.LISTING or self._roster.listing.pages == 1:
                self._roster.put(ask, self._service)
                continue
            if self._listing is None:
                (self._listing,) = self._calls.start([self._list], few=0)
            if not self._listing.done():
                return
            listing, self._listing = self._listing, None
            self._roster.put(ask, cast(Service, _Listed(self._service, listing)))

    def _list(self) -> Listing:
        return self._service.listing(self._roster.arn)


class _Listed:
    """A service that has been asked for its listing."""

    def __init__(self, service: Service, listing: Future[Listing]) -> None:
        self.renew = service.renew
        self._listing = listing

    def listing(self, arn: str) -> Listing:
        """See `Service`."""
        return self._listing.result()
