"""Functions that a call alone does not run: coroutines and generators, which others must drive."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any


class NotRunError(Exception):
    """A call has answered a coroutine or a generator: nothing of the function has run."""


def never_runs(function: Callable[..., Any]) -> str:
    """Why a call would not run the function, as in "is async, and …"; empty where it would.

    A plain function that wraps an async one is not judged: it may well run it.
    """
    while isinstance(function, functools.partial):
        function = function.func
    for each in (function, type(function).__call__):
        if inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each):
            return "is async, and nothing would await it"
        if inspect.isgeneratorfunction(each):
            return "is a generator, and nothing would run it; use return instead of yield"
    return ""


def check_answer(answer: object) -> None:
    """Raise NotRunError for the answer of a function that has not run."""
    if isinstance(answer, types.CoroutineType | types.GeneratorType):
        answer.close()
    elif not isinstance(answer, types.AsyncGeneratorType):
        return
    kind = "generator" if isinstance(answer, types.GeneratorType) else "coroutine"
    raise NotRunError(f"the call answered a {kind}, which nothing runs")
