"""Send each change to a URL, as JSON by POST."""

import re
from base64 import b64encode
from functools import partial
from typing import Any
from urllib.parse import unquote

import urllib3

from watcher import Record
from watcher.errors import without_secrets
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
MOST = 10_000
SECRET_MIN = 3

http: Any = None
url = ""
headers: dict[str, str] = {}
secrets: list[str] = []


class WebhookError(Exception):
    """Raised when the receiver refuses a change."""


def configure(webhook: str) -> None:
    global http, url, headers, secrets
    parts = urllib3.util.parse_url(webhook)
    if parts.scheme not in ("http", "https") or not parts.host:
        raise ValueError("--webhook: give a URL, such as https://hooks.example.com")
    headers = {"Content-Type": "application/json", "User-Agent": "watcher"}
    if parts.auth:
        user, _, password = parts.auth.partition(":")
        name = b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
        headers["authorization"] = f"Basic {name}"
    url = parts._replace(auth=None).url
    # Chat services' URLs let whoever has them post: the path is the password.
    target = parts.request_uri
    pieces = [target, *re.split(r"[/?&=;]", f"{target}/{unquote(target)}")]
    secrets = sorted((each for each in pieces if len(each) >= SECRET_MIN), key=len, reverse=True)
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
        text = answer.data[:MOST].decode("utf-8", "replace").strip()
        for each in secrets:  # "Cannot POST /services/…"
            text = text.replace(each, "***")
        raise WebhookError(f"{without_secrets(url)} answered {answer.status}: {text[:SHOWN]!r}")


def close() -> None:
    http.clear()
