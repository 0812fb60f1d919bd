"""Files that hold items: readable for their owner alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from watcher.errors import UsageError


@contextmanager
def replacing(path: Path) -> Iterator[IO[str]]:
    """A text file that takes this place once it is whole; nobody ever sees half of it.

    Raises UsageError.
    """
    place = path.resolve()  # a link stays one
    aside = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        if path.is_dir():
            raise UsageError(f"can't write {path}: it is a folder; name a file in it")
        with new(aside) as file:
            try:
                yield file
                file.flush()
                os.replace(aside, place)
            finally:
                aside.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"can't write {path}: {error.strerror}") from None


def new(path: Path) -> IO[str]:
    """A text file that was not there, for its owner alone. Raises OSError."""
    flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY
    return open(os.open(path, flags, 0o600), "w", encoding="utf-8", errors="backslashreplace")
