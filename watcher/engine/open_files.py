"""Room for many connections: the soft limit of open files is low for the sake of old programs."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator


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
