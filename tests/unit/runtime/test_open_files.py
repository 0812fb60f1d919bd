"""As many open files as the system allows, for as long as the watch lasts."""

from __future__ import annotations

import resource

import pytest

from watcher.runtime import processes


def test_the_soft_limit_is_the_hard_one_meanwhile() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = min(256, soft)
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
    try:
        with processes.raised_open_files():
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (low, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_some_are_kept_for_all_else() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        processes.refuse_scarce(167)
        with pytest.raises(OSError, match="Too many open files"):
            processes.refuse_scarce(168)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
