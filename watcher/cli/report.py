"""`report`: the changes of a stream or an archive on one page that people can look at."""

from __future__ import annotations

import functools
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from watcher.aws.arns import short_table_names, table_name, table_of
from watcher.aws.connect import Clients
from watcher.aws.model import Listing
from watcher.aws.retry import retry_at_start
from watcher.cli import completers, options
from watcher.cli.history_commands import open_trail, watched_times
from watcher.cli.options import Values
from watcher.cli.output import written_file
from watcher.declared import Parameter
from watcher.delivery.handler import Handler
from watcher.errors import ServiceError, StreamError, UsageError, WatcherError
from watcher.formatting.style import are_tables_shown, shown_table
from watcher.formatting.text import grouped, write_text
from watcher.observability.watch_stats import Totals
from watcher.options import WatchOptions
from watcher.records.record import Record
from watcher.records.record_files import RecordLines, open_lines, read_records
from watcher.records.redaction import Redaction
from watcher.report.page import (
    ComparedCopy,
    LatestChanges,
    Report,
    page,
)
from watcher.report.pictures import bars
from watcher.report.summary import Summary, UnreadableChangeError, change_of_record, change_of_row
from watcher.shutdown import exit_status, in_charge
from watcher.time_machine import archives
from watcher.time_machine.archives import ALL_COLUMNS, Archive
from watcher.time_machine.callers import Callers, ChangeKey, Trail
from watcher.time_machine.sources import source_path
from watcher.watching import watch

if TYPE_CHECKING:
    from watcher.cli.command_line import CommandLine

logger = logging.getLogger("watcher")

_CHOICE = ("only", "key", "filters", "grep")
_STREAM_ONLY = ("who", "start", "until", "fail_on_data_loss", *options.AWS)


_Source = Annotated[
    str,
    Parameter(
        name="STREAM|ARCHIVE",
        completer=completers.files,
        help="a stream ARN, a table ARN or a table name; or a folder that archive wrote, or a file "
        "of --print-json or --jsonl-file (also .gz; - for stdin)",
    ),
]
_Output = Annotated[
    str,
    Parameter(
        alias="-o",
        metavar="FILE",
        completer=completers.files,
        help="the file to write, or to replace; - for stdout; default report.html",
    ),
]
_Verify = Annotated[
    str | None,
    Parameter(
        metavar="FILE",
        completer=completers.files,
        help="add the differences of a copy, from a file that verify -o json wrote",
    ),
]


def report_command(line: CommandLine) -> Callable[..., int]:
    """Writes changes to an HTML page."""
    names = ("start", "until", *_CHOICE, "fail_on_data_loss", *options.REDACT, *options.AWS)
    return options.with_options(
        _report, options.declared_by(WatchOptions, *names, start="trim-horizon")
    )


def _report(
    source: _Source,
    /,
    *others: options.Others,
    origins: options.OriginsArgument,
    output: _Output = "report.html",
    who: options.Who = None,
    verify: _Verify = None,
    **values: object,
) -> int:
    compared = None if verify is None else _compared(verify, values)
    target, hidden = _checked_target(output), options.redaction(values)
    paths = [each for each in (source, *others) if source_path(each)]
    if others and paths:
        raise UsageError(f"several sources have to be streams, and {paths[0]} is a path")
    if not paths:
        report = _of_streams((source, *others), values, open_trail(values, who))
    elif Path(source).is_dir():
        _refuse(origins, _STREAM_ONLY, "a folder")
        report = _of_folder(source, values, hidden)
    else:
        _refuse(origins, _STREAM_ONLY, "a file")
        report = _of_file(source, values, hidden)
    report.compared = compared
    _write(page(report), target)
    changes, shards = report.summary.changes, len(report.shards)
    counts = grouped(changes, "change")
    counts += f", {grouped(shards, 'shard')}" if shards else ""
    logger.info(f"Wrote {target or 'the page'}: {counts}")
    return exit_status(0 if paths else in_charge().signal, ends_by_itself=True)


def _compared(path: str, values: Values) -> ComparedCopy:
    options.refuse_redaction(values, "--verify shows both values of what differs")
    with open_lines(path) as file:
        try:
            return msgspec.json.decode(b"".join(file), type=ComparedCopy)
        except msgspec.DecodeError as error:
            text = f"it is not what verify -o json writes: {error}"
            raise UsageError(text, "verify", path) from None


def _refuse(origins: options.Origins, names: Iterable[str], what: str) -> None:
    """Raises for typed options that this source does not use; a default may be for other runs."""
    for name in names:
        if name in origins.typed:
            raise UsageError(f"for streams only; {what} is read whole", name)


class _WithCallers:
    """The callers of a report's changes.

    It takes in all changes, and filters them itself: a call that made one has not made another.
    And it redacts them itself: calls are found by the key.
    """

    def __init__(self, trail: Trail, values: Values) -> None:
        self._trail = trail
        self._callers = Callers("", *watched_times(values))
        self._is_wanted = options.record_filter(values)
        self._redaction = options.redaction(values)
        self._changes: Counter[ChangeKey] = Counter()
        self._redacted: dict[tuple[str, str, str], ChangeKey] = {}
        self.filtered = 0

    def shown(self, record: Record) -> Record | None:
        """Adds a change; returns it as the report shows it, or None if the filters drop it."""
        noted = self._callers.add_change(record)
        if self._is_wanted is not None and not self._is_wanted(record):
            self.filtered += 1
            return None
        self._changes[noted] += 1
        if self._redaction is None:
            return record
        self._redacted[_name(record)] = noted
        return self._redaction(record)

    def _noted(self, record: Record) -> ChangeKey:
        found = self._redacted.get(_name(record))
        return self._callers.change_key(record) if found is None else found

    def add_to(self, report: Report) -> None:
        """Reads the trail and adds the callers to the report."""
        reading = self._trail.read(self._callers)
        names: Counter[str] = Counter()
        for change, count in self._changes.items():
            names[self._callers.answer(change, reading.incomplete).names] += count
        report.callers = names.most_common()
        report.who = lambda record: self._callers.answer(self._noted(record), reading.incomplete)
        report.warnings = [
            *report.warnings,
            *(f"The log file {each.location} can't be read." for each in reading.broken),
        ]


def _name(record: Record) -> tuple[str, str, str]:
    return record.stream, record.shard_id, record.sequence_number


class _StreamChanges:
    """The changes of streams, as a report counts and shows them."""

    def __init__(self, values: Values, callers: _WithCallers | None) -> None:
        self.summary = Summary()
        self.latest = LatestChanges()
        self.arns: list[str] = []
        self._callers = callers
        self._by_table: Counter[str] = Counter()

    def add(self, record: Record) -> None:
        """Adds a change, unless the filters drop it."""
        shown = record if self._callers is None else self._callers.shown(record)
        if shown is not None:
            change = change_of_record(shown)
            if are_tables_shown():  # equal keys of two tables are two items
                change = change._replace(key=(("", shown_table(record)), *change.key))
            self.summary.add(change)
            self.latest.add(shown)
            self._by_table[table_of(record.stream)] += 1

    def notes(self, filtered: int, values: Values) -> list[str]:
        """Describes what was read."""
        until = f" --until {values['until']}" if values["until"] else ""
        notes = [f"Read with --from {values['start']}{until}.", *_choice(values, filtered)]
        if len(self.arns) > 1:
            names, tables = short_table_names(self._by_table), self._by_table.most_common()
            counts = ", ".join(f"{count:,} of {names[arn]}" for arn, count in tables)
            notes.append(f"Changes by table: {counts or 'none'}.")
        return notes


def _of_streams(sources: Sequence[str], values: Values, trail: Trail | None) -> Report:
    """Reads everything up to now; Ctrl-C makes a report of the changes read until then."""
    callers = None if trail is None else _WithCallers(trail, values)
    changes = _StreamChanges(values, callers)
    own = {} if callers is None else dict.fromkeys((*options.FILTERS, *options.REDACT))
    handlers = [Handler("report", changes.add, begin=changes.arns.append)]
    totals = watch(sources, handlers, follow=False, **{**values, **own})
    if not changes.arns:  # it was told to end before it had begun
        raise WatcherError("ended before the service answered: nothing to report")
    listing = _listing(changes.arns, Clients(options.connection(values)))
    filtered = totals.filtered if callers is None else callers.filtered
    report = Report(
        title=f"Changes of {listing.table}",
        origin=", ".join(changes.arns),
        summary=changes.summary,
        latest=changes.latest,
        item=_item(values),
        shards=bars(changes.summary.shards, listing),
        notes=changes.notes(filtered, values),
        warnings=[*_warnings(totals)],
    )
    if callers is not None:
        callers.add_to(report)
    return report


def _warnings(totals: Totals) -> Iterator[str]:
    """Yields what is missing from a report of streams."""
    if totals.stopped:
        yield "The reading was ended before all was read: the latest changes are not in."
    if totals.losses:
        yield (
            f"DATA LOSS: at {grouped(totals.losses, 'place')} changes were gone "
            "before they were read; what watcher printed then says where."
        )
    yield from _unreadable(totals.failures)


def _listing(arns: Sequence[str], clients: Clients) -> Listing:
    """Returns the shards of all streams as one listing."""
    try:
        found = [
            retry_at_start(functools.partial(clients.client_for(arn).list_shards, arn))
            for arn in arns
        ]
    except ServiceError as error:
        raise StreamError(str(error)) from error
    tables = dict.fromkeys(each.table or table_name(each.arn) for each in found)
    shards = [shard for each in found for shard in each.shards]
    return msgspec.structs.replace(found[-1], table=", ".join(tables), shards=shards)


def _of_folder(name: str, values: Values, hidden: Redaction | None) -> Report:
    archive = Archive(Path(name))
    logger.info(f"Reading {name}: {len(archive.files):,} parquet files")
    is_wanted = options.record_filter(values)
    summary, latest = Summary(), LatestChanges()
    filtered = unreadable = 0
    for row in archive.rows(ALL_COLUMNS):
        try:
            if is_wanted is not None and not is_wanted(archives.record_of_row(row)):
                filtered += 1
                continue
            if hidden is not None:
                shown = hidden(archives.record_of_row(row))
                summary.add(change_of_record(shown))
                latest.add(shown)
                continue
            summary.add(change_of_row(row))
            latest.add_row(row)
        except (UnreadableChangeError, UsageError) as error:
            unreadable += 1
            reason = str(error)
    if unreadable and not summary.changes and not filtered:
        raise UsageError(f"{name} holds no changes as the archive has them: {reason}")
    return Report(
        title=f"Changes in {Path(name).resolve().name}",
        origin=name,
        summary=summary,
        latest=latest,
        item=_item(values),
        shards=bars(summary.shards, None),
        lineage_note="An archive does not hold which shard is whose parent, nor which are open: "
        "each is drawn from its opening to its last change.",
        notes=_choice(values, filtered),
        warnings=_unreadable(unreadable),
    )


def _of_file(source: str, values: Values, hidden: Redaction | None) -> Report:
    summary, latest = Summary(), LatestChanges()
    is_wanted = options.record_filter(values)
    filtered = unreadable = 0
    with open_lines(source) as file:
        lines = RecordLines(file)
        for record in read_records(lines, source):
            try:
                if is_wanted is None or is_wanted(record):
                    shown = record if hidden is None else hidden(record)
                    summary.add(change_of_record(shown))
                    latest.add(shown)
                else:
                    filtered += 1
            except UnreadableChangeError as error:
                unreadable += 1
                logger.warning(f"a record can't be read: {error}")
    if lines.unreadable and not summary.changes and not filtered:
        raise UsageError(f"{source}: no line is a change as --print-json prints it")
    note = "" if summary.shards else "Lines of JSON do not say which shard a change came from."
    name = "standard input" if source == "-" else Path(source).name
    return Report(
        title=f"Changes in {name}",
        origin=source if source != "-" else "lines of JSON",
        summary=summary,
        latest=latest,
        item=_item(values),
        shards=bars(summary.shards, None),
        lineage_note=note,
        notes=_choice(values, filtered),
        warnings=_unreadable(unreadable + lines.unreadable),
    )


def _item(values: Values) -> str:
    if values["key"] and options.redaction(values) is not None:
        return "the chosen items"
    return ", ".join(values["key"] or ())


def _choice(values: Values, filtered: int) -> list[str]:
    """Returns a note on the filters, as the user typed them.

    With a redaction the note leaves out their values: some may be redacted ones.
    """
    chosen = [f"--only {each}" for each in values["only"] or ()]
    chosen += [f"--key {each}" for each in values["key"] or ()]
    chosen += [f"--filter {each}" for each in values["filters"] or ()]
    chosen += [f"--grep {values['grep']}"] * bool(values["grep"])
    if not chosen:
        return []
    if options.redaction(values) is not None:
        chosen = list(dict.fromkeys(each.split()[0] for each in chosen))
    return [f"Filtered by {' '.join(chosen)}; {filtered:,} other changes are left out."]


def _unreadable(count: int) -> list[str]:
    return [f"{count:,} changes could not be read, and are in no number here."] if count else []


def _checked_target(name: str) -> str | None:
    """Returns the file to write; None for stdout. Raises UsageError before the reading."""
    if name == "-":
        return None
    path = Path(name)
    if path.is_dir():
        raise UsageError(f"can't write {name}: it is a folder; name a file in it")
    if not path.resolve().parent.is_dir():
        raise UsageError(f"can't write {name}: there is no such folder")
    if not os.access(path if path.exists() else path.resolve().parent, os.W_OK):
        raise UsageError(f"can't write {name}: no permission")
    return name


def _write(text: str, target: str | None) -> None:
    if target is None:
        write_text(text)
    else:
        with written_file(target) as file:
            file.write(text)
