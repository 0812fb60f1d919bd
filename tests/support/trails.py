"""CloudTrail's log files in their documented form.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/understanding-ddb-log-entries.html
"""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ACCOUNT = "123456789012"
REGION = "us-east-1"
ARN = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/orders"
Event = dict[str, Any]


REPLICATING = "aws-service-role/replication.dynamodb.amazonaws.com"
"""The path of the role with which DynamoDB replicates; nobody else can make one there."""


def role(
    name: str, session: str = "bob", account: str = ACCOUNT, path: str = "team"
) -> dict[str, Any]:
    """The identity of an assumed role, with its issuer's path in IAM."""
    return {
        "type": "AssumedRole",
        "principalId": f"AROAEXAMPLE:{session}",
        "arn": f"arn:aws:sts::{account}:assumed-role/{name}/{session}",
        "accountId": account,
        "accessKeyId": "ASIAEXAMPLE",
        "sessionContext": {
            "sessionIssuer": {
                "type": "Role",
                "principalId": "AROAEXAMPLE",
                "arn": f"arn:aws:iam::{account}:role/{path}/{name}",
                "accountId": account,
                "userName": name,
            },
            "attributes": {"mfaAuthenticated": "false", "creationDate": "2026-11-22T19:00:00Z"},
        },
    }


def event(
    name: str,
    second: float,
    parameters: Any,
    *,
    by: dict[str, Any] | None = None,
    table: str = ARN,
    **more: Any,
) -> Event:
    """A data event of DynamoDB's."""
    return {
        "eventVersion": "1.08",
        "userIdentity": by or role("api"),
        "eventTime": datetime.fromtimestamp(int(second), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "eventSource": "dynamodb.amazonaws.com",
        "eventName": name,
        "awsRegion": REGION,
        "sourceIPAddress": "203.0.113.9",
        "userAgent": "Boto3/1.43.2 md/Botocore#1.43.2 ua/2.0 os/linux#6.1",
        "requestParameters": parameters,
        "responseElements": None,
        "requestID": f"REQUEST{next(_ids)}",
        "eventID": f"event-{next(_ids)}",
        "readOnly": False,
        "resources": [{"accountId": ACCOUNT, "type": "AWS::DynamoDB::Table", "ARN": table}],
        "eventType": "AwsApiCall",
        "apiVersion": "2012-08-10",
        "managementEvent": False,
        "recipientAccountId": ACCOUNT,
        "eventCategory": "Data",
        **more,
    }


_ids = iter(range(1, 10**9))


def put(second: float, *, names: tuple[str, ...] = ("total",), **more: Any) -> Event:
    """A PutItem of orders; `key` and the like are those of `event`."""
    key = more.pop("key", {"PK": "ada", "SK": "order-7"})
    parameters = {"tableName": "orders", "key": key, "item": [*key, *names]}
    return event("PutItem", second, parameters, **more)


def update(second: float, **more: Any) -> Event:
    key = more.pop("key", {"PK": "ada", "SK": "order-7"})
    parameters = {
        "tableName": "orders",
        "key": key,
        "updateExpression": "SET #t = :t",
        "expressionAttributeNames": {"#t": "total"},
    }
    return event("UpdateItem", second, parameters, **more)


def delete(second: float, **more: Any) -> Event:
    key = more.pop("key", {"PK": "ada", "SK": "order-7"})
    return event("DeleteItem", second, {"tableName": "orders", "key": key}, **more)


def statement(second: float, text: str, **more: Any) -> Event:
    return event("ExecuteStatement", second, {"statement": text}, **more)


def content(*events: Event) -> bytes:
    return json.dumps({"Records": events}).encode()


def deliver(
    root: Path,
    delivered: float,
    *events: Event,
    account: str = ACCOUNT,
    region: str = REGION,
    organization: str = "",
) -> Path:
    """Writes a log file where CloudTrail puts one that it delivers then."""
    time = datetime.fromtimestamp(int(delivered), UTC)
    folder = root / "AWSLogs" / organization / account / "CloudTrail" / region
    folder /= time.strftime("%Y/%m/%d")
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{account}_CloudTrail_{region}_{time:%Y%m%dT%H%MZ}_{next(_ids):016}.json.gz"
    (folder / name).write_bytes(gzip.compress(content(*events)))
    return folder / name
