"""Who made a change: never a guess dressed as a fact."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support import trails
from tests.support.trails import ACCOUNT, ARN, Event, role
from watcher import Record
from watcher.aws.trail_events import REPLICATION, Caller, calls_in
from watcher.time_machine.callers import (
    APART,
    AT_THE_EDGE,
    NO_CALL,
    REDACTED,
    TTL,
    Answer,
    Callers,
    Certainty,
    TimedCall,
    join,
)

SECOND = 1_795_377_845
STREAM = f"{ARN}/stream/2026-11-01T00:00:00.000"
KEY = {"PK": {"S": "ada"}, "SK": {"S": "order-7"}}


def change(second: float = SECOND, kind: str = "MODIFY", **more: Any) -> Record:
    inner = {
        "ApproximateCreationDateTime": second,
        "Keys": more.pop("key", KEY),
        "SequenceNumber": "1",
        "StreamViewType": "KEYS_ONLY",
    }
    record = {"eventID": "e", "eventName": kind, "dynamodb": inner, **more}
    return Record.from_json(json.dumps(record).encode(), "shard", STREAM)


def found(
    events: Iterable[Event], *changes: Record, callers: Callers | None = None
) -> list[Answer]:
    callers = callers or Callers()
    noted = [callers.add_change(each) for each in changes]
    for call in calls_in(trails.content(*events), callers.tables):
        callers.add_call(call)
    return [callers.answer(each) for each in noted]


def moment(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def names(answer: Answer) -> list[str]:
    return [each.name for each in answer.callers]


RELEASE = trails.put(SECOND, by=role("release-112"), requestID="R1")
SHORT = {"type": "AWSAccount", "principalId": "AROAX:ci", "accountId": ACCOUNT}
SECRET = "INSERT INTO orders VALUE {'PK': ***(Redacted), 'SK': ***(Redacted)}"
REPLICATING = role("AWSServiceRoleForDynamoDBReplication", path=trails.REPLICATING)
FAILED = trails.put(SECOND, by=role("x"), errorCode="ConditionalCheckFailedException")
ANSWERS: dict[str, tuple[list[Event], Certainty, list[str], str]] = {
    "two seconds before": ([trails.put(SECOND - 2)], Certainty.CERTAIN, ["role/api bob"], ""),
    "two seconds after": ([trails.put(SECOND + 2)], Certainty.CERTAIN, ["role/api bob"], ""),
    "too early": ([trails.put(SECOND - 3)], Certainty.UNKNOWN, [], NO_CALL),
    "too late": ([trails.put(SECOND + 3)], Certainty.UNKNOWN, [], NO_CALL),
    "sessions of a role": (
        [trails.put(SECOND), trails.put(SECOND, by=role("api", "two"))],
        *(Certainty.CERTAIN, ["role/api "], ""),
    ),
    "failed": ([FAILED], Certainty.UNKNOWN, [], NO_CALL),
    "another failed": ([FAILED, trails.put(SECOND)], Certainty.CERTAIN, ["role/api bob"], ""),
    "the service's error": (
        [trails.put(SECOND, errorCode="InternalServerError")],
        *(Certainty.MAY_BE, ["role/api bob"], "the call ended with InternalServerError"),
    ),
    "redacted": (
        [trails.statement(SECOND, SECRET)],
        *(Certainty.MAY_BE, ["role/api bob"], REDACTED),
    ),
    "another redacted": (
        [trails.statement(SECOND, SECRET, by=role("console")), trails.put(SECOND)],
        *(Certainty.SEVERAL, ["role/api bob", "role/console bob"], "2 callers within 2 s"),
    ),
    "in two trails, with the fuller name": (
        [RELEASE, {**RELEASE, "userIdentity": SHORT}],
        *(Certainty.CERTAIN, ["role/release-112 bob"], ""),
    ),
    "in two trails, the fuller name last": (
        [{**RELEASE, "userIdentity": SHORT}, RELEASE],
        *(Certainty.CERTAIN, ["role/release-112 bob"], ""),
    ),
    "replication": (
        [trails.put(SECOND, by=REPLICATING)],
        *(Certainty.CERTAIN, [f"{REPLICATION} bob"], ""),
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_who_made_a_change(case: str) -> None:
    events, certainty, callers, reason = ANSWERS[case]
    (answer,) = found(events, change())
    told = [f"{each.name} {each.session}" for each in answer.callers]
    assert (answer.certainty, told, answer.reason) == (certainty, callers, reason)
    assert all(each.address == "203.0.113.9" for each in answer.callers)


def test_a_call_in_two_trails_does_not_explain_two_changes() -> None:
    assert found([RELEASE, RELEASE], change(), change())[0].certainty is Certainty.MAY_BE


@pytest.mark.parametrize(
    ("call", "start", "until", "is_certain"),
    [
        (0, -2, 2, True),
        (0, -1, None, False),
        (1, -1, None, True),
        (2, 0.5, None, False),
        (0, None, 1, False),
        (-1, None, 1, True),
        (-1, None, 1.9, True),
    ],
)
def test_a_call_that_may_have_made_a_change_that_was_not_read_is_uncertain(
    call: int, start: float | None, until: float | None, is_certain: bool
) -> None:
    times = [None if at is None else moment(SECOND + at) for at in (start, until)]
    (answer,) = found([trails.put(SECOND + call)], change(), callers=Callers("", *times))
    assert (answer.certainty is Certainty.CERTAIN) == is_certain
    assert answer.reason == ("" if is_certain else AT_THE_EDGE)


def test_a_removal_is_not_by_who_has_put_and_a_change_not_by_who_has_deleted() -> None:
    events = [trails.delete(SECOND, by=role("cleaner")), trails.put(SECOND, by=role("api"))]
    removal, insert = found(events, change(kind="REMOVE"), change(kind="INSERT"))
    assert (removal.certainty, names(removal)) == (Certainty.CERTAIN, ["role/cleaner"])
    assert (insert.certainty, names(insert)) == (Certainty.CERTAIN, ["role/api"])


def test_roles_of_one_name_in_two_accounts_are_two() -> None:
    events = [trails.put(SECOND), trails.put(SECOND, by=role("api", account="999999999999"))]
    (answer,) = found(events, change())
    assert answer.certainty is Certainty.SEVERAL
    assert [each.account for each in answer.callers] == [ACCOUNT, "999999999999"]
    assert answer.names == f"{ACCOUNT}:role/api or 999999999999:role/api"
    # An archive's record may not tell the table's account.
    assert answer.text().startswith(f"by {ACCOUNT}:role/api (")


def test_time_to_live_is_a_caller_of_its_own() -> None:
    identity = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
    by_ttl = change(kind="REMOVE", userIdentity=identity)
    assert found([trails.delete(SECOND)], by_ttl) == [Answer(Certainty.CERTAIN, (TTL,))]


def test_number_keys_are_equal_by_value_and_texts_by_text() -> None:
    key = {"PK": {"N": "1.0"}, "SK": {"S": "1.0"}}
    events = [trails.put(SECOND, key={"PK": 1, "SK": "1.0"})]
    assert found(events, change(key=key))[0].certainty is Certainty.CERTAIN
    events = [trails.put(SECOND, key={"PK": 1, "SK": "1"})]
    assert found(events, change(key=key))[0].certainty is Certainty.UNKNOWN


def test_a_change_without_a_time_has_no_caller() -> None:
    wire = {"eventName": "MODIFY", "dynamodb": {"Keys": KEY, "SequenceNumber": "1"}}
    record = Record.from_json(json.dumps(wire).encode(), "shard", STREAM)
    assert found([], record)[0] == Answer(Certainty.UNKNOWN, (), "the change has no time")


# The world: writers, calls that change nothing, clocks apart; and a trail that holds all of it.

_ROLES = "api", "cron", "release"
_call = st.tuples(
    st.floats(0, 12),  # when
    st.sampled_from(_ROLES),
    st.booleans(),  # removes
    st.booleans(),  # changes something
    st.booleans(),  # redacted
    st.floats(-APART, APART),  # how far the trail's clock is from the stream's
)


@given(st.lists(_call, max_size=12))
@example([(0.9, "api", False, True, False, -1.95), (4.0, "cron", False, True, False, 0.0)])
def test_with_a_whole_trail_certain_is_true_and_the_caller_is_always_named(
    world: list[tuple[float, str, bool, bool, bool, float]],
) -> None:
    for removes in (False, True):
        calls = [
            TimedCall(int(100 + when + apart), Caller(who), deletes, REDACTED if redacted else "")
            for when, who, deletes, _, redacted, apart in world
        ]
        made = [
            (int(100 + when), who)
            for when, who, deletes, changes, *_ in world
            if changes and deletes is removes
        ]
        answers = dict(join([second for second, _ in made], calls, removes=removes))
        for second, who in made:
            answer = answers[second]
            assert who in names(answer)
            if answer.certainty in (Certainty.CERTAIN, Certainty.MAY_BE):
                assert names(answer) == [who]
