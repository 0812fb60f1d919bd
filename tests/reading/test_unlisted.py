"""Parents that only their children name."""

from tests.simulator import Faults, Simulator
from watcher.reading.unlisted import without_gaps
from watcher.service.client import StreamsClient
from watcher.service.connection import Connection


def streams(sim: Simulator) -> StreamsClient:
    return StreamsClient(Connection("us-east-1", None, sim.endpoint))


def test_a_listing_that_hides_a_parent_is_waited_for() -> None:
    faults = Faults(listing_lag=1.5, children_first=True)
    with Simulator(shards=1, faults=faults) as sim:
        sim.put({"pk": {"S": "a"}})
        sim.rotate()
        sim.put({"pk": {"S": "b"}})
        sim.rotate()
        client = streams(sim)
        hiding = client.listing(sim.stream_arn).shards

        whole = without_gaps(client, sim.stream_arn).shards

    assert [len(hiding), len(whole)] == [2, 3]


def test_a_parent_that_is_gone_is_not_waited_for() -> None:
    with Simulator(shards=1) as sim:
        sim.put({"pk": {"S": "a"}})
        sim.rotate()
        sim.advance(25 * 3600)
        client = streams(sim)

        (child,) = without_gaps(client, sim.stream_arn).shards

    assert child.parent is not None
