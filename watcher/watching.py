"""`watch()`: the library's way in, and the one declaration of the command line's options."""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from datetime import datetime
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from watcher import options
from watcher.aws.price import PRICE
from watcher.declared import declares_options
from watcher.delivery import output
from watcher.delivery.shutdown import STOP_SECONDS
from watcher.stores.positions import Positions

# What it takes to watch is imported by the calls: the command line reads the declaration alone
# for its help and for a TAB, and boto3 would be three quarters of their time.
if TYPE_CHECKING:
    import threading

    from watcher.delivery.handler import Handler
    from watcher.observability.watch_stats import Display, Totals
    from watcher.records.record import Record
    from watcher.runtime.protocol import Queue
    from watcher.runtime.settings import Settings
    from watcher.runtime.watched_streams import WatchedStreams
    from watcher.runtime.workers import Workers
    from watcher.stores.checkpoint_saver import Store


@declares_options
def watch(
    stream: str | Iterable[str],
    observers: "Iterable[Callable[[Record], Any] | Handler | ModuleType | str]",
    *,
    start: Annotated[
        str | datetime,
        Parameter(
            name="--from",
            metavar="START",
            group="start",
            help="where to begin: latest, trim-horizon, an age (90s 15m 2h), or a time "
            "(2026-11-21T08:00Z); default latest",
        ),
    ] = "latest",
    tail: Annotated[
        int | None,
        Parameter(
            metavar="N",
            group="start",
            help="begin with the last N changes (of those that the filters let through), in place "
            "of --from; --no-follow: only those",
        ),
    ] = None,
    follow: Annotated[
        bool,
        Parameter(
            negative="--no-follow",
            group="start",
            help="end when everything up to now has been delivered",
        ),
    ] = True,
    until: Annotated[
        str | datetime | None,
        Parameter(
            metavar="END",
            group="start",
            help="leave out what was made later, and end: an age or a time, as with --from",
        ),
    ] = None,
    max_records: Annotated[
        int | None,
        Parameter(
            alias="-n",
            metavar="N",
            group="start",
            help="end after N records (those that a filter drops don't count)",
        ),
    ] = None,
    snapshot: Annotated[
        bool,
        Parameter(
            negative=(),
            group="start",
            help="first the items that exist (SNAPSHOT), with the changes made meanwhile",
        ),
    ] = False,
    only: Annotated[
        list[str] | str | Iterable[str] | None,
        Parameter(
            metavar="KINDS",
            group="filters",
            help="only these kinds of change: insert, modify, remove, ttl (removed by "
            "time-to-live; as in insert,ttl); repeatable",
        ),
    ] = None,
    key: Annotated[
        list[str] | Iterable[str] | Mapping[str, Any] | None,
        Parameter(
            metavar="NAME=VALUE",
            group="filters",
            help="only changes of items with this key attribute; repeatable: another value of the "
            "same attribute is an alternative, another attribute narrows down",
        ),
    ] = None,
    filters: Annotated[
        list[str] | Iterable[str | Mapping[str, Any]] | None,
        Parameter(
            name="--filter",
            metavar="PATTERN",
            group="filters",
            help="only changes that match: Lambda's event filtering, as JSON or @FILE; "
            "repeatable (any of them)",
        ),
    ] = None,
    checkpoint: Annotated[
        str | os.PathLike[str] | Positions | None,
        Parameter(
            metavar="FILE",
            group="failures",
            help="resume from FILE if it exists, and save the positions to it; "
            "dynamodb://TABLE/NAME: shared with watches that stand by",
        ),
    ] = None,
    on_stale: Annotated[
        str,
        Parameter(
            metavar="POLICY",
            group="failures",
            choices=("fail", "trim-horizon", "snapshot"),
            help="when the checkpoint is older than 24 hours: trim-horizon (default: go on with "
            "what there is, and say so), fail, snapshot (hand over the items anew)",
        ),
    ] = "trim-horizon",
    on_error: Annotated[
        str,
        Parameter(
            metavar="POLICY",
            group="failures",
            help="when a handler raises: log (default), stop, retry:N, dead-letter:FILE",
        ),
    ] = "log",
    fail_on_data_loss: Annotated[
        bool,
        Parameter(
            group="failures",
            help="end with status 1 where records were gone before they were read",
        ),
    ] = False,
    poll_max: Annotated[
        float | None,
        Parameter(
            metavar="SECONDS",
            group="start",
            help="the longest pause between two reads of an idle shard; default 1 on a terminal, "
            "5 elsewhere",
        ),
    ] = None,
    processes: Annotated[
        int,
        Parameter(
            metavar="N",
            group="start",
            help="a process for each shard up to N of them, then shards share them; default 64",
        ),
    ] = 64,
    concurrency: Annotated[
        int,
        Parameter(
            metavar="N",
            group="start",
            help="handle records of up to N shards at once, in threads (async handlers: in tasks); "
            "of each shard one after the other; default 1",
        ),
    ] = 1,
    price: Annotated[
        float,
        Parameter(
            metavar="DOLLARS",
            group="output",
            help="what 100,000 GetRecords calls cost in your region; default 0.02",
        ),
    ] = PRICE,
    region: Annotated[
        str | None, Parameter(metavar="REGION", group="aws", help="AWS region; default the ARN's")
    ] = None,
    profile: Annotated[
        str | None,
        Parameter(metavar="PROFILE", group="aws", help="AWS profile, as in the aws CLI"),
    ] = None,
    endpoint_url: Annotated[
        str | None,
        Parameter(metavar="URL", group="aws", help="another endpoint, such as DynamoDB Local's"),
    ] = None,
    tags: Annotated[
        list[str] | Iterable[str] | None,
        Parameter(
            name="--tag",
            metavar="NAME=VALUE",
            group="tables",
            help="only globs' tables with this tag, or all with it; repeatable: another value of "
            "the same tag is an alternative, another tag narrows down",
        ),
    ] = None,
    everything: Annotated[
        bool, Parameter(name="--all", negative=(), group="tables", help="all streams of the region")
    ] = False,
    exclude: Annotated[
        list[str] | Iterable[str] | None,
        Parameter(
            metavar="GLOB",
            group="tables",
            help="no table of such a name, whatever else says so; repeatable",
        ),
    ] = None,
    strict: Annotated[
        bool,
        Parameter(
            negative=(),
            group="tables",
            help="end where a name has no stream or a glob no match, not only if all have none",
        ),
    ] = False,
    yes: Annotated[
        bool, Parameter(negative=(), group="tables", help="watch more than 200 streams")
    ] = False,
    metrics_port: Annotated[
        str | int | None,
        Parameter(
            metavar="[HOST:]PORT",
            group="output",
            help="serve metrics for Prometheus there, /livez and /readyz; default host 127.0.0.1",
        ),
    ] = None,
    stop_timeout: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            group="start",
            help="how long a handler may take to end its work after Ctrl-C or SIGTERM; default 5",
        ),
    ] = STOP_SECONDS,
    display: "Display | None" = None,
    stop: "threading.Event | None" = None,
) -> "Totals":
    """Call each observer with every change of a table, in order, until stopped.

    `stream` is a stream ARN, a table ARN, a table name, a glob of table names, or several of
    them (see docs/tables.md); an observer is a callable that takes a
    Record, a module with `handle`, or the name of a handler such as "print_summary". The
    parameters are the command line's options of the same names. In the main thread, SIGINT, SIGTERM
    and SIGHUP end the watch: the record in hand is delivered, within `stop_timeout` seconds, and
    nothing behind it; what is left is said, and the checkpoint saved. In every thread,
    `stop` does, once it is set: within a fifth of a second, unless a handler keeps it longer (only
    in the main thread can one be broken off). `display` is shown the figures of the watch a few
    times a second, as the command line's status line is.
    `checkpoint` may also be an object with `load()` and `save(token)` (see docs/positions.md).

    Returns the totals. Raises StreamError (the stream can't be used), UsageError (an option or a
    checkpoint can't), HandlerError (an observer failed under `stop`), DataLossError,
    LeaseLostError (another watch has taken over).
    """
    options.refuse_in_child()
    from watcher.aws.config import AwsConfig
    from watcher.delivery.failures import FailurePolicy
    from watcher.observability.exporter import outlets
    from watcher.records.filters import record_filter
    from watcher.runtime.loop import Manager
    from watcher.runtime.processes import raised_open_files
    from watcher.runtime.protocol import Queue
    from watcher.runtime.settings import Settings

    settings = Settings(
        connection=AwsConfig(region, profile, endpoint_url),
        start=options.position(start),
        follow=follow and until is None,
        end=options.end(until, start),
        tail=options.tail(tail, start, until),
        snapshot=options.snapshot(snapshot, tail),
        on_stale=options.on_stale(on_stale),
        max_records=max_records,
        fail_on_data_loss=fail_on_data_loss,
        poll_max=options.poll_seconds(poll_max),
        price=options.price(price),
        wanted=record_filter(filters, key, only),
        on_error=FailurePolicy.parse(on_error),
        stop_timeout=stop_timeout,
        asked_to_stop=options.asked_by(stop),
    )
    options.refuse_bad_counts(max_records=max_records, processes=processes)
    hands = options.hands(concurrency)
    options.refuse_bad_seconds(stop_timeout=stop_timeout)
    with ExitStack() as stack:
        stack.enter_context(raised_open_files())
        displays, pulse = stack.enter_context(outlets(display, metrics_port, stop_timeout))
        chosen = [options.observer(each) for each in observers]
        store = stack.enter_context(_opened(checkpoint, settings, stream))
        queue = Queue()
        manager = Manager(
            _found(settings, strict, yes, queue.wake, stream, everything, tags, exclude),
            chosen,
            settings,
            workers=_workers(queue, processes, settings, in_threads=hands is not None),
            store=store,
            displays=displays,
            hands=hands,
            pulse=pulse,
        )
        with output.whole(), manager.shutdown.handle_signals(manager.stop, _closing(displays)):
            return manager.run()


def _opened(
    checkpoint: "str | os.PathLike[str] | Positions | None", settings: "Settings", stream: object
) -> "AbstractContextManager[Store | None]":
    from watcher.stores.stores import store_of

    if checkpoint is None:
        return nullcontext()
    return closing(store_of(checkpoint, settings.connection, stream))


def _found(
    settings: "Settings", strict: bool, yes: bool, tell: Callable[[], object], *asked: Any
) -> "WatchedStreams":
    from watcher.aws.discovery import WantedStreams
    from watcher.runtime.find_streams import find

    return find(WantedStreams.of(*asked), settings, strict=strict, yes=yes, tell=tell)


def _workers(
    queue: "Queue", processes: int, settings: "Settings", *, in_threads: bool
) -> "Workers":
    from watcher.runtime.processes import ProcessStarter
    from watcher.runtime.workers import Workers

    start = ProcessStarter(settings.wanted, with_threads=in_threads)
    return Workers(queue, start, processes=processes)


def _closing(displays: "Iterable[Display]") -> list[Callable[[], object]]:
    return [each.close for each in displays]
