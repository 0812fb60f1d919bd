"""A span for each batch of `--lambda`, at a receiver of OTLP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.support.otlp import Receiver, receiving
from tests.support.play import ARN, Play, page
from watcher.delivery.handler import Handler
from watcher.delivery.lambda_functions import lambda_function


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.endpoint)
        yield made


def delivered(observer: Handler) -> None:
    play = Play(observer)
    play.service.add("a")
    play.run(("a", page(1, 2, 3)), 30.0)


def attributes(span: Span) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value") or "")
        for each in span.attributes
    }


def test_each_batch_is_a_span_which_the_functions_own_are_below(receiver: Receiver) -> None:
    traces: list[int] = []

    def handler(event: dict[str, Any], context: object) -> None:
        traces.append(trace.get_current_span().get_span_context().trace_id)

    delivered(lambda_function(handler, batch_size=2))
    first, second = receiver.spans
    assert first.name == second.name == "handler"
    assert [int.from_bytes(span.trace_id, "big") for span in (first, second)] == traces
    assert first.kind == Span.SPAN_KIND_CONSUMER and first.status.code == Status.STATUS_CODE_UNSET
    found = attributes(first)
    assert found["messaging.batch.message_count"] == 2
    assert found["faas.document.collection"] == "orders" and found["watcher.shard"] == "a"
    assert (
        int(found["watcher.last_sequence_number"]) - int(found["watcher.first_sequence_number"])
        == 1
    )
    assert receiver.resources[0]["service.name"] == "watcher" and ARN


def test_an_error_and_a_batch_that_went_well_in_part_are_failed_spans(receiver: Receiver) -> None:
    calls: list[int] = []

    def handler(event: dict[str, Any], context: object) -> object:
        calls.append(len(event["Records"]))
        if len(calls) == 1:
            raise ValueError("no")
        if len(calls) == 2:
            number = event["Records"][1]["dynamodb"]["SequenceNumber"]
            return {"batchItemFailures": [{"itemIdentifier": number}]}
        return None

    delivered(lambda_function(handler, retries=5))
    raised, partly, well = receiver.spans
    assert raised.status.code == partly.status.code == Status.STATUS_CODE_ERROR
    assert raised.events[0].name == "exception"
    assert partly.status.message == "2 of 3 reported as failed"
    assert attributes(partly)["watcher.processed"] == 1
    assert well.status.code == Status.STATUS_CODE_UNSET
