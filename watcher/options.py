"""The options of a watch: each declared once, with its flag and its help, and checked once."""

import copy
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
    get_args,
)

from watcher.declared import Opt
from watcher.delivery import handler_modules
from watcher.delivery.callables import unfit
from watcher.errors import UsageError, blame, refuse_text_for_bool, refuse_unless_positive
from watcher.files import is_terminal
from watcher.shutdown import STOP_SECONDS
from watcher.stores.protocol import CheckpointStorage

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

    A field with an `Opt` is a command-line option. Raises UsageError, which names the field,
    for a value that can't be used.
    """

    snapshot: Annotated[
        bool,
        Opt("deliver the existing items first, and the changes during the scan", group="start"),
    ] = False
    read_limit: Annotated[
        float | None,
        Opt("with --snapshot: at most this many read units a second", "UNITS", "start"),
    ] = None
    only: Annotated[
        Union[list["Kind"], "Kind", "Iterable[Kind]", None],
        Opt("only insert, modify, remove or ttl (expired items); repeatable", "KINDS", "filters"),
    ] = None
    key: Annotated[
        list[str] | Iterable[str] | Mapping[str, Any] | None,
        Opt(
            "only items with this key attribute; repeatable; another value is an alternative",
            "NAME=VALUE",
            "filters",
        ),
    ] = None
    filters: Annotated[
        list[str] | Iterable[str | Mapping[str, Any]] | None,
        Opt(
            "only changes that match a condition ('total > 200 and status = \"paid\"') or Lambda's "
            "event filtering, as JSON or @FILE; repeatable (any of them)",
            "PATTERN",
            "filters",
            name="--filter",
            alias="--where",
        ),
    ] = None
    grep: Annotated[
        str | None, Opt("only changes with this text in their key or images", "TEXT", "filters")
    ] = None
    redact: Annotated[
        list[str] | str | Iterable[str] | None,
        Opt(
            "hide attributes of this path (email, card.number, **.ssn, *): drop, mask (default), "
            "hash, keep-type; repeatable, the first match wins; @FILE has a rule a line",
            "PATH[=METHOD],…",
            "filters",
        ),
    ] = None
    on_stale: Annotated[
        OnStale,
        Opt(
            "with a checkpoint older than 24 hours: trim-horizon (default: continue with the "
            "oldest record, and warn), fail, snapshot (deliver the present items)",
            "POLICY",
            "failures",
        ),
    ] = "trim-horizon"
    fail_on_data_loss: Annotated[
        bool, Opt("end with status 1 if records expired before they were read", group="failures")
    ] = False
    poll_max: Annotated[
        float | None,
        Opt("the longest pause of a shard; default 1 on a terminal, else 5", "SECONDS", "start"),
    ] = None
    region: Annotated[str | None, Opt("AWS region; default the ARN's", "REGION", "aws")] = None
    profile: Annotated[str | None, Opt("AWS profile, as in the aws CLI", "PROFILE", "aws")] = None
    endpoint_url: Annotated[
        str | None, Opt("another endpoint, such as DynamoDB Local's", "URL", "aws")
    ] = None

    def __post_init__(self) -> None:
        """Checks every value, before any call of the service."""
        for each in fields(self):
            if isinstance(each.default, bool):
                refuse_text_for_bool(each.name, getattr(self, each.name))
        for name in ("record_filter", "redaction"):
            getattr(self, name)  # computed once; raises for a bad value
        refuse_unless_positive("poll_max", self.poll_max)
        refuse_unless_positive("read_limit", self.read_limit, "capacity units a second")
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
        # Short on a terminal, where a user waits; elsewhere, each call costs money.
        default = 1.0 if is_terminal(sys.stderr) else 5.0
        return default if self.poll_max is None else self.poll_max

    @cached_property
    def record_filter(self) -> "RecordFilter | None":
        """The filter of the records for the handlers; None: no filter."""
        from watcher.records.filters import record_filter

        return record_filter(self.filters, self.key, self.only, self.grep)

    @cached_property
    def redaction(self) -> "Redaction | None":
        """The redaction rules; None without any."""
        from watcher.records.redaction import redaction

        return redaction(self.redact)


@dataclass(frozen=True, kw_only=True)
class WatchOptions(ReadOptions):
    """The options of a watch, for the command line, `watch()`, variables and the file of defaults.

    The shared ones are those of `ReadOptions`.
    """

    start: Annotated[
        Union[str, datetime, timedelta, "Position"],
        Opt(
            "latest (default), trim-horizon, an age (15m 2h), or a time (2026-11-21T08:00Z)",
            "START",
            "start",
            name="--from",
            alias="--since",
        ),
    ] = "latest"
    tail: Annotated[
        int | None,
        Opt("begin with the last N changes; --no-follow: only those", "N", "start", alias="-n"),
    ] = None
    follow: Annotated[
        bool,
        Opt(
            "end when everything up to now has been delivered",
            group="start",
            alias="-f",
            negative="--no-follow --once",
        ),
    ] = True
    until: Annotated[
        str | datetime | timedelta | None,
        Opt("end before the first change later than this: an age or a time", "END", "start"),
    ] = None
    max_records: Annotated[
        int | None, Opt("end after N records (those that a filter drops don't count)", "N", "start")
    ] = None
    checkpoint: Annotated[
        str | os.PathLike[str] | CheckpointStorage | None,
        Opt(
            "resume from FILE if it exists, and save the positions to it; dynamodb://TABLE/NAME "
            "or s3://BUCKET/KEY: share it with standbys",
            "FILE",
            "failures",
        ),
    ] = None
    on_error: Annotated[
        str | Callable[[dict[str, Any]], object] | None,
        Opt(
            "when a handler fails: retry (forever; default with --checkpoint), log (default "
            "without: skip the record), stop, dead-letter:DEST (a DLQ: a file, sqs://, s3://); "
            "or retry:N or retry:15m first, as in retry:15m,stop",
            "POLICY",
            "failures",
        ),
    ] = None
    processes: Annotated[int, Opt("at most N processes read shards; default 64", "N", "start")] = 64
    workers: Annotated[
        WorkerKind, Opt("read shards in processes (default) or threads", "KIND", "start")
    ] = "processes"
    concurrency: Annotated[
        int | None, Opt("handle N shards' records at once, in threads; default 1", "N", "start")
    ] = None
    tags: Annotated[
        list[str] | Iterable[str] | None,
        Opt(
            "only tables with this tag; repeatable; another value is an alternative",
            "NAME=VALUE",
            "tables",
            name="--tag",
        ),
    ] = None
    everything: Annotated[bool, Opt("every table there is", group="tables", name="--all")] = False
    exclude: Annotated[
        list[str] | Iterable[str] | None,
        Opt("leave out tables with this name; repeatable", "GLOB", "tables"),
    ] = None
    metrics_port: Annotated[
        str | int | None,
        Opt("serve metrics, /livez and /readyz; default host 127.0.0.1", "[HOST:]PORT", "output"),
    ] = None
    stop_timeout: Annotated[
        float,
        Opt("how long a handler may take after Ctrl-C or SIGTERM; default 5", "SECONDS", "start"),
    ] = STOP_SECONDS
    display: "Display | None" = None
    stop: "Stop | None" = None

    def __post_init__(self) -> None:
        """Checks every value, before any call of the service."""
        super().__post_init__()
        for name in ("position", "end", "failure_policy"):
            getattr(self, name)  # computed once; raises for a bad value
        if not 1 <= (1 if self.tail is None else self.tail) <= MOST_OF_TAIL:
            raise UsageError(f"give 1 to {MOST_OF_TAIL:,}", "tail", self.tail)
        if self.tail is not None and (self.start != "latest" or self.until is not None):
            text = "it counts back from now: leave out --from and --until"
            raise UsageError(text, "tail", self.tail)
        if self.snapshot and self.tail is not None:
            raise UsageError("it begins with the items: leave out --tail", "snapshot")
        for name in ("max_records", "processes", "concurrency"):
            refuse_bad_count(name, getattr(self, name))
        if self.workers not in get_args(WorkerKind):
            raise UsageError("give processes or threads", "workers", repr(self.workers))
        refuse_unless_positive("stop_timeout", self.stop_timeout or 0)
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
    def is_endless(self) -> bool:
        """True if the watch goes on until it is stopped."""
        return not self.is_bounded and self.max_records is None

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


def refuse_bad_count(option: str, value: object) -> None:
    """Raises UsageError, which names the parameter, for a value below 1; None is no limit."""
    if value is not None and not (isinstance(value, int) and value >= 1):
        raise UsageError("give 1 or more", option, repr(value))


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


def handlers_of(given: object) -> "list[Handler]":
    """Returns the handlers for a caller's argument: a single one, or several.

    Raises UsageError for one that can never work.
    """
    from watcher.delivery.handler import Handler

    is_one = isinstance(given, str | ModuleType | Handler) or not isinstance(given, Iterable)
    several: Any = [given] if is_one else given
    return [each if isinstance(each, Handler) else _handler(each) for each in several]


def _handler(each: object) -> "Handler":
    from watcher.delivery.handler import Handler

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
    if reason := unfit(each, "record"):
        raise UsageError(f"handler {name} {reason}")
    return Handler(name, each)
