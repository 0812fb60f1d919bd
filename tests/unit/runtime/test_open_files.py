"""A watch leaves open files for all else."""

from __future__ import annotations

import resource

import pytest

from watcher.runtime import processes


def test_some_are_kept_for_all_else() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        processes.refuse_scarce(167)
        with pytest.raises(OSError, match="Too many open files"):
            processes.refuse_scarce(168)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
