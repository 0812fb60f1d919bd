"""What comes after a stream has ended: the table's next one, if it has one."""

from __future__ import annotations

import logging

from watcher.clock import CLOCK, Clock
from watcher.errors import ServiceError, StillAskingError, StreamError
from watcher.service.model import Service
from watcher.service.names import table_of

logger = logging.getLogger("watcher")

_LOOK_SECONDS = 5.0
# From a stream's disabling to the next one's enabling (another view type takes both).
_WAIT_SECONDS = 60.0


class NextStream:
    """Looks for the stream that took an ended one's place.

    A watch `of_table` goes on there, and with `wait` looks for a minute; a watch of one stream
    only names it.
    """

    def __init__(self, of_table: bool, wait: bool, clock: Clock = CLOCK) -> None:
        self.of_table = of_table
        self._wait = of_table and wait
        self._clock = clock
        self._since: float | None = None
        self._due = 0.0

    def newest(self, service: Service, arn: str, table: str = "") -> str | None:
        """The ARN of another, newer stream of the table; None if there is none.

        `table` is its name, for a stream whose ARN has no table in it.
        """
        try:
            # By its ARN: a name would be of our own account, whoever's stream this is.
            its_table = table_of(arn)
            newest = service.latest_stream(table or arn if its_table == arn else its_table)
        except (ServiceError, StreamError) as error:
            logger.debug(f"No new stream: {error}")
            return None
        return newest if newest != arn else None

    def after(self, service: Service, arn: str, ended: str, table: str = "") -> str | None:
        """What to do after a stream: the ARN to go on with, "" to end, None to ask again later.

        `ended` says how it ended, in a word.
        """
        now, about = self._clock.monotonic(), {"stream": arn}
        stream = f"The stream of {table}" if table else "The stream"
        if self._since is None:
            self._since = now
            if self._wait:
                text = f"{stream} is {ended}; looking for a new one of its table"
                logger.info(text, extra=about)
        elif now < self._due:
            return None
        try:
            new = self.newest(service, arn, table)
        except StillAskingError:
            return None
        self._due = now + _LOOK_SECONDS
        if new and self.of_table:
            self._since = None
            return new
        if self._wait and now - self._since < _WAIT_SECONDS:
            return None
        logger.info(f"{stream} is {ended}: nothing more will come", extra=about)
        if new:
            logger.info(f"Its table has a new one: python -m watcher {new} --from trim-horizon")
        return ""
