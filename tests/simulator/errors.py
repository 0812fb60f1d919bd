"""The service's errors as they look on the wire."""

import json

_DYNAMODB = "com.amazonaws.dynamodb.v20120810#"
_ELSEWHERE = {
    "ThrottlingException": "com.amazon.coral.availability#",
    "ServiceUnavailable": "com.amazon.coral.availability#",
    "ValidationException": "com.amazon.coral.validate#",
    "AccessDeniedException": "com.amazon.coral.service#",
    "ExpiredTokenException": "com.amazon.coral.service#",
    "InvalidSignatureException": "com.amazon.coral.service#",
    "MissingAuthenticationTokenException": "com.amazon.coral.service#",
    "SerializationException": "com.amazon.coral.service#",
    "UnknownOperationException": "com.amazon.coral.service#",
    "UnrecognizedClientException": "com.amazon.coral.service#",
}
_STATUS = {"InternalServerError": 500, "ServiceUnavailable": 503}
_MESSAGES = {
    "AccessDeniedException": "User: arn:aws:iam::123456789012:user/test is not authorized to "
    "perform this action because no identity-based policy allows it",
    "ExpiredIteratorException": "Iterator expired. The iterator was created too long ago.",
    "ExpiredTokenException": "The security token included in the request is expired",
    "InternalServerError": "The request processing has failed because of an unknown error.",
    "InvalidSignatureException": "The request signature we calculated does not match the "
    "signature you provided.",
    "LimitExceededException": "Too many operations for a given subscriber.",
    "MissingAuthenticationTokenException": "Missing Authentication Token",
    "ProvisionedThroughputExceededException": "The level of configured provisioned throughput "
    "for the table was exceeded. Consider increasing your provisioning level.",
    "ServiceUnavailable": "Service is currently unavailable. Please try again.",
    "ThrottlingException": "Rate of requests exceeds the allowed throughput.",
    "TrimmedDataAccessException": "The operation attempted to read past the oldest stream record "
    "in a shard.",
    "UnrecognizedClientException": "The security token included in the request is invalid.",
}
THROTTLES = (
    "ThrottlingException",
    "ProvisionedThroughputExceededException",
    "LimitExceededException",
)

# Answers that say nothing of a stream: of a proxy, a load balancer, or of nobody knows whom.
NO_ANSWERS = ("status-204", "cbor", "garbage", "page")
ODD = (
    *(f"status-{status}" for status in (204, 301, 307, 403, 404, 407, 408, 413, 429)),
    *("UnheardOfException", "ValidationException", "cbor", "garbage"),
)


class ServiceError(Exception):
    """An answer that is an error: what botocore turns into a ClientError."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message or _MESSAGES.get(code, code)
        self.status = _STATUS.get(code, 400)

    def body(self) -> bytes:
        kind = _ELSEWHERE.get(self.code, _DYNAMODB) + self.code
        return json.dumps({"__type": kind, "message": self.message}).encode()


def invalid(message: str) -> ServiceError:
    return ServiceError("ValidationException", message)


def not_found(message: str) -> ServiceError:
    return ServiceError("ResourceNotFoundException", "Requested resource not found: " + message)
