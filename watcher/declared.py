"""A function that declares options: as the command line reads it, and as `help()` shows it."""

import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeVar, get_args, get_origin

_Function = TypeVar("_Function", bound=Callable[..., Any])


def declares_options(function: _Function) -> _Function:
    """Show plain types in the function's signature, and each option's text in its docstring."""
    declared = inspect.signature(function)
    function.__declared__ = declared  # type: ignore[attr-defined]
    shown = [each.replace(annotation=_plain(each)) for each in declared.parameters.values()]
    function.__signature__ = declared.replace(parameters=shown)  # type: ignore[attr-defined]
    rows = "\n".join(_rows(declared))
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nOptions:\n{rows}"
    return function


def declared(function: Callable[..., Any]) -> inspect.Signature:
    """Its signature, with what the command line is to know of each option."""
    found: inspect.Signature = getattr(function, "__declared__", None) or inspect.signature(
        function
    )
    return found


def _rows(signature: inspect.Signature) -> Iterator[str]:
    for name, each in signature.parameters.items():
        if get_origin(each.annotation) is Annotated:
            (told,) = each.annotation.__metadata__
            yield textwrap.fill(
                f"{name}: {told.help}", 79, initial_indent="  ", subsequent_indent="    "
            )


def _plain(parameter: inspect.Parameter) -> Any:
    """The type without what the command line is to know of it."""
    hint = parameter.annotation
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint
