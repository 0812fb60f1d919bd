"""`undo`: puts changed items back to their state before the changes; first prints a plan."""

from __future__ import annotations

import logging
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from watcher.aws.arns import table_name
from watcher.cli import options
from watcher.cli.command_line import PROGRAM
from watcher.declared import Opt
from watcher.errors import StreamError, UsageError
from watcher.formatting import style
from watcher.formatting.differences import attribute_lines
from watcher.formatting.style import local_time, paint
from watcher.formatting.text import grouped, write_text
from watcher.formatting.values import printable_key
from watcher.options import WatchOptions
from watcher.records.record import wire_item
from watcher.time_machine.undo import WRITE_LIMIT, Undo, open_plan, undo
from watcher.time_machine.undo_plan import NOTHING, UndoStep, item_differences
from watcher.time_machine.write_back import Outcome

if TYPE_CHECKING:
    from watcher.cli.command_line import CommandLine

logger = logging.getLogger("watcher")

_CHOICE = ("key", "filters", "only", "grep")

_Sources = Annotated[
    str,
    Opt(
        "a stream ARN, a table ARN or a table name; before it, archives for older "
        "changes; with --apply and --revert, the plan names it",
        name="[[ARCHIVE…] STREAM]",
    ),
]
_Start = Annotated[
    str | None, Opt("the first second to undo: an age (2h) or a time", "START", name="--from")
]
_Until = Annotated[str | None, Opt("the last second to undo; default now", "END")]
_Apply = Annotated[str | None, Opt("do what this plan's file says", "PLAN")]
_Revert = Annotated[
    str | None,
    Opt("plan to take back what this plan has written", "PLAN"),
]
_Plan = Annotated[
    str | None,
    Opt(
        "the plan's new file; default undo-TABLE-TIME.jsonl, here",
        "FILE",
        name="--plan",
    ),
]
_Limit = Annotated[float, Opt(f"write capacity units a second; default {WRITE_LIMIT:g}", "UNITS")]


def undo_command(line: CommandLine) -> options.Command:
    """Puts items back, or prints the plan."""
    names = "only", "key", "filters", "grep", "redact", *options.AWS
    parts = options.declared_by(WatchOptions, *names)
    return options.with_options(_undo, parts, options.declared_by(style.set_up))


def _undo(
    *sources: _Sources,
    start: _Start = None,
    until: _Until = None,
    plan_file: _Plan = None,
    apply: _Apply = None,
    revert: _Revert = None,
    write_limit: _Limit = WRITE_LIMIT,
    origins: options.Origins,
    **values: options.Value,
) -> int:
    options.call(style.set_up, values)
    options.refuse_redaction(values, "an undo writes items back as they were")
    connection = options.connection(values)
    if "apply" in origins.defaults:  # a file or a variable does not ask for writes
        raise UsageError(f"type it; it is from {origins.defaults['apply']}", "apply")
    # A default for watches, such as `from` in a file, is not meant for this.
    start, until = (
        each if name in origins.typed else None
        for name, each in (("start", start), ("until", until))
    )
    place = None if plan_file is None else Path(plan_file)
    call = _called(values, origins.typed)
    if apply is not None:
        _refuse_with_plan(sources, origins, "apply", "plan_file")
        plan = open_plan(Path(apply), connection)
        logger.info(f"Undoes {_about(plan)}")
        return _apply(plan, write_limit, call)
    if "write_limit" in origins.typed:
        raise UsageError("use it with --apply: nothing is written before", "write_limit")
    if revert is not None:
        _refuse_with_plan(sources, origins, "revert")
        return _show(open_plan(Path(revert), connection).revert(place), call)
    if not sources:
        raise UsageError("name a stream, or a plan with --apply or --revert")
    shared = {name: values[name] or None for name in (*_CHOICE, *options.AWS)}
    return _show(undo(*sources, start=start, until=until, plan=plan_file, **shared), call)


def _refuse_with_plan(
    sources: Sequence[str], origins: options.Origins, option: str, *more: str
) -> None:
    """Raises UsageError for options that choose changes beside a plan's file."""
    if sources:
        raise UsageError(f"{sources[0]} is in the plan already: give only the plan's file", option)
    for name in ("start", "until", *_CHOICE, *more):
        if name in origins.typed:
            raise UsageError("a plan is applied or reverted as a whole", name)


def _called(values: Mapping[str, object], typed: Collection[str]) -> str:
    """Returns the beginning of an undo's next command, as the user has called this one."""
    program = PROGRAM
    if sys.orig_argv[1:3] == ["-m", "watcher"]:
        program = f"{shlex.quote(sys.orig_argv[0])} -m watcher"
    elif Path(sys.argv[0]).name == "watcher":
        is_found = shutil.which("watcher") == sys.argv[0]
        program = "watcher" if is_found else shlex.quote(sys.argv[0])
    words = [program, "undo"]
    for each in options.AWS:
        if each in typed:
            words.append(f"--{each.replace('_', '-')} {shlex.quote(str(values[each]))}")
    return " ".join(words)


def _about(plan: Undo) -> str:
    """Describes a plan's changes: their table and times."""
    start, until = plan.header.start, plan.header.until
    name = table_name(plan.header.table)
    if plan.header.reverts:
        return f"what {plan.header.reverts} wrote to {name}"
    if start is None or until is None:
        return f"changes of {name}"
    first, last = (local_time(each) for each in (start, until))
    return f"the changes of {name} from {first} to {last}, both seconds included"


def _show(plan: Undo, call: str) -> int:
    logger.info(f"Undoes {_about(plan)}")
    for step in (*plan, *plan.kept):
        write_text("".join(f"{line}\n" for line in _lines(step)))
    kinds = Counter(_kind(step) for step in plan if not step.conflict)
    parts = [grouped(sum(kinds.values()), "item")]
    if kinds:
        parts[0] += f" ({', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))})"
    parts.append(grouped(plan.units, "write unit"))
    parts.append(grouped(len(plan.conflicts), "conflict"))
    if plan.kept:
        parts.append(f"{len(plan.kept)} to be kept")
    how = "nothing to do"
    if plan.steps:
        how = f"nothing was written; to do it: {call} --apply {shlex.quote(str(plan.save()))}"
    logger.info(f"Plan: {', '.join(parts)}; {how}")
    return 0


def _kind(step: UndoStep) -> str:
    """Returns the action for an item."""
    if step.before == NOTHING:
        return "REMOVE"
    return "INSERT" if step.now == NOTHING else "MODIFY"


def _lines(step: UndoStep) -> Iterator[str]:
    kind, key = _kind(step), wire_item(step.key)
    changes = f" ({grouped(step.changes, 'change')})" if step.changes > 1 else ""
    if step.kept:
        yield f"KEPT   {printable_key(key)}{changes}: {step.kept}"
        return
    if step.conflict:
        yield f"CONFLICT {printable_key(key)}{changes}: {step.conflict}"
    else:
        yield f"{paint(f'{kind:<6}', kind)} {printable_key(key)}{changes}"
    for name, pair in sorted(item_differences(step.now, step.before).items()):
        if name not in key:
            yield from attribute_lines(name, pair)


def _apply(plan: Undo, limit: float, call: str) -> int:
    counts: Counter[Outcome] = Counter()
    try:
        for step, outcome in plan.apply(write_limit=limit):
            counts[outcome] += 1
            if outcome is not Outcome.RESTORED:
                is_conflict = outcome is Outcome.CONFLICT
                word, reason = ("CONFLICT", step.conflict) if is_conflict else ("KEPT  ", step.kept)
                write_text(f"{word} {printable_key(wire_item(step.key))}: {reason}\n")
    except StreamError as error:
        error.add(f"; {_counted(counts)} so far; run the same command to continue")
        raise
    path = plan.header.reverts or str(plan.path)
    option = "--apply" if plan.header.reverts else "--revert"
    back = f"; to take it back: {call} {option} {shlex.quote(path)}"
    logger.info(_counted(counts) + back * bool(counts[Outcome.RESTORED]))
    return 1 if counts[Outcome.CONFLICT] else 0


def _counted(counts: Counter[Outcome]) -> str:
    already = counts[Outcome.ALREADY]
    note = f", {already} kept" if already else ""
    return f"restored {counts[Outcome.RESTORED]}, conflicts {counts[Outcome.CONFLICT]}{note}"
