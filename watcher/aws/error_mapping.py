"""Maps botocore's errors to watcher's, by their meaning for a reader of a stream."""

from __future__ import annotations

from types import SimpleNamespace

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from botocore.retries.standard import (
    RetryContext,
    ThrottledRetryableChecker,
    TransientRetryableChecker,
)

from watcher.aws import error_hints
from watcher.errors import (
    CredentialsError,
    DeniedError,
    ExpiredIteratorError,
    ServiceError,
    ShardNotFoundError,
    StreamError,
    TransientError,
    TrimmedDataError,
    UnexpectedAnswerError,
    WatcherError,
    error_text,
)

# The service's codes. botocore has its own lists of throttling and passing errors; any other code,
# and an answer without one, is an `UnexpectedAnswerError`.
_OF_CODE: dict[str, type[ServiceError]] = {
    "ExpiredIteratorException": ExpiredIteratorError,
    "ResourceNotFoundException": ShardNotFoundError,
    "TrimmedDataAccessException": TrimmedDataError,
}
# The longest message: a proxy's page may be long.
_MOST_CHARACTERS = 500
# botocore's words, which makes one attempt here: the caller retries.
_NO_RETRIES = " (reached max retries: 0)"
_TOO_MANY_REQUESTS = 429
_REQUEST_TIMEOUT = 408
_is_throttled = ThrottledRetryableChecker().is_retryable
_is_transient = TransientRetryableChecker().is_retryable
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
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
# Passing errors of a network, a proxy, or a credential service.
_PASSING = (
    boto.HTTPClientError,
    boto.ConnectionError,
    boto.IncompleteReadError,
    boto.ResponseStreamingError,
    boto.CredentialRetrievalError,
    ResponseParserError,
)
_BAD_LOGIN = (
    boto.PartialCredentialsError,
    boto.RefreshWithMFAUnsupportedError,
    boto.SSOError,
    boto.TokenRetrievalError,
)
# Those of them that end a program that has never reached the service.
_UNREACHABLE = (
    boto.EndpointConnectionError,
    boto.ConnectTimeoutError,
    boto.ProxyConnectionError,
    boto.ReadTimeoutError,
    boto.SSLError,
)


def to_watcher_error(error: Exception) -> WatcherError:
    """Returns watcher's error for a botocore error."""
    if isinstance(error, boto.ClientError):
        return _answered(error)
    if isinstance(error, _PASSING):
        text = one_line(error)
        advice = error_hints.tls_hint(text) if isinstance(error, boto.SSLError) else text
        return TransientError(advice, unreachable=isinstance(error, _UNREACHABLE))
    return to_stream_error(error)


def _answered(error: boto.ClientError) -> WatcherError:
    """Returns watcher's error for an error answer of the service."""
    text = one_line(error)
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    context = RetryContext(
        attempt_number=1,
        parsed_response=error.response,
        http_response=SimpleNamespace(status_code=status),
    )
    if _is_throttled(context) or status == _TOO_MANY_REQUESTS:
        return TransientError(text, throttled=True)
    if _is_transient(context) or status >= 500 or status == _REQUEST_TIMEOUT:
        return TransientError(text)
    if (kind := _OF_CODE.get(error_code(error))) is not None:
        return kind(text)
    return to_stream_error(error)


def to_stream_error(error: Exception) -> StreamError:
    """Returns a one-line error with advice, for errors that only the user can fix."""
    text = one_line(error)
    if isinstance(error, boto.NoCredentialsError):
        return CredentialsError(
            "no AWS credentials: run `aws configure`, set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or choose a --profile"
        )
    if isinstance(error, boto.NoRegionError):
        return StreamError("no AWS region: give --region, or set AWS_DEFAULT_REGION")
    if isinstance(error, boto.ClientError):
        code = error_code(error)
        if code in _NO_PERMISSION:
            return DeniedError(error_hints.denied_hint(error, text))
        if code in _BAD_CREDENTIALS:
            return CredentialsError(error_hints.refused_credentials_hint(text))
        return UnexpectedAnswerError(text)
    if isinstance(error, _BAD_LOGIN):
        return CredentialsError(text)
    return StreamError(text)


def error_code(error: BaseException | None) -> str:
    """Returns the service's code of an error; "" for other errors."""
    if not isinstance(error, boto.ClientError):
        return ""
    # botocore shortens "com.amazonaws.dynamodb#X", but not an emulator's "X:".
    return str(error.response.get("Error", {}).get("Code", ""))


def error_operation(error: BaseException | None) -> str:
    """Returns the service's operation that answered with an error; "" for other errors."""
    return str(error.operation_name) if isinstance(error, boto.ClientError) else ""


def one_line(error: Exception) -> str:
    """Returns the error's text on one line."""
    page = None
    if isinstance(error, boto.ClientError):
        page = error_hints.html_page_hint(error.response)
    text = page or " ".join(error_text(error).replace(_NO_RETRIES, "").split())
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"
