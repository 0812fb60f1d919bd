"""The options of a watch: each declared once, with its flag and its help, and checked once."""

import copy
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import cached_property
from types import ModuleType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Protocol,
    TypeAlias,
    Union,
    cast,
    get_args,
)

from watcher.declared import Parameter, own_options_first
from watcher.delivery import handler_modules
from watcher.delivery.callables import unfit
from watcher.errors import UsageError, blame, refuse_text_for_bool
from watcher.files import is_terminal
from watcher.shutdown import SHUTDOWN_TIMING
from watcher.stores.protocol import CheckpointStorage, SharedStorage

# The functions import what a watch needs: for help and completion the command line reads only the
# declaration, and boto3 would take three quarters of their time.
if TYPE_CHECKING:
    from watcher.aws.config import AwsConfig
    from watcher.aws.discovery import WantedStreams
    from watcher.aws.model import Position
    from watcher.delivery.failures import FailurePolicy
    from watcher.delivery.handler import Handler
    from watcher.observability.watch_stats import Display
    from watcher.records.filters import RecordFilter
    from watcher.records.redaction import Redaction
    from watcher.records.wire import Kind, WireRecord
    from watcher.streams.start_times import Moment

OnStale: TypeAlias = Literal["fail", "trim-horizon", "snapshot"]
"""The policy for a checkpoint that is older than 24 hours."""

WorkerKind: TypeAlias = Literal["processes", "threads"]

MOST_OF_TAIL = 100_000
"""The largest `tail`: the changes' places are kept in memory."""


class Stop(Protocol):
    """Ends a watch once it is set: a `threading.Event`, or another object with `is_set`."""

    def is_set(self) -> bool:
        """Returns True once the watch has to end."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """The options that `watch()` and `Stream` share: which records, and how to read them.

    A field with a `Parameter` is a command-line option. Raises UsageError, which names the field,
    for a value that can't be used.
    """

    snapshot: Annotated[
        bool,
        Parameter(
            negative=(),
            group="start",
            help="deliver the existing items first (SNAPSHOT, a backfill), and changes during the "
            "scan",
        ),
    ] = False
    read_limit: Annotated[
        float | None,
        Parameter(
            metavar="UNITS",
            group="start",
            help="with --snapshot: at most this many read units a second for each table's scan",
        ),
    ] = None
    only: Annotated[
        Union[list["Kind"], "Kind", "Iterable[Kind]", None],
        Parameter(
            metavar="KINDS",
            group="filters",
            help="only these kinds of change (event names, operations): insert, modify (update), "
            "remove (delete), ttl (removed by time-to-live; as in insert,ttl); repeatable",
        ),
    ] = None
    key: Annotated[
        list[str] | Iterable[str] | Mapping[str, Any] | None,
        Parameter(
            metavar="NAME=VALUE",
            group="filters",
            help="only changes of items with this key attribute; repeatable: another value of the "
            "same attribute is an alternative, another attribute narrows down",
        ),
    ] = None
    filters: Annotated[
        list[str] | Iterable[str | Mapping[str, Any]] | None,
        Parameter(
            name="--filter",
            alias="--where",
            metavar="PATTERN",
            group="filters",
            help="only changes that match a condition or expression ('total > 200 and status = "
            "\"paid\"') or Lambda's event filtering, as JSON or @FILE; repeatable (any of them)",
        ),
    ] = None
    grep: Annotated[
        str | None,
        Parameter(
            metavar="TEXT",
            group="filters",
            help="search: only changes that contain this text in their key or images, in a name or "
            "a value",
        ),
    ] = None
    redact: Annotated[
        list[str] | str | Iterable[str] | None,
        Parameter(
            metavar="PATH[=METHOD],…",
            group="filters",
            help="hide (anonymize) attributes of this path (email, card.number, items[*].name, "
            "**.ssn, *), or values like /REGEX/: drop, mask (default), hash, keep-type; "
            "repeatable, the first match wins",
        ),
    ] = None
    redact_file: Annotated[
        str | os.PathLike[str] | None,
        Parameter(metavar="FILE", group="filters", help="a file of --redact's rules, one a line"),
    ] = None
    redact_key_file: Annotated[
        str | os.PathLike[str] | None,
        Parameter(
            metavar="FILE",
            group="filters",
            help="the key of --redact's hash; default: the variable WATCHER_REDACT_KEY",
        ),
    ] = None
    on_stale: Annotated[
        OnStale,
        Parameter(
            metavar="POLICY",
            group="failures",
            help="when the checkpoint is older than 24 hours: trim-horizon (default: continue with "
            "the oldest record, and warn), fail, snapshot (deliver the present items)",
        ),
    ] = "trim-horizon"
    fail_on_data_loss: Annotated[
        bool,
        Parameter(
            group="failures",
            help="end with status 1 if records expired before they were read",
        ),
    ] = False
    poll_max: Annotated[
        float | None,
        Parameter(
            metavar="SECONDS",
            group="start",
            help="the longest pause (interval) between two reads of an idle shard; default 1 on a "
            "terminal, 5 elsewhere",
        ),
    ] = None
    region: Annotated[
        str | None, Parameter(metavar="REGION", group="aws", help="AWS region; default the ARN's")
    ] = None
    profile: Annotated[
        str | None,
        Parameter(metavar="PROFILE", group="aws", help="AWS profile, as in the aws CLI"),
    ] = None
    endpoint_url: Annotated[
        str | None,
        Parameter(metavar="URL", group="aws", help="another endpoint, such as DynamoDB Local's"),
    ] = None

    def __post_init__(self) -> None:
        """Checks every value, before any call of the service."""
        for each in fields(self):
            if isinstance(each.default, bool):
                refuse_text_for_bool(each.name, getattr(self, each.name))
        for name in ("poll_max_seconds", "record_filter", "redaction"):
            getattr(self, name)  # computed once; raises for a bad value
        refuse_bad_limit("read_limit", self.read_limit)
        if self.on_stale not in get_args(OnStale):
            text = "give fail, trim-horizon or snapshot"
            raise UsageError(text, "on_stale", repr(self.on_stale))

    @cached_property
    def connection(self) -> "AwsConfig":
        """The connection to AWS."""
        from watcher.aws.config import AwsConfig

        return AwsConfig.here(self.region, self.profile, self.endpoint_url)

    @cached_property
    def poll_max_seconds(self) -> float:
        """The longest delay between two reads of an idle shard."""
        return poll_seconds(self.poll_max)

    @cached_property
    def record_filter(self) -> "RecordFilter | None":
        """The filter of the records for the handlers; None: no filter."""
        from watcher.records.filters import record_filter

        return record_filter(self.filters, self.key, self.only, self.grep)

    @cached_property
    def redaction(self) -> "Redaction | None":
        """The redaction rules; None without any."""
        from watcher.records.redaction import redaction

        return redaction(self.redact, self.redact_file, self.redact_key_file)


@own_options_first
@dataclass(frozen=True, kw_only=True)
class WatchOptions(ReadOptions):
    """The options of a watch, for the command line, `watch()`, variables and the file of defaults.

    The shared ones are those of `ReadOptions`.
    """

    start: Annotated[
        Union[str, datetime, timedelta, "Position"],
        Parameter(
            name="--from",
            alias="--since",
            metavar="START",
            group="start",
            help="where to begin: latest, trim-horizon (the earliest), an age (90s 15m 2h), or a "
            "time (2026-11-21T08:00Z); default latest",
        ),
    ] = "latest"
    tail: Annotated[
        int | None,
        Parameter(
            alias="-n",
            metavar="N",
            group="start",
            help="begin with the last N changes (of those that the filters let through), in place "
            "of --from; --no-follow: only those",
        ),
    ] = None
    follow: Annotated[
        bool,
        Parameter(
            alias="-f",
            negative=("--no-follow", "--once"),
            group="start",
            help="end when caught up: everything up to now has been delivered",
        ),
    ] = True
    until: Annotated[
        str | datetime | timedelta | None,
        Parameter(
            metavar="END",
            group="start",
            help="end before the first change later than this: an age or a time, as with --from",
        ),
    ] = None
    max_records: Annotated[
        int | None,
        Parameter(
            metavar="N",
            group="start",
            help="end after N records (those that a filter drops don't count)",
        ),
    ] = None
    max_seconds: Annotated[
        float | None,
        Parameter(
            metavar="SECONDS",
            group="start",
            help="end after running for this many seconds (or 30s, 5m), as with SIGTERM",
        ),
    ] = None
    checkpoint: Annotated[
        str | os.PathLike[str] | CheckpointStorage | SharedStorage | None,
        Parameter(
            metavar="FILE",
            group="failures",
            help="resume from FILE if it exists, and save the positions to it; "
            "dynamodb://TABLE/NAME or s3://BUCKET/KEY: share it with standbys",
        ),
    ] = None
    on_error: Annotated[
        str | Callable[[dict[str, Any]], object] | None,
        Parameter(
            metavar="POLICY",
            group="failures",
            help="when a handler fails: retry (forever; default with --checkpoint), log (default "
            "without: skip the record), stop, dead-letter:DEST (a DLQ: a file, sqs://, s3://); "
            "or retry:N or retry:15m first, as in retry:15m,stop",
        ),
    ] = None
    processes: Annotated[
        int,
        Parameter(
            metavar="N",
            group="start",
            help="at most N processes (workers) read shards; more shards share them; default 64",
        ),
    ] = 64
    workers: Annotated[
        WorkerKind,
        Parameter(
            metavar="KIND",
            group="start",
            help="read shards in processes (default), or in threads",
        ),
    ] = "processes"
    concurrency: Annotated[
        int | None,
        Parameter(
            metavar="N",
            group="start",
            help="handle records of up to N shards in parallel, in threads (async handlers: in "
            "tasks); each shard's records stay in order; default 1",
        ),
    ] = None
    tags: Annotated[
        list[str] | Iterable[str] | Mapping[str, str | Iterable[str] | None] | None,
        Parameter(
            name="--tag",
            metavar="NAME=VALUE",
            group="tables",
            help="only matching tables with this tag, or all of them; repeatable: another value of "
            "the same tag is an alternative, another tag narrows down",
        ),
    ] = None
    everything: Annotated[
        bool, Parameter(name="--all", negative=(), group="tables", help="every table of the region")
    ] = False
    exclude: Annotated[
        list[str] | Iterable[str] | None,
        Parameter(
            metavar="GLOB",
            group="tables",
            help="leave out (ignore, skip) tables with this name; repeatable",
        ),
    ] = None
    strict: Annotated[
        bool,
        Parameter(
            negative=(),
            group="tables",
            help="end if any name has no stream, or any glob matches none",
        ),
    ] = False
    yes: Annotated[
        bool, Parameter(negative=(), group="tables", help="watch more than 200 streams")
    ] = False
    metrics_port: Annotated[
        str | int | None,
        Parameter(
            metavar="[HOST:]PORT",
            group="output",
            help="serve Prometheus metrics and health checks (/livez, /readyz) there; default host "
            "127.0.0.1",
        ),
    ] = None
    ready_lag: Annotated[
        float | None,
        Parameter(
            metavar="SECONDS",
            group="start",
            help="not ready (/readyz) while a shard is further behind than this",
        ),
    ] = None
    stop_timeout: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            group="start",
            help="how long a handler may take after Ctrl-C or SIGTERM (grace period); default 5",
        ),
    ] = SHUTDOWN_TIMING.stop_seconds
    snapshot_export: Annotated[
        str | None,
        Parameter(
            metavar="FOLDER",
            group="start",
            help="like --snapshot, but from a table's export (…/AWSDynamoDB/ID, s3:// or a folder) "
            "instead of a scan; then the changes since its time",
        ),
    ] = None
    display: "Display | None" = None
    stop: "Stop | None" = None

    def __post_init__(self) -> None:
        """Checks every value, before any call of the service."""
        super().__post_init__()
        for name in ("position", "end", "failure_policy"):
            getattr(self, name)  # computed once; raises for a bad value
        _refuse_bad_tail(self.tail, self.start, self.until)
        if self.snapshot and self.tail is not None:
            raise UsageError("it begins with the items: leave out --tail", "snapshot")
        if self.snapshot_export is not None and (self.tail is not None or self.start != "latest"):
            raise UsageError("it is the start: leave out --from and --tail", "snapshot_export")
        for name in ("max_records", "processes", "concurrency"):
            refuse_bad_count(name, getattr(self, name))
        if self.workers not in get_args(WorkerKind):
            raise UsageError("give processes or threads", "workers", repr(self.workers))
        refuse_bad_seconds("stop_timeout", self.stop_timeout)
        for name in ("max_seconds", "ready_lag"):
            if (seconds := getattr(self, name)) is not None:
                refuse_bad_seconds(name, seconds)
        if self.stop is not None and not callable(getattr(self.stop, "is_set", None)):
            text = "give a threading.Event, or what has its is_set()"
            raise UsageError(text, "stop", repr(self.stop))

    @cached_property
    def position(self) -> "Position":
        """The start position."""
        return start_position(self.start)

    @cached_property
    def end(self) -> datetime | None:
        """The latest creation time that counts; None: no limit."""
        return end(self.until, self.start)

    @property
    def is_bounded(self) -> bool:
        """True if the watch ends once everything up to now, or `until`, is delivered."""
        return not self.follow or self.until is not None

    @property
    def wire_filter(self) -> "Callable[[WireRecord], bool] | None":
        """The filter for records that are not decoded yet."""
        return None if self.record_filter is None else self.record_filter.matches_wire

    @cached_property
    def failure_policy(self) -> "FailurePolicy":
        """The policy for a handler that raises; with a checkpoint it loses nothing by default."""
        from watcher.delivery.failures import FailurePolicy

        default = "log" if self.checkpoint is None else "retry"
        policy = default if self.on_error is None else self.on_error
        if not (isinstance(policy, str) or callable(policy)):
            raise UsageError("give a policy's text, or a function", "on_error", repr(policy))
        return FailurePolicy.parse(policy, self.connection)

    def streams(self, named: str | Iterable[str]) -> "WantedStreams":
        """Returns the streams that the names and these options select. Raises UsageError."""
        from watcher.aws.discovery import WantedStreams

        return WantedStreams.parse(named, self.everything, self.tags, self.exclude)

    def beside(self, display: "Display", stop: "Stop") -> "WatchOptions":
        """Returns these options with another display and stop; the values are not checked again."""
        changed = copy.copy(self)
        vars(changed).update(display=display, stop=stop)
        return changed

    def stop_requested(self) -> bool:
        """True once the caller's `stop` event is set."""
        return self.stop is not None and self.stop.is_set()


def refuse_in_child() -> None:
    """Raises UsageError in a spawned child that imports the main program again."""
    import multiprocessing  # not for help

    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UsageError("watch() has to be called under `if __name__ == '__main__':`")


def poll_seconds(given: float | None) -> float:
    """Returns the longest delay of an idle shard. Raises UsageError.

    The default is short on a terminal, where a user waits; elsewhere, each call costs money.
    """
    if given is None:
        return 1.0 if is_terminal(sys.stderr) else 5.0
    refuse_bad_seconds("poll_max", given)
    return given


def refuse_bad_count(option: str, value: object) -> None:
    """Raises UsageError, which names the parameter, for a value below 1; None is no limit."""
    if value is not None and not (isinstance(value, int) and value >= 1):
        raise UsageError("give 1 or more", option, repr(value))


def refuse_bad_seconds(option: str, value: object) -> None:
    """Raises UsageError, which names the parameter, for a value that is not positive."""
    if not (isinstance(value, int | float) and 0 < value < math.inf):
        text = f"{value:g}" if isinstance(value, int | float) else repr(value)
        raise UsageError("give more than 0 seconds", option, text)


def refuse_bad_limit(option: str, units: object) -> None:
    """Raises UsageError, which names the parameter, for a limit that is not positive; None is none.

    A limit is one of capacity units a second.
    """
    if units is not None and not (isinstance(units, int | float) and units > 0):
        text = f"{units:g}" if isinstance(units, int | float) else repr(units)
        raise UsageError("give more than 0 capacity units a second", option, text)


def start_position(start: "Moment | Position") -> "Position":
    """Returns the position of a start, as the library and the command line take it.

    Raises UsageError.
    """
    from watcher.aws.model import Position
    from watcher.streams.start_times import parse_start

    if isinstance(start, Position):
        return start
    now = datetime.now(UTC)
    with blame("start"):
        return parse_start(start, now)


def end(until: "Moment | None", start: "Moment | Position") -> datetime | None:
    """Returns the latest creation time that counts. Raises UsageError.

    It must be after a `start` in the past: later records are never in its range.
    """
    from watcher.aws.model import AtTime, Latest
    from watcher.streams.start_times import parse_time

    if until is None:
        return None
    with blame("until"):
        found = parse_time(until, datetime.now(UTC))
    begins = start_position(start)
    if isinstance(begins, Latest):
        raise UsageError("it is in the past: give an earlier --from, too", "until", str(until))
    if isinstance(begins, AtTime) and begins.time > found.time:
        raise UsageError("it is before --from", "until", str(until))
    return found.time


def _refuse_bad_tail(count: int | None, start: object, until: object) -> None:
    if count is None:
        return
    if count == 0:
        raise UsageError("give 1 or more; without it a watch begins with new changes", "tail", "0")
    refuse_bad_count("tail", count)
    if count > MOST_OF_TAIL:
        text = f"give {MOST_OF_TAIL:,} at most; --from takes a time or an age"
        raise UsageError(text, "tail", count)
    if start != "latest" or until is not None:
        other = "--from" if start != "latest" else "--until"
        raise UsageError(f"it counts back from now: leave out {other}", "tail", count)


def handlers_of(given: object) -> "list[Handler]":
    """Returns the handlers for a caller's argument: a single one, or several.

    Raises UsageError as `handler`.
    """
    from watcher.delivery.handler import Handler

    is_one = isinstance(given, str | ModuleType | Handler) or not isinstance(given, Iterable)
    return [handler(each) for each in ([given] if is_one else cast("Iterable[object]", given))]


def handler(each: object) -> "Handler":
    """Returns the handler for one of a caller's objects. Raises UsageError if it can never work."""
    from watcher.delivery.handler import Handler

    if isinstance(each, Handler):
        return each
    if isinstance(each, str):
        found = handler_modules.find()
        if each not in found:
            raise UsageError(f"no handler {each!r}; there are {', '.join(found)}")
        return handler_modules.load(found[each])
    if isinstance(each, ModuleType):
        return handler_modules.module_handler(each, each.__name__, each.__name__)
    if not callable(each):
        raise UsageError(f"handler {each!r} can't be called: give a function of a record")
    name = getattr(each, "__name__", repr(each))
    if reason := unfit(each, "record", is_awaited=True):
        raise UsageError(f"handler {name} {reason}")
    return Handler(name, each)
