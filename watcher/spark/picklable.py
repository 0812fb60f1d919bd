"""What travels from Spark's driver to its workers, and says there what is missing."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import cloudpickle

from watcher.errors import WatcherError


def _arrive(packed: bytes) -> Any:
    """In a worker, where there may be no watcher: nothing of it is used before that is known."""
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


# So it travels by value: a worker without watcher has no such function.
_arrive.__module__ = "__main__"


@contextmanager
def _in_a_sentence() -> Iterator[None]:
    """What an error of ours says is what to do: Spark shows no traceback above it.

    The worker that it is raised in ends with it, so this is the last that Spark looks up there.
    """
    try:
        yield
    except WatcherError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def _asked_by_spark(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def asked(*given: Any, **named: Any) -> Any:
        with _in_a_sentence():
            answer = method(*given, **named)
        return _each(answer) if isinstance(answer, Iterator) else answer

    return asked


def _each(rows: Iterator[Any]) -> Iterator[Any]:
    with _in_a_sentence():
        yield from rows


class SparkPicklable:
    """An object that names what is missing where it arrives, in one sentence.

    So do its methods, where they raise an error of ours.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, method in list(vars(cls).items()):
            if inspect.isfunction(method) and not name.startswith("_"):
                setattr(cls, name, _asked_by_spark(method))

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        """Packed twice: the outer part needs Python only."""
        pickler: Any = cloudpickle  # untyped
        return _arrive, (pickler.dumps((type(self), self.__dict__)),)
