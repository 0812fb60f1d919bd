"""Send each change to a URL, as JSON by POST."""

from base64 import b64encode
from functools import partial
from typing import Any
from urllib.parse import unquote

import urllib3

from watcher import Record
from watcher.errors import without_passwords
from watcher.formatting.plain_records import plain_line, record_id

OPTIONS = {
    "webhook": (
        "URL",
        "POST each change there, as -o jsonl prints it",
    ),
}
CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
SHOWN = 200

http: Any = None
url = ""
headers: dict[str, str] = {}


class WebhookError(Exception):
    """The receiver has not taken a change."""


def configure(webhook: str) -> None:
    global http, url, headers
    parts = urllib3.util.parse_url(webhook)
    if parts.scheme not in ("http", "https") or not parts.host:
        raise ValueError("--webhook: give a URL, such as https://example.com/changes")
    headers = {"Content-Type": "application/json", "User-Agent": "watcher"}
    if parts.auth:
        user, _, password = parts.auth.partition(":")
        name = b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
        headers["authorization"] = f"Basic {name}"
    url = parts._replace(auth=None).url
    # Trying again is --on-error's business.
    timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS)
    http = urllib3.PoolManager(timeout=timeout, retries=False, maxsize=64)


def handle(record: Record) -> None:
    # The same for a change that is sent again: who gets both can tell.
    once = {"Idempotency-Key": record_id(record)}
    body = plain_line(record).encode()
    post = partial(http.request, "POST", url, body=body, headers=headers | once)
    try:
        answer = post()
    except urllib3.exceptions.ProtocolError:  # it has just closed a connection that was kept
        answer = post()
    if not 200 <= answer.status < 300:
        text = answer.data[:SHOWN].decode("utf-8", "replace").strip()
        raise WebhookError(f"{without_passwords(url)} answered {answer.status}: {text!r}")


def close() -> None:
    http.clear()
