"""A receiver of OTLP over HTTP, as a collector is one: what comes is decoded and kept."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Values = dict[tuple[str, ...], float]
"""The name of a metric and its attributes' values, and what it is."""


class Receiver:
    """What has come, export by export."""

    def __init__(self) -> None:
        self.metrics: list[Values] = []
        self.monotonic: set[str] = set()
        self.units: dict[str, str] = {}
        self.spans: list[Span] = []
        self.resources: list[dict[str, str]] = []
        self.news = threading.Condition()
        self.status = 200
        """What it answers."""
        self.endpoint = ""

    def take(self, path: str, body: bytes) -> None:
        with self.news:
            if path == "/v1/metrics":
                self._take_metrics(ExportMetricsServiceRequest.FromString(body))
            else:
                assert path == "/v1/traces"
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    self._note(resource.resource)
                    for scope in resource.scope_spans:
                        self.spans += scope.spans
            self.news.notify_all()

    def _take_metrics(self, request: Any) -> None:
        found: Values = {}
        for resource in request.resource_metrics:
            self._note(resource.resource)
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                self.units[metric.name] = metric.unit
                if metric.HasField("histogram"):
                    found |= self._histogram(metric)
                    continue
                data = metric.sum if metric.HasField("sum") else metric.gauge
                if metric.HasField("sum") and metric.sum.is_monotonic:
                    self.monotonic.add(metric.name)
                for point in data.data_points:
                    labels = (each.value.string_value for each in point.attributes)
                    found[metric.name, *labels] = point.as_double or point.as_int
        self.metrics.append(found)

    @staticmethod
    def _histogram(metric: Any) -> Values:
        """The sum of each, and what is in its buckets by their upper bounds."""
        found: Values = {}
        for point in metric.histogram.data_points:
            labels = [each.value.string_value for each in point.attributes]
            found[metric.name, *labels] = point.sum
            for bound, count in zip(point.explicit_bounds, point.bucket_counts, strict=False):
                found[metric.name, *labels, f"{bound:g}"] = count
        return found

    def _note(self, resource: Any) -> None:
        self.resources.append({each.key: each.value.string_value for each in resource.attributes})

    def wait_for(self, condition: Callable[[], object], seconds: float = 20.0) -> None:
        with self.news:
            assert self.news.wait_for(condition, seconds), (self.metrics[-1:], self.spans)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """One that listens on the loopback."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            while receiver.status == 0:  # it hangs
                time.sleep(0.05)
            if receiver.status == 200:
                receiver.take(self.path, body)
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.endpoint = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
    try:
        yield receiver
    finally:
        receiver.status = 503
        server.shutdown()
        server.server_close()
