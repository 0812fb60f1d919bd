"""What gives credentials: STS, and the endpoints of the machines."""

import json
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from .signature import Issued, Refused, Request, verify

ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/reader"
MFA_SERIAL = f"arn:aws:iam::{ACCOUNT}:mfa/someone"
_STS = "https://sts.amazonaws.com/doc/2011-06-15/"


class Answer:
    """Status and body of an answer that is not DynamoDB's."""

    def __init__(self, status: int, body: str, kind: str = "application/json") -> None:
        self.status = status
        self.body = body.encode()
        self.kind = kind


class Accounts:
    """Keys, and whom they are given to; `calls` counts by operation."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.issued: dict[str, Issued] = {"AKIDEXAMPLE": Issued("wJalrXUtnFEMI/K7MDENG+bPxRfiCY")}
        self.calls: Counter[str] = Counter()
        self.lifetime = timedelta(hours=1)
        """Of the credentials given from now on."""
        self.ahead = timedelta()
        """How far its clock is ahead of this machine's."""
        self.mfa_codes = {"123456"}
        """The codes that are right, each of them once."""
        self.web_token = "a-token"
        self.container_token = "a-secret-of-the-container"
        self.refuses: set[str] = set()
        """Operations that answer AccessDenied."""

    def now(self) -> datetime:
        """The time by its clock."""
        return datetime.now(UTC) + self.ahead

    def issue(self, kind: str) -> tuple[str, Issued]:
        """New keys of a session."""
        with self.lock:
            key = f"ASIA{kind.upper()}{len(self.issued):04}"
            keys = Issued(f"secret of {key}", f"token/of+{key}==", self.now() + self.lifetime)
            self.issued[key] = keys
        return key, keys

    def expire(self) -> None:
        """End every session."""
        with self.lock:
            for key, keys in self.issued.items():
                if keys.token is not None:
                    self.issued[key] = keys._replace(expires=self.now() - timedelta(seconds=1))

    def checked(self, request: Request) -> str:
        """The access key that has signed a request. Raises Refused."""
        return verify(request, self.issued.get, self.now())

    # STS

    def sts(self, request: Request) -> Answer:
        """AssumeRole and AssumeRoleWithWebIdentity."""
        asked = dict(parse_qsl(request.body.decode()))
        action = asked["Action"]
        self.calls[action] += 1
        try:
            if action in self.refuses:
                text = f"User: arn:aws:iam::{ACCOUNT}:user/someone is not authorized to perform: "
                raise Refused("AccessDenied", f"{text}sts:{action} on resource: {asked['RoleArn']}")
            if action == "AssumeRole":
                self.checked(request)
                self._check_mfa(asked)
            elif asked["WebIdentityToken"] != self.web_token:
                raise Refused("InvalidIdentityToken", "No such token")
        except Refused as error:
            text = f"<Error><Type>Sender</Type><Code>{error.code}</Code>"
            text += f"<Message>{escape(error.message)}</Message></Error>"
            return Answer(403, f'<ErrorResponse xmlns="{_STS}">{text}</ErrorResponse>', "text/xml")
        key, keys = self.issue("role" if action == "AssumeRole" else "web")
        assert keys.token is not None and keys.expires is not None
        result = (
            f"<Credentials><AccessKeyId>{key}</AccessKeyId>"
            f"<SecretAccessKey>{escape(keys.secret)}</SecretAccessKey>"
            f"<SessionToken>{escape(keys.token)}</SessionToken>"
            f"<Expiration>{_iso(keys.expires)}</Expiration></Credentials><AssumedRoleUser>"
            f"<Arn>arn:aws:sts::{ACCOUNT}:assumed-role/reader/x</Arn>"
            "<AssumedRoleId>AROA:x</AssumedRoleId></AssumedRoleUser>"
        )
        text = f"<{action}Result>{result}</{action}Result>"
        text = f'<{action}Response xmlns="{_STS}">{text}</{action}Response>'
        return Answer(200, text, "text/xml")

    def _check_mfa(self, asked: dict[str, str]) -> None:
        if "SerialNumber" not in asked:
            return
        code = asked.get("TokenCode", "")
        if asked["SerialNumber"] != MFA_SERIAL or code not in self.mfa_codes:
            text = "MultiFactorAuthentication failed with invalid MFA one time pass code."
            raise Refused("AccessDenied", text)
        self.mfa_codes.discard(code)

    # The machines' own endpoints

    def container(self, request: Request) -> Answer:
        """What AWS_CONTAINER_CREDENTIALS_FULL_URI leads to."""
        self.calls["container"] += 1
        if request.headers.get("authorization") != self.container_token:
            return Answer(403, '{"code": "AccessDenied"}')
        return Answer(200, self._machine("container"))

    def metadata(self, request: Request) -> Answer:
        """An instance's metadata service, of the second version only."""
        if request.method == "PUT":
            return Answer(200, "imds-token", "text/plain")
        if request.headers.get("x-aws-ec2-metadata-token") != "imds-token":
            return Answer(401, "")
        if request.path.endswith("/security-credentials/"):
            return Answer(200, "instance-role", "text/plain")
        self.calls["instance"] += 1
        return Answer(200, self._machine("instance"))

    def _machine(self, kind: str) -> str:
        key, keys = self.issue(kind)
        assert keys.expires is not None
        return json.dumps(
            {
                "Code": "Success",
                "Type": "AWS-HMAC",
                "AccessKeyId": key,
                "SecretAccessKey": keys.secret,
                "Token": keys.token,
                "Expiration": _iso(keys.expires),
            }
        )


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
