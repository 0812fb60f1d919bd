"""What a policy allows is what the command calls, and no more."""

import json

import pytest

from tests.simulator import Simulator
from watcher import cli
from watcher.errors import UsageError

STREAM = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders/stream/2026-11-21T08:00:00.000"


def policy(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, list[str]]]:
    """The statements by their ids."""
    capsys.readouterr()
    assert cli.main(["policy", *words]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["Version"] == "2012-10-17"
    return {each["Sid"]: each for each in document["Statement"]}


def actions(statements: dict[str, dict[str, list[str]]]) -> set[str]:
    return {
        action.removeprefix("dynamodb:")
        for each in statements.values()
        for action in each["Action"]
    }


def test_a_stream_named_by_its_arn_takes_three_calls_of_this_stream_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    statements = policy(capsys, STREAM)
    assert [*statements] == ["ReadTheStream"]
    assert statements["ReadTheStream"]["Resource"] == [STREAM]
    assert actions(statements) == {"DescribeStream", "GetRecords", "GetShardIterator"}


@pytest.mark.parametrize(
    ("words", "resource"),
    [
        (["orders"], "arn:aws:dynamodb:*:*:table/orders"),
        (["orders", "--region", "cn-north-1"], "arn:aws-cn:dynamodb:cn-north-1:*:table/orders"),
        (["orders", "--account", "123456789012"], "arn:aws:dynamodb:*:123456789012:table/orders"),
        (["shop-[ab]*"], "arn:aws:dynamodb:*:*:table/shop-?*"),
        (["--all"], "arn:aws:dynamodb:*:*:table/*"),
        ([STREAM.partition("/stream")[0]], STREAM.partition("/stream")[0]),
    ],
)
def test_tables_are_named_as_far_as_they_are_known(
    words: list[str], resource: str, capsys: pytest.CaptureFixture[str]
) -> None:
    statements = policy(capsys, *words)
    assert statements["AskTheTable"]["Resource"] == [resource]
    assert statements["ReadTheStream"]["Resource"] == [f"{resource}/stream/*"]


@pytest.mark.parametrize(
    ("place", "calls", "resource"),
    [
        ("sqs://dead", ["sqs:GetQueueUrl", "sqs:SendMessage"], "arn:aws:sqs:*:*:dead"),
        ("sqs://arn:aws:sqs:eu-west-1:1:q", None, "arn:aws:sqs:eu-west-1:1:q"),
        ("s3://dead/of/orders", ["s3:PutObject"], "arn:aws:s3:::dead/of/orders/*"),
        ("s3://dead", ["s3:PutObject"], "arn:aws:s3:::dead/*"),
    ],
)
def test_dead_letters_take_what_their_place_asks_for(
    place: str, calls: list[str] | None, resource: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for policy_text in (f"dead-letter:{place}", f"retry:15m,dead-letter:{place}"):
        statement = policy(capsys, STREAM, "--on-error", policy_text)["KeepDeadLetters"]
        assert statement["Resource"] == [resource]
        assert calls is None or statement["Action"] == calls
    assert "KeepDeadLetters" not in policy(capsys, STREAM, "--on-error", "dead-letter:file")


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (["shop-*"], {"ListStreams"}),
        (["--tag", "env=prod"], {"ListStreams", "ListTagsOfResource"}),
        (["orders", "--snapshot"], {"Scan"}),
        (["orders", "--on-stale", "snapshot"], {"Scan"}),
        (["orders", "--snapshot-export", "s3://lake/x/AWSDynamoDB/1"], {"s3:GetObject"}),
        (
            [
                "orders",
                "--print-json",
                "--max-records=5",
                "--metrics-port",
                "9464",
                "--concurrency=3",
            ],
            set(),
        ),
        (["orders", "--sqs", "https://sqs.eu-west-1.amazonaws.com/1/q"], {"sqs:SendMessage"}),
        (["orders", "--sqs", "q"], {"sqs:GetQueueUrl", "sqs:SendMessage"}),
        (["orders", "--checkpoint", "dynamodb://leases/a"], {"CreateTable", "GetItem", "PutItem"}),
        (["orders", "--checkpoint", "file.json"], set()),
        (["orders", "--for", "undo"], {"DescribeTimeToLive"}),
        (["orders", "--for", "verify"], {"Scan"}),
        (
            ["orders", "--for", "undo-apply"],
            {"DescribeTimeToLive", "GetItem", "PutItem", "DeleteItem"},
        ),
    ],
)
def test_options_need_what_they_call(
    words: list[str], more: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    usual = {"DescribeStream", "GetRecords", "GetShardIterator", "DescribeTable"}
    assert actions(policy(capsys, *words)) == usual | more


@pytest.mark.parametrize(
    ("queue", "resource"),
    [
        ("https://sqs.eu-west-1.amazonaws.com/123456789012/q", "eu-west-1:123456789012:q"),
        ("q.fifo", "us-east-1:*:q.fifo"),
    ],
)
def test_a_queue_is_named_too(
    queue: str, resource: str, capsys: pytest.CaptureFixture[str]
) -> None:
    statements = policy(capsys, "orders", "--region", "us-east-1", "--sqs", queue)
    assert statements["SendMessages"]["Resource"] == [f"arn:aws:sqs:{resource}"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("watch", "orders --from trim-horizon --no-follow"),
        ("watch", "ARN --from trim-horizon --no-follow"),
        ("history", "history orders --key PK=user-1"),
        ("as-of", "as-of orders 1s"),
        ("count", "count orders --by kind"),
        ("undo", "undo orders --from 1s"),
    ],
)
def test_it_allows_what_is_called(
    name: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Simulator(table="orders", key_names=("PK",)) as sim:
        sim.replicate("expires")
        sim.put({"PK": {"S": "user-1"}})
        place = ["--region", "us-east-1", "--endpoint-url", sim.endpoint]
        stream = sim.stream_arn if "ARN" in words else "orders"
        assert cli.main([*words.replace("ARN", stream).split(), *place]) in (0, 2)
        called = {*sim.calls}
    assert called <= actions(policy(capsys, stream, "--for", name))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "give a stream"),
        (["orders", "--for", "replicate"], "--to: give the table that it writes to"),
        (["orders", "--for", "x"], "--for x: use watch"),
    ],
)
def test_what_can_not_be_is_said(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["policy", *words]) == UsageError.exit_status
    assert capsys.readouterr().err.startswith(f"error: {told}")
