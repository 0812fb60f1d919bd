"""Objects that Spark pickles for its workers; where watcher is missing, the error says so."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import cloudpickle

from watcher.errors import WatcherError


def _unpickle(packed: bytes) -> object:
    """Unpickles in a worker; checks first, without watcher's own code, that watcher is there."""
    import pickle
    import sys

    try:
        import watcher.version  # noqa: F401
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


# So it is pickled by value: a worker without watcher has no such function.
_unpickle.__module__ = "__main__"


@contextmanager
def _without_traceback() -> Iterator[None]:
    """Hides the traceback of our own errors, whose text is what to do.

    The worker that it is raised in ends with it, so this is the last that Spark looks up there.
    """
    try:
        yield
    except WatcherError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def _called_by_spark(method: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(method)
    def call(*positional: object, **named: object) -> object:
        with _without_traceback():
            result = method(*positional, **named)
        return _each(result) if isinstance(result, Iterator) else result

    return call


def _each(rows: Iterator[object]) -> Iterator[object]:
    with _without_traceback():
        yield from rows


class SparkPicklable:
    """An object whose unpickling says in one line that a worker lacks watcher.

    Its methods raise errors of ours without a traceback.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, method in list(vars(cls).items()):
            if inspect.isfunction(method) and not name.startswith("_"):
                setattr(cls, name, _called_by_spark(method))

    def __reduce__(self) -> tuple[Callable[[bytes], object], tuple[bytes]]:
        """Pickles it twice: the outer part needs Python only."""
        pickler: Any = cloudpickle  # untyped
        return _unpickle, (pickler.dumps((type(self), self.__dict__)),)
