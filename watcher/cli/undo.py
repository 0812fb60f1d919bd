"""`undo`: items that some changes touched, back to how they were before; first as a plan."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from watcher.cli import completers, options
from watcher.errors import StreamError, UsageError
from watcher.formatting import style
from watcher.formatting.differences import attribute_lines
from watcher.formatting.style import paint
from watcher.formatting.text import grouped, printable_key
from watcher.options import WatchOptions
from watcher.records.record import wire_item
from watcher.time_machine.sources import Sources
from watcher.time_machine.undo import RATE, ChangeSelection, Undo, plan_revert, plan_undo
from watcher.time_machine.undo_plan import UndoStep, item_differences, units
from watcher.time_machine.write_back import Outcome

if TYPE_CHECKING:
    from watcher.cli.command_line import CommandLine

logger = logging.getLogger("watcher")

_CHOICE = ("key", "filters", "only")

_Sources = Annotated[
    str,
    Parameter(
        name="[ARCHIVE…] STREAM",
        completer=completers.files,
        help="a stream ARN, a table ARN or a table name; before it, archives for what is older",
    ),
]
_Start = Annotated[
    str | None,
    Parameter(
        name="--from", metavar="START", help="the first second to undo: an age (2h) or a time"
    ),
]
_Until = Annotated[
    str | None, Parameter(metavar="END", help="the last second to undo; default now")
]
_Output = Annotated[
    str,
    Parameter(
        alias="-o",
        choices=("text", "json"),
        metavar="FORMAT",
        help="text (default), or json: an array of the plan's items, or with --apply of what has "
        "become of each",
    ),
]
_Apply = Annotated[bool, Parameter(negative=(), help="do it; without, only the plan is shown")]
_Rate = Annotated[
    float,
    Parameter(metavar="UNITS", help=f"write capacity units a second; default {RATE:g}"),
]
_Force = Annotated[
    bool,
    Parameter(
        negative=(), help="put items back, too, that were changed since; asks on the terminal"
    ),
]
_Log = Annotated[
    str | None,
    Parameter(
        metavar="FILE",
        completer=completers.files,
        help="without a STREAM: take back what this log of an undo says was written; with one: "
        "where to write the log",
    ),
]


def undo_command(line: CommandLine) -> Callable[..., int]:
    """Puts items back, or says what it would do."""
    parts = options.of(WatchOptions, "only", "key", "filters", *options.AWS)
    return options.spelled(_undo, parts, options.of(style.set_up))


def _undo(
    *sources: _Sources,
    start: _Start = None,
    until: _Until = None,
    apply: _Apply = False,
    rate: _Rate = RATE,
    force_conflicts: _Force = False,
    log: _Log = None,
    output: _Output = "text",
    given: options.Asked,
    **values: Any,
) -> int:
    style.set_up(**options.values(style.set_up, values))
    connection = options.connection(values)
    _refuse_untyped(given)
    # A default for watches, such as `from` in watcher.toml, is not meant for this.
    start, until = (
        each if name in given.typed else None for name, each in (("start", start), ("until", until))
    )
    if force_conflicts and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("it asks, which takes a terminal", "force_conflicts")
    if not sources:
        plan = _of_log(log, given, connection)
    else:
        choice = ChangeSelection(start, until, *(values[name] or None for name in _CHOICE))
        plan = plan_undo(Sources.named(sources, connection, strict=True), choice, log)
    if plan.own_changes:
        what = grouped(plan.own_changes, "change")
        logger.info(f"{what} made by an undo, as its log says, stay; undo --log takes those back")
    if not apply:
        return _show(plan, output)
    force = force_conflicts and _confirmed(plan)
    return _apply(plan, rate, force, output)


def _refuse_untyped(given: options.Given) -> None:
    """Raises UsageError where a file or a variable says that something is to be written."""
    for name in ("apply", "force_conflicts"):
        if name in given.origins:
            raise UsageError(f"it has to be typed; it is from {given.origins[name]}", name)


def _of_log(log: str | None, given: options.Given, connection: Any) -> Undo:
    if log is None:
        raise UsageError("name a stream, or with --log the undo that is to be taken back")
    for name in ("start", "until", *_CHOICE):
        if name in given.typed:
            raise UsageError("a log is taken back as a whole", name)
    return plan_revert(Path(log), connection)


def _show(plan: Undo, output: str) -> int:
    if output == "json":
        _write([_row(step) for step in plan])
    else:
        sys.stdout.writelines(f"{line}\n" for step in plan for line in _lines(step))
    kinds = Counter(_kind(step) for step in plan if not step.conflict)
    parts = [grouped(sum(kinds.values()), "item")]
    if kinds:
        parts[0] += f" ({', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))})"
    parts.append(grouped(plan.units, "write unit"))
    parts.append(grouped(len(plan.conflicts), "conflict"))
    logger.info(f"Plan: {', '.join(parts)}; nothing was written: --apply does it")
    return 0


def _kind(step: UndoStep) -> str:
    """Returns what is to be done with an item."""
    if step.before is None:
        return "REMOVE"
    return "INSERT" if step.now is None else "MODIFY"


def _lines(step: UndoStep) -> Iterator[str]:
    kind, key = _kind(step), wire_item(step.key)
    changes = f" ({grouped(step.changes, 'change')})" if step.changes > 1 else ""
    if step.conflict:
        yield f"CONFLICT {printable_key(key)}{changes}: {step.conflict}"
    else:
        yield f"{paint(f'{kind:<6}', kind)} {printable_key(key)}{changes}"
    for name, pair in sorted(item_differences(step.now, step.before).items()):
        if name not in key:
            yield from attribute_lines(name, pair)


def _confirmed(plan: Undo) -> bool:
    """Asks on the terminal; True where conflicts are to be overwritten, too."""
    if not plan.conflicts:
        return False
    for step in plan.conflicts:
        sys.stderr.write("\n".join(_lines(step)) + "\n")
    what = grouped(len(plan.conflicts), "item")
    sys.stderr.write(f"Put back {what} that others have changed since? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _row(step: UndoStep) -> dict[str, Any]:
    """An item of the plan; its images in DynamoDB's JSON, from which nothing is missing."""
    return {
        "key": msgspec.Raw(step.key),
        "kind": _kind(step),
        "changes": step.changes,
        "conflict": step.conflict or None,
        "now": msgspec.Raw(step.now or b"null"),
        "before": msgspec.Raw(step.before or b"null"),
        "write_units": max(units(step.before), units(step.now)),
    }


def _write(rows: list[dict[str, Any]]) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(rows)).decode() + "\n")


def _apply(plan: Undo, rate: float, force: bool, output: str) -> int:
    writing = plan.apply(rate=rate, force=force)
    if plan.steps:
        logger.info(f"The log is {plan.log}; to take it back: undo --log {plan.log}")
    counts: Counter[Outcome] = Counter()
    rows = []
    try:
        for step, outcome in writing:
            counts[outcome] += 1
            if output == "json":
                conflict = step.conflict if outcome is Outcome.CONFLICT else None
                name = outcome.name.lower()
                rows.append({"key": msgspec.Raw(step.key), "outcome": name, "conflict": conflict})
            elif outcome is Outcome.CONFLICT:
                key = printable_key(wire_item(step.key))
                sys.stdout.write(f"CONFLICT {key}: {step.conflict}\n")
    except StreamError as error:
        error.add(f"; {_said(counts)} until then: go on with the same command")
        raise
    finally:
        if output == "json":
            _write(rows)
    logger.info(_said(counts))
    return 1 if counts[Outcome.CONFLICT] else 0


def _said(counts: Counter[Outcome]) -> str:
    already = counts[Outcome.ALREADY]
    note = f", {already} already as before" if already else ""
    return f"restored {counts[Outcome.RESTORED]}, conflicts {counts[Outcome.CONFLICT]}{note}"
