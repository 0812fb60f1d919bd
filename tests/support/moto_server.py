"""moto on loopback, one call at a time: between its check of a condition and its write is a gap."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from watcher.aws import lease_storage


@contextmanager
def moto_server() -> Iterator[str]:
    """The URL of a server; what it keeps is this process's, and so that of all of them."""
    from moto.moto_server import werkzeug_app as moto
    from werkzeug.serving import make_server

    answer, one_call = moto.DomainDispatcherApplication(moto.create_backend_app), threading.Lock()

    def app(environ: Any, start_response: Any) -> Any:
        with one_call:
            return answer(environ, start_response)

    server = make_server(
        "127.0.0.1", 0, app, threaded=True, request_handler=moto.MotoRequestHandler
    )
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


@pytest.fixture
def patient_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with much else to do, a call may take longer than a lease."""
    monkeypatch.setattr(lease_storage, "LEASE_CALL_SECONDS", 60)
