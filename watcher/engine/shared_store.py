"""A checkpoint that several watches share: a store over a lease, and what keeps renewing that."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import closing

from watcher import forks
from watcher.engine.checkpoint import Store
from watcher.engine.lease import Lease, own_name
from watcher.errors import UsageError, WatcherError
from watcher.reading.token import Token, all_from_json, encode_all
from watcher.service.connection import Connection
from watcher.service.lease_table import LeaseTable

logger = logging.getLogger("watcher")


class Renewer:
    """A thread that renews a lease: a handler may take longer than it lasts."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="renews the lease", daemon=True)
        # A fork copies locks as they stand.
        forks.before(lease.settle)
        self._thread.start()

    def _run(self) -> None:
        while seconds := self._lease.renew():
            if self._end.wait(seconds):
                return

    def close(self) -> None:
        """Renew it no more."""
        self._end.set()
        self._thread.join(timeout=5.0)


class SharedStore(Store):
    """Tokens beside a lease. `renewing` has it renewed as long as it is held."""

    def __init__(
        self,
        lease: Lease,
        name: str,
        make: Callable[[], object] = lambda: None,
        renewing: Callable[[Lease], Renewer] = Renewer,
    ) -> None:
        self._lease = lease
        self._name = name
        self._make = make
        self._renewing = renewing
        self._renewer: Renewer | None = None

    @property
    def name(self) -> str:
        """Its URL."""
        return self._name

    def peek(self) -> list[Token]:
        """See `Store`. Raises UsageError where the table can't be used."""
        self._make()
        return self._decoded(self._lease.peek())

    def stand_by(self, is_ending: Callable[[], bool]) -> bool:
        """See `Store`."""
        if not self._lease.stand_by(is_ending):
            return False
        self._renewer = self._renewing(self._lease)
        return True

    def load(self) -> list[Token]:
        """What the lease was taken over with."""
        return self._decoded(self._lease.token)

    def _decoded(self, token: bytes) -> list[Token]:
        try:
            return all_from_json(token) if token else []
        except UsageError as error:
            text = f"can't be read ({error}); delete the item to start anew, or choose another name"
            raise UsageError(text, "checkpoint", self._name) from None

    @property
    def check(self) -> Callable[[], object]:
        """See `Store`."""
        return self._lease.check

    @property
    def in_doubt(self) -> bool:
        """See `Store`."""
        return self._lease.in_doubt or self._lease.has_run_out

    @property
    def is_lost(self) -> bool:
        """See `Store`."""
        return self._lease.is_lost

    @property
    def trouble(self) -> str:
        """See `Store`."""
        return self._lease.trouble

    def save(self, tokens: Sequence[Token]) -> None:
        """Store them, if the lease is still ours. Raises UsageError, LeaseLostError."""
        self._lease.write(encode_all(tokens))

    def close(self) -> None:
        """Give the lease back, so that whoever stands by need not wait."""
        if self._renewer is not None:
            with closing(self._renewer):
                self._renewer = None
            try:
                self._lease.release()
            except WatcherError as error:
                logger.debug(f"The lease was not given back: {error}")


def shared_store(url: str, connection: Connection, region: str | None) -> SharedStore:
    """The store of a URL. Raises UsageError."""
    table = LeaseTable.of(url, connection, region)
    return SharedStore(Lease(table, own_name()), table.name, table.make)
