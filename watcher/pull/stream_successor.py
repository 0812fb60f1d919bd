"""Finds the next stream of a table whose stream was disabled and enabled again, or deleted."""

from __future__ import annotations

import logging

import msgspec

from watcher.aws.discovery import newer_stream
from watcher.aws.model import Service
from watcher.clock import CLOCK, Clock
from watcher.errors import MAY_PASS, CredentialsError, NoAnswerYetError, WatcherError
from watcher.streams.coordinator import Coordinator

SUCCESSOR_WAIT_SECONDS = 60.0
"""The wait for a disabled stream's successor: to change the view type takes both steps."""
SUCCESSOR_POLL_SECONDS = 5.0
"""The delay between checks for a table's next stream, once a stream has ended."""

logger = logging.getLogger("watcher")


class StreamEnd(msgspec.Struct, frozen=True):
    """The end of a stream: no more records come."""

    successor: str | None = None
    """The ARN of the table's next stream, which the watch goes on with; None: it ends."""
    newer: str | None = None
    """The ARN of the table's next stream, if the watch does not go on with it."""


class SuccessorSearch:
    """Looks for the stream that replaced an ended one.

    A reading `of_table` goes on there; one of a single stream only logs it. The search takes up to
    `wait_seconds`, and longer while the service answers with passing errors.
    """

    def __init__(
        self,
        *,
        of_table: bool,
        wait_seconds: float = 0.0,
        clock: Clock = CLOCK,
    ) -> None:
        self.of_table = of_table
        self.wait_seconds = wait_seconds
        self._clock = clock
        self._since: float | None = None
        self._failures = 0
        self._due = 0.0

    @property
    def is_searching(self) -> bool:
        """True while the ended stream has no successor yet, and one may still come."""
        return self._since is not None

    def search(self, service: Service, coordinator: Coordinator) -> StreamEnd | None:
        """Looks for the successor of an ended stream where that is due; None: ask again later."""
        now, about = self._clock.monotonic(), coordinator.about()
        table, ended = coordinator.listing.table, coordinator.ended_how
        stream = f"The stream of {table}" if table else "The stream"
        if self._since is None:
            self._since = now
            if self.wait_seconds:
                text = f"{stream} is {ended}; looking for a new one of its table"
                logger.info(text, extra=about)
        elif now < self._due:
            return None
        try:
            new = newer_stream(service, coordinator.arn, table)
        except NoAnswerYetError:
            return None
        except MAY_PASS as error:
            self._due = now + SUCCESSOR_POLL_SECONDS
            self._failed(service, error, about)
            return None
        self._due = now + SUCCESSOR_POLL_SECONDS
        if new and self.of_table:
            self._since = None
            return StreamEnd(new)
        if not new and now - self._since < self.wait_seconds:
            return None
        logger.info(f"{stream} is {ended}: nothing more will come", extra=about)
        if new:
            logger.info(f"Its table has a new one: python -m watcher {new} --from trim-horizon")
        return StreamEnd(newer=new)

    def _failed(self, service: Service, error: WatcherError, about: dict[str, str]) -> None:
        self._failures += 1
        if isinstance(error, CredentialsError):
            service.renew_credentials()
        if self._failures.bit_count() == 1:
            text = "Can't ask for the table's new stream, trying again"
            logger.warning(f"{text}: {error}", extra=about)
