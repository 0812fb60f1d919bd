"""OpenTelemetry as the `OTEL_*` variables configure it: exporters, resource, log.

https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from watcher.errors import without_secrets
from watcher.observability.timing import FIGURES_TIMING
from watcher.version import install

# An extra, imported only where the environment asks for it.
if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter

logger = logging.getLogger("watcher")

Signal = Literal["metrics", "traces"]

# Exporters by protocol. The SDK's own table lacks http/json, though an exporter registers for it:
# https://github.com/open-telemetry/opentelemetry-python/pull/5374
_OTLP = {
    "http/protobuf": "otlp_proto_http",
    "grpc": "otlp_proto_grpc",
    "http/json": "otlp_json_http",
}
_DEFAULT = "http/protobuf"


def exporters(signal: Signal) -> list[str]:
    """Returns the names of the exporters of metrics or spans that the environment configures.

    Only an endpoint or an exporter counts: a platform may set a service name for every program.
    Logs one line where a needed package is not installed.
    """
    environment = {name: value for name, value in os.environ.items() if name[:5] == "OTEL_"}
    names = _names(signal, environment)
    if names and not _has_sdk():
        warn_once(f"OpenTelemetry is asked for, and needs its SDK: {install('otel')}")
        return []
    found = []
    for name in names:
        if _entry_points(signal, name):
            found.append(name)
        else:
            package = "opentelemetry-exporter-" + name.replace("_", "-")
            warn_once(
                f"OpenTelemetry: nothing sends {signal} by {name}; try: pip install {package}"
            )
    return found


def _entry_points(signal: Signal, name: str) -> Sequence[Any]:
    from importlib.metadata import entry_points  # slow to import

    return list(entry_points(group=f"opentelemetry_{signal}_exporter", name=name))


@overload
def create_exporter(signal: Literal["metrics"], name: str) -> MetricExporter: ...


@overload
def create_exporter(signal: Literal["traces"], name: str) -> SpanExporter: ...


def create_exporter(signal: Signal, name: str) -> object:
    """Creates the exporter of this name; the environment configures it."""
    exporter: object = _entry_points(signal, name)[0].load()()
    return exporter


def _names(signal: Signal, environment: Mapping[str, str]) -> list[str]:
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    own = signal.upper()
    chosen = environment.get(f"OTEL_{own}_EXPORTER", "")
    endpoints = "OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{own}_ENDPOINT"
    if not chosen and not any(environment.get(each) for each in endpoints):
        return []
    names = [name.strip() for name in (chosen or "otlp").split(",")]
    protocol = environment.get(f"OTEL_EXPORTER_OTLP_{own}_PROTOCOL", "").strip()
    protocol = protocol or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip() or _DEFAULT
    if "otlp" in names and protocol not in _OTLP:  # the specification says to ignore it
        warn_once(
            f"OpenTelemetry: there is no protocol {protocol!r} ({', '.join(_OTLP)}): {_DEFAULT}"
        )
    otlp = _OTLP.get(protocol, _OTLP[_DEFAULT])
    return [otlp if name == "otlp" else name for name in names if name not in ("", "none")]


def _has_sdk() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.sdk") is not None
    except ModuleNotFoundError:  # the parent package is missing too
        return False


@functools.cache
def warn_once(text: str) -> None:
    """Logs a warning once a process, as metrics and spans may lack the same package."""
    logger.warning(text)


def resource() -> Resource:
    """Returns the resource of the telemetry; its service is `watcher`, unless one is configured."""
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource

    named = Resource.create()
    if not str(named.attributes[SERVICE_NAME]).startswith("unknown_service"):
        return named
    return named.merge(Resource({SERVICE_NAME: "watcher"}))


class _SdkLogHandler(logging.Handler):
    """Forwards the SDK's log to ours; a repeated message only every few minutes."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._logged_at: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if now - self._logged_at.get(str(record.msg), -math.inf) > FIGURES_TIMING.log_again_seconds:
            self._logged_at[str(record.msg)] = now
            text = " ".join(record.getMessage().split())
            logger.log(record.levelno, f"OpenTelemetry: {without_secrets(text)}")


def forward_sdk_log() -> None:
    """Sends the SDK's warnings to our log."""
    sdk_logger = logging.getLogger("opentelemetry")
    if not any(isinstance(each, _SdkLogHandler) for each in sdk_logger.handlers):
        sdk_logger.addHandler(_SdkLogHandler())
        sdk_logger.propagate = False
