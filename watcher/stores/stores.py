"""Where a checkpoint is kept: a file that always holds whole tokens, or what the caller gives."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from watcher import files, process_start
from watcher.aws.arns import region_in
from watcher.aws.config import AwsConfig
from watcher.aws.lease_table import SCHEME
from watcher.delivery.callables import check_answer, unfit
from watcher.errors import UsageError
from watcher.stores.checkpoint_saver import Store
from watcher.stores.dynamodb_lease import LeasedStore, shared_store
from watcher.stores.positions import Positions
from watcher.streams.token import Token, all_from_json, encode_all

# A token takes some 200 bytes a shard; more than this is not a token.
_LARGEST = 64 * 1024 * 1024
_URL = re.compile(r"[a-z][a-z0-9+.-]*://")


class CheckpointFile(Store):
    """A file that always holds whole tokens, even when the machine stops in the middle.

    Opening it takes a lock for the life of the process, so that two programs can't take turns in
    overwriting each other's positions. Raises UsageError where the file can't be used.
    """

    def __init__(self, path: str | Path) -> None:
        # Where links end: the lock is for the file itself, and a rename must not replace a link.
        self.path = Path(path).resolve()
        self._name = str(self.path)
        if not self.path.name:  # the root
            raise self._refused("can't be used: Is a directory")
        self._aside = self.path.with_name(self.path.name + ".new")
        try:
            self._lock = files.lock_file(f"{self.path}.lock")
        except OSError as error:
            raise self._unusable(error) from None
        # A shard's process that outlives us must not keep the next program out.
        process_start.in_child(self.close)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise self._refused("in use by another watch") from None

    @property
    def name(self) -> str:
        """Its path."""
        return self._name

    def load(self) -> list[Token]:
        """The stored tokens; none where there is no file yet."""
        try:
            if self.path.stat().st_size > _LARGEST:
                raise self._refused("too large to be one; choose another")
            return all_from_json(self.path.read_bytes())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable(error) from None
        except UsageError as error:
            if error.option is not None:  # said above
                raise
            text = f"can't be read ({error}); remove it to start anew, or choose another"
            raise self._refused(text) from None

    def save(self, tokens: Sequence[Token]) -> None:
        """Write aside, flush to the disk, rename: a reader sees the old ones or the new ones."""
        try:
            files.replace(self.path, encode_all(tokens), self._aside)
        except OSError as error:
            raise self._unusable(error) from None

    def close(self) -> None:
        """Give the lock back."""
        self._lock.close()

    def _unusable(self, error: OSError) -> UsageError:
        return self._refused(f"can't be used: {error.strerror or error}")

    def _refused(self, text: str) -> UsageError:
        return UsageError(text, "checkpoint", self._name)


class CustomStore(Store):
    """An object of the caller's, whose `load` and `save` take care of a token's JSON text."""

    def __init__(self, given: Positions) -> None:
        self._given = given
        for name, arguments in {"load": (), "save": ("token",)}.items():
            method: Any = getattr(given, name, None)
            if not callable(method):
                raise self._refused(
                    f"give a file, {SCHEME}TABLE/NAME, or an object with load() and save(token)"
                )
            if reason := unfit(method, *arguments):
                raise self._refused(f"its {name} {reason}")

    @property
    def name(self) -> str:
        """The object's class."""
        return type(self._given).__name__

    def load(self) -> list[Token]:
        """What its `load` gives; none where that is nothing."""
        try:
            text = self._given.load()
        except Exception as error:
            raise self._failed("load", error) from error
        if not text:
            return []
        if not isinstance(text, str | bytes):
            raise self._refused(f"its load gave {type(text).__name__}: give what save got")
        try:
            return all_from_json(text)
        except UsageError as error:
            raise self._refused(f"its load gave what can't be read ({error})") from None

    def save(self, tokens: Sequence[Token]) -> None:
        """Give it the tokens' JSON text."""
        try:
            check_answer(self._given.save(encode_all(tokens).decode()))
        except Exception as error:
            raise self._failed("save", error) from error

    def close(self) -> None:
        """It is the caller's."""

    def _failed(self, name: str, error: Exception) -> UsageError:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        return self._refused(f"its {name} failed: {what}")

    def _refused(self, text: str) -> UsageError:
        return UsageError(text, "checkpoint", self.name)


def store_of(
    checkpoint: str | os.PathLike[str] | Positions, connection: AwsConfig, stream: object
) -> CheckpointFile | CustomStore | LeasedStore:
    """The store that a caller means. Raises UsageError where it can't be used.

    A table of positions is in the stream's region where nothing else says so.
    """
    if not isinstance(checkpoint, str | os.PathLike):
        return CustomStore(checkpoint)
    text = os.fspath(checkpoint)
    if isinstance(checkpoint, Path) or not (found := _URL.match(text)):
        return CheckpointFile(Path(checkpoint))
    if found[0] == SCHEME:
        region = region_in(stream) if isinstance(stream, str) else None
        return shared_store(text, connection, region)
    told = (
        f"no {found[0]} here: give a file, {SCHEME}TABLE/NAME, or an object with load() and save()"
    )
    raise UsageError(told, "checkpoint", text)
