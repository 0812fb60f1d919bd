"""Reloads a handler module when its file changes, while you are writing it."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.delivery.handler import Failure, Handler
from watcher.errors import UsageError, error_text
from watcher.records.record import Record

logger = logging.getLogger("watcher")

_LOOK_SECONDS = 0.2
"""The delay between checks of a handler's file."""


class Reloading(Handler):
    """The result of `load`, loaded again when the file changes, kept if that fails.

    The newest version gets all further records, and the retries of an older version's failures.
    """

    def __init__(self, load: Callable[[], Handler], path: Path, clock: Clock = CLOCK) -> None:
        self._load = load
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._loaded_version = self._file_version()
        self._check_due = 0.0
        self._current = self._loaded()
        super().__init__(self._current.name, self._handle, self._close)

    def _handle(self, record: Record) -> object:
        return self._current.handle(record)

    def _close(self) -> object:
        return self._current.close()

    def flush(self) -> None:
        """See `Handler`."""
        self.finish(self._current.flush_buffers())

    def tick(self, shard_key: ShardKey | None = None) -> None:
        """Checks the file."""
        self._reload_if_changed()

    def page_end(self, shard_key: ShardKey) -> None:
        """Checks the file."""
        self._reload_if_changed()

    def go_on(self, failure: Failure, *, given_up: bool) -> None:
        """See `Handler`."""
        self._reload_if_changed()
        super().go_on(failure, given_up=given_up)

    def _reload_if_changed(self) -> None:
        with self._lock:
            now = self._clock.monotonic()
            if now < self._check_due:
                return
            self._check_due = now + _LOOK_SECONDS
            version = self._file_version()
            if version is None or version == self._loaded_version:  # None: an editor replaces it
                return
            try:
                self.flush()  # the new module does not have this one's buffers
            except Exception:  # the next save's flush raises it, and ends the watch
                return
            self._loaded_version = version
            self._reload()

    def _reload(self) -> None:
        try:
            new = self._loaded()
        except UsageError as error:
            logger.error(f"{error}; the version loaded before stays in use")
            return
        old, self._current = self._current, new
        try:
            self.finish(old.close())
        except Exception as error:
            logger.error(
                f"handler {old.name} failed to close: {type(error).__name__}: {error_text(error)}"
            )
        logger.info(f"Reloaded: {os.path.relpath(self._path)}")

    def _loaded(self) -> Handler:
        before = sys.dont_write_bytecode
        sys.dont_write_bytecode = True  # valid by whole seconds: misses a second edit
        try:
            return self._load()
        finally:
            sys.dont_write_bytecode = before

    def _file_version(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
