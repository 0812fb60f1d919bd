"""The site's pages made from the code: commands, public names, columns, metrics, errors."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_STATUS = {
    0: "The command has done its work, or you stopped it.",
    1: "A handler stopped the watch, data was lost under `--fail-on-data-loss`, another watch took "
    "over the lease, copies differ, or output could not be written.",
    2: "An option, a file, a position or a time is wrong. A restart alone does not help.",
    3: "The stream, the table of positions or a resource of the system is missing, unreachable, "
    "denied, or without credentials. A restart may help.",
}
_MODULES = re.compile(
    r"\b(?:collections\.abc|typing|os|threading|watcher(?:\.\w+)+)\.|\bdatetime\.(?=[dt])"
)
_NO_TEXT = "(no documentation)"


def pages() -> dict[str, str]:
    """Returns the pages by their names."""
    return {
        "reference.md": "\n".join([*_commands(), ""]),
        "api.md": "\n".join([*_library(), ""]),
        "source.md": "\n".join([*_spark(), ""]),
        "metric-names.md": "\n".join([*_metrics(), ""]),
        "troubleshooting.md": "\n".join([*_troubleshooting(), ""]),
    }


def _commands() -> Iterator[str]:
    from watcher.cli import help as help_pages
    from watcher.cli.command_line import COMMANDS, CommandLine

    yield "# Commands\n\nEvery command with all of its options, as `--help all` prints them."
    for name in COMMANDS:
        if name != "help":
            text = help_pages.page(CommandLine(name), "all").rstrip()
            yield f"\n## {name}\n\n```text\n{text}\n```"


def _library() -> Iterator[str]:
    import watcher

    yield "# Python\n\nEvery public name of `watcher`; [In a program](library.md) shows their use."
    for name in sorted(watcher.__all__, key=str.lower):
        yield from _name(name, getattr(watcher, name))


def _name(name: str, found: Any) -> Iterator[str]:
    yield f"\n## {name}\n"
    if not callable(found):
        yield inspect.getdoc(type(found)) or _NO_TEXT
        return
    if not (inspect.isclass(found) and issubclass(found, BaseException)):
        yield _signature(name, found)
    yield _text(found)
    if inspect.isclass(found):
        if issubclass(found, watcher_error()):
            yield f"\nExit status of the command line: {found.exit_status}."
            return
        for member, value in sorted(vars(found).items()):
            if not member.startswith("_") and _is_documented(value):
                shown = member if isinstance(value, property) else f"{member}()"
                yield f"\n### {name}.{shown}\n\n{_text(value)}"


def watcher_error() -> type[Any]:
    """Returns the base of all errors."""
    from watcher.errors import WatcherError

    return WatcherError


def _is_documented(value: object) -> bool:
    is_method = inspect.isfunction(value) or isinstance(value, property | classmethod)
    return is_method and bool(inspect.getdoc(value))


def _text(found: object) -> str:
    text = inspect.getdoc(found) or _NO_TEXT
    return re.sub(r"^( {4}|>>> )", r"    \1", text, flags=re.M)


def _signature(name: str, found: Any) -> str:
    """Returns the parameters, one a line where there are many."""
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return ""
    shown = [_parameter(each) for each in parameters]
    inside = ", ".join(shown)
    if len(inside) > 60:
        inside = "".join(f"\n    {each}," for each in shown) + "\n"
    return f"```python\n{name}({inside})\n```\n"


def _parameter(parameter: inspect.Parameter) -> str:
    """Returns a parameter as it is written, without what only the command line needs."""
    text = re.sub(r"Annotated\[(.*?), Parameter\(.*?\)\]", r"\1", str(parameter))
    text = re.sub(r"^([^:]+: )'(.*?)'", r"\1\2", text)
    return _MODULES.sub("", text)


def _spark() -> Iterator[str]:
    from watcher.spark.columns import columns
    from watcher.spark.options import parse

    yield '# Spark source\n\n`spark.read.format("dynamodb_streams")` has these columns:'
    yield "\n| column | type |\n| --- | --- |"
    options = parse({"stream": "orders", "changedAttributes": "true"}, streaming=False)
    for name, kind in columns(options).items():
        yield f"| `{name}` | {kind} |"
    yield "\n[On Spark](spark.md#in-your-own-program) describes its options."


def _metrics() -> Iterator[str]:
    from watcher.observability.metrics import PrometheusCollector
    from watcher.observability.watch_stats import WatchStats

    yield "# Metrics\n\n| metric | type | meaning |\n| --- | --- | --- |"
    for each in PrometheusCollector(WatchStats).collect():
        name = f"{each.name}_total" if each.type == "counter" else each.name
        yield f"| `{name}` | {each.type} | {each.documentation} |"


def _troubleshooting() -> Iterator[str]:
    yield "# Troubleshooting\n"
    yield "Search this page for a part of the message; `…` stands for a name or a value."
    yield "\n## Exit status\n\n| status | meaning |\n| --- | --- |"
    for status, meaning in _STATUS.items():
        yield f"| {status} | {meaning} |"
    yield "\nA signal ends `replay` and other commands with 128 and its number."
    for name, (status, about, messages) in sorted(errors().items()):
        yield f"\n## {name}\n\n{about} Exit status {status}.\n"
        for message in sorted(messages, key=lambda text: text.strip("…: ").lower()):
            yield f"- `` {message} ``"


def errors() -> dict[str, tuple[int, str, set[str]]]:
    """Returns the errors that the code raises: exit status, meaning and messages of each class."""
    from watcher import errors as module

    found: dict[str, tuple[int, str, set[str]]] = {}
    for path in sorted((Path(module.__file__).parent).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
                continue
            kind = getattr(module, node.func.id, None)
            message = _message(node.args[0])
            if inspect.isclass(kind) and issubclass(kind, module.WatcherError) and message:
                about = (inspect.getdoc(kind) or "").partition("\n\n")[0]
                found.setdefault(kind.__name__, (kind.exit_status, about, set()))[2].add(message)
    return found


def _message(node: ast.expr) -> str:
    """Returns the text of an expression, with … for what is filled in; "" where that is all."""
    if isinstance(node, ast.JoinedStr):
        parts = (each.value if isinstance(each, ast.Constant) else "…" for each in node.values)
        text = "".join(map(str, parts))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        text = (_message(node.left) or "…") + (_message(node.right) or "…")
    else:
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return " ".join(re.sub("…+", "…", text).split()) if re.search(r"[a-z]{3}", text) else ""
