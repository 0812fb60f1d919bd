"""Finds functions that a call would not run: coroutines, or those with other parameters."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable


class NotRunError(Exception):
    """A call has returned a coroutine or a generator: no code of the function has run."""


def unfit(function: Callable[..., object], *arguments: str) -> str:
    """Returns why a call with these arguments would not run the function; "" if it would.

    A plain function that wraps an async one is accepted: it may run it.
    """
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    for each in (inner, type(inner).__call__):
        if inspect.isasyncgenfunction(each):
            return "is an async generator, and nothing would run it; use return instead of yield"
        if inspect.iscoroutinefunction(each):
            return "is async, and nothing would await it: run it in a plain function"
        if inspect.isgeneratorfunction(each):
            return "is a generator, and nothing would run it; use return instead of yield"
    try:
        # The decorator's own: it may pass more arguments to the function that it wraps.
        signature = inspect.signature(function, follow_wrapped=False)
    except (ValueError, TypeError):  # a C function without a signature
        return ""
    try:
        signature.bind(*arguments)
    except TypeError as error:
        return f"can't be called with ({', '.join(arguments)}): {error}"
    return ""


def check_answer(answer: object) -> None:
    """Raises NotRunError for a return value that shows that the function has not run."""
    if isinstance(answer, types.CoroutineType | types.GeneratorType):
        answer.close()
    elif not isinstance(answer, types.AsyncGeneratorType):
        return
    kind = "generator" if isinstance(answer, types.GeneratorType) else "coroutine"
    raise NotRunError(f"the call answered a {kind}, which nothing runs")
