"""Whatever gives credentials: they are found, once for all readers, and errors are boto3's."""

import json
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from watcher.aws.client import StreamsClient
from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_worker
from watcher.aws.credentials import WorkerCredentials, own_credentials
from watcher.aws.model import TrimHorizon
from watcher.aws.tables import TablesClient
from watcher.errors import StreamError, WatcherError

from .accounts import MFA_SERIAL, ROLE
from .fake import FakeAWS

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCY"
BASE = f"[base]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"


class Place(NamedTuple):
    """Where a set-up is made."""

    aws: FakeAWS
    home: Path
    setenv: Callable[[str, str], None]

    def config(self, text: str, credentials: str = BASE) -> None:
        (self.home / ".aws" / "config").write_text(text)
        (self.home / ".aws" / "credentials").write_text(credentials)

    def role(self, more: str = "source_profile = base") -> None:
        self.config(f"[default]\nrole_arn = {ROLE}\n{more}\n")

    def process(self, answer: str, status: int = 0) -> None:
        """A credential_process, which counts how often it runs."""
        program = self.home / "process"
        runs = self.home / "runs"
        program.write_text(f"#!/bin/sh\necho run >> {runs}\ncat <<'END'\n{answer}\nEND\n")
        with program.open("a") as file:
            file.write(f"echo 'the process says no' >&2\nexit {status}\n")
        program.chmod(0o700)
        self.config(f"[default]\ncredential_process = {program}\n")


@pytest.fixture
def place(aws: FakeAWS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
    return Place(aws, tmp_path, monkeypatch.setenv)


def environment(place: Place) -> None:
    place.setenv("AWS_ACCESS_KEY_ID", KEY)
    place.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def session_in_environment(place: Place) -> None:
    key, keys = place.aws.accounts.issue("env")
    assert keys.token is not None
    place.setenv("AWS_ACCESS_KEY_ID", key)
    place.setenv("AWS_SECRET_ACCESS_KEY", keys.secret)
    place.setenv("AWS_SESSION_TOKEN", keys.token)


def process(place: Place) -> None:
    place.process(json.dumps({"Version": 1, "AccessKeyId": KEY, "SecretAccessKey": SECRET}))


def role(place: Place) -> None:
    place.role()


def web_identity(place: Place) -> None:
    (place.home / "token").write_text(place.aws.accounts.web_token)
    place.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(place.home / "token"))
    place.setenv("AWS_ROLE_ARN", ROLE)


def container(place: Place) -> None:
    for name, value in place.aws.container.items():
        place.setenv(name, value)


def instance(place: Place) -> None:
    """Nothing is set: the machine's own."""


# And whose keys they are: those of a session are numbered.
WORKING: dict[Callable[[Place], None], str] = {
    environment: KEY,
    session_in_environment: "ASIAENV",
    process: KEY,
    role: "ASIAROLE",
    web_identity: "ASIAWEB",
    container: "ASIACONTAINER",
    instance: "ASIAINSTANCE",
}


def by_boto3() -> Any:
    """A client as anybody makes one, that tries once."""
    once = Config(retries={"total_max_attempts": 1})
    return boto3.Session().client("dynamodbstreams", config=once)


@pytest.mark.parametrize("set_up", WORKING)
def test_ten_workers_and_two_loops_ask_no_more_than_one_program_has_to(
    set_up: Callable[[Place], None], place: Place
) -> None:
    set_up(place)
    connection, arn = AwsConfig(), place.aws.table.stream_arn
    first, loop = StreamsClient(connection), StreamsClient(connection)
    list(first.list_streams())
    before = +place.aws.accounts.calls
    assert all(count <= 2 for count in before.values())
    loop.list_shards(arn)
    shared = WorkerCredentials(own_credentials(connection, None).newest())
    for shard in place.aws.table.open_shards:
        worker = for_worker(connection, arn, shared)
        iterator, _ = worker.get_iterator(arn, shard, TrimHorizon())
        worker.get_records(iterator)
    assert +place.aws.accounts.calls == before
    (key,) = place.aws.signed_by("GetRecords")
    assert {key} == place.aws.signed_by("ListStreams") and key.rstrip("0123456789") == WORKING[
        set_up
    ]
    assert not (place.home / "runs").exists() or (place.home / "runs").read_text() == "run\n"


def nothing(place: Place) -> None:
    place.setenv("AWS_EC2_METADATA_DISABLED", "true")


def half(place: Place) -> None:
    place.setenv("AWS_ACCESS_KEY_ID", KEY)


def process_that_fails(place: Place) -> None:
    place.process("", status=3)


def role_refused(place: Place) -> None:
    place.role()
    place.aws.accounts.refuses.add("AssumeRole")


def wrong_secret(place: Place) -> None:
    environment(place)
    place.setenv("AWS_SECRET_ACCESS_KEY", "wrong")


def ended_session(place: Place) -> None:
    session_in_environment(place)
    place.aws.accounts.expire()


FAILING = [nothing, half, process_that_fails, role_refused, wrong_secret, ended_session]


@pytest.mark.parametrize("set_up", FAILING)
def test_what_boto3_fails_on_is_one_line_that_says_the_same(
    set_up: Callable[[Place], None], place: Place
) -> None:
    set_up(place)
    with pytest.raises((BotoCoreError, ClientError, OSError, ValueError)) as theirs:
        by_boto3().list_streams()
    with pytest.raises(WatcherError) as ours:
        list(StreamsClient(AwsConfig()).list_streams())
    text = str(ours.value)
    assert "\n" not in text
    if set_up is nothing:
        assert "no AWS credentials" in text
    else:
        said = str(theirs.value).replace(" (reached max retries: 0)", "")
        assert " ".join(said.split()) in text


def cached(home: Path) -> list[Path]:
    return list((home / ".aws" / "cli" / "cache").glob("*"))


def test_an_assumed_role_is_kept_for_the_next_program_readable_by_its_owner_only(
    place: Place,
) -> None:
    place.role()
    list(StreamsClient(AwsConfig()).list_streams())
    (file,) = cached(place.home)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    place.setenv("AWS_ANOTHER", "program")
    list(StreamsClient(AwsConfig()).list_streams())
    assert place.aws.accounts.calls["AssumeRole"] == 1


def test_what_the_aws_cli_has_got_is_used_and_asks_nobody(place: Place) -> None:
    """As its `assumerole` customization does: the same class, in that folder."""
    from botocore.session import Session
    from botocore.utils import JSONFileCache

    place.role(f"source_profile = base\nmfa_serial = {MFA_SERIAL}")
    cli = Session()
    provider: Any = cli.get_component("credential_provider").get_provider("assume-role")
    provider.cache = JSONFileCache(str(place.home / ".aws" / "cli" / "cache"))
    provider._prompter = lambda prompt: "123456"
    credentials = cli.get_credentials()
    assert credentials is not None
    key = credentials.get_frozen_credentials().access_key
    list(StreamsClient(AwsConfig()).list_streams())
    assert place.aws.signed_by("ListStreams") == {key}
    assert place.aws.accounts.calls["AssumeRole"] == 1


def test_a_kept_session_that_is_refused_is_not_taken_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watcher.aws.credentials.REFUSED_SECONDS", 0.0)
    place.role()
    streams = StreamsClient(AwsConfig())
    list(streams.list_streams())
    place.aws.accounts.expire()  # revoked: by the file it lives on
    streams.renew_credentials()
    list(streams.list_streams())
    assert len(place.aws.signed_by("ListStreams")) == 2


@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "ca_bundle"])
def test_authorities_that_cannot_be_used_are_named_with_what_names_them(
    variable: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment(place)
    monkeypatch.delenv("AWS_CA_BUNDLE")
    for text, words in ((None, "No such file or directory"), ("x", "no certificates in it")):
        file = place.home / "authorities.pem"
        if text is not None:
            file.write_text(text)
        if variable == "ca_bundle":
            place.config(f"[default]\nca_bundle = {file}\n")
        else:
            place.setenv(variable, str(file))
        for make in (StreamsClient, TablesClient):
            with pytest.raises(
                StreamError, match=f"^can't use the authorities in {file}: {words}; see"
            ):
                make(AwsConfig())
            make(AwsConfig(endpoint_url="http://127.0.0.1:9"))  # it asks nobody for one


class SignIn:
    """The sign-in service of `aws login`: its stored keys, and others for its refresh token."""

    def __init__(self, stored_expire_in: float) -> None:
        self.renewed = 0
        self._stored_until = datetime.now(UTC) + timedelta(seconds=stored_expire_in)

    def __call__(self, **fetcher: object) -> "SignIn":
        return self

    def load_cached_credentials(self) -> dict[str, object]:
        return self._keys("stored", self._stored_until)

    def refresh_credentials(self) -> dict[str, object]:
        self.renewed += 1
        return self._keys(f"renewed {self.renewed}", datetime.now(UTC) + timedelta(minutes=15))

    def _keys(self, name: str, until: datetime) -> dict[str, object]:
        keys = dict.fromkeys(("secret_key", "token", "account_id"), "…")
        return {**keys, "access_key": name, "expiry_time": until.isoformat()}


@pytest.mark.parametrize("stored_expire_in", [-60.0, 10.0, 600.0])
def test_keys_of_aws_login_are_renewed_though_its_provider_hands_out_the_stored_ones(
    place: Place, monkeypatch: pytest.MonkeyPatch, stored_expire_in: float
) -> None:
    """https://github.com/aws/aws-cli/issues/9949: they live for 15 minutes."""
    sign_in = SignIn(stored_expire_in)
    monkeypatch.setattr("watcher.aws.credentials.REFUSED_SECONDS", 0.0)
    monkeypatch.setattr("botocore.credentials.LoginCredentialFetcher", sign_in)
    monkeypatch.setattr("botocore.credentials.EC", object())  # awscrt's; the service is played
    place.config("[default]\nlogin_session = arn:aws:iam::123456789012:user/someone\n", "")
    credentials = own_credentials(AwsConfig(), "us-east-1")
    first = credentials.keys().access_key
    assert first == ("stored" if stored_expire_in > 0 else "renewed 1")
    credentials.renew()
    assert credentials.keys().access_key == f"renewed {sign_in.renewed}" != first
