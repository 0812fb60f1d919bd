"""The connection to an endpoint: region, profile, endpoint, environment variables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from botocore import exceptions as boto

from watcher.aws.arns import is_aws_region
from watcher.errors import UsageError, error_text, refuse_other_than_text

if TYPE_CHECKING:
    import boto3
    from botocore.session import Session

Client: TypeAlias = Any
"""A botocore client, which creates its methods at run time from the service's description."""

ParsedAnswer: TypeAlias = Mapping[str, Any]
"""An answer as botocore parses it; each operation's members have types of their own."""

Query: TypeAlias = Mapping[str, Any]
"""The parameters of a call, as botocore takes them."""

Operation: TypeAlias = Callable[..., ParsedAnswer]
"""A method of botocore's client."""

# Variables with file names for botocore, made absolute: a handler may change the working folder.
_FILES = ("AWS_CA_BUNDLE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "REQUESTS_CA_BUNDLE")


class Environment(msgspec.Struct, frozen=True):
    """AWS's variables at one moment. Its text never shows their values: some are secrets."""

    variables: tuple[tuple[str, str], ...]

    @classmethod
    def now(cls) -> Environment:
        """Returns this process's variables, with absolute file names."""
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

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return []


class AwsConfig(msgspec.Struct, frozen=True):
    """The connection to AWS: the aws CLI's options of these names; None leaves one to boto3."""

    region: str | None = None
    profile: str | None = None
    endpoint_url: str | None = None
    environment: Environment | None = None
    """The variables for boto3; None: the process's at the time of use."""

    @classmethod
    def here(
        cls, region: str | None = None, profile: str | None = None, endpoint_url: str | None = None
    ) -> AwsConfig:
        """Returns a config that stays the same, whatever handlers do to `os.environ` later."""
        refuse_other_than_text(region=region, profile=profile, endpoint_url=endpoint_url)
        return cls(region, profile, endpoint_url, Environment.now())

    def to_blame(self, error: Exception) -> str | None:
        """Returns the option that botocore can't make a client with; None for other sources."""
        kinds = {"profile": boto.ProfileNotFound, "region": boto.InvalidRegionError}
        name = next((name for name, kind in kinds.items() if isinstance(error, kind)), None)
        if name is None and isinstance(error, ValueError):
            name = "endpoint_url"
        return name if name and getattr(self, name) else None

    def boto3_session(self) -> boto3.Session:
        """Returns boto3's session of its profile and region.

        The endpoint of `--endpoint-url` is DynamoDB's; other services have boto3's. Raises
        UsageError.
        """
        import boto3

        try:
            session = boto3.Session(profile_name=self.profile, region_name=self.region)
            session.get_credentials()  # now: a handler may change the environment later
        except boto.BotoCoreError as error:
            raise UsageError(error_text(error), self.to_blame(error)) from None
        return session


@contextmanager
def blaming(place: str, option: str | None = None) -> Iterator[None]:
    """Raises boto3's errors about a place that the user named as UsageError."""
    try:
        yield
    except (boto.BotoCoreError, boto.ClientError, ValueError) as error:
        raise UsageError(f"{place}: {error_text(error)}", option) from None


def region_of(connection: AwsConfig, session: Session, arn_region: str | None) -> str | None:
    """Returns the explicit region, or a real one of the ARN, or the configured one."""
    if connection.region:
        return connection.region
    configured: str | None = session.get_config_variable("region")
    found = arn_region if is_aws_region(arn_region) else configured or arn_region
    return found or ("us-east-1" if connection.endpoint_url else None)
