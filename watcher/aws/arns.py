"""Names and ARNs of tables and their streams: AWS's own, and those of compatible engines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

# ARNs of AWS or another engine. ScyllaDB's Alternator has, depending on its version,
# arn:scylla:alternator:KEYSPACE:scylla:table/NAME for tables, for streams S and a UUID or
# arn:aws:dynamodb:us-east-1:ACCOUNT:table/KEYSPACE@NAME/stream/LABEL:
# https://github.com/scylladb/scylladb/blob/master/alternator/executor.cc (parse_arn)
_ARN = re.compile(
    r"arn:(?:aws[\w-]*:dynamodb|(?!aws)[\w-]+:[\w-]+):(?P<region>[\w.-]*):(?P<account>[\w.-]*):"
    r"table/(?P<table>[\w.@-]{1,255})(?:/stream/(?P<label>[\w:.+-]+))?"
)
_STREAM_ID = re.compile(r"S[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TABLE = re.compile(r"[\w.-]{3,255}", re.ASCII)
_REGION = re.compile(r"[a-z]+(?:-[a-z]+)+-\d+")


class Name(NamedTuple):
    """A stream (`is_stream`) or table as the user named it, by its ARN or its name."""

    text: str
    is_stream: bool
    region: str | None
    """The region, for an ARN of AWS or an emulator."""


def parse_name(text: str) -> Name | None:
    """Returns the stream or table that a text names; None where it is no name."""
    if arn := _ARN.fullmatch(text):
        return Name(text, arn["label"] is not None, region_in(text))
    if _STREAM_ID.fullmatch(text):
        return Name(text, True, None)
    if _TABLE.fullmatch(text):
        return Name(text, False, None)
    return None


def is_stream(text: str) -> bool:
    """True for a stream's own name (ARN or id), not its table's."""
    name = parse_name(text)
    return name is not None and name.is_stream


def region_in(arn: str) -> str | None:
    """Returns the region in an ARN of DynamoDB; other engines have something else there."""
    _, partition, service, region, *_ = *arn.split(":", 4), "", "", "", ""
    return region if partition.startswith("aws") and service == "dynamodb" and region else None


def is_aws_region(region: str | None) -> bool:
    """True for a name like AWS's regions; DynamoDB Local's ARNs have `ddblocal`."""
    return region is not None and _REGION.fullmatch(region) is not None


def is_other_table(asked: str, answered: str) -> bool:
    """True if the answer's ARN is another table than the ARN that was asked for.

    False for DynamoDB Local, with one account and no regions, and for names.
    """
    is_arn = asked.startswith("arn:")
    return is_arn and asked != answered and is_aws_region(region_in(answered))


def table_of(arn: str) -> str:
    """Returns the table's ARN in a stream's ARN; the text itself without a table in it."""
    return arn.partition("/stream/")[0]


def short_table_names(arns: Iterable[str]) -> dict[str, str]:
    """Returns a short name by each table's ARN; equal names get region or account too.

    `arns` are tables' or their streams'.
    """
    tables = dict.fromkeys(map(table_of, arns))
    names = Counter(map(table_name, tables))
    places = Counter((table_name(each), region_in(each)) for each in tables)
    found = {}
    for each in tables:
        name, region = table_name(each), region_in(each)
        account = each.split(":")[4:5]
        more = account if places[name, region] > 1 else [region] if region else []
        found[each] = "/".join([*more, name]) if names[name] > 1 else name
    return found


def account_of(arn: str) -> str:
    """Returns the account in an ARN; "" where there is none."""
    return (arn.split(":")[4:5] or [""])[0]


def place_of(arn: str) -> str:
    """Returns the region and account part of an ARN, whose streams share one endpoint."""
    return arn.partition(":table/")[0]


def table_name(text: str) -> str:
    """Returns the bare name of a table, given its ARN, its stream's ARN, or its name."""
    return table_of(text).rpartition(":table/")[2].rpartition("@")[2]
