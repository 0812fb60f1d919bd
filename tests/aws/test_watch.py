"""The command line against the fake AWS: every call signed, everything asked for once."""

import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.program import Program, run
from tests.support.terminal import Terminal

from .accounts import MFA_SERIAL, ROLE
from .fake import FakeAWS

pytestmark = pytest.mark.proof

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCY"
WATCH = [sys.executable, "-m", "watcher"]


def role(home: Path, more: str = "") -> None:
    (home / ".aws" / "config").write_text(
        f"[default]\nrole_arn = {ROLE}\nsource_profile = base\n{more}\n"
    )
    login(home, "base")


def login(home: Path, profile: str, token: str = "", key: str = KEY, secret: str = SECRET) -> None:
    text = f"[{profile}]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n"
    if token:
        text += f"aws_session_token = {token}\n"
    (home / ".aws" / "credentials").write_text(text)


def refused(aws: FakeAWS) -> list[str]:
    return [seen.refused for seen in aws.requests if seen.refused]


STARTED = pytest.mark.parametrize(
    "started", [[], ["--metrics-port", "0"]], ids=["forked", "served"]
)


def test_with_mfa_one_is_asked_once_on_the_terminal_and_not_by_the_next_program(
    aws: FakeAWS, tmp_path: Path
) -> None:
    role(tmp_path, f"mfa_serial = {MFA_SERIAL}")
    aws.table.bulk(40)
    arguments = [*WATCH, aws.table.table_arn, "--from", "trim-horizon", "--no-follow", "-ps"]
    with Terminal(*arguments, env={}) as terminal:
        terminal.wait_for(lambda: b"Enter MFA code for" in terminal.written)
        terminal.press(b"123456\n")
        assert terminal.end() == 0
        shown = "\n".join(terminal.shown)
    assert shown.count("Enter MFA code") == 1
    assert "Done: 40 records" in shown
    again = run(*arguments[3:], env={})
    assert again.status == 0 and len(again.out) == 40
    assert aws.accounts.calls["AssumeRole"] == 1
    assert refused(aws) == []


def test_a_wrong_code_ends_it_at_once(aws: FakeAWS, tmp_path: Path) -> None:
    said = "AWS refused the MFA code: mistyped, or used before (each is good once)"
    role(tmp_path, f"mfa_serial = {MFA_SERIAL}")
    with Terminal(*WATCH, "orders", env={}) as terminal:
        terminal.wait_for(lambda: b"Enter MFA code for" in terminal.written)
        terminal.press(b"000000\n")
        assert terminal.end() == 3
        shown = "".join(terminal.shown)
    assert shown.partition(MFA_SERIAL)[2].startswith(f":error: {said}"), "and nothing else"


@STARTED
def test_a_role_is_assumed_once_a_renewal_for_all_shards(
    aws: FakeAWS, tmp_path: Path, started: list[str]
) -> None:
    role(tmp_path)
    aws.accounts.lifetime = timedelta(seconds=8)  # renewed after half of it
    words = [aws.table.stream_arn, "-v", "--poll-max", "0.1", *started]
    with Program(*words, env={}) as program:
        program.wait_for_status("Watching 4 shards")
        eventually(lambda: len(aws.signed_by("GetRecords")) >= 3)
        assert program.end() == 0
    assert refused(aws) == []
    assert aws.accounts.calls["AssumeRole"] <= len(aws.signed_by("GetRecords")) + 1
    said = "\n".join(program.err)
    for keys in aws.accounts.issued.values():
        assert keys.secret not in said and (keys.token or keys.secret) not in said


@STARTED
def test_whoever_logs_in_again_is_noticed_and_nothing_is_lost(
    aws: FakeAWS, tmp_path: Path, started: list[str]
) -> None:
    key, keys = aws.accounts.issue("role")
    login(tmp_path, "default", keys.token or "", key, keys.secret)
    arguments = [aws.table.stream_arn, "-ps", "--poll-max", "0.1", *started]
    with Program(*arguments, env={}) as program:
        program.wait_for_status("Watching 4 shards")
        aws.table.write("a")
        program.wait_for_lines(1)
        aws.accounts.expire()
        aws.table.write("b")
        program.wait_for_status("All shards: 4 failures in a row: AWS refused the credentials")
        key, keys = aws.accounts.issue("role")
        login(tmp_path, "default", keys.token or "", key, keys.secret)
        program.wait_for_lines(2)
        assert program.end() == 0
    assert "pk=b" in program.out[1]
    warnings = [line for line in program.err if line.startswith("warning: ")]
    assert len(warnings) <= 3, "one for all shards, one or two for the listing"
