"""Errors say what to do: which action to allow, what to set, whose clock is wrong."""

from typing import Any

import pytest
from botocore import exceptions as boto

from tests.support.hand_clock import HandClock
from watcher.aws.client import StreamsClient
from watcher.aws.config import AwsConfig
from watcher.aws.error_mapping import to_watcher_error
from watcher.aws.retry import retry_at_start
from watcher.aws.tables import TablesClient
from watcher.errors import CredentialsError, StreamError, TransientError, UsageError


def answer(
    code: str, message: str, operation: str = "GetRecords", status: int = 400, **headers: str
) -> boto.ClientError:
    response: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers},
    }
    return boto.ClientError(response, operation)


USER = "User: arn:aws:sts::1:assumed-role/a/b is not authorized to perform: "


@pytest.mark.parametrize(
    ("operation", "message", "words"),
    [
        (
            "GetRecords",
            f"{USER}kms:Decrypt on the resource associated with this ciphertext because no",
            "allow kms:Decrypt on the key that the table is encrypted with",
        ),
        (
            "AssumeRole",
            f"{USER}sts:AssumeRole on resource: arn:aws:iam::2:role/reader",
            "can't assume the role .*allow sts:AssumeRole on it.*trust policy",
        ),
        (
            "DescribeStream",
            f"{USER}dynamodb:DescribeStream on resource: arn:aws:dynamodb:x",
            "allow dynamodb:DescribeStream; the role needs dynamodb:DescribeTable.*GetRecords",
        ),
        (
            "GetShardIterator",
            "Access denied.",
            "; allow dynamodb:GetShardIterator; the role needs ",
        ),
    ],
)
def test_a_denial_names_the_action_to_allow(operation: str, message: str, words: str) -> None:
    with pytest.raises(StreamError, match=words):
        raise to_watcher_error(answer("AccessDeniedException", message, operation))
    of_s3 = to_watcher_error(answer("AccessDenied", "Access Denied", "GetObject"))
    assert "dynamodb:GetObject" not in str(of_s3)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Signature expired: 20261122T013000Z is now earlier …", "this machine's clock is off"),
        ("Signature not yet current: 20261124T031000Z is …", "this machine's clock is off"),
        ("The security token is invalid", "renew them"),
    ],
)
def test_a_refusal_is_told_by_its_cause(message: str, words: str) -> None:
    with pytest.raises(CredentialsError, match=words):
        raise to_watcher_error(answer("InvalidSignatureException", message))


def test_a_page_is_named_as_one_and_what_it_is_of() -> None:
    page = "<!DOCTYPE html>\n<html><head><title>\nAccess Denied</title></head>" + "<p>x</p>" * 300
    told = to_watcher_error(answer("403", page, status=403, server="squid/5.7"))
    begin = 'HTTP 403 with a page ("Access Denied") instead of an answer: a proxy or gateway is in '
    assert str(told).startswith(f"{begin}the way; ") and len(str(told)) < 250
    told = to_watcher_error(answer("502", "<html>", status=502))
    assert isinstance(told, TransientError)
    assert "HTTP 502 with a page instead of" in str(told)
    page = "<html><title>400 The plain HTTP request was sent to HTTPS port</title></html>"
    told = to_watcher_error(answer("400", page, status=400))
    assert str(told).endswith(" instead of an answer: it is an https:// endpoint")


@pytest.mark.parametrize(
    ("scheme", "words"), [("http", r".*\(is it an https:// endpoint"), ("https", r'"\.$')]
)
def test_a_plain_connection_to_a_tls_port_is_named_as_one(scheme: str, words: str) -> None:
    url = f"{scheme}://localhost:8443/"

    def call() -> None:
        raise to_watcher_error(boto.ConnectionClosedError(endpoint_url=url))

    with pytest.raises(StreamError, match=url + words):
        retry_at_start(call, HandClock())


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://ada:s3cret@localhost:99999", "Port out of range"),
        ("httpx://ada:s3cret@localhost", "Invalid endpoint: .*give http:// or https://"),
        ("http://", "Invalid endpoint"),
    ],
)
def test_an_endpoint_that_can_be_none_is_refused_at_once(url: str, words: str) -> None:
    for make in (StreamsClient, TablesClient):
        with pytest.raises(StreamError, match=f"^endpoint_url: {words}") as caught:
            make(AwsConfig("us-east-1", endpoint_url=url))
        assert "s3cret" not in str(caught.value)


def test_a_tls_error_names_the_url_and_what_to_set() -> None:
    url = "https://streams.dynamodb.eu-west-1.amazonaws.com/"
    error = boto.SSLError(endpoint_url=url, error=OSError("[SSL: CERTIFICATE_VERIFY_FAILED] x"))
    assert url in str(to_watcher_error(error))
    assert "set AWS_CA_BUNDLE" in str(to_watcher_error(error))
    error = boto.SSLError(endpoint_url=url, error=OSError("[SSL: WRONG_VERSION_NUMBER] x"))
    assert str(to_watcher_error(error)).endswith("is it an http:// endpoint?")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://ada:pw@127.0.0.1:9/", "http://***@127.0.0.1:9/"),
        ("https://ada:p@w@host/a@b", "https://***@host/a@b"),
        ("https://host/a@b", "https://host/a@b"),
        ("see http://a:b@c and https://d:e@f.", "see http://***@c and https://***@f."),
    ],
)
def test_no_error_shows_a_password(url: str, shown: str) -> None:
    assert str(UsageError(url)) == shown
    assert UsageError("no", "endpoint_url", url).blaming("--endpoint-url") == (
        f"--endpoint-url {shown}: no"
    )
