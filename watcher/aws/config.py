"""The way to an endpoint: region, profile, endpoint, and botocore's session for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from botocore import exceptions as boto

from watcher.aws.arns import is_aws_region
from watcher.errors import UsageError, error_text


class AwsConfig(msgspec.Struct, frozen=True):
    """How to reach AWS, as the aws CLI's options of the same names; None leaves it to boto3."""

    region: str | None = None
    profile: str | None = None
    endpoint_url: str | None = None

    def to_blame(self, error: Exception) -> str | None:
        """Which of them botocore can't make a client with; what it has from elsewhere is none."""
        kinds = {"profile": boto.ProfileNotFound, "region": boto.InvalidRegionError}
        name = next((name for name, kind in kinds.items() if isinstance(error, kind)), None)
        if name is None and isinstance(error, ValueError):
            name = "endpoint_url"
        return name if name and getattr(self, name) else None


@contextmanager
def blaming(place: str, option: str | None = None) -> Iterator[None]:
    """Raises UsageError for what boto3 raises about a place that a user has named."""
    try:
        yield
    except (boto.BotoCoreError, boto.ClientError, ValueError) as error:
        raise UsageError(f"{place}: {error_text(error)}", option) from None


def region_of(connection: AwsConfig, session: Any, arn_region: str | None) -> str | None:
    """An explicit region wins; the ARN's is next, where it is a real one; then the configured."""
    if connection.region:
        return connection.region
    configured: str | None = session.get_config_variable("region")
    found = arn_region if is_aws_region(arn_region) else configured or arn_region
    return found or ("us-east-1" if connection.endpoint_url else None)
