"""Creates botocore's clients, with credentials that are renewed."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from botocore import exceptions as boto
from botocore.config import Config

from watcher.aws.config import AwsConfig, Client, region_of
from watcher.aws.credentials import (
    Credentials,
    Session,
    SigningCredentials,
    ca_file,
    own_credentials,
    session,
)
from watcher.aws.deadline import CONNECT_SECONDS
from watcher.aws.error_mapping import to_stream_error
from watcher.aws.fast_http import RawPages
from watcher.aws.http import tls_context
from watcher.errors import StreamError
from watcher.version import __version__


class BotoClients:
    """Creates the clients of one connection, all with the same settings and credentials.

    Raises StreamError where no call can succeed.
    """

    def __init__(
        self,
        connection: AwsConfig,
        region: str | None,
        *,
        read_seconds: float,
        credentials: Credentials | None = None,
        default_region: str | None = None,
        settings: Config | None = None,
        attempts: int = 1,
    ) -> None:
        """`region` is an ARN's; `default_region` is for a connection without any."""
        self._connection = connection
        self._config = Config(
            # What takes longer than this to connect is cut off: it can't be reached at all.
            connect_timeout=min(read_seconds, CONNECT_SECONDS),
            read_timeout=read_seconds,
            retries={"mode": "standard", "total_max_attempts": attempts},
            user_agent_extra=f"watcher/{__version__}",
        ).merge(settings or Config())
        with self.errors():
            self.session = session(connection)
            self.region = region_of(connection, self.session, region) or default_region
            self.credentials = credentials or own_credentials(connection, self.region)
            signing = SigningCredentials(self.credentials)
            self.session.register_component("credential_provider", signing)
            self.session.register_component("response_parser_factory", RawPages())

    def new(self, service: str) -> Client:
        """Creates the client of a service."""
        with self.errors():
            client: Client = self.session.create_client(
                service,
                region_name=self.region,
                endpoint_url=self._connection.endpoint_url,
                verify=ca_file(self.session),
                config=self._config,
            )
            _refuse_unusable_endpoint(self.session, client.meta.endpoint_url)
            return client

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raises botocore's errors of the block as StreamError, with the option to blame."""
        try:
            yield
        except (boto.BotoCoreError, ValueError) as error:
            stream_error = to_stream_error(error)
            stream_error.option = self._connection.to_blame(error)
            raise stream_error from error


def _refuse_unusable_endpoint(session: Session, url: str) -> None:
    """Refuses an endpoint or a CA bundle with which no call can succeed.

    The first call would fail less clearly, and be retried. Raises ValueError, StreamError.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.port == 0:  # a bad port raises by itself
        raise ValueError(f"Invalid endpoint: {url}: give http:// or https://, and a host")
    if (file := ca_file(session)) is None or not url.startswith("https:"):
        return
    try:
        tls_context(file)
    except OSError as error:
        why = "no certificates in it" if isinstance(error, ssl.SSLError) else error.strerror
        text = f"can't use the authorities in {file}: {why}; see AWS_CA_BUNDLE, ca_bundle, "
        raise StreamError(f"{text}REQUESTS_CA_BUNDLE") from error
