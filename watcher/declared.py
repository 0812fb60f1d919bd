"""Declares options of functions and classes, for the command line and for `help()`."""

import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import (
    Annotated,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

_Function = TypeVar("_Function", bound=Callable[..., object])
_Options = TypeVar("_Options")
_Fields = ParamSpec("_Fields")
_Stream = TypeVar("_Stream", contravariant=True)
_Observers = TypeVar("_Observers", contravariant=True)
_Result = TypeVar("_Result", covariant=True)
_Return = TypeVar("_Return")
_Class = TypeVar("_Class")
_Self = TypeVar("_Self")
_S = TypeVar("_S")
_O = TypeVar("_O")


@dataclass(frozen=True, slots=True)
class Opt:
    """How the command line names and shows an annotated parameter."""

    help: str = ""
    metavar: str | None = None
    """What help calls the option's value; None for a switch."""
    group: str | None = None
    name: str | tuple[str, ...] = ()
    """Its flags, or its operand's name; by default, from the parameter's name."""
    alias: str | tuple[str, ...] = ()
    negative: str | tuple[str, ...] | None = None
    """The flag that turns a switch off; None: `--no-NAME`."""
    choices: tuple[str, ...] | None = None
    completer: Callable[[str], Iterable[str]] | None = None
    """Returns values that begin like this, for a shell's TAB."""
    parse: bool = True
    """False for a parameter that is no option."""
    show: bool = True
    """False for an operand that help leaves out."""


class Watching(Protocol, Generic[_Stream, _Observers, _Fields, _Result]):
    """A function of a stream and observers that also takes the fields of an options class."""

    def __call__(
        self,
        stream: _Stream,
        observers: _Observers,
        *_: _Fields.args,
        **fields: _Fields.kwargs,
    ) -> _Result:
        """Calls the function with an options object made of the fields."""


def takes_options(
    options: Callable[_Fields, _Options],
) -> Callable[
    [Callable[[_Stream, _Observers, _Options], _Result]],
    Watching[_Stream, _Observers, _Fields, _Result],
]:
    """Makes a function take the fields of its last parameter's class as keywords.

    Its signature and its docstring then contain the fields.
    """
    return lambda function: _spelled_out(function, options)


def takes_options_in_init(
    options: Callable[_Fields, _Options],
) -> Callable[
    [Callable[[_Self, _S, _O, _Options], None]],
    Callable[Concatenate[_Self, _S, _O, _Fields], None],
]:
    """Does the same as `takes_options` for an `__init__`."""
    return lambda function: _spelled_out(function, options)


def takes_fields(
    options: Callable[_Fields, _Options],
) -> Callable[
    [Callable[[_Self, _Options], _Return]], Callable[Concatenate[_Self, _Fields], _Return]
]:
    """Does the same for a method whose parameters all are fields."""
    return lambda function: _spelled_out(function, options)


def _spelled_out(
    function: Callable[..., _Return], options: Callable[..., object]
) -> Callable[..., _Return]:
    """Returns the function with its last parameter replaced by the fields of its class."""
    own = inspect.signature(function)
    *operands, last = own.parameters.values()

    def call(*given: object, **values: object) -> _Return:
        count = len(operands)
        named = {each.name: values.pop(each.name) for each in operands if each.name in values}
        made = options(*given[count:], **values)
        return function(*given[:count], **named, **{last.name: made})

    fields = inspect.signature(options).parameters.values()
    call.__signature__ = own.replace(parameters=[*operands, *fields])  # type: ignore[attr-defined]
    hints = get_type_hints(function)
    # The function's module has the fields' types; the class's module omits imports, for --help.
    types = get_type_hints(options, localns=function.__globals__)
    names = {each.name: types[each.name] for each in fields}
    call.__annotations__ = {name: hints[name] for name in hints if name != last.name} | names
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(call, name, getattr(function, name))
    return declares_options(call)


def own_options_first(options: type[_Class]) -> type[_Class]:
    """Shows a class's own options before those of its base class."""
    shown = inspect.signature(options)
    own = options.__annotations__
    first = sorted(shown.parameters.values(), key=lambda each: each.name not in own)
    options.__signature__ = shown.replace(parameters=first)  # type: ignore[attr-defined]
    return options


def declares_options(function: _Function) -> _Function:
    """Shows plain types in the function's signature, and each option's help in its docstring."""
    declared = inspect.signature(function)
    function.__declared__ = declared  # type: ignore[attr-defined]
    shown = [each.replace(annotation=_plain(each)) for each in declared.parameters.values()]
    function.__signature__ = declared.replace(parameters=shown)  # type: ignore[attr-defined]
    rows = "\n".join(_rows(declared))
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nOptions:\n{rows}"
    return function


def declared(options: Callable[..., object]) -> inspect.Signature:
    """Returns the signature of a function or a class, with the command line's annotations."""
    found: inspect.Signature = getattr(options, "__declared__", None) or inspect.signature(options)
    return found


def _rows(signature: inspect.Signature) -> Iterator[str]:
    for name, each in signature.parameters.items():
        if get_origin(each.annotation) is Annotated:
            (option,) = each.annotation.__metadata__
            yield textwrap.fill(
                f"{name}: {option.help}", 79, initial_indent="  ", subsequent_indent="    "
            )


def _plain(parameter: inspect.Parameter) -> object:
    """Returns the type without the command line's annotation."""
    hint: object = parameter.annotation
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint
