"""`report`: the changes of a stream or an archive on one page that people can look at."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from watcher.aws.arns import table_name
from watcher.cli import completers, options
from watcher.cli.history_commands import SOURCES, open_trail
from watcher.cli.options import Values
from watcher.cli.output import written_file
from watcher.declared import Opt
from watcher.formatting.text import grouped, write_text
from watcher.options import WatchOptions, end
from watcher.records.record import Record
from watcher.report.page import Report, page
from watcher.time_machine.callers import Callers, Trail
from watcher.time_machine.counts import CALLER, Counts
from watcher.time_machine.sources import Sources, records_until, start_time

if TYPE_CHECKING:
    from watcher.cli.command_line import CommandLine

logger = logging.getLogger("watcher")

_To = Annotated[
    str,
    Opt(
        "the file to write, or to replace; - for stdout; default report.html",
        "FILE",
        completer=completers.files,
    ),
]


def report_command(line: CommandLine) -> Callable[..., int]:
    """Writes changes to an HTML page."""
    names = "start", "until", "only", "key", "filters", "grep", *options.REDACT, *options.AWS
    return options.with_options(
        _report, options.declared_by(WatchOptions, *names, start="trim-horizon")
    )


def _report(
    *sources: SOURCES,
    to: _To = "report.html",
    who: options.Who = None,
    **values: options.Value,
) -> int:
    start, until = start_time(values["start"]), end(values["until"], values["start"])
    trail = open_trail(values, who)
    options.record_filter(values), options.redaction(values)  # wrong ones: before the reading
    with nullcontext(sys.stdout) if to == "-" else written_file(to) as file:
        found = Sources.named(sources, options.connection(values))
        report = Report(
            title=_title(sources[-1], found),
            origin=", ".join([*sources[:-1], found.stream.arn if found.stream else sources[-1]]),
            item=_item(values),
            notes=_notes(values),
        )
        _read(report, found, trail, values, start=start, until=until)
        write_text(page(report), file)
    name = "the page" if to == "-" else to
    logger.info(f"Wrote {name}: {grouped(report.kinds.total(), 'change')}{found.left_out}")
    return int(bool(found.left_out))


def _title(name: str, found: Sources) -> str:
    if found.stream is not None:
        return f"Changes of {table_name(found.table_arn)}"
    return f"Changes in {'standard input' if name == '-' else Path(name).resolve().name}"


def _read(
    report: Report,
    found: Sources,
    trail: Trail | None,
    values: Values,
    *,
    start: datetime | None,
    until: datetime | None,
) -> None:
    """Reads all changes into the report."""
    is_wanted, hidden = options.record_filter(values), options.redaction(values)
    callers = None if trail is None else Callers(found.table_arn, start, until)
    # For callers all changes are read: a call that made one of them has not made another.
    is_cut = callers is None and is_wanted is not None
    wanted = is_wanted.matching_indexes if is_cut and is_wanted else None
    found.open(start, wanted, tells_expiry=True)
    records: Iterable[Record] = records_until(found.records(), until)
    report.callers = None if callers is None else Counts([CALLER], callers)
    for record in filter(is_wanted, records if callers is None else callers.adding(records)):
        shown = record if hidden is None else hidden(record)
        report.add(shown, None if callers is None else callers.change_key(record))
        if report.callers is not None:
            report.callers.add([record])
    report.warnings = [f"DATA LOSS: {gap}" for gap in found.gaps]
    if trail is not None and callers is not None and report.callers is not None:
        reading = trail.read(callers)
        report.who = lambda change: callers.answer(change, reading.incomplete)
        report.callers.name_callers(report.who)
        report.warnings += [
            f"The log file {each.location} can't be read." for each in reading.broken
        ]


def _item(values: Values) -> str:
    if values["key"] and options.redaction(values) is not None:
        return "the chosen items"
    return ", ".join(values["key"] or ())


def _notes(values: Values) -> list[str]:
    """Returns notes on the times and the filters, as the user typed them.

    With a redaction they leave out the filters' values: some may be redacted ones.
    """
    until = f" --until {values['until']}" if values["until"] else ""
    chosen = [f"--only {each}" for each in values["only"] or ()]
    chosen += [f"--key {each}" for each in values["key"] or ()]
    chosen += [f"--filter {each}" for each in values["filters"] or ()]
    chosen += [f"--grep {values['grep']}"] * bool(values["grep"])
    if options.redaction(values) is not None:
        chosen = list(dict.fromkeys(each.split()[0] for each in chosen))
    notes = [f"Read with --from {values['start']}{until}."]
    return [*notes, f"Filtered by {' '.join(chosen)}."] if chosen else notes
