"""A checkpoint in a file that always holds whole tokens."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from watcher import process_start
from watcher.errors import UsageError
from watcher.files import replacing
from watcher.stores.protocol import Store
from watcher.streams.checkpoint_format import Token, encode_all, from_checkpoint


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


class CheckpointFile(Store):
    """A file that always holds whole tokens, even after a power failure.

    It keeps a lock while it is open, so that no two programs overwrite each other's positions.
    Raises UsageError for a file that can't be used.
    """

    def __init__(self, path: str | Path) -> None:
        # Links are followed: the lock is for the file itself, and a rename must not replace a link.
        self.path = Path(path).resolve()
        if not self.path.name:  # the root
            raise _refused(self.path, "can't be used: Is a directory")
        self._new_path = self.path.with_name(self.path.name + ".new")
        try:
            self._lock = open(f"{self.path}.lock", "ab", opener=_no_link)
        except OSError as error:
            raise _unusable(self.path, error) from None
        # A worker that outlives this process must not keep the next program out.
        process_start.in_forked_child(self.close)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise _refused(self.path, "another watch uses it: end that first") from None

    @property
    def name(self) -> str:
        """Its path."""
        return str(self.path)

    def load(self) -> list[Token]:
        """See `Store`: an empty list without a file."""
        return read_file(self.path)

    def save(self, tokens: Sequence[Token]) -> None:
        """Writes a new file, flushes it to the disk, and renames it: readers see whole tokens."""
        try:
            with replacing(self.path, self._new_path) as file:
                file.write(encode_all(tokens))
        except OSError as error:
            raise _unusable(self.path, error) from None

    def close(self) -> None:
        """Releases the lock."""
        self._lock.close()


def read_file(path: Path) -> list[Token]:
    """Returns a file's tokens, also while a watch uses it; an empty list without a file.

    Raises UsageError.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unusable(path, error) from None
    return from_checkpoint(text, str(path), "remove it to start again, or choose another")


def _unusable(path: Path, error: OSError) -> UsageError:
    return _refused(path, f"can't be used: {error.strerror or error}")


def _refused(path: Path, text: str) -> UsageError:
    return UsageError(text, "checkpoint", str(path))
