"""Verifies requests' signatures (AWS Signature Version 4), from Amazon's description of it.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import quote

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<scope>(?P<date>\d{8})/(?P<region>[^/]+)/"
    r"(?P<service>[^/]+)/aws4_request), SignedHeaders=(?P<signed>[^,]+), "
    r"Signature=(?P<signature>[0-9a-f]{64})"
)
_MOST_APART = timedelta(minutes=5)
_TIME = "%Y%m%dT%H%M%SZ"


class Issued(NamedTuple):
    """What an access key belongs to."""

    secret: str
    token: str | None = None
    expires: datetime | None = None


class Refused(Exception):
    """The request is not signed as it has to be: AWS's code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Request(NamedTuple):
    """What is signed of a request; names of headers in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


def verify(request: Request, issued: Callable[[str], Issued | None], now: datetime) -> str:
    """The access key that has signed a request. Raises Refused."""
    authorization = request.headers.get("authorization")
    if authorization is None:
        raise Refused("MissingAuthenticationToken", "Request is missing Authentication Token")
    parts = _AUTHORIZATION.fullmatch(authorization)
    stamp = request.headers.get("x-amz-date", "")
    if parts is None or not re.fullmatch(r"\d{8}T\d{6}Z", stamp) or stamp[:8] != parts["date"]:
        raise Refused("IncompleteSignature", f"Authorization={authorization}, date={stamp}")
    signed = parts["signed"].split(";")
    unsigned = {"host", "x-amz-date", "x-amz-target", "x-amz-security-token"} - set(signed)
    if signed != sorted(signed) or unsigned & request.headers.keys():
        raise Refused("InvalidSignature", f"unsigned or out of order: {signed}")
    _check_clock(datetime.strptime(stamp, _TIME).replace(tzinfo=UTC), now)
    keys = issued(parts["key"])
    token = request.headers.get("x-amz-security-token")
    if keys is None or (token and token != keys.token):
        raise Refused("UnrecognizedClient", "The security token included in the request is invalid")
    if token is None and keys.token is not None:
        raise Refused("UnrecognizedClient", "The security token included in the request is invalid")
    if keys.expires is not None and keys.expires <= now:
        raise Refused("ExpiredToken", "The security token included in the request is expired")
    text = "\n".join(
        [
            "AWS4-HMAC-SHA256",
            stamp,
            parts["scope"],
            hashlib.sha256(_canonical(request, signed).encode()).hexdigest(),
        ]
    )
    key = ("AWS4" + keys.secret).encode()
    for part in parts["scope"].split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    if not hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex(), parts["signature"]):
        raise Refused(
            "InvalidSignature",
            "The request signature we calculated does not match the signature you provided. Check "
            "your AWS Secret Access Key and signing method.",
        )
    return parts["key"]


def _check_clock(stamp: datetime, now: datetime) -> None:
    if stamp < now - _MOST_APART:
        raise Refused(
            "InvalidSignature",
            f"Signature expired: {stamp:{_TIME}} is now earlier than "
            f"{now - _MOST_APART:{_TIME}} ({now:{_TIME}} - 5 min.)",
        )
    if stamp > now + _MOST_APART:
        raise Refused(
            "InvalidSignature",
            f"Signature not yet current: {stamp:{_TIME}} is still later than "
            f"{now + _MOST_APART:{_TIME}} ({now:{_TIME}} + 5 min.)",
        )


def _canonical(request: Request, signed: list[str]) -> str:
    query = "&".join(sorted(request.query.split("&"))) if request.query else ""
    headers = "".join(f"{name}:{' '.join(request.headers[name].split())}\n" for name in signed)
    digest = hashlib.sha256(request.body).hexdigest()
    path = quote(request.path, safe="/-_.~")
    return "\n".join([request.method, path, query, headers, ";".join(signed), digest])
