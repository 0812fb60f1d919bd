"""Signature Version 4 for many small requests to one URL, at a fraction of botocore's CPU time.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import functools
import hmac
import time
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import quote, urlsplit

from botocore import auth
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import NoCredentialsError
from botocore.utils import normalize_url_path

_UNSIGNED = frozenset(auth.SIGNED_HEADERS_BLACKLIST)


@functools.lru_cache(maxsize=1)
def _timestamp(epoch_seconds: int) -> str:
    return time.strftime(auth.SIGV4_TIMESTAMP, time.gmtime(epoch_seconds))


class Signer:
    """Signs POST requests to a URL, with the same `headers` each time.

    It caches the canonical form of the headers, and the key of the day.
    """

    def __init__(self, url: str, headers: Mapping[str, str], *, service: str, region: str) -> None:
        parts = urlsplit(url)
        path = quote(normalize_url_path(parts.path), safe="/~")
        pairs = [pair.partition("=") for pair in parts.query.split("&") if parts.query]
        query = "&".join(f"{name}={value}" for name, _, value in sorted(pairs))
        self._beginning = f"POST\n{path}\n{query}\n"
        lower = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
        self._signed = {name: value for name, value in lower.items() if name not in _UNSIGNED}
        self._service, self._region = service, region
        self._key: tuple[str, str | None, hmac.HMAC] | None = None  # with its day and secret
        self._form: tuple[str | None, str, str] | None = None  # with its token

    def headers(
        self, body: bytes, credentials: ReadOnlyCredentials | None, timestamp: str | None = None
    ) -> dict[str, str]:
        """Returns the headers to add to a request with this body.

        `credentials` are botocore's frozen ones; `timestamp` defaults to now. Raises
        NoCredentialsError.
        """
        if credentials is None:
            raise NoCredentialsError
        timestamp = timestamp or _timestamp(int(time.time()))
        day, token = timestamp[:8], credentials.token or None
        form, names = self._canonical_headers(token)
        canonical = f"{self._beginning}{form % timestamp}\n{names}\n{sha256(body).hexdigest()}"
        scope = f"{day}/{self._region}/{self._service}/aws4_request"
        digest = sha256(canonical.encode("utf-8")).hexdigest()
        signature = self._day_key(day, credentials.secret_key).copy()
        signature.update(f"AWS4-HMAC-SHA256\n{timestamp}\n{scope}\n{digest}".encode())
        added = {
            "X-Amz-Date": timestamp,
            "Authorization": f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature.hexdigest()}",
        }
        return added if token is None else {"X-Amz-Security-Token": token, **added}

    def _canonical_headers(self, token: str | None) -> tuple[str, str]:
        """Returns the headers' canonical form, with %s for the timestamp, and their names."""
        if self._form is None or self._form[0] != token:
            values = {name: value.replace("%", "%%") for name, value in self._signed.items()}
            values["x-amz-date"] = "%s"
            if token is not None:
                values["x-amz-security-token"] = " ".join(token.split()).replace("%", "%%")
            lines = "".join(f"{name}:{values[name]}\n" for name in sorted(values))
            self._form = token, lines, ";".join(sorted(values))
        return self._form[1:]

    def _day_key(self, day: str, secret: str | None) -> hmac.HMAC:
        if self._key is None or self._key[:2] != (day, secret):
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), sha256)
            self._key = day, secret, hmac.new(key, digestmod=sha256)
        return self._key[2]
