"""Names and ARNs of tables and their streams: AWS's own, and those of compatible engines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

# AWS's own, or those of another engine. ScyllaDB's Alternator has, by its version,
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
    """The stream (`is_stream`) or table that a user names, by its ARN or its name."""

    text: str
    is_stream: bool
    region: str | None
    """The region in an ARN of AWS's or of an emulator's."""


def parse_name(text: str) -> Name | None:
    """Returns what this text names; None where it can name neither a stream nor a table."""
    if arn := _ARN.fullmatch(text):
        return Name(text, arn["label"] is not None, region_in(text))
    if _STREAM_ID.fullmatch(text):
        return Name(text, True, None)
    if _TABLE.fullmatch(text):
        return Name(text, False, None)
    return None


def is_stream(text: str) -> bool:
    """True where this names a stream itself, and not its table."""
    name = parse_name(text)
    return name is not None and name.is_stream


def region_in(arn: str) -> str | None:
    """Returns the region in an ARN of DynamoDB; ARNs of other engines have something else there."""
    _, partition, service, region, *_ = *arn.split(":", 4), "", "", "", ""
    return region if partition.startswith("aws") and service == "dynamodb" and region else None


def partition_of(region: str) -> str:
    """Returns the partition of a region: aws, aws-cn, aws-us-gov, …"""
    from botocore.session import get_session  # by its name a region may be a partition's to come

    found: str = get_session().get_partition_for_region(region)
    return found


def is_aws_region(region: str | None) -> bool:
    """True where a region looks like one of AWS's; DynamoDB Local's ARNs say `ddblocal`."""
    return region is not None and _REGION.fullmatch(region) is not None


def is_other_table(asked: str, answered: str) -> bool:
    """True where a service that was asked by a table's ARN answers about another table.

    DynamoDB Local has one account and no regions: its ARNs say nothing. A name says neither.
    """
    is_arn = asked.startswith("arn:")
    return is_arn and asked != answered and is_aws_region(region_in(answered))


def table_of(arn: str) -> str:
    """Returns the table's ARN of a stream's ARN; the text itself where there is no table in it."""
    return arn.partition("/stream/")[0]


def short_table_names(arns: Iterable[str]) -> dict[str, str]:
    """Returns by its ARN a short name of each table; two of a name have region or account, too.

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
    """Returns account and region of an ARN: streams that share them are read at one endpoint."""
    return arn.partition(":table/")[0]


def table_name(text: str) -> str:
    """Returns the bare name of a table that is named by its ARN, its stream's ARN, or its name."""
    return table_of(text).rpartition(":table/")[2].rpartition("@")[2]
