"""Credentials: got once, renewed ahead of their end by one, read by all."""

from __future__ import annotations

import contextlib
import pickle
import threading

import pytest

from tests.support.hand_clock import HandClock
from watcher.aws.client import StreamsClient
from watcher.aws.config import AwsConfig
from watcher.aws.credentials import Keys, OwnCredentials, WorkerCredentials, own_credentials
from watcher.errors import CredentialsError
from watcher.runtime.protocol import NewCredentials


class Source:
    """Gives numbered keys that live so long; or fails."""

    def __init__(self, clock: HandClock, seconds: float | None = 3600.0) -> None:
        self.clock = clock
        self.seconds = seconds
        self.asked: list[tuple[str | None, bool]] = []
        self.error: Exception | None = None
        self.may_go = threading.Event()
        self.may_go.set()

    def __call__(self, old: str | None, may_ask: bool) -> Keys:
        self.asked.append((old, may_ask))
        self.may_go.wait(10)
        if self.error is not None:
            raise self.error
        expires = None if self.seconds is None else self.clock.time() + self.seconds
        return Keys(f"key {len(self.asked)}", "secret", "token", expires=expires)


def own(source: Source) -> OwnCredentials:
    return OwnCredentials(source, source.clock)


@pytest.mark.parametrize(
    ("lifetime", "ahead"), [(43200, 900), (3600, 900), (1800, 900), (900, 450), (60, 30)]
)
def test_they_are_renewed_some_minutes_before_their_end_or_after_half_of_a_short_life(
    clock: HandClock, lifetime: float, ahead: float
) -> None:
    source = Source(clock, lifetime)
    credentials = own(source)
    credentials.keys()
    clock.sleep(lifetime - ahead - 0.1)
    assert credentials.keys().access_key == "key 1"
    clock.sleep(0.2)
    assert credentials.keys().access_key == "key 2"
    assert source.asked == [(None, True), ("key 1", False)], "a person is asked at the start only"
    for _ in range(100):
        credentials.keys()
    assert len(source.asked) == 2, "not at each call, as botocore asks in the last 15 minutes"


def test_refusals_get_new_ones_no_more_often_than_every_few_seconds(clock: HandClock) -> None:
    source = Source(clock, None)
    credentials = own(source)
    credentials.keys()
    clock.sleep(10**9)
    assert credentials.keys().access_key == "key 1", "they have no end"
    for _ in range(100):
        credentials.renew()
        clock.sleep(0.1)
        credentials.keys()
    assert len(source.asked) == 5 and source.asked[1] == ("key 1", False)


def test_the_first_failure_is_the_callers_later_ones_leave_what_there_is(
    clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source(clock, 100)
    source.error = FileNotFoundError("no such program")
    credentials = own(source)
    with pytest.raises(FileNotFoundError):
        credentials.keys()
    source.error = None
    assert credentials.keys().access_key == "key 2"
    source.error = ConnectionError("STS\nis away")
    clock.sleep(60)
    for _ in range(40):
        assert credentials.keys().access_key == "key 2"
        clock.sleep(1)
    clock.sleep(30)
    with pytest.raises(CredentialsError, match="no new AWS credentials: STS is away"):
        credentials.keys()
    assert caplog.messages == ["Can't renew the AWS credentials, trying again: STS is away"] * 2
    source.error = None
    clock.sleep(30)
    assert credentials.keys().access_key == f"key {len(source.asked)}"


def test_a_loop_is_not_kept_waiting_and_a_fork_waits_for_the_thread(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watcher.aws.credentials.SETTLE_SECONDS", 0.01)
    source = Source(clock)
    credentials = own(source)
    credentials.keys()
    clock.sleep(3500)
    source.may_go.clear()
    credentials.renew_expiring()
    credentials.renew_expiring()
    assert credentials.keys().access_key == credentials.newest().access_key == "key 1"
    with pytest.raises(OSError, match="still waiting for new AWS credentials"):
        credentials.wait_for_thread()
    source.may_go.set()
    settle(credentials)
    assert credentials.keys().access_key == credentials.newest().access_key == "key 2"
    credentials.renew_expiring()
    assert len(source.asked) == 2


def settle(credentials: OwnCredentials) -> None:
    for _ in range(1000):
        with contextlib.suppress(OSError):
            return credentials.wait_for_thread()
    raise AssertionError("its thread is still at work")


def test_the_newest_are_renewed_where_they_were_refused_and_older_ones_are_not(
    clock: HandClock,
) -> None:
    """Of forty workers some hear of new ones only after they were refused with the old ones."""
    source = Source(clock)
    credentials = own(source)
    credentials.keys()
    clock.sleep(10)
    credentials.were_refused("key 1")
    credentials.were_refused("key 1")
    credentials.renew_expiring()
    settle(credentials)
    assert credentials.newest().access_key == "key 2"
    clock.sleep(10)
    credentials.were_refused("key 1")
    credentials.renew_expiring()
    settle(credentials)
    assert source.asked[1:] == [("key 1", False)]


def test_a_worker_uses_what_it_is_given_and_tells_which_it_has_used(clock: HandClock) -> None:
    credentials = WorkerCredentials(Keys("key 1", "secret"))
    refused: list[str] = []
    credentials.on_refusal = refused.append
    assert credentials.keys().access_key == "key 1"
    credentials.take(Keys("key 2", "secret"))
    credentials.renew()
    assert credentials.keys().access_key == "key 2"
    credentials.renew()
    assert refused == ["key 1", "key 2"]


def test_they_can_go_nowhere_but_to_a_child_and_into_no_text() -> None:
    keys = Keys("AKID", "the secret", "the token")
    shared = WorkerCredentials(keys)
    with pytest.raises((RuntimeError, TypeError)):
        pickle.dumps(shared)
    for text in (repr(keys), f"{keys}", repr(vars(shared)), repr(NewCredentials(keys))):
        assert "the secret" not in text and "the token" not in text


def test_what_was_handed_is_used_until_its_end_or_refused_then_the_machines_own(
    clock: HandClock,
) -> None:
    source = Source(clock)
    handed = own(source)
    first = Keys("handed 1", "secret", expires=clock.time() + 100)
    handed.take(first)
    assert handed.keys() is first and source.asked == []
    clock.sleep(101)
    assert handed.keys().access_key == "key 1"
    second = Keys("handed 2", "secret")
    handed.take(second)
    assert handed.keys() is second
    handed.renew()
    assert handed.keys().access_key == "key 2"
    handed.take(second)  # with the next task of the same plan
    assert handed.keys().access_key == "key 2"
    handed.take(Keys("handed 3", "secret"))
    assert handed.keys().access_key == "handed 3"


HERE = {
    "AWS_ACCESS_KEY_ID": "AKIAREADER",
    "AWS_SECRET_ACCESS_KEY": "secret of the reader",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:8000",
}


THERE = {
    "AWS_ACCESS_KEY_ID": "AKIAWRITER",
    "AWS_SECRET_ACCESS_KEY": "another",
    "AWS_PROFILE": "writer",
    "AWS_DEFAULT_REGION": "us-west-2",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    "AWS_CONFIG_FILE": "/nowhere",
    "AWS_ROLE_ARN": "arn:aws:iam::1:role/writer",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere",
}


def test_what_a_handler_does_to_the_environment_changes_no_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is about to write to another account."""
    for name, value in HERE.items():
        monkeypatch.setenv(name, value)
    connection = AwsConfig.here()
    for name, value in THERE.items():
        monkeypatch.setenv(name, value)
    assert own_credentials(connection, None).keys().access_key == "AKIAREADER"
    client = StreamsClient(connection)
    assert client.region == "eu-west-1"
    assert client.api.meta.endpoint_url == HERE["AWS_ENDPOINT_URL"]
    client.close()


def test_an_environment_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret of the reader")
    assert "secret of" not in repr(AwsConfig.here())
    assert hash(AwsConfig.here()) == hash(AwsConfig.here())
    assert pickle.loads(pickle.dumps(AwsConfig.here())) == AwsConfig.here()
