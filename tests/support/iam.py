"""An endpoint before DynamoDB Local and moto that allows what an IAM policy allows, and no more."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import urllib3

from tests.support.http_server import Answered, Asked, PlayedServer

_ACCOUNT = "arn:aws:{}:us-east-1:123456789012:{}"
_JSON = {"Content-Type": "application/x-amz-json-1.0"}
_OURS = ("content-length", "transfer-encoding", "connection")
_OF_S3 = {"PUT": "s3:PutObject", "GET": "s3:GetObject", "DELETE": "s3:DeleteObject"}


class GuardedEndpoint(PlayedServer):
    """Counts the calls of every process that is sent here; refuses those that are not allowed."""

    def __init__(self, dynamodb: str, others: str = "") -> None:
        super().__init__(self._answer)
        self.places = {"dynamodb": dynamodb}
        self.others = others
        self.statements: Sequence[Mapping[str, Any]] = []
        self.answers: dict[str, Any] = {}
        """What is answered here, by action: DynamoDB Local knows no tags."""
        self.called: set[str] = set()
        self.refused: set[tuple[str, str]] = set()
        self.http = urllib3.PoolManager(retries=False, maxsize=32)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
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

    def _answer(self, asked: Asked) -> Answered:
        target = asked.headers.get("x-amz-target")
        action, resource = _asked(asked.method, asked.path, target, asked.body)
        if not self.allows(action, resource):
            error = {"__type": "com.amazon#AccessDeniedException", "message": f"no {action}"}
            return Answered(400, json.dumps(error).encode(), _JSON)
        if action in self.answers:
            return Answered(200, json.dumps(self.answers[action]).encode(), _JSON)
        place = self.places.get(action.partition(":")[0], self.others)
        answer = self.http.request(
            asked.method,
            place + asked.path,
            body=asked.body,
            headers={**asked.headers, "host": urlsplit(place).netloc},
            decode_content=False,
        )
        kept = {name: text for name, text in answer.headers.items() if name.lower() not in _OURS}
        return Answered(answer.status, answer.data, kept)


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
