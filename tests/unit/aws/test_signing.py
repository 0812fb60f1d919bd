"""Our signatures beside botocore's own, for any request that reading a stream may make."""

from __future__ import annotations

from datetime import datetime

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from hypothesis import given
from hypothesis import strategies as st

from watcher.aws.signing import Signer

_TEXT = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=20)
_WORD = st.from_regex(r"[A-Za-z0-9/+=_%-]{1,40}", fullmatch=True)
_URLS = st.builds(
    lambda host, path, query: f"https://{host}{path}{query}",
    st.sampled_from(["streams.dynamodb.eu-west-1.amazonaws.com", "127.0.0.1:8000", "[::1]:1"]),
    st.sampled_from(["/", "", "/a/../b//c", "/caf%C3%A9/x y", "/~t"]),
    st.sampled_from(["", "?b=2&a=1", "?a", "?a=2&a=1"]),
)
_KEYS = st.builds(ReadOnlyCredentials, _WORD, _WORD, st.none() | st.just("") | _WORD)
_MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2099, 12, 31))


@given(
    url=_URLS,
    headers=st.dictionaries(
        st.sampled_from(["content-type", "x-amz-target", "User-Agent", "x-odd", "TE"]), _TEXT
    ),
    region=_WORD,
    requests=st.lists(st.tuples(st.binary(max_size=50), _KEYS, _MOMENTS), min_size=1, max_size=4),
)
def test_a_signature_is_botocores(
    url: str,
    headers: dict[str, str],
    region: str,
    requests: list[tuple[bytes, ReadOnlyCredentials, datetime]],
) -> None:
    headers = {**headers, "host": url.split("/")[2]}
    signer = Signer(url, headers, service="dynamodb", region=region)
    for body, keys, moment in [*requests, requests[0]]:
        request = AWSRequest("POST", url, headers, body)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("botocore.auth.get_current_datetime", lambda *_, at=moment: at)
            SigV4Auth(keys, "dynamodb", region).add_auth(request)
        theirs = {name.lower(): value for name, value in request.headers.items()}
        added = signer.headers(body, keys, f"{moment:%Y%m%dT%H%M%SZ}")
        ours = {name.lower(): value for name, value in (headers | added).items()}
        assert ours == theirs
