"""Finds handler modules, describes them without importing, and loads the chosen ones."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from watcher.delivery.callables import unfit
from watcher.errors import UsageError, error_text

if TYPE_CHECKING:
    from watcher.aws.config import AwsConfig
    from watcher.delivery.handler import Handler

logger = logging.getLogger("watcher")

_PACKAGE = Path(__file__).parents[1]


class Option(NamedTuple):
    """An option of a handler: the name of its value in help (None: a switch), and its help."""

    metavar: str | None
    help: str


@dataclass(frozen=True)
class HandlerModule:
    """A module in a handlers folder: its name, its file, and its docstring's first line."""

    name: str
    path: Path
    description: str
    options: Mapping[str, Option] = field(default_factory=dict)
    """The options that its `OPTIONS` declares, by the parameters of its `configure`."""
    hidden: Path | None = None
    """A module of the same name in `./handlers`, which is not used."""

    @property
    def flag(self) -> str:
        """The command-line flag: `--print-summary` for `print_summary`."""
        return "--" + self.name.replace("_", "-")

    @property
    def takes_value(self) -> bool:
        """True where its flag takes a value: it has an option of its own name."""
        return self.name in self.options

    @property
    def is_built_in(self) -> bool:
        """True for a handler that ships with watcher."""
        return self.path.parent == built_in_folder().resolve()

    @property
    def is_here(self) -> bool:
        """True for a handler in the working folder's `handlers/`."""
        return not self.is_built_in and self.path.parent == Path("handlers").resolve()

    @property
    def initials(self) -> str | None:
        """The short flag: `-ps` for `print_summary`; None for a name of one word."""
        words = [word for word in self.name.split("_") if word]
        return "-" + "".join(word[0] for word in words) if len(words) > 1 else None


def built_in_folder() -> Path:
    """Returns the project's `handlers/`: beside the package in a checkout, inside it in a wheel."""
    installed = _PACKAGE / "builtin_handlers"
    return installed if installed.is_dir() else _PACKAGE.parent / "handlers"


def find(folders: Iterable[Path] = ()) -> dict[str, HandlerModule]:
    """Returns the handlers by name: built-in ones, those in `./handlers`, and in the given folders.

    A given folder's module replaces one of the same name; a module that is only in `./handlers`
    does not replace a built-in one. Raises UsageError for a given folder that does not exist.
    """
    given = list(folders)
    for folder in given:
        if not folder.is_dir():
            raise UsageError("no folder to take handlers from", "handlers", folder)
    resolved = [folder.resolve() for folder in given]
    places = [built_in_folder().resolve(), Path("handlers").resolve(), *resolved]
    found: dict[str, HandlerModule] = {}
    for place in dict.fromkeys(places):
        for path in sorted(place.glob("*.py")):
            handler = described(path)
            before = found.get(handler.name)
            if handler.name.startswith("_") or not handler.name.isidentifier():
                continue
            if before is not None and before.is_built_in and place not in resolved:
                handler = replace(before, hidden=path)
            found[handler.name] = handler
    return found


def described(path: Path) -> HandlerModule:
    """Returns a handler's description, read from its source without running it."""
    try:
        changed_at = path.stat().st_ctime_ns  # a change of its permissions counts too
    except OSError:
        changed_at = 0
    return _described(path, changed_at)


@functools.lru_cache  # a line is parsed several times: for its command, a hint, a completion
def _described(path: Path, changed_at: int) -> HandlerModule:
    name = path.stem.replace("-", "_")
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        return HandlerModule(name, path, f"can't be used: {error}")
    except OSError as error:
        return HandlerModule(name, path, f"can't be read: {error.strerror}")
    text = (ast.get_docstring(tree) or "").strip() or f"the handler in {path}"
    return HandlerModule(name, path, text.splitlines()[0], _options(tree))


def _options(tree: ast.Module) -> dict[str, Option]:
    """Returns the options in `OPTIONS = {"out_file": ("PATH", "help")}`; none in another form."""
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name("OPTIONS")], value) | ast.AnnAssign(
                ast.Name("OPTIONS"), _, ast.expr() as value
            ):
                try:
                    return dict(map(_option, ast.literal_eval(value).items()))
                except (AttributeError, ValueError, TypeError, SyntaxError, RecursionError):
                    return {}
    return {}


def _option(item: tuple[object, object]) -> tuple[str, Option]:
    match item:
        case (str() as name, (str() | None as metavar, str() as text)):
            return name, Option(metavar, text)
    raise ValueError("not as OPTIONS are written")


def load(
    handler: HandlerModule,
    options: Mapping[str, object] | None = None,
    aws: AwsConfig | None = None,
) -> Handler:
    """Imports a handler, and calls its `configure` with the given options.

    A `configure` with a parameter `session` gets boto3's session of `aws` too. Raises UsageError,
    naming the file, where it can't be used.
    """
    if handler.hidden is not None:
        logger.warning(
            f"{handler.flag} is built in, and {os.path.relpath(handler.hidden)} is not used: "
            "rename it, or give --handlers handlers"
        )
    # It may import a `_shared.py` from its own folder, and a handler of the working folder also
    # modules from there.
    for folder in (str(handler.path.parent), *([os.getcwd()] if handler.is_here else [])):
        if folder not in sys.path:
            sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(f"handlers.{handler.name}", handler.path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        place = f"{error.filename or handler.path}:{error.lineno}"
        raise UsageError(f"handler {place}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error_text(error)}"
        raise UsageError(f"handler {handler.path} can't be imported: {text}") from error
    loaded = module_handler(module, handler.name, str(handler.path))
    if handler.is_built_in:
        loaded.handle_page = getattr(module, "handle_page", None)
    _configure(handler, module, options or {}, aws)
    return loaded


def module_handler(module: ModuleType, name: str, place: str) -> Handler:
    """Returns the handler that a module offers: its `handle`, with its `close` and `flush`.

    Raises UsageError, naming the place, where it can't be used.
    """
    from watcher.delivery.handler import Handler

    handle = getattr(module, "handle", None)
    if not callable(handle):
        raise UsageError(f"handler {place} has no function handle(record)")
    close, flush = getattr(module, "close", None), getattr(module, "flush", None)
    parts: list[tuple[Any, str, list[str]]] = [
        (handle, "handle", ["record"]),
        (close, "close", []),
        (flush, "flush", []),
    ]
    for each, what, given in parts:
        if callable(each) and (reason := unfit(each, *given)):
            raise UsageError(f"handler {place}: {what} {reason}")
    close, flush = (each if callable(each) else None for each in (close, flush))
    return Handler(name, handle, close, flush=flush)


def function(name: str, *arguments: str) -> Callable[..., object]:
    """Imports `package.module:function`, also from the working folder.

    Raises UsageError where the function does not exist, or a call with arguments of these names
    would not run it.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path or "/" in module_name:
        before, _, after = name.removesuffix(".py").strip(":./").rpartition(".")
        example = f"{before}:{after}" if before and "/" not in name else "app.changes:handle"
        raise UsageError(f"{name or repr(name)}: give MODULE:FUNCTION, such as {example}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error_text(error)}"
        raise UsageError(f"{name}: {module_name} can't be imported: {text}") from error
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise UsageError(f"{name}: {module_name} has no function {path}")
    loaded: Callable[..., object] = found
    if reason := unfit(loaded, *arguments):
        raise UsageError(f"{name} {reason}")
    return loaded


def _configure(
    handler: HandlerModule,
    module: ModuleType,
    options: Mapping[str, object],
    aws: AwsConfig | None,
) -> None:
    """Calls `configure(**options)` of a module that declares options."""
    if not hasattr(module, "OPTIONS"):
        return
    if not handler.options:
        advice = '{"out_file": ("PATH", "what it is for")}'
        raise UsageError(f"handler {handler.path}: write OPTIONS as a literal, such as {advice}")
    configure = getattr(module, "configure", None)
    if not callable(configure):
        raise UsageError(f"handler {handler.path} has OPTIONS, but no function configure")
    more = {}
    if "session" in inspect.signature(configure).parameters and "session" not in handler.options:
        from watcher.aws.config import AwsConfig  # not for help: it needs botocore

        more["session"] = (aws or AwsConfig()).boto3_session()
    try:
        configure(**options, **more)
    except OSError as error:
        text = f"can't open {error.filename}: {error.strerror}"
        about = [name for name, value in options.items() if value == error.filename]
        raise UsageError(f"handler {handler.name}: {text}", about=about) from error
    except ValueError as error:  # a value that it can't use
        flags = {name: "--" + name.replace("_", "-") for name in options}
        about = [name for name in options if len(options) == 1 or flags[name] in error_text(error)]
        raise UsageError(f"handler {handler.name}: {error_text(error)}", about=about) from error
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error_text(error)}"
        raise UsageError(f"handler {handler.path} can't be configured: {text}") from error
