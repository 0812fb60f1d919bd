"""The way to an endpoint: region, profile, endpoint, and botocore's session for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from botocore import exceptions as boto

from watcher.aws.arns import is_aws_region
from watcher.errors import UsageError, error_text, refuse_other_than_text

if TYPE_CHECKING:
    from botocore.session import Session

Client: TypeAlias = Any
"""A client of botocore's, which makes its methods at run time, from the service's description."""

ParsedAnswer: TypeAlias = dict[str, Any]
"""An answer as botocore parses it; each operation's members have types of their own."""

Operation: TypeAlias = Callable[..., ParsedAnswer]
"""A method of botocore's client."""

# Files of botocore's; a handler may change the folder that their names begin in.
_FILES = ("AWS_CA_BUNDLE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "REQUESTS_CA_BUNDLE")


class Environment(msgspec.Struct, frozen=True):
    """AWS's variables as they were at one moment. Its text never shows them: some are secrets."""

    variables: tuple[tuple[str, str], ...]

    @classmethod
    def now(cls) -> Environment:
        """Returns those of this process, the names of files made absolute."""
        found = {
            name: os.path.abspath(value)
            if name in _FILES and value and not value.startswith("~")
            else value
            for name, value in os.environ.items()
            if name.startswith("AWS_") or name in _FILES
        }
        return cls(tuple(sorted(found.items())))

    def __repr__(self) -> str:
        return "Environment(…)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


class AwsConfig(msgspec.Struct, frozen=True):
    """How to reach AWS, as the aws CLI's options of the same names; None leaves it to boto3."""

    region: str | None = None
    profile: str | None = None
    endpoint_url: str | None = None
    environment: Environment | None = None
    """The variables that boto3 looks at; None: those that there are when it looks."""

    @classmethod
    def here(
        cls, region: str | None = None, profile: str | None = None, endpoint_url: str | None = None
    ) -> AwsConfig:
        """Returns one that stays the same, whatever handlers do to `os.environ` later."""
        refuse_other_than_text(region=region, profile=profile, endpoint_url=endpoint_url)
        return cls(region, profile, endpoint_url, Environment.now())

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


def region_of(connection: AwsConfig, session: Session, arn_region: str | None) -> str | None:
    """An explicit region wins; the ARN's is next, where it is a real one; then the configured."""
    if connection.region:
        return connection.region
    configured: str | None = session.get_config_variable("region")
    found = arn_region if is_aws_region(arn_region) else configured or arn_region
    return found or ("us-east-1" if connection.endpoint_url else None)
