"""What travels from Spark's driver to its workers, and says there what is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark import cloudpickle


def _arrive(packed: bytes) -> Any:
    """In a worker, where there may be no watcher: nothing of it is used before that is known."""
    import pickle
    import sys

    try:
        import watcher.spark  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"Spark's worker on this machine can't import dynamodb-watcher ({error}): install it "
            f"for {sys.executable}, or send a packed environment with --archives "
            "(docs/spark.md, On a cluster)"
        ) from None
    kind, state = pickle.loads(packed)  # noqa: S301 (from our own driver)
    made = kind.__new__(kind)
    made.__dict__.update(state)
    return made


# So it travels by value: a worker without watcher has no such function.
_arrive.__module__ = "__main__"


class Travels:
    """An object that names what is missing where it arrives, in one sentence."""

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        """Packed twice: the outer part needs Python only."""
        pickler: Any = cloudpickle  # untyped
        return _arrive, (pickler.dumps((type(self), self.__dict__)),)
