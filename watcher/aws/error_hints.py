"""Advice for errors of the service or the connection, one line each."""

from __future__ import annotations

import difflib
import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from botocore import exceptions as boto
from botocore.session import get_session

from watcher.aws.config import ParsedAnswer
from watcher.times import duration_text

# "… is not authorized to perform: kms:Decrypt on resource: arn:… because no … policy allows it"
_ACTION = re.compile(r"not authorized to perform: ([\w-]+:\w+)")
# "Signature expired: OURS is now earlier than … (THEIRS - 5 min.)"; "Signature not yet current: …"
_STAMPS = re.compile(r"(\d{8}T\d{6}Z) is .* \((\d{8}T\d{6}Z) [+-]")
_REGION_IN_ENDPOINT = re.compile(r"https://(?:streams\.)?dynamodb\.([\w-]+)\.amazonaws\.com")
_TITLE = re.compile(r"<title[^>]*>\s*([^<]{1,100}?)\s*</title>", re.IGNORECASE)
_SHOWN_BYTES = 60
_CLOCKS_MAY_DIFFER = timedelta(minutes=4)  # AWS lets 5 pass
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


def refused_credentials_hint(error: boto.ClientError, text: str) -> str:
    """Returns the advice to renew the credentials, or to set a clock that spoils the signature."""
    ahead = _clock_ahead(error)
    if ahead is None or abs(ahead) < _CLOCKS_MAY_DIFFER:
        return f"AWS refused the credentials ({text}); renew them, or choose another --profile"
    side = "ahead of" if ahead > timedelta() else "behind"
    minutes = round(abs(ahead) / timedelta(minutes=1))
    off = f"{duration_text(minutes * 60)} {side} AWS's"
    return f"AWS refused the signature ({text}): this clock is {off}; set it"


def _clock_ahead(error: boto.ClientError) -> timedelta | None:
    """Returns how far our clock is ahead of the service's; None if unknown."""
    if stamps := _STAMPS.search(str(error)):
        ours, theirs = (datetime.strptime(each, "%Y%m%dT%H%M%SZ") for each in stamps.groups())
        return ours - theirs
    try:
        theirs = parsedate_to_datetime(_headers(error.response)["date"])
        return datetime.now(UTC) - (theirs if theirs.tzinfo else theirs.replace(tzinfo=UTC))
    except (KeyError, ValueError, OverflowError):
        return None


def html_page_hint(answer: ParsedAnswer) -> str | None:
    """Returns a line about an HTML page (usually a proxy's) instead of an answer; else None."""
    message = str(answer.get("Error", {}).get("Message", "")).lstrip()
    headers = _headers(answer)
    if not (message.startswith("<") or "html" in headers.get("content-type", "")):
        return None
    title = _TITLE.search(message)
    about = [f'"{title[1]}"'] if title else []
    about += [f"{name.title()}: {headers[name]}" for name in ("server", "via") if name in headers]
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
    if "HTTPS port" in message:  # nginx's text, and so many load balancers'
        return f"HTTP {status} with a page instead of an answer: it is an https:// endpoint"
    told = f" ({', '.join(about)})" if about else ""
    return (
        f"HTTP {status} with a page{told} instead of an answer: a proxy or gateway is in the way; "
        "choose it with HTTPS_PROXY and NO_PROXY"
    )


def not_json_hint(body: bytes, metadata: ParsedAnswer) -> str:
    """Returns a line about a successful response whose body is no answer of DynamoDB."""
    text = body.decode("utf-8", "replace")
    if page := html_page_hint({"Error": {"Message": text}, "ResponseMetadata": metadata}):
        return page
    shown = repr(body[:_SHOWN_BYTES]) if body else "nothing"
    return (
        f"HTTP {metadata['HTTPStatusCode']} with {shown} instead of an answer: does DynamoDB "
        "answer there, or a proxy?"
    )


def _headers(answer: ParsedAnswer) -> dict[str, str]:
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return {name.lower(): str(value) for name, value in headers.items()}


def tls_hint(text: str) -> str:
    """Returns advice for a TLS error, whose text names the URL."""
    if "WRONG_VERSION_NUMBER" in text or "record layer" in text.lower():
        return f"{text}; the server speaks no TLS: is it an http:// endpoint?"
    if "No such file" in text:
        return f"{text}: set AWS_CA_BUNDLE (or ca_bundle, REQUESTS_CA_BUNDLE) to an existing file"
    return f"{text}; where TLS is inspected, set AWS_CA_BUNDLE to the file with that certificate"


def unreachable_hint(text: str) -> str:
    """Returns the likely cause of an unreachable endpoint, or of a closed connection; or ""."""
    if "Connection was closed" in text and '"http://' in text:
        return " (is it an https:// endpoint?)"
    region = _REGION_IN_ENDPOINT.search(text)
    if region is None:
        return ""
    known = _regions()
    longer = sorted(name for name in known if name.startswith(region[1]))
    close = longer or difflib.get_close_matches(region[1], known, 1, 0.6)
    if region[1] in known or not close:
        return ""
    return f" (no region {region[1]}; did you mean {close[0]}?)"


def _regions() -> list[str]:
    session = get_session()
    parts = session.get_available_partitions()
    return [name for part in parts for name in session.get_available_regions("dynamodb", part)]


def endpoints_hint(tables: str, streams: str, is_unknown: bool) -> str:
    """Returns advice where streams and tables have different endpoints; else "".

    `is_unknown`: the tables' endpoint has no DescribeTable.
    """
    advice = (
        "set AWS_ENDPOINT_URL_DYNAMODB to the tables' endpoint, and "
        "AWS_ENDPOINT_URL_DYNAMODB_STREAMS to the streams'; or give the stream's ARN"
    )
    if is_unknown:
        return f"; {tables} knows no tables: {advice}"
    if _is_aws(tables) != _is_aws(streams):
        return f"; watcher looks for tables at {tables}, streams at {streams}: {advice}"
    return ""


def _is_aws(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws", ".amazonaws.eu"))
