"""Room for many connections: the soft limit of open files is low for the sake of old programs."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator

# For what else the program opens: connections, checkpoints, what handlers need.
_RESERVE = 32


def refuse_scarce(descriptor: int) -> None:
    """Raise OSError where this one, the newest, leaves too few for all else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptor >= soft - min(_RESERVE, soft // 4):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """As many open files as the system allows, meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Where the hard limit means nothing (macOS), the kernel has one of its own.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
