"""Finds handler modules, describes them without importing, and loads the chosen ones."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from watcher.dispatcher import Observer
from watcher.errors import UsageError

_PACKAGE = Path(__file__).parent


class Handler(msgspec.Struct, frozen=True):
    """A module in a handlers folder: its name, where it is, and its docstring's first line."""

    name: str
    path: Path
    description: str

    @property
    def flag(self) -> str:
        """`print_summary` is chosen by `--print-summary`."""
        return "--" + self.name.replace("_", "-")

    @property
    def initials(self) -> str | None:
        """`print_summary` is also `-ps`; a name of one word has no short form."""
        words = [word for word in self.name.split("_") if word]
        return "-" + "".join(word[0] for word in words) if len(words) > 1 else None


def built_in_folder() -> Path:
    """The `handlers/` of the project: beside the package in a checkout, inside it in a wheel."""
    installed = _PACKAGE / "builtin_handlers"
    return installed if installed.is_dir() else _PACKAGE.parent / "handlers"


def find(folders: Iterable[Path] = ()) -> dict[str, Handler]:
    """The handlers by name: the project's, those in `./handlers`, and in the given folders.

    A later folder's module takes the place of an earlier one's. Raises UsageError for a given
    folder that is not there.
    """
    places = [built_in_folder(), Path("handlers")]
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"no folder {folder} to take handlers from")
        places.append(folder)
    found: dict[str, Handler] = {}
    for place in dict.fromkeys(place.resolve() for place in places):
        for path in sorted(place.glob("*.py")):
            if not path.name.startswith("_") and path.stem.isidentifier():
                found[path.stem] = Handler(path.stem, path, _description(path))
    return found


def _description(path: Path) -> str:
    """The docstring's first line, read without running anything of the module."""
    try:
        text = ast.get_docstring(ast.parse(path.read_bytes()))
    except (SyntaxError, ValueError) as error:
        return f"can't be used: {error}"
    except OSError as error:
        return f"can't be read: {error.strerror}"
    return text.strip().splitlines()[0] if text and text.strip() else f"the handler in {path}"


def load(handler: Handler) -> Observer:
    """Import a handler. Raises UsageError, naming the file, where it can't be used."""
    # Beside its own file, so that it can import a `_shared.py` in the same folder.
    folder = str(handler.path.parent)
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
        text = f"{type(error).__name__}: {error}"
        raise UsageError(f"handler {handler.path} can't be imported: {text}") from error
    handle = getattr(module, "handle", None)
    if not callable(handle):
        raise UsageError(f"handler {handler.path} has no function handle(record)")
    close = getattr(module, "close", None)
    return Observer(handler.name, handle, close if callable(close) else None)
