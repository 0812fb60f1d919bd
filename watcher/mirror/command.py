"""The command `mirror`: its parameters declare its options."""

import logging
import re
import threading
from collections.abc import Sequence
from typing import Annotated, NamedTuple, TypeAlias

from watcher.aws.arns import region_in
from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.tables import TablesClient
from watcher.declared import Parameter
from watcher.errors import UsageError
from watcher.mirror.columns import given_columns
from watcher.mirror.job import MirrorJob
from watcher.mirror.open_mirror import Format, open_mirror
from watcher.records.redaction import redaction
from watcher.shutdown import Shutdown

logger = logging.getLogger("watcher")

_TIME = re.compile(r"(\d+)\s*(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_HERE = AwsConfig()


class MirrorTotals(NamedTuple):
    """The numbers of items and changes of a run."""

    items: int
    changes: int
    signal: int
    """The signal that ended the run; 0 for none."""


To: TypeAlias = Annotated[
    str, Parameter(metavar="PATH", help="the mirror's folder, or NAMESPACE.TABLE with --catalog")
]
History: TypeAlias = Annotated[
    bool, Parameter(help="a row for every version of an item, with the time it was valid")
]
FormatOption: TypeAlias = Annotated[
    Format, Parameter(help="the table's format; iceberg takes PyIceberg")
]
Catalog: TypeAlias = Annotated[
    str | None,
    Parameter(
        metavar="NAME",
        help="a catalog of .pyiceberg.yaml for --format iceberg; default a file in the folder",
    ),
]
ImageSchema: TypeAlias = Annotated[
    str | None,
    Parameter(
        metavar="COLUMNS",
        help="types of columns: 'total decimal(12,2), placed timestamp'; others grow",
    ),
]
Once: TypeAlias = Annotated[bool, Parameter(help="end when everything up to now is done")]
Every: TypeAlias = Annotated[
    str, Parameter(metavar="TIME", help="one commit every so often: 1s, 1m; default 10s")
]
NoLossy: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--no-lossy",
        negative="--lossy",
        help="go on with a warning where changes were gone before they were read",
    ),
]


def mirror(  # noqa: PLR0913 (its parameters are the options)
    stream: str,
    *,
    to: To,
    history: History = False,
    format: FormatOption = "delta",  # noqa: A002 (the option's name)
    catalog: Catalog = None,
    image_schema: ImageSchema = None,
    once: Once = False,
    every: Every = "10s",
    fail_on_data_loss: NoLossy = True,
    redact: Sequence[str] | None = None,
    redact_file: str | None = None,
    redact_key_file: str | None = None,
    connection: AwsConfig = _HERE,
) -> MirrorTotals:
    """Keeps a Delta or Iceberg table equal to the stream's table, until stopped.

    It may be killed at any time, and continues with the same command: rows and the position in
    the stream are one commit. Raises UsageError, StreamError, DataLossError, WatcherError.
    """
    rules = redaction(redact, redact_file, redact_key_file)
    given = given_columns(image_schema) if image_schema else None
    seconds = _seconds(every)
    service, arn = connect(stream, connection)
    service.take_shortcut(arn)
    tables = TablesClient(connection, region_in(arn))
    name, description = tables.named(service.table(arn))
    # No signal is handled until the job runs: there is nothing yet to wait for.
    job = MirrorJob(
        arn=arn,
        service=service,
        tables=tables,
        table=name,
        description=description,
        mirror=open_mirror(to, form=format, catalog=catalog),
        history=history,
        once=once,
        given=given,
        redaction=rules,
        fail_on_data_loss=fail_on_data_loss,
    )
    stop, shutdown = threading.Event(), Shutdown()
    with shutdown.handle_signals(stop.set):
        logger.info(f"Mirroring {stream} to {to}")
        job.run(seconds, stop.is_set)
    return MirrorTotals(job.items, job.changes, shutdown.signal)


def _seconds(text: str) -> float:
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"can't read {text!r} as a time: use 500ms, 10s, 1m, 1h", "every")
    return int(found[1]) * _SECONDS[found[2]]
