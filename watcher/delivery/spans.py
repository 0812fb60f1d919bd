"""Traces each call of a function as an OpenTelemetry span; the `OTEL_*` variables configure it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

from watcher.delivery.timing import HANDLER_TIMING
from watcher.observability import telemetry
from watcher.records.record import Record


class Spans:
    """Creates spans, and sends them from a thread: delivery never waits for a collector."""

    def __init__(self, exporters: Sequence[str]) -> None:
        telemetry.forward_sdk_log()
        self._provider = TracerProvider(resource=telemetry.resource(), shutdown_on_exit=False)
        for name in exporters:
            exporter = telemetry.create_exporter("traces", name)
            self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("watcher")

    def around(
        self, name: str, call: Callable[[Sequence[Record]], int]
    ) -> Callable[[Sequence[Record]], int]:
        """Returns a function that runs `call` in a span of this name, with the call's own below it.

        The span records an error, and a call that processed only the first records.
        """

        def traced(records: Sequence[Record]) -> int:
            first = records[0]
            attributes: dict[str, str | int] = {
                "faas.trigger": "datasource",
                "faas.document.collection": first.shard_key.table,
                "messaging.batch.message_count": len(records),
                "watcher.shard": first.shard_id,
                "watcher.first_sequence_number": first.sequence_number,
                "watcher.last_sequence_number": records[-1].sequence_number,
            }
            with self._tracer.start_as_current_span(
                name, kind=SpanKind.CONSUMER, attributes=attributes
            ) as span:
                done = call(records)
                if done < len(records):
                    span.set_attribute("watcher.processed", done)
                    text = f"{len(records) - done} of {len(records)} reported as failed"
                    span.set_status(Status(StatusCode.ERROR, text))
                return done

        return traced

    def close(self) -> None:
        """Sends the remaining spans, within a time limit."""
        thread = threading.Thread(target=self._provider.shutdown, name="spans", daemon=True)
        thread.start()
        thread.join(HANDLER_TIMING.spans_end_seconds)
