"""Advice for errors of the service or the connection, one line each."""

from __future__ import annotations

import re

from botocore import exceptions as boto

from watcher.aws.config import ParsedAnswer

# "… is not authorized to perform: kms:Decrypt on resource: arn:… because no … policy allows it"
_ACTION = re.compile(r"not authorized to perform: ([\w-]+:\w+)")
_TITLE = re.compile(r"<title[^>]*>\s*([^<]{1,100}?)\s*</title>", re.IGNORECASE)
_SHOWN_BYTES = 60
# Of delta-rs, which asks the machine where there are none, and of Hadoop.
_REFUSED = re.compile(
    r"403 Forbidden: <|http://169\.254\.169\.254|ExpiredToken|"
    r"Service: S3, Status Code: 403|NoAwsCredentials|Unable to load credentials|token has expired"
)
_NEEDED = (
    "the role needs dynamodb:DescribeTable on the table, and DescribeStream, GetShardIterator, "
    "GetRecords and ListStreams on its stream"
)


# STS's text for a wrong code, in an error like that for a forbidden role.
_WRONG_CODE = "MultiFactorAuthentication failed"


def denied_hint(error: boto.ClientError, text: str, needed: str = "") -> str:
    """Returns which action to allow, and where; `needed`, if given, is the exact permission."""
    if _WRONG_CODE in text:
        wrong = "mistyped, or used before (each is good once)"
        return f"AWS refused the MFA code: {wrong}; start again with the next one"
    found = _ACTION.search(text)
    action = found[1] if found else ""
    if error.operation_name.startswith("AssumeRole") or action.startswith("sts:"):
        action = action or f"sts:{error.operation_name}"
        return (
            f"can't assume the role ({text}); allow {action} on it to the caller, and name the "
            "caller in its trust policy"
        )
    if action.startswith("kms:") or "kms" in str(error.response["Error"].get("Code", "")).lower():
        return (
            f"no permission ({text}); allow {action or 'kms:Decrypt'} on the key that the table is "
            "encrypted with, in the role's policy or in the key's"
        )
    if needed:
        return f"no permission ({text}); the role needs {needed}"
    if not action and error.operation_name in _NEEDED:  # a short answer names no action
        action = f"dynamodb:{error.operation_name}"
    named = f"allow {action}; " if action else ""
    return f"no permission ({text}); {named}{_NEEDED}"


def refused_credentials_hint(text: str) -> str:
    """Returns the advice to renew the credentials, or to set a clock that spoils the signature."""
    if "Signature expired" in text or "Signature not yet current" in text:
        return f"AWS refused the signature ({text}): this machine's clock is off; set it"
    return f"AWS refused the credentials ({text}); renew them, or choose another --profile"


def html_page_hint(answer: ParsedAnswer) -> str | None:
    """Returns a line about an HTML page (usually a proxy's) instead of an answer; else None."""
    message = str(answer.get("Error", {}).get("Message", "")).lstrip()
    metadata = answer.get("ResponseMetadata", {})
    kind = str(metadata.get("HTTPHeaders", {}).get("content-type", ""))
    if not message.startswith("<") and "html" not in kind:
        return None
    title = _TITLE.search(message)
    named = f' ("{title[1]}")' if title else ""
    page = f"HTTP {metadata.get('HTTPStatusCode', '')} with a page{named}"
    if "HTTPS port" in message:  # nginx's text, and so many load balancers'
        return f"{page} instead of an answer: it is an https:// endpoint"
    return (
        f"{page} instead of an answer: a proxy or gateway is in the way; choose it with "
        "HTTPS_PROXY and NO_PROXY"
    )


def not_json_hint(body: bytes, metadata: ParsedAnswer) -> str:
    """Returns a line about a response whose body is no answer of DynamoDB."""
    text = body.decode("utf-8", "replace")
    if page := html_page_hint({"Error": {"Message": text}, "ResponseMetadata": metadata}):
        return page
    shown = repr(body[:_SHOWN_BYTES]) if body else "nothing"
    return (
        f"HTTP {metadata['HTTPStatusCode']} with {shown} instead of an answer: does DynamoDB "
        "answer there, or a proxy?"
    )


def tls_hint(text: str) -> str:
    """Returns advice for a TLS error, whose text names the URL."""
    if "WRONG_VERSION_NUMBER" in text or "record layer" in text.lower():
        return f"{text}; the server speaks no TLS: is it an http:// endpoint?"
    return f"{text}; where TLS is inspected, set AWS_CA_BUNDLE to the file with that certificate"


def s3_hint(text: str) -> str | None:
    """Returns a line about an error of S3 in what delta-rs or Hadoop say; None of another one."""
    if "NoSuchBucket" in text:
        return "S3 has no such bucket: create it, or correct its name"
    if _REFUSED.search(text):
        return (
            "S3 refuses the credentials, or has none: set AWS_ACCESS_KEY_ID, …, or allow them more"
        )
    return None


def unreachable_hint(text: str) -> str:
    """Returns the likely cause of a closed connection; or ""."""
    is_plain = "Connection was closed" in text and '"http://' in text
    return " (is it an https:// endpoint?)" if is_plain else ""
