"""As many open files as the system allows, for as long as the watch lasts."""

from __future__ import annotations

import resource

from watcher.engine import open_files


def test_the_soft_limit_is_the_hard_one_meanwhile() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = min(256, soft)
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
    try:
        with open_files.raised():
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (low, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
