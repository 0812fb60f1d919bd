"""An endpoint before DynamoDB Local and moto that allows what an IAM policy allows, and no more."""

from __future__ import annotations

import fnmatch
import json
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import urllib3

_ACCOUNT = "arn:aws:{}:us-east-1:123456789012:{}"
_JSON = {"Content-Type": "application/x-amz-json-1.0"}
_OF_S3 = {"PUT": "s3:PutObject", "GET": "s3:GetObject", "DELETE": "s3:DeleteObject"}


class GuardedEndpoint(ThreadingHTTPServer):
    """Counts the calls of every process that is sent here; refuses those that are not allowed."""

    daemon_threads = True

    def __init__(self, dynamodb: str, others: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Call)
        self.places = {"dynamodb": dynamodb}
        self.others = others
        self.statements: Sequence[Mapping[str, Any]] = []
        self.answers: dict[str, Any] = {}
        """What is answered here, by action: DynamoDB Local knows no tags."""
        self.called: set[str] = set()
        self.refused: set[tuple[str, str]] = set()
        self.http = urllib3.PoolManager(retries=False, maxsize=32)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> GuardedEndpoint:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()
        self.http.clear()

    def allows(self, action: str, resource: str) -> bool:
        """Counts a call; False where no statement has it."""
        self.called.add(action)
        for each in self.statements:
            matches = any(fnmatch.fnmatchcase(resource, glob) for glob in each["Resource"])
            if action in each["Action"] and (matches or resource == "*"):
                return True
        self.refused.add((action, resource))
        return False


class _Call(BaseHTTPRequestHandler):
    server: GuardedEndpoint
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        action, resource = _asked(self.command, self.path, self.headers.get("X-Amz-Target"), body)
        if not self.server.allows(action, resource):
            error = {"__type": "com.amazon#AccessDeniedException", "message": f"no {action}"}
            self._reply(400, _JSON, json.dumps(error))
            return
        if action in self.server.answers:
            self._reply(200, _JSON, json.dumps(self.server.answers[action]))
            return
        place = self.server.places.get(action.partition(":")[0], self.server.others)
        answer = self.server.http.request(
            self.command,
            place + self.path,
            body=body,
            headers={**self.headers, "Host": urlsplit(place).netloc},
            decode_content=False,
        )
        self._reply(answer.status, answer.headers, answer.data)

    do_POST = do_GET = do_PUT = do_DELETE = answer

    def _reply(self, status: int, headers: Mapping[str, str], body: bytes | str) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: Any) -> None:
        pass


def _asked(method: str, path: str, target: str | None, body: bytes) -> tuple[str, str]:
    """Returns the action and the resource that IAM would look for."""
    if target is None:
        return _OF_S3[method], f"arn:aws:s3:::{urlsplit(path).path.strip('/')}"
    service, _, operation = target.partition(".")
    asked = json.loads(body or b"{}")
    if service == "AmazonSQS":
        name = asked.get("QueueName") or asked["QueueUrl"].rpartition("/")[2]
        # IAM has no action for a batch of its own.
        return f"sqs:{operation.removesuffix('Batch')}", _ACCOUNT.format("sqs", name)
    return f"dynamodb:{operation}", _dynamodb_resource(asked)


def _dynamodb_resource(asked: Mapping[str, Any]) -> str:
    tables = [*asked.get("RequestItems", ())]
    arn = asked.get("StreamArn") or asked.get("ResourceArn")
    if arn is None and (name := asked.get("TableName") or (tables or [""])[0]):
        arn = name if name.startswith("arn:") else _ACCOUNT.format("dynamodb", f"table/{name}")
    # An iterator names its shard in nobody's words but the service's; ListStreams has no resource.
    return arn or "*"
