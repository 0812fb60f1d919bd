"""OpenTelemetry as the `OTEL_*` variables ask for it: whether, and what takes it away.

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
from typing import TYPE_CHECKING, Any, Literal

from watcher.version import install

# An extra, and not to be imported where nobody asks for it.
if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

logger = logging.getLogger("watcher")

Signal = Literal["metrics", "traces"]

_AGAIN_SECONDS = 300.0
# By protocol. The SDK's own choice has no http/json yet, but an exporter registers itself for it:
# https://github.com/open-telemetry/opentelemetry-python/pull/5374
_OTLP = {
    "http/protobuf": "otlp_proto_http",
    "grpc": "otlp_proto_grpc",
    "http/json": "otlp_json_http",
}
_USUAL = "http/protobuf"


def exporters(signal: Signal) -> list[str]:
    """The names of what sends metrics, or spans; none where nobody asks for that.

    Only who names a place or an exporter asks: a platform may give every program a service's name.
    Where something that it takes is not installed, one line says so.
    """
    environment = {name: value for name, value in os.environ.items() if name[:5] == "OTEL_"}
    names = _names(signal, environment)
    if names and not _has_sdk():
        _say(f"OpenTelemetry is asked for, and needs its SDK: {install('otel')}")
        return []
    found = []
    for name in names:
        if _entry_points(signal, name):
            found.append(name)
        else:
            package = "opentelemetry-exporter-" + name.replace("_", "-")
            _say(f"OpenTelemetry: nothing sends {signal} by {name}; try: pip install {package}")
    return found


def _entry_points(signal: Signal, name: str) -> Sequence[Any]:
    from importlib.metadata import entry_points  # not for nothing: it takes its time

    return list(entry_points(group=f"opentelemetry_{signal}_exporter", name=name))


def made(signal: Signal, name: str) -> Any:
    """An exporter of this name, as the environment says."""
    return _entry_points(signal, name)[0].load()()


def _names(signal: Signal, environment: Mapping[str, str]) -> list[str]:
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    own = signal.upper()
    chosen = environment.get(f"OTEL_{own}_EXPORTER", "")
    places = "OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{own}_ENDPOINT"
    if not chosen and not any(environment.get(place) for place in places):
        return []
    names = [name.strip() for name in (chosen or "otlp").split(",")]
    protocol = environment.get(f"OTEL_EXPORTER_OTLP_{own}_PROTOCOL", "").strip()
    protocol = protocol or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip() or _USUAL
    if "otlp" in names and protocol not in _OTLP:  # the specification wants it to be ignored
        _say(f"OpenTelemetry: there is no protocol {protocol!r} ({', '.join(_OTLP)}): {_USUAL}")
    otlp = _OTLP.get(protocol, _OTLP[_USUAL])
    return [otlp if name == "otlp" else name for name in names if name not in ("", "none")]


def _has_sdk() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.sdk") is not None
    except ModuleNotFoundError:  # nor anything else of it
        return False


@functools.cache
def _say(text: str) -> None:
    """Once: metrics and spans may lack the same."""
    logger.warning(text)


def resource() -> Resource:
    """Whose telemetry it is; a `watcher`, unless something else is named."""
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource

    named = Resource.create()
    if not str(named.attributes[SERVICE_NAME]).startswith("unknown_service"):
        return named
    return named.merge(Resource({SERVICE_NAME: "watcher"}))


class _Folded(logging.Handler):
    """Has what the SDK says in our log; the same seldom, as a collector may be away for long."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if now - self._said.get(str(record.msg), -math.inf) > _AGAIN_SECONDS:
            self._said[str(record.msg)] = now
            text = " ".join(record.getMessage().split())
            logger.log(record.levelno, f"OpenTelemetry: {text}")


def log_as_we_do() -> None:
    """What the SDK has to say of its troubles goes into our log."""
    theirs = logging.getLogger("opentelemetry")
    if not any(isinstance(each, _Folded) for each in theirs.handlers):
        theirs.addHandler(_Folded())
        theirs.propagate = False
