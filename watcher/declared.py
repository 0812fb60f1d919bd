"""Declares options of functions and classes, for the command line and for `help()`."""

import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar, get_args, get_origin

_Function = TypeVar("_Function", bound=Callable[..., object])
_Options = TypeVar("_Options")
_Fields = ParamSpec("_Fields")
_Return = TypeVar("_Return")
_Self = TypeVar("_Self")


@dataclass(frozen=True, slots=True)
class Opt:
    """How the command line names and shows an annotated parameter."""

    help: str = ""
    metavar: str | None = None
    """What help calls the option's value; None for a switch."""
    group: str | None = None
    name: str = ""
    """Its flags, or its operand's name; by default, from the parameter's name."""
    alias: str = ""
    negative: str | None = None
    """The flags that turn a switch off; None: `--no-NAME`."""
    choices: tuple[str, ...] = ()


def takes_options(
    options: Callable[_Fields, _Options],
) -> Callable[[Callable[[_Options], _Return]], Callable[_Fields, _Return]]:
    """Makes a function of an options object take that class's fields as its parameters.

    Its signature and its docstring then contain the fields.
    """
    return lambda function: _spelled_out(function, options, 0)


def takes_fields(
    options: Callable[_Fields, _Options],
) -> Callable[
    [Callable[[_Self, _Options], _Return]], Callable[Concatenate[_Self, _Fields], _Return]
]:
    """Does the same for a method."""
    return lambda function: _spelled_out(function, options, 1)


def _spelled_out(
    function: Callable[..., _Return], options: Callable[..., object], own: int
) -> Callable[..., _Return]:
    """Returns the function with the fields of its last parameter's class behind its `own` ones."""
    shown = inspect.signature(function)

    def call(*given: object, **values: object) -> _Return:
        return function(*given[:own], options(*given[own:], **values))

    first, fields = [*shown.parameters.values()][:own], inspect.signature(options).parameters
    changed: Any = call
    changed.__signature__ = shown.replace(parameters=[*first, *fields.values()])
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(call, name, getattr(function, name))
    return declares_options(call)


def declares_options(function: _Function) -> _Function:
    """Shows plain types in the function's signature, and each option's help in its docstring."""
    found = inspect.signature(function)
    shown = [
        each.replace(annotation=get_args(each.annotation)[0]) if _is_option(each) else each
        for each in found.parameters.values()
    ]
    changed: Any = function
    changed.__declared__, changed.__signature__ = found, found.replace(parameters=shown)
    rows = "\n".join(_rows(found))
    changed.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nOptions:\n{rows}"
    return function


def declared(options: Callable[..., object]) -> list[inspect.Parameter]:
    """Returns the options of a function or a class, with the command line's annotations."""
    found = getattr(options, "__declared__", None) or inspect.signature(options)
    return list(filter(_is_option, found.parameters.values()))


def _is_option(parameter: inspect.Parameter) -> bool:
    return get_origin(parameter.annotation) is Annotated


def _rows(signature: inspect.Signature) -> Iterator[str]:
    for each in filter(_is_option, signature.parameters.values()):
        (option,) = each.annotation.__metadata__
        yield textwrap.fill(
            f"{each.name}: {option.help}", 79, initial_indent="  ", subsequent_indent="    "
        )
