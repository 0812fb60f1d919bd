"""Calls are made again for what passes: never for what this role was not allowed before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from unittest import mock

import pytest
from botocore.exceptions import ClientError, NoCredentialsError
from botocore.parsers import ResponseParserError

from tests.support.hand_clock import HandClock
from watcher.aws.credentials import Credentials
from watcher.aws.retry import RetryingClient
from watcher.errors import CredentialsError, DeniedError, UnexpectedAnswerError

DENIED = "AccessDeniedException"
REFUSED = "UnrecognizedClientException"


class Tables:
    """Operations that fail with these codes, each in turn, then work."""

    def __init__(self) -> None:
        self.codes: list[str] = []
        self.renewed = 0

    def renew(self) -> None:
        self.renewed += 1

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        def call(**_: Any) -> dict[str, Any]:
            if self.codes:
                answer: Any = {"Error": {"Code": self.codes.pop(0), "Message": "no"}}
                raise ClientError(answer, name.title().replace("_", ""))
            return {}

        call.__name__ = name
        return call


@pytest.fixture
def tables() -> Tables:
    return Tables()


@pytest.fixture
def call(tables: Tables, clock: HandClock) -> RetryingClient:
    return RetryingClient(cast(Credentials, tables), clock=clock)


OTHERS: dict[str, dict[str, Any]] = {
    "put_item": {"TableName": "orders"},
    "scan": {"TableName": "orders"},
    "get_item": {"TableName": "copy"},
    "batch_write_item": {"RequestItems": {"copy": []}},
}
NEEDED = "PutItem on orders", "Scan on orders", "GetItem on copy", "BatchWriteItem on copy"


@pytest.mark.parametrize(("operation", "needed"), [*zip(OTHERS, NEEDED, strict=True)])
def test_a_denial_of_what_has_never_worked_is_told_at_once(
    operation: str, needed: str, call: RetryingClient, tables: Tables, clock: HandClock
) -> None:
    call(tables.get_item, TableName="orders")
    tables.codes = [DENIED]
    with pytest.raises(DeniedError, match=f"the role needs dynamodb:{needed}$"):
        call(getattr(tables, operation), **OTHERS[operation])
    assert clock.passed == 0


@pytest.mark.parametrize(("operation", "needed"), [*zip(OTHERS, NEEDED, strict=True)])
def test_a_denial_of_what_has_worked_is_waited_for_a_minute(
    operation: str, needed: str, call: RetryingClient, tables: Tables, clock: HandClock
) -> None:
    call(getattr(tables, operation), **OTHERS[operation])
    tables.codes = [DENIED] * 20
    call(getattr(tables, operation), **OTHERS[operation])
    assert not tables.codes
    tables.codes, started = [DENIED] * 1000, clock.passed
    with pytest.raises(DeniedError, match=needed):
        call(getattr(tables, operation), **OTHERS[operation])
    assert 60 <= clock.passed - started < 62


def test_credentials_that_have_worked_for_anything_are_renewed(
    call: RetryingClient, tables: Tables, clock: HandClock
) -> None:
    tables.codes = [REFUSED]
    with pytest.raises(CredentialsError):
        call(tables.get_item, TableName="orders")
    assert (clock.passed, tables.renewed) == (0, 0)
    call(tables.get_item, TableName="orders")
    tables.codes = [REFUSED, "404", REFUSED]
    call(tables.put_item, TableName="orders")
    assert tables.renewed == 2


def test_in_a_task_of_a_program_that_has_begun_ended_credentials_are_waited_for(
    tables: Tables, clock: HandClock
) -> None:
    """Spark has a new process now and then; a denial, or none at all, does not pass there."""
    call = RetryingClient(cast(Credentials, tables), clock=clock, has_begun=True)
    tables.codes = [REFUSED, "404", "ExpiredTokenException"]
    call(tables.put_item, TableName="orders")
    assert tables.renewed == 2

    with_none = mock.Mock(side_effect=NoCredentialsError, __name__="scan")
    with pytest.raises(CredentialsError, match="no AWS credentials"):
        RetryingClient(cast(Credentials, tables), clock=clock, has_begun=True)(with_none)
    tables.codes = [DENIED]
    with pytest.raises(DeniedError):
        call(tables.get_item, TableName="orders")


def test_an_odd_answer_ends_it_at_first_and_passes_later(call: RetryingClient) -> None:
    odd = UnexpectedAnswerError("HTTP 204")
    answers = [odd, {}, odd, ResponseParserError("an answer that can't be read"), {"a": 1}]
    put_item = mock.Mock(side_effect=answers, __name__="put_item")
    with pytest.raises(UnexpectedAnswerError, match="HTTP 204"):
        call(put_item)
    assert call(put_item) == {}
    assert call(put_item) == {"a": 1}
