"""Which stream of a table is read: never another account's, and also without DescribeTable."""

import logging

import pytest

from tests.simulator import Simulator
from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.errors import StreamError

ELSEWHERE = "999999999999"


def connection(sim: Simulator) -> AwsConfig:
    return AwsConfig("us-east-1", endpoint_url=sim.endpoint)


def of(sim: Simulator, text: str) -> str:
    return connect(text, connection(sim))[1]


@pytest.mark.parametrize("table_arns", ["stripped", "refused", "honoured"])
@pytest.mark.parametrize(
    ("ours", "theirs"), [("123456789012", ELSEWHERE), (":us-east-1:", ":eu-west-1:")]
)
def test_an_answer_of_another_account_or_region_is_refused(
    simulator: Simulator, table_arns: str, ours: str, theirs: str
) -> None:
    simulator.set_faults(table_arns=table_arns)
    asked = simulator.table_arn.replace(ours, theirs)
    with pytest.raises(StreamError, match=f"no table '{asked}'"):
        of(simulator, asked)
    assert of(simulator, simulator.table_arn) == simulator.stream_arn


@pytest.mark.parametrize("name", ["table_name", "table_arn"])
def test_without_permission_to_describe_tables_the_newest_stream_is_listed(
    simulator: Simulator, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    newest = simulator.enable_new_stream()
    simulator.set_faults(auth_error="AccessDeniedException", auth_operations=("DescribeTable",))
    simulator.add_table("orders-2")
    caplog.set_level(logging.DEBUG, "watcher")
    assert of(simulator, getattr(simulator, name)) == newest
    assert f"DescribeTable is not allowed; ListStreams names {newest}" in caplog.messages


def test_without_permission_our_own_table_is_not_taken_for_another_accounts(
    simulator: Simulator,
) -> None:
    theirs = simulator.add_foreign_table("orders", ELSEWHERE).partition("/stream/")[0]
    simulator.set_faults(auth_error="AccessDeniedException", auth_operations=("DescribeTable",))
    with pytest.raises(StreamError, match=f"no permission.*no stream of {theirs}"):
        of(simulator, theirs)


@pytest.mark.parametrize("naming", ["aws", "alternator", "alternator-kcl"])
def test_a_stream_is_found_by_all_its_names_and_is_never_another_accounts(naming: str) -> None:
    with Simulator(naming=naming) as sim:
        if naming == "aws":
            theirs = sim.add_foreign_table("orders", ELSEWHERE)
            assert of(sim, theirs.partition("/stream/")[0]) == theirs
        for table_arns in ("refused", "honoured"):
            sim.set_faults(table_arns=table_arns)
            for text in (sim.table_name, sim.table_arn, sim.stream_arn):
                assert of(sim, text) == sim.stream_arn


def test_a_table_that_is_not_there_is_told_the_nearest_with_a_stream(simulator: Simulator) -> None:
    for asked in ("oders", "Orders", "orders2"):
        with pytest.raises(StreamError, match=f"'{asked}' in us-east-1: did you mean 'orders'"):
            of(simulator, asked)
    simulator.delete_stream()
    with pytest.raises(StreamError, match=r"has no stream; enable one: .*StreamEnabled=true"):
        of(simulator, "orders")
    with pytest.raises(StreamError, match="no table 'invoices' in us-east-1: check the name"):
        of(simulator, "invoices")
    simulator.set_faults(auth_error="AccessDeniedException", auth_operations=("ListStreams",))
    with pytest.raises(StreamError, match="no table 'oders' in us-east-1: check the name"):
        of(simulator, "oders")
