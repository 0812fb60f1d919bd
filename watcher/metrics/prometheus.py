"""A watch's figures as Prometheus reads them, and the HTTP server that answers with them."""

from __future__ import annotations

import functools
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import msgspec
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from watcher.engine.figures import Snapshot
from watcher.engine.pulse import Pulse
from watcher.metrics.probes import answering_probes
from watcher.record.wire import KINDS

# From here on the manager is not just a moment late: an observer keeps it, most likely.
_STALE_SECONDS = 5.0
_CLIENT_SECONDS = 10.0


class SnapshotCollector(Collector):
    """The last snapshot, as metrics."""

    def __init__(self) -> None:
        self._snapshot = Snapshot()
        self._taken = time.monotonic()

    def take(self, snapshot: Snapshot) -> None:
        """Answer from this one from now on."""
        self._snapshot, self._taken = snapshot, time.monotonic()

    def last(self) -> Snapshot:
        """The one that it answers from."""
        return self._snapshot

    def collect(self) -> Iterator[Metric]:
        """Every metric that there is; those with labels may have no series yet."""
        now = self._snapshot
        # A series that begins at 0 shows its first increase.
        kinds = dict.fromkeys(KINDS, 0) | now.kinds
        yield _counter("records", "Records delivered, by kind of change.", "kind", kinds)
        yield _counter("filtered_records", "Records that a filter left out.", None, now.filtered)
        yield _counter(
            "observer_records", "Records that an observer has processed.", "observer", now.observed
        )
        yield _counter(
            "observer_failures",
            "Records that an observer has failed on, retries not counted.",
            "observer",
            now.failed,
        )
        yield _gauge(
            "shard_lag_seconds",
            "How old the last record delivered of a shard being read is; 0 where it is caught up.",
            ("table", "shard"),
            self._lags(),
        )
        yield _gauge(
            "shards",
            "Shards being read (open), read to their end, and waiting for their parent's end.",
            "state",
            msgspec.structs.asdict(now.shards),
        )
        yield _gauge("queue_records", "Records read and not delivered yet.", None, now.queued)
        yield _counter("api_calls", "Calls of the AWS API.", "operation", now.calls)
        yield _gauge(
            "month_cost_dollars",
            "What GetRecords calls come to a month at the pace so far, free ones deducted.",
            None,
            now.bill.month or 0.0,
        )
        yield _counter("throttles", "Calls that the service throttled.", None, now.throttles)
        yield _counter(
            "worker_restarts", "Shard processes that ended and were replaced.", None, now.restarts
        )
        yield _counter(
            "data_losses", "Times that records were gone before they were read.", None, now.losses
        )

        yield _gauge(
            "checkpoint_saved", "1 where the last save of the positions went well.", None, now.saved
        )

    def _lags(self) -> dict[tuple[str, str], float]:
        """A manager that an observer keeps sends nothing: what is delivered grows old meanwhile."""
        late = time.monotonic() - self._taken
        more = late if late > _STALE_SECONDS else 0.0
        lags: dict[tuple[str, str], float] = {}
        for origin, lag in self._snapshot.lags.items():
            series = origin.table, origin.shard_id
            # Emulators number the shards of each of a table's streams from 0 on.
            lags[series] = max(lag + more, lags.get(series, 0.0))
        return lags


def _metric(
    family: type[CounterMetricFamily] | type[GaugeMetricFamily],
    name: str,
    text: str,
    label: str | tuple[str, ...] | None,
    value: float | Mapping[Any, float],
) -> Metric:
    labels = [label] if isinstance(label, str) else label
    made = family(f"watcher_{name}", text, labels=labels)
    if isinstance(value, Mapping):
        for series, number in value.items():
            made.add_metric([series] if isinstance(label, str) else series, number)
    else:
        made.add_metric([], value)
    return made


_counter: Final = functools.partial(_metric, CounterMetricFamily)
_gauge: Final = functools.partial(_metric, GaugeMetricFamily)


class _Request(WSGIRequestHandler):
    timeout = _CLIENT_SECONDS

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Who scrapes is of no interest."""


class _Server(ThreadingMixIn, WSGIServer):
    """Each request in a thread of its own: one that hangs keeps nobody else."""

    daemon_threads = True

    def __init__(self, listening: socket.socket) -> None:
        host, port = listening.getsockname()[:2]
        super().__init__((host, port), _Request, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        # As server_bind does, which would also ask the name service for the host's name.
        self.server_name, self.server_port = host, port
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away in the middle is no news."""


@contextmanager
def answering(listening: socket.socket, latest: SnapshotCollector, pulse: Pulse) -> Iterator[None]:
    """Answer every request that comes to this socket."""
    registry = CollectorRegistry()
    registry.register(latest)
    server = _Server(listening)
    server.set_app(answering_probes(make_wsgi_app(registry), latest.last, pulse))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.server_close()
