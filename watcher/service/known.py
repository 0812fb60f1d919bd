"""A service that need not be asked for what was learnt a moment ago."""

from __future__ import annotations

from typing import Any

from watcher.service.model import Listing, Service


class Known:
    """The first listing of a stream is the one that there is; later ones are asked for."""

    def __init__(self, service: Service, listing: Listing) -> None:
        self._service = service
        self._listing: Listing | None = listing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def listing(self, arn: str) -> Listing:
        """See `Service`."""
        known, self._listing = self._listing, None
        return self._service.listing(arn) if known is None else known
