"""What botocore's errors mean to a reader of a stream."""

from __future__ import annotations

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from watcher.errors import (
    CredentialsError,
    ExpiredIteratorError,
    ShardNotFoundError,
    StreamError,
    TransientError,
    TrimmedDataError,
    WatcherError,
)

_THROTTLED = {
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "TooManyRequestsException",
}
_TRANSIENT = {
    "InternalFailure",
    "InternalServerError",
    "InternalServerErrorException",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServiceUnavailable",
    "ServiceUnavailableException",
}
_NO_PERMISSION = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
_BAD_CREDENTIALS = {
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "IncompleteSignatureException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
# A network's, a proxy's, or a credential service's passing trouble.
_PASSING = (
    boto.HTTPClientError,
    boto.ConnectionError,
    boto.IncompleteReadError,
    boto.ResponseStreamingError,
    boto.CredentialRetrievalError,
    ResponseParserError,
)
_NO_CREDENTIALS = (boto.NoCredentialsError, boto.PartialCredentialsError)
_OLD_CREDENTIALS = (
    boto.RefreshWithMFAUnsupportedError,
    boto.SSOError,
    boto.TokenRetrievalError,
)
# … and that of them where it is no use for a beginner to wait.
_UNREACHABLE = (
    boto.EndpointConnectionError,
    boto.ConnectTimeoutError,
    boto.ProxyConnectionError,
    boto.ReadTimeoutError,
    boto.SSLError,
)


def translated(error: Exception) -> WatcherError:
    """What an error of botocore means to the reader."""
    if isinstance(error, _PASSING):
        return TransientError(_one_line(error), unreachable=isinstance(error, _UNREACHABLE))
    if not isinstance(error, boto.ClientError):
        return as_user_error(error)
    code = code_of(error)
    text = _one_line(error)
    if code in _THROTTLED:
        return TransientError(text, throttled=True)
    if code in _TRANSIENT or error.response["ResponseMetadata"].get("HTTPStatusCode", 0) >= 500:
        return TransientError(text)
    if code == "ExpiredIteratorException":
        return ExpiredIteratorError(text)
    if code == "TrimmedDataAccessException":
        return TrimmedDataError(text)
    if code == "ResourceNotFoundException":
        return ShardNotFoundError(text)
    return as_user_error(error)


def as_user_error(error: Exception) -> StreamError:
    """One line that says what to do, for what only the user can mend."""
    text = _one_line(error)
    if isinstance(error, _NO_CREDENTIALS):
        return CredentialsError(
            "no AWS credentials: run `aws configure`, set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or choose a --profile"
        )
    if isinstance(error, boto.NoRegionError):
        return StreamError("no AWS region: give --region, or set AWS_DEFAULT_REGION")
    if isinstance(error, boto.ClientError):
        code = code_of(error)
        if code in _NO_PERMISSION:
            return StreamError(
                f"no permission ({text}); the role needs dynamodb:DescribeTable on the table, and "
                "DescribeStream, GetShardIterator, GetRecords and ListStreams on its stream"
            )
        if code in _BAD_CREDENTIALS:
            return CredentialsError(
                f"AWS refused the credentials ({text}); renew them, or --profile"
            )
    if isinstance(error, _OLD_CREDENTIALS):
        return CredentialsError(text)
    return StreamError(text)


def is_denied(error: StreamError) -> bool:
    """Whether the service has refused this caller the action."""
    return code_of(error.__cause__) in _NO_PERMISSION


def code_of(error: BaseException | None) -> str:
    """The service's own code of an error; empty where it is not the service's."""
    if not isinstance(error, boto.ClientError):
        return ""
    # "com.amazonaws.dynamodb#X" is botocore's work to shorten; an emulator's own "X:" is not.
    return str(error.response.get("Error", {}).get("Code", ""))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
