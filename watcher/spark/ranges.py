"""Readers of ranges for Spark's tasks: each worker keeps its clients, and what it has learnt."""

from __future__ import annotations

from functools import lru_cache

from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_worker
from watcher.aws.credentials import handed_credentials
from watcher.aws.model import Service
from watcher.clock import CLOCK, Clock
from watcher.pull.ranges import RangeReader
from watcher.spark.options import REMEDY, SourceOptions
from watcher.streams.losses import Losses
from watcher.streams.read_rate import AdaptiveRateLimit


def connected(options: SourceOptions, arn: str) -> RangeReader:
    """Returns a reader over the real service."""
    return reader(options, arn, _service(options.connection, arn), rates=_rates(arn))


def reader(
    options: SourceOptions,
    arn: str,
    service: Service,
    clock: Clock = CLOCK,
    *,
    rates: dict[str, AdaptiveRateLimit] | None = None,
) -> RangeReader:
    """Returns a reader that treats lost records as the options say."""
    losses = Losses(is_error=options.fail_on_data_loss, remedy=REMEDY, clock=clock)
    return RangeReader(arn, service, losses, clock, rates=rates)


@lru_cache(maxsize=8)
def _service(connection: AwsConfig, arn: str) -> Service:
    """Returns one client for a worker's life: making one takes longer than reading a page."""
    return for_worker(connection, arn, handed_credentials(connection, arn))


@lru_cache(maxsize=8)
def _rates(arn: str) -> dict[str, AdaptiveRateLimit]:
    """Returns each shard's rate limit, as earlier tasks have learnt it in this worker."""
    return {}
