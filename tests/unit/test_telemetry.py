"""Which `OTEL_*` variables ask for what, and what is said where something is missing."""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys

import pytest

from watcher.observability import telemetry
from watcher.observability.telemetry import Signal, exporters
from watcher.version import install

HTTP = ["otlp_proto_http"]


@pytest.fixture(autouse=True)
def nothing_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    telemetry.warn_once.cache_clear()
    monkeypatch.setattr(logging.getLogger("watcher"), "propagate", True)


@pytest.mark.parametrize(
    ("variables", "metrics", "traces"),
    [
        ("", [], []),
        ("SERVICE_NAME=orders RESOURCE_ATTRIBUTES=a=b", [], []),
        ("EXPORTER_OTLP_ENDPOINT=http://c:4318", HTTP, HTTP),
        ("EXPORTER_OTLP_METRICS_ENDPOINT=http://c:4318/v1/metrics", HTTP, []),
        ("EXPORTER_OTLP_TRACES_ENDPOINT=http://c:4318/v1/traces", [], HTTP),
        ("METRICS_EXPORTER=otlp", HTTP, []),
        ("METRICS_EXPORTER=none EXPORTER_OTLP_ENDPOINT=http://c:4318", [], HTTP),
        ("TRACES_EXPORTER=console,otlp", [], ["console", *HTTP]),
        ("EXPORTER_OTLP_ENDPOINT=http://c:4318 SDK_DISABLED=True", [], []),
        ("EXPORTER_OTLP_ENDPOINT=http://c:4318 EXPORTER_OTLP_PROTOCOL=http/protobuf", HTTP, HTTP),
    ],
)
def test_only_who_names_a_place_or_an_exporter_asks(
    variables: str, metrics: list[str], traces: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in variables.split():
        name, _, value = each.partition("=")
        monkeypatch.setenv(f"OTEL_{name}", value)
    assert exporters("metrics") == metrics and exporters("traces") == traces


@pytest.mark.parametrize("signal", ["metrics", "traces"])
@pytest.mark.parametrize(
    ("variable", "value", "name"),
    [
        ("EXPORTER_OTLP_PROTOCOL", "grpc", "otlp-proto-grpc"),
        ("EXPORTER_OTLP_PROTOCOL", "http/json", "otlp-json-http"),
        ("{}_EXPORTER", "carrier_pigeon", "carrier-pigeon"),
    ],
)
def test_an_exporter_that_is_not_installed_is_one_line(
    signal: Signal,
    variable: str,
    value: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [])
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317")
    monkeypatch.setenv(f"OTEL_{variable.format(signal.upper())}", value)
    assert exporters(signal) == exporters(signal) == []
    told = f"OpenTelemetry: nothing sends {signal} by {name.replace('-', '_')}; try: "
    assert caplog.messages == [f"{told}pip install opentelemetry-exporter-{name}"]


def test_a_protocol_that_there_is_not_is_said_and_the_usual_one_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/proto")
    assert exporters("metrics") == exporters("traces") == HTTP
    told = "there is no protocol 'http/proto' (http/protobuf, grpc, http/json): http/protobuf"
    assert caplog.messages == [f"OpenTelemetry: {told}"]


def test_without_the_sdk_one_line_names_the_extra_and_the_watch_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert exporters("metrics") == exporters("traces") == []
    told = f"OpenTelemetry is asked for, and needs its SDK: {install('otel')}"
    assert caplog.messages == [told]


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        (None, None, "watcher"),
        ("orders", None, "orders"),
        (None, "service.name=orders,a=b", "orders"),
    ],
)
def test_it_is_a_watcher_unless_something_else_is_named(
    name: str | None,
    attributes: str | None,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable, value in {"SERVICE_NAME": name, "RESOURCE_ATTRIBUTES": attributes}.items():
        if value is not None:
            monkeypatch.setenv(f"OTEL_{variable}", value)
    assert telemetry.resource().attributes["service.name"] == expected


def test_nothing_of_it_is_imported_where_nobody_asks() -> None:
    program = (
        "import sys\nfrom watcher.delivery.lambda_functions import lambda_function\n"
        "from watcher.observability.exporter import open_displays\n"
        "lambda_function(lambda event, context: None)\n"
        "with open_displays(None, None, 5.0) as (displays, pulse):\n    assert displays == []\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_what_the_sdk_says_again_and_again_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = logging.getLogger("opentelemetry")
    monkeypatch.setattr(theirs, "handlers", [])
    telemetry.forward_sdk_log()
    telemetry.forward_sdk_log()
    for seconds in range(3):
        logging.getLogger("opentelemetry.exporter").warning("retrying in %s s", seconds)
    assert caplog.messages == ["OpenTelemetry: retrying in 0 s"]


def test_the_sdk_quotes_no_collectors_password(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("opentelemetry"), "handlers", [])
    telemetry.forward_sdk_log()
    trouble = "HTTPSPool(host='c'): Max retries exceeded with url: /v1/metrics?key=S (Caused by X)"
    logging.getLogger("opentelemetry.exporter").error("at https://c/v1/metrics?key=S: %s", trouble)
    assert "key" not in caplog.text and "(host='c')" in caplog.text and "https://c/" in caplog.text
