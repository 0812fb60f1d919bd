"""The fake itself: it lets plain boto3 through, and refuses what the real AWS refuses."""

from typing import Any

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from .fake import FakeAWS
from .signature import Issued, Refused, Request, verify

pytestmark = pytest.mark.proof

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCY"


def client(**settings: Any) -> Any:
    once = Config(retries={"total_max_attempts": 1})
    given = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET} | settings
    return boto3.Session(**given).client("dynamodbstreams", config=once)


def refusal(**settings: Any) -> str:
    with pytest.raises(ClientError) as caught:
        client(**settings).list_streams()
    return str(caught.value.response["Error"]["Code"])


def test_a_wrong_secret_an_unknown_key_and_a_wrong_token_are_refused(aws: FakeAWS) -> None:
    assert refusal(aws_secret_access_key="other") == "InvalidSignatureException"
    assert refusal(aws_access_key_id="AKIDOTHER") == "UnrecognizedClientException"
    key, keys = aws.accounts.issue("role")
    of_session = {"aws_access_key_id": key, "aws_secret_access_key": keys.secret}
    assert refusal(**of_session) == "UnrecognizedClientException"
    assert refusal(**of_session, aws_session_token="other") == "UnrecognizedClientException"
    assert client(**of_session, aws_session_token=keys.token).list_streams()


def signed(**headers: str) -> Request:
    """A request that is signed as botocore does."""
    request = AWSRequest("POST", "https://localhost/", {"Host": "localhost", **headers}, b"{}")
    SigV4Auth(Credentials(KEY, SECRET), "dynamodb", "us-east-1").add_auth(request)
    made = {name.lower(): value for name, value in request.headers.items()}
    return Request("POST", "/", "", made, b"{}")


@pytest.mark.parametrize(
    "change",
    [
        {"body": b"{} "},
        {"path": "/x"},
        {"method": "GET"},
        {"query": "a=b"},
        {"headers": {"x-amz-target": "DynamoDB_20120810.DeleteTable"}},
        {"headers": {"host": "localhost:1"}},
        {"headers": {"x-amz-security-token": "more"}},
    ],
)
def test_whatever_is_changed_after_the_signing_is_noticed(
    aws: FakeAWS, change: dict[str, Any]
) -> None:
    request = signed(**{"X-Amz-Target": "DynamoDB_20120810.DescribeTable"})
    now = aws.accounts.now()
    assert verify(request, {KEY: Issued(SECRET)}.get, now) == KEY
    if "headers" in change:
        change = {"headers": {**request.headers, **change["headers"]}}
    with pytest.raises(Refused):
        verify(request._replace(**change), {KEY: Issued(SECRET)}.get, now)
