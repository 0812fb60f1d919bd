"""`verify`: proves that a copy equals its table, or names the changes that it lacks."""

from __future__ import annotations

import importlib.util
import logging
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from watcher.aws.arns import table_name
from watcher.aws.config import AwsConfig
from watcher.aws.model import WireValue
from watcher.cli import completers, options, spark_commands
from watcher.cli.output import Line, flush_stdout, status_line
from watcher.cli.status import bar, duration
from watcher.clock import CLOCK
from watcher.declared import Parameter
from watcher.errors import UsageError, WatcherError, blame
from watcher.formatting import style
from watcher.formatting.differences import path_text, shortened, shown_pair
from watcher.formatting.style import paint, shown_time, time_text
from watcher.formatting.text import grouped, printable, write_json, write_text
from watcher.formatting.values import printable_key
from watcher.observability.exporter import listening_at
from watcher.observability.instruments import VerifyMetrics
from watcher.options import WatchOptions
from watcher.records.diff import Absent, differences
from watcher.records.record import creation_time, native, wire_item
from watcher.records.record_files import open_lines
from watcher.shutdown import Overdue, Shutdown
from watcher.sockets import url
from watcher.streams.lineage import RETENTION
from watcher.streams.start_times import parse_time
from watcher.time_machine.archives import Archive, is_archive
from watcher.time_machine.copied_items import Cause, CauseKind, CopyDifference
from watcher.time_machine.copies import Copy, FileCopy, SqliteCopy, TableCopy, copy_path, is_mirror
from watcher.time_machine.processed_log import (
    LogFault,
    ProcessedLog,
    archived_numbers,
    check_log,
)
from watcher.time_machine.sources import Sources, past_time, start_time
from watcher.time_machine.table import open_table
from watcher.time_machine.verify import (
    DifferentItem,
    Elsewhere,
    Verification,
    Verifier,
    VerifyProgress,
    save_repair,
)
from watcher.version import install

if TYPE_CHECKING:
    from watcher.cli.command_line import CommandLine

logger = logging.getLogger("watcher")

_ID_CHARACTERS = 12
_LOGGED_ITEMS = 100_000
_Sources = Annotated[
    str,
    Parameter(
        name="[ARCHIVE…] STREAM",
        completer=completers.files,
        help="a stream ARN, a table ARN or a table name; before it, archives for older changes",
    ),
]
_With = Annotated[
    str | None,
    Parameter(
        name="--with",
        metavar="COPY",
        completer=completers.files,
        help="a mirror's folder, a table, a file or folder of Parquet, JSON lines or CSV, a "
        "database's URL (sqlite:///FILE?table=NAME)",
    ),
]
_WithRegion = Annotated[str | None, Parameter(metavar="REGION", help="the region of another table")]
_WithProfile = Annotated[
    str | None, Parameter(metavar="NAME", help="the profile for another table: another account")
]
_Log = Annotated[
    str | None,
    Parameter(
        metavar="FILE",
        completer=completers.files,
        help="instead of a copy: sequence numbers or event ids that a consumer processed; an "
        "archive",
    ),
]
_Start = Annotated[
    str | None,
    Parameter(
        name="--from",
        metavar="START",
        help="with --log: the first change that it should have; default the first it names",
    ),
]
_Map = Annotated[
    list[str] | None,
    Parameter(
        name="--map",
        metavar="ATTRIBUTE=COLUMN",
        help="an attribute's other name in the copy; repeat it",
    ),
]
_Ignore = Annotated[
    list[str] | None,
    Parameter(metavar="ATTRIBUTE", help="an attribute that does not count; repeat it"),
]
_At = Annotated[
    str | None,
    Parameter(
        metavar="TIME", help="the second whose end files or SQLite show; default: they are current"
    ),
]
_Lag = Annotated[
    str,
    Parameter(
        metavar="AGE",
        help="a copy without a position may lack changes younger than this; default 1m",
    ),
]
_Repair = Annotated[
    str | None,
    Parameter(
        metavar="FILE",
        completer=completers.files,
        help="write a plan that makes the other table equal; carry it out with undo --apply FILE",
    ),
]
_Limit = Annotated[
    float | None,
    Parameter(metavar="UNITS", help="read units a second for each table's scan"),
]
_Every = Annotated[
    str | None,
    Parameter(metavar="TIME", help="compare again and again: every 1h"),
]
_Sample = Annotated[
    str | None,
    Parameter(metavar="PERCENT", help="only this part of the items, by a hash: 1%"),
]


def verify_command(line: CommandLine) -> Callable[..., int]:
    """Compares a table with a copy."""
    return options.with_options(
        _compare,
        spark_commands.engine_options(line),
        options.declared_by(_Comparison),
        options.declared_by(WatchOptions, *options.REDACT, *options.AWS, "metrics_port"),
        options.declared_by(style.set_up),
        options.declared_by(status_line),
    )


class _Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The copy to compare, and the settings of the comparison, from the command line."""

    with_: _With = None
    with_region: _WithRegion = None
    with_profile: _WithProfile = None
    map_: _Map = None
    ignore: _Ignore = None
    at: _At = None
    lag: _Lag = "1m"
    read_limit: _Limit = None
    sample: _Sample = None
    every: _Every = None

    def open(
        self,
        sources: Sequence[str],
        connection: AwsConfig,
        on_progress: Callable[[VerifyProgress], object],
        elsewhere: Elsewhere | None = None,
    ) -> Verifier:
        """Opens both sides. Raises UsageError, StreamError."""
        limit = self.read_limit
        if limit is not None and not limit > 0:
            raise UsageError("give more than 0 read units a second", "read_limit", f"{limit:g}")
        lag, sample = _age(self.lag), self.share
        return Verifier(
            copy=_copy(self, connection),
            sources=Sources.named(sources, connection, strict=True),
            lag=lag,
            ignore=self.ignore or (),
            read_limit=limit,
            sample=sample,
            on_progress=on_progress,
            elsewhere=elsewhere,
        )

    @property
    def share(self) -> float:
        """The sample's part of all items. Raises UsageError."""
        text = self.sample
        if text is None:
            return 1.0
        try:
            share = float(text.removesuffix("%")) / 100
        except ValueError:
            share = 0.0
        if not (text.endswith("%") and 0 < share <= 1):
            raise UsageError("give a part in percent: 1%, 0.1%", "sample", text)
        return share

    def cost(self, verifier: Verifier) -> str:
        """Returns an estimate of the capacity that the reading takes."""
        units = verifier.read_units
        text = f"the table's scan takes {grouped(units, 'read unit')}"
        if isinstance(verifier.copy, TableCopy):
            others = verifier.copy.table.read_units
            text += f", the other table's {others:,}"
            units = max(units, others)
        if self.read_limit is not None and units > self.read_limit:
            text += f": at {self.read_limit:g} a second {duration(units / self.read_limit)}"
        return text


def _compare(
    *sources: _Sources,
    log: _Log = None,
    start: _Start = None,
    repair: _Repair = None,
    output: options.Output = "text",
    **values: object,
) -> int:
    options.refuse_redaction(values, "it shows both values of what differs")
    options.call(style.set_up, values)
    comparison = options.call(_Comparison, values)
    if (comparison.with_ is None) is (log is None):
        raise UsageError("name a copy or a log: verify orders --with ./mirror/orders")
    connection = options.connection(values)
    if log is not None:
        if values["engine"] == "spark":
            raise UsageError("spark compares copies: leave it out with --log", "engine")
        read = Sources.named(sources, connection)
        return _check_log(read, log, start, _age(comparison.lag), output)
    is_on_spark = values["engine"] == "spark"
    if is_on_spark and comparison.every is not None:
        raise UsageError("spark compares once: leave out --every", "engine")
    port = values["metrics_port"]
    assert port is None or isinstance(port, str)
    if port is not None and comparison.every is None:
        raise UsageError("a single comparison ends by itself: give --every 1h, too", "metrics_port")
    with options.call(status_line, values) as line:
        rounds = _Rounds(comparison, sources, connection, _Progress(line), output)
        if comparison.every is not None:
            if repair is not None:
                raise UsageError("a plan repairs one comparison: leave out --every", "repair")
            return rounds.repeat(_age(comparison.every, "every"), port)
        if is_on_spark:
            compare = partial(rounds.compare, repair)
            verifier, found = spark_commands.verified(compare, values)
        else:
            verifier, found = rounds.compare(repair)
    copy = verifier.copy
    if repair is not None and isinstance(copy, TableCopy) and found.found:
        _save_repair(found, copy, verifier.table, repair)
    return 1 if found.differing else 0


class _Rounds(NamedTuple):
    """One comparison, or one after another."""

    comparison: _Comparison
    sources: Sequence[str]
    connection: AwsConfig
    progress: _Progress
    output: str

    def compare(
        self, repair: str | None = None, elsewhere: Elsewhere | None = None
    ) -> tuple[Verifier, Verification]:
        """Compares once, and prints the differences. Raises UsageError, StreamError."""
        verifier = self.comparison.open(
            self.sources, self.connection, self.progress.show, elsewhere
        )
        if repair is not None and not isinstance(verifier.copy, TableCopy):
            text = "only a table can be repaired; make another copy anew"
            raise UsageError(text, "repair", repair)
        what = f"{' '.join(self.sources)} with {verifier.copy.label}"
        logger.info(f"Compares {what}; {self.comparison.cost(verifier)}")
        found = verifier.run()
        _print(verifier, found, self.output)
        return verifier, found

    def repeat(self, pause: timedelta, port: str | None) -> int:
        """Compares at intervals until a signal. Raises the first comparison's error."""
        metrics = VerifyMetrics(self.sources[-1], str(self.comparison.with_))
        shutdown = Shutdown(timeout=0.0)
        with ExitStack() as stack:
            if port is not None:
                stack.enter_context(_served(metrics, port))
            stack.enter_context(suppress(Overdue))
            stack.enter_context(shutdown.handle_signals(shutdown.request))
            stack.enter_context(shutdown.may_interrupt())
            is_first = True
            while flush_stdout():
                due = CLOCK.monotonic() + pause.total_seconds()
                try:
                    _, found = self.compare()
                    metrics.on_compared(found.items, found.differing, found.at.timestamp())
                except WatcherError as error:
                    if is_first:
                        raise
                    reason = error.blaming(None)
                    metrics.on_failed(reason)
                    logger.warning(f"This comparison failed: {reason}")
                is_first = False
                CLOCK.sleep(max(0.0, due - CLOCK.monotonic()))
        return 0 if shutdown.signal else 1


@contextmanager
def _served(metrics: VerifyMetrics, port: str) -> Iterator[None]:
    made = listening_at(port)
    logger.info(f"Metrics: {url(made)}/metrics")
    from watcher.observability.heartbeat import ProbeAnswers
    from watcher.observability.http_server import answering  # an extra

    with made, answering(made, metrics, lambda since: ProbeAnswers([], metrics.problems)):
        yield


class _Progress:
    """Shows how far a scan has come."""

    def __init__(self, line: Line | None) -> None:
        self._line = line
        self._logged = 0
        self._began = time.monotonic()

    def show(self, now: VerifyProgress) -> None:
        """Draws the progress, or logs it now and then without a terminal."""
        if self._line is not None:
            parts = [bar(now.share), grouped(now.items, "item"), f"{now.units:,.0f} read units"]
            passed = time.monotonic() - self._began
            if now.share:
                parts.append(f"{duration(passed / now.share - passed)} left")
            self._line.set(" | ".join(parts))
        elif now.items // _LOGGED_ITEMS > self._logged:
            self._logged = now.items // _LOGGED_ITEMS
            logger.info(f"scanned: {grouped(now.items, 'item')}")


def _save_repair(found: Verification, copy: TableCopy, table: str, path: str) -> None:
    count = grouped(save_repair(found, copy.table, table, Path(path)), "item")
    how = f"to do it: undo --apply {shlex.quote(path)}"
    if more := found.differing - len(found.found):
        how += f"; then verify again: {grouped(more, 'more item')} had no room in it"
    logger.info(f"Plan to repair {count}; nothing was written; {how}")


def _check_log(sources: Sources, log: str, start: str | None, lag: timedelta, output: str) -> int:
    """Prints the changes that a consumer missed, got twice or got out of order."""
    first = None if start is None else start_time(start)
    sources.open(first)
    # The service's time, where there is one: a clock here may be wrong.
    now = datetime.now(UTC) if sources.stream is None else sources.time
    if log != "-" and Path(log).is_dir():
        # Older changes are in no stream.
        numbers = archived_numbers(Archive(Path(log)), first or now - RETENTION)
        processed = ProcessedLog(numbers)
    else:
        with open_lines(log) as lines:
            processed = ProcessedLog(lines)
    found = check_log(processed, sources.records(), first, now - lag)
    if output == "json":
        document = {
            "changes": found.changes,
            "unknown": found.unknown,
            "faults": [_fault_row(each) for each in found.faults],
        }
        write_json(msgspec.json.format(msgspec.json.encode(document)).decode() + "\n")
    else:
        write_text(f"{log}: {found.changes:,} changes, {len(found.faults):,} of them wrong\n")
        for each in found.faults:
            write_text(f"  {_fault_line(each)}\n")
    if found.unknown:
        lines_of = grouped(found.unknown, "line")
        logger.info(f"{lines_of} of {log} without a change that the stream holds")
    return 1 if found.faults else 0


def _fault_line(fault: LogFault) -> str:
    change, later = fault.change, fault.after
    key = ", ".join(f"{printable(name)}={printable(text)}" for name, text in change.item)
    places = ", ".join(map(str, change.lines))
    text = {"missed": "was missed", "twice": f"stands in lines {places}"}.get(fault.kind, "")
    if later is not None:
        text = f"(line {change.lines[0]}) came after {shortened(later.number, _ID_CHARACTERS)} " + (
            f"(line {later.lines[0]}), which is later"
        )
    kind = paint(change.kind, change.kind)
    number = shortened(change.number, _ID_CHARACTERS)
    return f"{key}   change {number} ({kind} {shown_time(change.at)}) {text}"


def _fault_row(fault: LogFault) -> dict[str, object]:
    change = fault.change
    return {
        "fault": fault.kind,
        "key": dict(change.item),
        "sequence_number": change.number,
        "kind": change.kind,
        "time": time_text(change.at),
        "lines": change.lines,
        "after": None if fault.after is None else fault.after.number,
    }


def _age(text: str, option: str = "lag") -> timedelta:
    now = datetime.now(UTC)
    with blame(option):
        return now - parse_time(text, now).time


def _names(pairs: Sequence[str]) -> dict[str, str]:
    """Returns the copy's names by the attributes'. Raises UsageError."""
    found = {}
    for pair in pairs:
        attribute, separator, column = pair.partition("=")
        if not (attribute and separator and column):
            raise UsageError("give ATTRIBUTE=COLUMN", "map_", pair)
        found[attribute] = column
    return found


def _copy(given: _Comparison, connection: AwsConfig) -> Copy:
    """Opens a copy by its name. Raises UsageError, StreamError."""
    assert given.with_ is not None
    text, names = given.with_, _names(given.map_ or ())
    at = None if given.at is None else past_time(given.at, "at")
    if text.startswith("sqlite:"):
        return SqliteCopy(text, names, at)
    in_s3 = text.startswith("s3://")
    if "://" in text and not in_s3:
        return _database(text, names, at)
    path = None if in_s3 else copy_path(text)
    is_table = path is None and not in_s3
    elsewhere = [name for name in ("with_region", "with_profile") if getattr(given, name)]
    if elsewhere and not is_table:
        raise UsageError("it is for another table, not for a path", elsewhere[0])
    if path is not None and is_archive(path):
        text = f"it holds changes, not items: compare it by --log {shlex.quote(given.with_)}"
        raise UsageError(text, "with_")
    if path is not None and not is_mirror(path):
        return FileCopy(path, names, at)
    if names or at is not None:
        raise UsageError("leave out --map and --at: a mirror or a table has its own")
    if is_table:
        return TableCopy(
            open_table(text, _other(given, connection)), f"table {text}", given.read_limit
        )
    return _mirror(text)


def _other(given: _Comparison, connection: AwsConfig) -> AwsConfig:
    """Returns the connection to the other table."""
    region, profile = given.with_region, given.with_profile
    if region is None and profile is None:
        # An ARN's own region counts, not that of the other table.
        of_arn = str(given.with_).startswith("arn:")
        return msgspec.structs.replace(connection, region=None if of_arn else connection.region)
    return AwsConfig(region, profile or connection.profile)


def _database(url: str, names: Mapping[str, str], at: datetime | None) -> Copy:
    try:
        from watcher.time_machine.sql_copy import SqlCopy
    except ImportError:
        text = f"reading a database needs SQLAlchemy: {install('sql')}"
        raise UsageError(text, "with_") from None
    return SqlCopy(url, names, at)


def _mirror(to: str) -> Copy:
    if importlib.util.find_spec("pyarrow") is None:
        raise UsageError(f"reading a mirror needs delta-rs or PyIceberg: {install('mirror')}")
    from watcher.mirror.copy import MirrorCopy

    return MirrorCopy(to)


def _print(verifier: Verifier, found: Verification, output: str) -> None:
    if output == "json":
        document = _document(verifier, found)
        write_json(msgspec.json.format(msgspec.json.encode(document)).decode() + "\n")
    else:
        name = table_name(verifier.table)
        of = "" if found.sample == 1 else f" in a sample of {100 * found.sample:g}%"
        items = f"{found.items:,} items{of}, {found.differing:,} differ"
        write_text(f"{name} at {time_text(found.at)} = {verifier.copy.label}: {items}\n")
        for item in found.found:
            for each in item.differences:
                write_text(f"  {_line(item, each)}\n")
        if found.differing > len(found.found):
            write_text(f"  and {grouped(found.differing - len(found.found), 'item')} more\n")
    if found.not_compared:
        names = ", ".join(map(printable, sorted(found.not_compared)))
        logger.info(f"Not compared, as the copy has no such columns: {names}")


def _line(item: DifferentItem, difference: CopyDifference) -> str:
    key = printable_key(wire_item(msgspec.json.encode(item.key)))
    return f"{key}   {_sides(item, difference)}   {_reason(difference.cause, _painted)}"


def _sides(item: DifferentItem, difference: CopyDifference) -> str:
    name, there, here, _ = difference
    if name is None:
        if item.there is not None and item.here is not None:
            return "several times there"
        return "only here" if item.there is None else "only there"
    parts = []
    for path, old, new in differences(there, here, (name,)):
        shown_there, shown_here = _shown(old, new)
        sides = f"{shown_there} there, {shown_here} here"
        parts.append(f"{printable(path_text(path))}: {sides}")
    return "; ".join(parts)


def _shown(there: WireValue | Absent, here: WireValue | Absent) -> tuple[str, str]:
    if isinstance(there, Absent) or isinstance(here, Absent):
        shown = ["nothing" if isinstance(each, Absent) else _alone(each) for each in (there, here)]
        return shown[0], shown[1]
    return shown_pair(native(there), native(here))


def _alone(value: WireValue) -> str:
    return shown_pair(native(value), None)[0]


def _reason(cause: Cause, shown_kind: Callable[[str], str] = str) -> str:
    text = cause.kind.value
    if cause.change is None:
        return text
    if cause.kind is CauseKind.STALE:
        later = grouped(cause.more, "later one")
        text = f"and {later} are missing there, or an older one came after them"
    if cause.alike:
        others = grouped(cause.alike, "other change")
        text += f"; {others} would explain it as well"
    change = cause.change
    when = "" if change.at is None else f" {shown_time(creation_time(change.at))}"
    number = shortened(change.number, _ID_CHARACTERS)
    return f"change {number} ({shown_kind(change.kind)}{when}) {text}"


def _painted(kind: str) -> str:
    return paint(kind, kind)


def _document(verifier: Verifier, found: Verification) -> dict[str, object]:
    return {
        "table": table_name(verifier.table),
        "copy": verifier.copy.label,
        "at": time_text(found.at),
        "items": found.items,
        "sample": found.sample,
        "differ": found.differing,
        "not_compared": sorted(found.not_compared),
        "differences": [
            _row(item, difference) for item in found.found for difference in item.differences
        ],
    }


def _row(item: DifferentItem, difference: CopyDifference) -> dict[str, object]:
    cause, name = difference.cause, difference.attribute
    of_attribute = difference.in_copy, difference.in_table
    there, here = (item.there, item.here) if name is None else of_attribute
    row: dict[str, object] = {
        "key": item.key,
        "attribute": name,
        "there": None if isinstance(there, Absent) else there,
        "here": None if isinstance(here, Absent) else here,
        "difference": _sides(item, difference),
        "cause": cause.kind.name.lower(),
        "reason": _reason(cause),
        "change": None,
    }
    if cause.change is not None:
        at = cause.change.at
        row["change"] = {
            "sequence_number": cause.change.number,
            "kind": cause.change.kind,
            "time": None if at is None else time_text(creation_time(at)),
            "later_ones": cause.more,
            "others_alike": cause.alike,
        }
    return row
