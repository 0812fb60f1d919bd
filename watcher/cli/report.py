"""`report`: the changes of a stream or an archive on one page that people can look at."""

from __future__ import annotations

import logging
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from watcher.aws.arns import table_name
from watcher.cli import options
from watcher.cli.history_commands import SOURCES, read_changes
from watcher.cli.options import Values
from watcher.cli.output import written_file
from watcher.declared import Opt
from watcher.formatting.text import grouped, write_text
from watcher.options import WatchOptions
from watcher.report.page import Report, page
from watcher.time_machine.sources import Sources

if TYPE_CHECKING:
    from watcher.cli.command_line import CommandLine

logger = logging.getLogger("watcher")

_To = Annotated[
    str,
    Opt(
        "the file to write, or to replace; - for stdout; default report.html",
        "FILE",
    ),
]


def report_command(line: CommandLine) -> options.Command:
    """Writes changes to an HTML page."""
    names = "start", "until", "only", "key", "filters", "grep", "redact", *options.AWS
    return options.with_options(
        _report, options.declared_by(WatchOptions, *names, start="trim-horizon")
    )


def _report(
    *sources: SOURCES,
    to: _To = "report.html",
    **values: options.Value,
) -> int:
    hidden = options.redaction(values)
    options.record_filter(values)  # a wrong one is refused before the reading
    with nullcontext(sys.stdout) if to == "-" else written_file(to) as file:
        found, _, records, ending = read_changes(sources, values, None)
        report = Report(
            title=_title(sources[-1], found),
            origin=", ".join([*sources[:-1], found.stream.arn if found.stream else sources[-1]]),
            item="the chosen items" if values["key"] and hidden else ", ".join(values["key"] or ()),
            notes=_notes(values),
        )
        for record in records:
            report.add(record if hidden is None else hidden(record))
        report.warnings = [f"DATA LOSS: {gap}" for gap in found.gaps]
        write_text(page(report), file)
    name = "the page" if to == "-" else to
    logger.info(f"Wrote {name}: {grouped(report.kinds.total(), 'change')}{ending()}")
    return int(bool(found.left_out))


def _title(name: str, found: Sources) -> str:
    if found.stream is not None:
        return f"Changes of {table_name(found.table_arn)}"
    return f"Changes in {'standard input' if name == '-' else Path(name).resolve().name}"


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
