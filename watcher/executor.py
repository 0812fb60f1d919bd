"""Makes the calls that the core asks for, one after the other, and waits for each answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from watcher.aws.model import Listing, Service, Shard
from watcher.aws.retry import retry_at_start
from watcher.clock import Clock
from watcher.errors import CredentialsError, NoAnswerYetError, StreamError, WatcherError
from watcher.streams.coordinator import Coordinator
from watcher.streams.messages import Message, Page
from watcher.streams.page_fetcher import FULL_BYTES
from watcher.streams.requests import (
    Collect,
    DescribeShards,
    GetIterator,
    GetRecords,
    ListChildren,
    Prefetch,
    ReadRequest,
    ReadSteps,
    RenewCredentials,
    StreamRequest,
)
from watcher.streams.shard_reader import ShardReader

_Result = TypeVar("_Result")


def read(reader: ShardReader, service: Service) -> list[Message]:
    """Makes one attempt to read a shard. Raises StreamError without a way to the service."""
    return run(reader.attempt(), service)


def read_together(
    readers: Sequence[ShardReader], service: Service
) -> dict[str, list[Message] | StreamError]:
    """Makes one attempt to read each shard; returns its messages, or its error, by its id.

    Shards whose last page was empty are requested before the first answer is awaited: the service
    works on them side by side, and one thread waits for all. After half a megabyte of pages it
    leaves out the others, whose answers wait for their next attempt: memory holds few pages.
    """
    for reader in readers[1:]:
        run(reader.send_ahead(), service)
    found: dict[str, list[Message] | StreamError] = {}
    size = 0
    for reader in readers:
        try:
            found[reader.shard_id] = messages = read(reader, service)
            size += sum(len(message.body) for message in messages if isinstance(message, Page))
        except StreamError as error:
            found[reader.shard_id] = error
        if size >= FULL_BYTES:
            break
    return found


def run(steps: ReadSteps[_Result], service: Service) -> _Result:
    """Takes the steps of a read to their end; returns their result."""
    try:
        request = next(steps)
        while True:
            try:
                answer = _answer(request, service)
            except WatcherError as error:
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration as stop:
        result: _Result = stop.value
        return result


def _answer(request: ReadRequest, service: Service) -> object:
    match request:
        case GetRecords(iterator, limit):
            return (
                service.get_records(iterator)
                if limit is None
                else service.get_records(iterator, limit)
            )
        case Collect(prefetched):
            return prefetched()
        case Prefetch(iterator):
            return service.prefetch_records(iterator)
        case GetIterator(arn, shard_id, position):
            return service.get_iterator(arn, shard_id, position)
        case RenewCredentials():
            service.renew_credentials()
            return None


def start(coordinator: Coordinator, service: Service, clock: Clock) -> None:
    """Makes the first listing, whose errors end the beginning. Raises StreamError."""
    coordinator.start(retry_at_start(lambda: service.list_shards(coordinator.arn), clock))


def refresh(coordinator: Coordinator, service: Service) -> set[type[StreamRequest]]:
    """Makes the requests that are due.

    Returns the kinds that a `BackgroundService` has no answer to yet. Raises DeniedError,
    DataLossError.
    """
    pending = set[type[StreamRequest]]()
    while (request := coordinator.next_request(pending)) is not None:
        coordinator.requested(request)
        try:
            coordinator.answered(request, _listed(request, coordinator.arn, service))
        except NoAnswerYetError:
            pending.add(type(request))
        except WatcherError as error:
            coordinator.failed(request, error)
            if isinstance(error, CredentialsError) and not isinstance(request, ListChildren):
                service.renew_credentials()
    return pending


def _listed(
    request: StreamRequest, arn: str, service: Service
) -> Listing | list[Shard] | dict[str, WatcherError | None]:
    match request:
        case DescribeShards():
            return service.list_shards(arn)
        case ListChildren(shard_id):
            return service.list_children(arn, shard_id)
        case _:
            return service.probe(arn, request.shard_ids)
