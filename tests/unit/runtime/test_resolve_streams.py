"""An account with thousands of tables: counted first, and watched only if that is meant."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import PlayedService
from tests.unit.aws.test_wanted_streams import row
from watcher import UsageError
from watcher.aws.config import AwsConfig
from watcher.aws.discovery import WantedStreams
from watcher.aws.model import StreamName
from watcher.options import WatchOptions
from watcher.runtime import resolve_streams
from watcher.runtime.watched_streams import WatchedStreams


class Account:
    """So many tables, a hundred a page, as ListStreams has them."""

    def __init__(self, tables: int) -> None:
        self.tables = tables
        self.pages = 0
        self.followed = 0
        self._service = PlayedService(HandClock())

    def __call__(self, connection: AwsConfig) -> Account:
        return self

    def listing_client_for(self, wanted: WantedStreams) -> Account:
        return self

    def stream_pages(self) -> Iterator[list[StreamName]]:
        for first in range(0, self.tables, 100):
            self.pages += 1
            yield [row(f"t{number}") for number in range(first, min(first + 100, self.tables))]

    def client_for(self, arn: str) -> PlayedService:
        self.followed += 1
        return self._service

    def loop_client_for(self, arn: str) -> PlayedService:
        return self._service


def find(
    monkeypatch: pytest.MonkeyPatch, account: Account, glob: str, *, yes: bool = False
) -> WatchedStreams:
    monkeypatch.setattr(resolve_streams, "Clients", account)
    return resolve_streams.resolve(
        WantedStreams.parse([glob]), WatchOptions(), strict=False, yes=yes
    )


def test_ten_thousand_tables_are_counted_and_not_one_of_them_is_followed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "watcher")
    account = Account(10_000)
    with pytest.raises(UsageError, match="10,000 streams match: narrow that down, or add --yes"):
        find(monkeypatch, account, "*")
    assert account.pages == 100 and account.followed == 0
    assert "Streams that match '*': 10,000" in caplog.messages


@pytest.mark.proof
@pytest.mark.parametrize(("tables", "yes"), [(200, False), (201, True), (10_000, True)])
def test_two_hundred_are_watched_and_more_with_yes(
    monkeypatch: pytest.MonkeyPatch, tables: int, yes: bool
) -> None:
    assert len(find(monkeypatch, Account(tables), "*", yes=yes)) == tables


def test_of_ten_thousand_those_are_found_that_match(monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account(10_000)
    streams = find(monkeypatch, account, "t12?")
    assert sorted(stream.table for stream in streams) == [f"t12{digit}" for digit in range(10)]
    assert account.pages == 100 and account.followed == 10
