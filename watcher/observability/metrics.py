"""The watch's metrics for Prometheus, and the server that answers with them and two probes."""

from __future__ import annotations

import platform
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeAlias

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from watcher.clock import CLOCK
from watcher.observability.heartbeat import Heartbeat, assess
from watcher.observability.watch_stats import LeaseState, WatchStats
from watcher.records.wire import KINDS
from watcher.version import __version__

# The age of figures from which a handler most likely blocks the manager.
_LOOP_LATE_SECONDS = 5.0
# The timeout of a silent client.
_CLIENT_SECONDS = 10.0

_Values: TypeAlias = (
    Mapping[tuple[()], float] | Mapping[tuple[str], float] | Mapping[tuple[str, str], float]
)
"""The values by their labels' values."""


class PrometheusCollector(Collector):
    """Exposes the `latest` figures to Prometheus."""

    def __init__(self, latest: Callable[[], WatchStats]) -> None:
        self._latest = latest

    def collect(self) -> Iterator[Metric]:
        """Yields every metric; one with labels may have no series yet."""
        now = self._latest()
        build = {(__version__, platform.python_version()): 1}
        text = "Always 1; the labels tell the versions."
        yield _gauge("build_info", text, build, "version", "python")
        yield from _of_records(now)
        yield from _of_handlers(now)
        yield from _of_shards(now)
        text = "Calls of the AWS API."
        yield _counter("api_calls", text, _by_name(now.calls), "operation")
        yield _counter("throttles", "Calls that the service throttled.", {(): now.throttles})
        yield from _of_the_checkpoint(now)

    describe = collect  # by which a registry refuses a second watch's


def _of_shards(now: WatchStats) -> Iterator[Metric]:
    text = "How old the last record delivered of a shard being read is; 0 where it is caught up."
    yield _gauge("shard_lag_seconds", text, _lags(now), "table", "shard")
    text = "Shards being read (open), read to their end, and waiting for their parent's end."
    yield _gauge("shards", text, _by_name(msgspec.structs.asdict(now.shards)), "state")
    text = "Workers that ended and were replaced."
    yield _counter("worker_restarts", text, {(): now.restarts})
    text = "Times that records were gone before they were read."
    yield _counter("data_losses", text, {(): now.losses})


def _lags(now: WatchStats) -> Mapping[tuple[str, str], float]:
    """Returns the lags; they grow while a slow handler keeps the manager from updating them."""
    late = CLOCK.monotonic() - now.collected_at
    more = late if late > _LOOP_LATE_SECONDS else 0.0
    lags: dict[tuple[str, str], float] = {}
    for shard_key, lag in now.lags.items():
        labels = shard_key.table, shard_key.shard_id
        # On emulators, two streams of a table may have shards with the same id.
        lags[labels] = max(lag + more, lags.get(labels, 0.0))
    return lags


def _of_records(now: WatchStats) -> Iterator[Metric]:
    kinds = {
        (table, kind): count
        for table, counts in now.tables.items()
        # A series has to start at 0 to show its first increase.
        for kind, count in (dict.fromkeys(KINDS, 0) | counts).items()
    }
    text = "Records delivered, by table and kind of change."
    yield _counter("records", text, kinds, "table", "kind")
    yield _counter("filtered_records", "Records that a filter left out.", {(): now.filtered})
    yield _gauge("queue_records", "Records read and not delivered yet.", {(): now.queued})


def _of_handlers(now: WatchStats) -> Iterator[Metric]:
    text = "Records that a handler has processed."
    yield _counter("handler_records", text, now.handled, "table", "handler")
    text = "Records that a handler has failed on, retries not counted."
    yield _counter("handler_failures", text, now.failed, "table", "handler")
    text = "Times that a handler was tried again."
    yield _counter("handler_retries", text, _by_name(now.retries), "handler")
    text = "For how long a handler has been tried again with the same records; 0: it is not."
    yield _gauge("handler_retrying_seconds", text, _by_name(now.retrying), "handler")


def _of_the_checkpoint(now: WatchStats) -> Iterator[Metric]:
    text = "1 where the last save of the positions went well."
    yield _gauge("checkpoint_saved", text, {(): int(now.saved)})
    for name, text, state in (
        ("lease_held", "1 where this watch holds its checkpoint's lease.", LeaseState.HELD),
        ("standing_by", "1 where this watch can take the lease over.", LeaseState.STANDING_BY),
    ):
        has_lease = now.lease is not LeaseState.NONE
        yield _gauge(name, text, {(): int(now.lease is state)} if has_lease else {})


def _counter(name: str, text: str, values: _Values, *labels: str) -> Metric:
    return _filled(CounterMetricFamily(f"watcher_{name}", text, labels=labels), values)


def _gauge(name: str, text: str, values: _Values, *labels: str) -> Metric:
    return _filled(GaugeMetricFamily(f"watcher_{name}", text, labels=labels), values)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: _Values) -> Metric:
    for each, value in values.items():
        family.add_metric(each, value)
    return family


def _by_name(values: Mapping[str, float]) -> Mapping[tuple[str], float]:
    return {(name,): value for name, value in values.items()}


# Over HTTP


class MetricsServer(ThreadingHTTPServer):
    """Answers the requests to a socket, each in its own thread: a slow one blocks no other."""

    def __init__(self, listening: socket.socket, heartbeat: Heartbeat) -> None:
        super().__init__(listening.getsockname()[:2], _Request, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.heartbeat = heartbeat
        self.stats = WatchStats()
        self.registry = CollectorRegistry()
        self.registry.register(PrometheusCollector(lambda: self.stats))
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Logs nothing: a client may go away at any time."""


class _Request(BaseHTTPRequestHandler):
    server: MetricsServer
    timeout = _CLIENT_SECONDS

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Logs nothing: scrapes are frequent."""

    def do_GET(self) -> None:
        """Answers /livez, /readyz, /metrics and /."""
        path = self.path.partition("?")[0]
        if path in ("/", "/metrics"):
            encode, kind = choose_encoder(self.headers.get("Accept", ""))
            self._answer(200, encode(self.server.registry), kind)
        elif path in ("/livez", "/readyz"):
            answers = assess(self.server.stats, self.server.heartbeat)
            is_ready = path == "/readyz"
            wrong = answers.ready if is_ready else answers.live
            well = f"ok, {answers.remark}" if is_ready and answers.remark else "ok"
            text = "\n".join(wrong) or well
            self._answer(503 if wrong else 200, f"{text}\n".encode())
        else:
            self._answer(404, b"there are /metrics, /livez and /readyz\n")

    do_HEAD = do_GET

    def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
