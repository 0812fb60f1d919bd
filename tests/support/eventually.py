"""The one way to wait for what no event tells."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 110.0
"""Seconds until what does not come is given up: a net, which a full machine must not reach."""


def eventually(
    condition: Callable[[], object],
    *,
    told: Callable[[], object] = lambda: "it did not come",
    seconds: float = PATIENCE,
) -> None:
    """Wait until it holds; `told` is what a failure shows."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, told()
        time.sleep(0.02)
