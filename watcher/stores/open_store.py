"""Opens the store of a `--checkpoint`: a file, DynamoDB, S3, or a caller's object."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from watcher.aws import s3
from watcher.aws.arns import region_in
from watcher.aws.config import AwsConfig
from watcher.aws.error_mapping import error_code
from watcher.aws.lease_storage import SCHEME, LeaseObject, LeaseTable
from watcher.delivery.callables import unfit
from watcher.errors import CheckpointError, UsageError, error_text
from watcher.stores.file import CheckpointFile, read_file
from watcher.stores.lease import Lease, own_name
from watcher.stores.protocol import CheckpointStorage, Store
from watcher.streams.checkpoint_format import Token, encode_all, from_checkpoint

_FORMS = f"a file, {SCHEME}TABLE/NAME, {s3.SCHEME}BUCKET/KEY, or an object with load() and save()"
_URL = re.compile(r"[a-z][a-z0-9+.-]*://")


def open_store(
    checkpoint: str | os.PathLike[str] | CheckpointStorage,
    connection: AwsConfig,
    stream: object,
) -> Store:
    """Returns the store of a path, a URL, or an object. Raises UsageError.

    A shared checkpoint is in the stream's region unless its connection has another.
    """
    if not isinstance(checkpoint, str | os.PathLike):
        return CustomStore(checkpoint)
    if (leased := _leased(checkpoint, connection, stream)) is not None:
        return leased
    return CheckpointFile(Path(checkpoint))


def read_positions(checkpoint: str, connection: AwsConfig) -> list[Token]:
    """Returns the tokens of a file or a URL, also while a watch uses it. Raises UsageError."""
    leased = _leased(checkpoint, connection, None)
    if leased is None:
        return read_file(Path(checkpoint))
    try:
        return leased.read()
    except CheckpointError as error:
        reason = error.__cause__ and error.__cause__.__cause__
        if error_code(reason) == "ResourceNotFoundException":  # the table, which a watch creates
            return []
        raise


def _leased(
    checkpoint: str | os.PathLike[str], connection: AwsConfig, stream: object
) -> Lease | None:
    """Returns the store of a URL; None for a file."""
    url = os.fspath(checkpoint)
    if isinstance(checkpoint, Path) or not (found := _URL.match(url)):
        return None
    region = region_in(stream) if isinstance(stream, str) else None
    storages: dict[str, type[LeaseTable | LeaseObject]] = {
        SCHEME: LeaseTable,
        s3.SCHEME: LeaseObject,
    }
    if (storage := storages.get(found[0])) is not None:
        return Lease(storage.from_url(url, connection, region), own_name(), renews=True)
    raise UsageError(f"no {found[0]} here: give {_FORMS}", "checkpoint", url)


class CustomStore(Store):
    """A store whose object has `load` and `save` for a token's JSON text."""

    def __init__(self, given: CheckpointStorage) -> None:
        self._given = given
        for each, arguments in {"load": (), "save": ("token",)}.items():
            method: Any = getattr(given, each, None)
            if not callable(method):
                raise self._refused(f"give {_FORMS}")
            if reason := unfit(method, *arguments):
                raise self._refused(f"its {each} {reason}")

    @property
    def name(self) -> str:
        """The object's class."""
        return type(self._given).__name__

    def load(self) -> list[Token]:
        """Returns the tokens that its `load` returns; an empty list for None."""
        try:
            text = self._given.load()
        except Exception as error:
            raise self._failed("load", error) from error
        if text is None:
            return []
        if not isinstance(text, str | bytes):
            raise self._refused(f"its load gave {type(text).__name__}: give what save got")
        return from_checkpoint(text, self.name, "its load has to give what save got, or None")

    def save(self, tokens: Sequence[Token]) -> None:
        """Calls its `save` with the tokens' JSON text."""
        try:
            self._given.save(encode_all(tokens).decode())
        except Exception as error:
            raise self._failed("save", error) from error

    def _failed(self, name: str, error: Exception) -> UsageError:
        what = " ".join(f"{type(error).__name__}: {error_text(error)}".split())
        return self._refused(f"its {name} failed: {what}")

    def _refused(self, text: str) -> UsageError:
        return UsageError(text, "checkpoint", self.name)
