"""An account with thousands of tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import PlayedService
from tests.unit.aws.test_wanted_streams import row
from watcher.aws.config import AwsConfig
from watcher.aws.discovery import WantedStreams, is_glob
from watcher.aws.model import StreamName
from watcher.options import WatchOptions
from watcher.runtime import resolve_streams
from watcher.runtime.watched_streams import WatchedStreams


class Account:
    """So many tables, a hundred a page, as ListStreams has them."""

    def __init__(self, tables: int) -> None:
        self.tables = tables
        self.pages = 0
        self._service = PlayedService(HandClock())

    def __call__(self, connection: AwsConfig) -> Account:
        return self

    def stream_pages(self) -> Iterator[list[StreamName]]:
        for first in range(0, self.tables, 100):
            self.pages += 1
            yield [row(f"t{number}") for number in range(first, min(first + 100, self.tables))]

    def client_for(self, arn: str) -> PlayedService:
        return self._service

    def loop_client_for(self, arn: str) -> PlayedService | Account:
        return self if is_glob(arn) else self._service


def find(monkeypatch: pytest.MonkeyPatch, account: Account, glob: str) -> WatchedStreams:
    monkeypatch.setattr(resolve_streams, "Clients", account)
    return resolve_streams.resolve(WantedStreams.parse([glob]), WatchOptions())


def test_of_ten_thousand_those_are_found_that_match(monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account(10_000)
    streams = find(monkeypatch, account, "t12?")
    assert sorted(stream.table for stream in streams) == [f"t12{digit}" for digit in range(10)]
    assert account.pages == 100
