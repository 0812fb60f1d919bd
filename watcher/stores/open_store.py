"""Opens the store of a `--checkpoint`: a file, DynamoDB, S3, or a caller's object."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from watcher.aws import s3
from watcher.aws.arns import region_in
from watcher.aws.config import AwsConfig
from watcher.aws.error_mapping import error_code
from watcher.aws.lease_object import LeaseObject
from watcher.aws.lease_table import SCHEME, LeaseTable
from watcher.clock import CLOCK
from watcher.errors import CheckpointError, UsageError
from watcher.stores.custom import CustomStore
from watcher.stores.file import CheckpointFile, read_file
from watcher.stores.lease import LEASE_SECONDS, Lease, Renewer, own_name
from watcher.stores.protocol import CheckpointStorage, Store
from watcher.streams.checkpoint_format import Token

CLAIM_SECONDS = LEASE_SECONDS + 4.0
"""The longest wait of a command for a lease: a killed watch's has expired by then."""
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


@contextmanager
def claimed(checkpoint: str, connection: AwsConfig) -> Iterator[Store]:
    """Opens the store of a file or a URL; no watch can use it meanwhile.

    Waits for a lease until that of a killed watch has expired. Raises UsageError where a watch uses
    the store.
    """
    with closing(open_store(checkpoint, connection, None)) as store:
        store.peek()
        until = CLOCK.boottime() + CLAIM_SECONDS
        if not store.stand_by(lambda: CLOCK.boottime() > until):
            raise UsageError("another watch uses it: end that first", "checkpoint", checkpoint)
        yield store


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
        return Lease(storage.from_url(url, connection, region), own_name(), start_renewer=Renewer)
    text = (
        f"no {found[0]} here: give a file, {SCHEME}TABLE/NAME, {s3.SCHEME}BUCKET/KEY, "
        "or an object with load() and save()"
    )
    raise UsageError(text, "checkpoint", url)
