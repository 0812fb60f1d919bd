"""Maps botocore's errors to watcher's, by what they mean to a reader of a stream."""

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

# What the service's own codes mean to a reader. Those that botocore takes for throttling, or for
# passing, are in its lists; any other, and an answer without a code,
# is an `UnexpectedAnswerError`.
_OF_CODE: dict[str, type[ServiceError]] = {
    "ExpiredIteratorException": ExpiredIteratorError,
    "InternalFailure": TransientError,
    "InternalServerError": TransientError,
    "InternalServerErrorException": TransientError,
    "ResourceNotFoundException": ShardNotFoundError,
    "ServiceUnavailable": TransientError,
    "ServiceUnavailableException": TransientError,
    "TrimmedDataAccessException": TrimmedDataError,
}
# Of a message: a proxy's page may be long.
_MOST_CHARACTERS = 500
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
# A network's, a proxy's, or a credential service's passing trouble.
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
# … and that of them where it is no use for a beginner to wait.
_UNREACHABLE = (
    boto.EndpointConnectionError,
    boto.ConnectTimeoutError,
    boto.ProxyConnectionError,
    boto.ReadTimeoutError,
    boto.SSLError,
)


def to_watcher_error(error: Exception) -> WatcherError:
    """Returns watcher's error for one of botocore's."""
    if isinstance(error, boto.ClientError):
        return _answered(error)
    if isinstance(error, _PASSING):
        text = one_line(error)
        told = error_hints.tls_hint(text) if isinstance(error, boto.SSLError) else text
        return TransientError(told, unreachable=isinstance(error, _UNREACHABLE))
    return to_stream_error(error)


def _answered(error: boto.ClientError) -> WatcherError:
    """Returns watcher's error for an error that the service answers."""
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
    """Returns an error of one line that says what to do, for what only the user can mend."""
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
            return CredentialsError(error_hints.refused_credentials_hint(error, text))
        return UnexpectedAnswerError(text)
    if isinstance(error, _BAD_LOGIN):
        return CredentialsError(text)
    return StreamError(text)


def error_code(error: BaseException | None) -> str:
    """Returns the service's own code of an error; empty where it is none."""
    if not isinstance(error, boto.ClientError):
        return ""
    # "com.amazonaws.dynamodb#X" is botocore's work to shorten; an emulator's own "X:" is not.
    return str(error.response.get("Error", {}).get("Code", ""))


def cancellation_codes(error: BaseException | None) -> set[str]:
    """Returns why a transaction was cancelled, a code for each item in the way; else none."""
    if not isinstance(error, boto.ClientError):
        return set()
    codes = {str(each.get("Code")) for each in error.response.get("CancellationReasons", ())}
    return codes - {"None"}


def error_operation(error: BaseException | None) -> str:
    """Returns the service's operation that an error answers; empty where it is none."""
    return str(error.operation_name) if isinstance(error, boto.ClientError) else ""


def one_line(error: Exception) -> str:
    """Returns the error's text on one line."""
    page = None
    if isinstance(error, boto.ClientError):
        page = error_hints.html_page_hint(error.response)
    text = page or " ".join(error_text(error).split())
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"
