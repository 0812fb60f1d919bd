"""Shards asked for one after the other: what a played service has for `Service.probe`."""

from __future__ import annotations

from collections.abc import Collection

from watcher.aws.model import Service, TrimHorizon
from watcher.errors import WatcherError


def probed(
    service: Service, arn: str, shard_ids: Collection[str]
) -> dict[str, WatcherError | None]:
    answers: dict[str, WatcherError | None] = {}
    for name in shard_ids:
        try:
            service.get_iterator(arn, name, TrimHorizon())
            answers[name] = None
        except WatcherError as error:
            answers[name] = error
    return answers
