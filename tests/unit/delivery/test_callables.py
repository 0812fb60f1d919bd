"""Functions that a call alone does not run are told from those that it does."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from watcher.delivery.callables import NotRunError, check_answer, unfit


async def coroutine(*given: object) -> None: ...


async def async_generator(*given: object) -> AsyncIterator[int]:
    yield 1


def generator(*given: object) -> Iterator[int]:
    yield 1


@functools.wraps(coroutine)
def runs_it(*given: object) -> None:
    """As decorators do that run an async function."""


@functools.wraps(coroutine)
def only_calls_it(*given: object) -> Any:
    return coroutine(*given)


class Async:
    async def __call__(self, *given: object) -> None: ...

    async def method(self, *given: object) -> None: ...


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (coroutine, "is async"),
        (async_generator, "is an async generator"),
        (generator, "is a generator"),
        (Async(), "is async"),
        (Async().method, "is async"),
        (functools.partial(functools.partial(coroutine, 1), 2), "is async"),
        (functools.partial(Async()), "is async"),
    ],
)
def test_what_never_runs_is_named(function: Callable[..., Any], word: str) -> None:
    assert unfit(function, "record").startswith(word)


def of_a_session(session: object, record: object) -> None: ...


@functools.wraps(of_a_session)
def with_a_session(*given: object) -> None:
    of_a_session(object(), *given)


@pytest.mark.parametrize(
    ("function", "fits"),
    [
        *((each, True) for each in (print, with_a_session, lambda record, more=1: None, int)),
        *((each, True) for each in (runs_it, only_calls_it, functools.partial(print))),
        *((each, False) for each in (of_a_session, lambda: None, Async().method)),
    ],
)
def test_what_runs_or_may_with_the_arguments_fits(function: Callable[..., Any], fits: bool) -> None:
    assert (unfit(function, "record") == "") is fits


@pytest.mark.parametrize("function", [coroutine, async_generator, generator, only_calls_it])
def test_an_answer_tells_too(function: Callable[..., Any]) -> None:
    with pytest.raises(NotRunError, match="nothing runs"):
        check_answer(function())


def test_other_answers_are_nobodys_business() -> None:
    answers: list[object] = [None, 1, "", [1], {}, iter([1])]
    for answer in answers:
        check_answer(answer)
