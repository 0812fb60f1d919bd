"""The server: TLS (and plain HTTP for the machines' own endpoints), and where each request goes."""

import json
import tempfile
from email.utils import format_datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from tests.simulator import Simulator
from tests.support.http_server import Answered, Asked, PlayedServer

from .accounts import Accounts, Answer
from .certificates import inspected
from .signature import Refused, Request

_CODES_AT_DYNAMODB = {
    "MissingAuthenticationToken": "MissingAuthenticationTokenException",
    "IncompleteSignature": "IncompleteSignatureException",
    "InvalidSignature": "InvalidSignatureException",
    "UnrecognizedClient": "UnrecognizedClientException",
    "ExpiredToken": "ExpiredTokenException",
}


class Seen(NamedTuple):
    """A request to DynamoDB: who has signed it, or what was wrong with its signature."""

    operation: str
    host: str
    headers: dict[str, str]
    body: Any
    key: str
    refused: str


class FakeAWS:
    """`with FakeAWS(shards=4) as aws:`; what happens to the table is for `aws.table` to say."""

    def __init__(self, shards: int = 1) -> None:
        self._shards = shards
        self.reset()
        self._folder = tempfile.TemporaryDirectory()
        context, self.ca_file = inspected(Path(self._folder.name))
        self._servers = [PlayedServer(self._answer, tls=tls) for tls in (context, None)]
        self.url = f"https://localhost:{self._servers[0].server_port}"
        self.plain_url = self._servers[1].url

    def reset(self) -> None:
        """Another account and another table, of which nothing was asked."""
        self.table = Simulator(shards=self._shards)
        self.accounts = Accounts()
        self.requests: list[Seen] = []

    def __enter__(self) -> Self:
        for server in self._servers:
            server.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in self._servers:
            server.__exit__(kind, error, trace)
        self._folder.cleanup()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead here; none gives credentials."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_CA_BUNDLE": self.ca_file,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.plain_url,
        }

    @property
    def container(self) -> dict[str, str]:
        """The variables of a container that has a role."""
        return {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{self.plain_url}/container",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN": self.accounts.container_token,
        }

    def signed_by(self, operation: str) -> set[str]:
        """The access keys that have signed calls of an operation, and were let through."""
        with self.accounts.lock:
            return {s.key for s in self.requests if s.operation == operation and not s.refused}

    def _answer(self, asked: Asked) -> Answered:
        parts = urlsplit(asked.path)
        request = Request(asked.method, parts.path, parts.query, asked.headers, asked.body)
        answer = self.answer(request)
        date = format_datetime(self.accounts.now(), usegmt=True)
        return Answered(answer.status, answer.body, {"Date": date, "Content-Type": answer.kind})

    def answer(self, request: Request) -> Answer:
        """What comes of any request."""
        if target := request.headers.get("x-amz-target"):
            return self._dynamodb(target, request)
        if request.path == "/container":
            return self.accounts.container(request)
        if request.path.startswith("/latest/"):
            return self.accounts.metadata(request)
        return self.accounts.sts(request)

    def _dynamodb(self, target: str, request: Request) -> Answer:
        key = refused = ""
        try:
            key = self.accounts.checked(request)
        except Refused as error:
            refused = str(error)
            code = _CODES_AT_DYNAMODB[error.code]
            kind = f"com.amazon.coral.service#{code}"
            answer = Answer(400, json.dumps({"__type": kind, "message": error.message}))
        else:
            reply = self.table.answer(target, request.body, key)
            answer = Answer(reply.status, "")
            answer.body = reply.body
        answer.kind = "application/x-amz-json-1.0"
        seen = Seen(
            target.partition(".")[2],
            request.headers["host"],
            dict(request.headers),
            json.loads(request.body),
            key,
            refused,
        )
        with self.accounts.lock:
            self.requests.append(seen)
        return answer
