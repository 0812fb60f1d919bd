import pytest

from tests.simulator import Simulator
from tests.simulator.errors import NO_ANSWERS
from watcher.aws.client import StreamsClient
from watcher.aws.config import AwsConfig
from watcher.aws.model import Latest, TrimHorizon
from watcher.errors import (
    CredentialsError,
    DeniedError,
    ExpiredIteratorError,
    ShardNotFoundError,
    StreamError,
    TransientError,
    TrimmedDataError,
    UnexpectedAnswerError,
)
from watcher.records import page


def client(sim: Simulator) -> StreamsClient:
    return StreamsClient(AwsConfig("us-east-1", endpoint_url=sim.endpoint))


@pytest.mark.parametrize("honoured", [True, False])
def test_children_are_those_of_the_shard_whether_or_not_the_filter_is_known(
    simulator: Simulator, honoured: bool
) -> None:
    simulator.set_faults(child_filter=honoured)
    parent = simulator.open_shards[0]
    children = simulator.split(parent)
    simulator.rotate(children[0])
    found = client(simulator).list_children(simulator.stream_arn, parent)
    assert {shard.id for shard in found} == set(children)


MEANINGS = {
    ExpiredIteratorError: "ExpiredIteratorException",
    TrimmedDataError: "TrimmedDataAccessException",
    ShardNotFoundError: "ResourceNotFoundException",
    TransientError: "LimitExceededException ThrottlingException InternalServerError unavailable "
    "reset reset-midway truncate invalid-json status-408 status-429 status-500",
    DeniedError: "AccessDeniedException",
    CredentialsError: "ExpiredTokenException UnrecognizedClientException",
    UnexpectedAnswerError: "status-204 status-301 status-307 status-403 status-404 status-407 "
    "status-413 ValidationException UnheardOfException cbor garbage page else",
}


@pytest.mark.parametrize(
    ("code", "error"),
    [(code, error) for error, codes in MEANINGS.items() for code in codes.split()],
)
def test_each_error_of_a_read_means_one_thing(
    simulator: Simulator, code: str, error: type[Exception]
) -> None:
    simulator.write("a")
    streams, shard = client(simulator), simulator.shards[0].id
    iterator, _ = streams.get_iterator(simulator.stream_arn, shard, TrimHorizon())
    simulator.fail_next("GetRecords", code, times=10)
    with pytest.raises(error):
        page.decode(streams.get_records(iterator))


@pytest.mark.parametrize("operation", ["DescribeStream", "GetShardIterator", "ListStreams"])
@pytest.mark.parametrize("trouble", ["truncate", "invalid-json", "else", *NO_ANSWERS])
def test_a_cut_off_answer_is_never_taken_for_an_empty_one(
    simulator: Simulator, operation: str, trouble: str
) -> None:
    streams, shard = client(simulator), simulator.shards[0].id
    simulator.fail_next(operation, trouble, times=10)
    with pytest.raises((UnexpectedAnswerError, TransientError, StreamError)):
        match operation:
            case "DescribeStream":
                streams.list_shards(simulator.stream_arn)
            case "GetShardIterator":
                streams.get_iterator(simulator.stream_arn, shard, Latest())
            case "ListStreams":
                list(streams.list_streams())


def test_the_arns_region_counts_before_the_environments_and_after_an_explicit_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-1")
    assert StreamsClient(AwsConfig(), "eu-west-3").region == "eu-west-3"
    assert StreamsClient(AwsConfig("sa-east-1"), "eu-west-3").region == "sa-east-1"
    assert StreamsClient(AwsConfig()).region == "us-west-1"
    local = AwsConfig(endpoint_url="http://127.0.0.1:1")
    assert StreamsClient(local, "ddblocal").region == "us-west-1"
    assert StreamsClient(local, "eu-west-3").region == "eu-west-3"
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert StreamsClient(local, "ddblocal").region == "ddblocal"


def test_streams_are_listed_over_all_pages(simulator: Simulator) -> None:
    for number in range(5):
        simulator.add_table(f"table-{number}")
    simulator.set_faults(list_page=2)
    listed = list(client(simulator).list_streams())
    assert {stream.table for stream in listed} == {"orders", *(f"table-{n}" for n in range(5))}
    (only,) = client(simulator).list_streams("table-3")
    assert only.table == "table-3"
