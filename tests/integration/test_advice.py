"""What the command line says of answers that only the user can do something about."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from watcher import cli

DENIED = "User: arn:aws:sts::1:assumed-role/a/b is not authorized to perform: "


class Canned(ThreadingHTTPServer):
    """Gives every request the same answer."""

    status = 400
    headers: dict[str, str]
    body = b""

    def error(self, code: str, message: str) -> None:
        self.headers = {"Content-Type": "application/x-amz-json-1.0"}
        self.body = json.dumps(
            {"__type": f"com.amazon.coral.service#{code}", "message": message}
        ).encode()

    def page(self, status: int, text: str, **headers: str) -> None:
        self.status, self.body = status, text.encode()
        self.headers = {"Content-Type": "text/html", **headers}


class _Handler(BaseHTTPRequestHandler):
    def version_string(self) -> str:
        return "squid/5.7"

    def do_POST(self) -> None:
        server: Any = self.server
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(server.status)
        for name, value in {**server.headers, "Content-Length": str(len(server.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(server.body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Canned]:
    with Canned(("127.0.0.1", 0), _Handler) as canned:
        thread = threading.Thread(target=canned.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{canned.server_port}")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield canned
        canned.shutdown()
        thread.join()


ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2026-11-21T00:00:00.000"


def said(capsys: pytest.CaptureFixture[str], *words: str, status: int = 3) -> str:
    assert cli.main([*words]) == status
    logging.getLogger("watcher").handlers.clear()
    return capsys.readouterr().err.splitlines()[-1]


def test_a_key_that_may_not_be_used_is_named(
    server: Canned, capsys: pytest.CaptureFixture[str]
) -> None:
    server.error("AccessDeniedException", DENIED + "kms:Decrypt on the resource associated with")
    assert "allow kms:Decrypt on the key that the table is" in said(capsys, "shards", ARN)


def test_a_role_that_may_not_be_assumed_is_named(
    server: Canned,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = tmp_path / "config"
    role = "arn:aws:iam::2:role/reader"
    config.write_text(f"[profile far]\nrole_arn={role}\ncredential_source=Environment\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    server.headers = {"Content-Type": "text/xml"}
    message = f"{DENIED}sts:AssumeRole on resource: {role}"
    server.body = (
        "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>"
        f"<Message>{message}</Message></Error></ErrorResponse>"
    ).encode()
    server.status = 403
    line = said(capsys, "shards", ARN, "--profile", "far")
    assert line.startswith("error: can't assume the role (")
    assert f"{role}); allow sts:AssumeRole on it to the caller" in line


def test_an_endpoint_for_streams_only_says_which_variables_to_set(
    server: Canned, capsys: pytest.CaptureFixture[str]
) -> None:
    server.error("UnknownOperationException", "")
    line = said(capsys, "orders")
    assert "knows no tables: set AWS_ENDPOINT_URL_DYNAMODB to the tables' endpoint, and" in line


def test_a_certificate_that_is_not_trusted_names_the_url_and_the_variable(
    server: Canned, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"https://127.0.0.1:{server.server_port}"
    line = said(capsys, "shards", ARN, "--endpoint-url", url)
    assert url in line
    assert line.endswith("the server speaks no TLS: is it an http:// endpoint?")
