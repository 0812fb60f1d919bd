"""The simulated client says what a real one would."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.simulation.scenario import Scenario
from tests.simulation.universe import Universe
from watcher.aws.model import TrimHorizon

_SLEEP = timedelta(hours=25)


def test_an_answer_that_comes_after_a_day_of_sleep_has_the_date_of_when_it_was_given() -> None:
    universe = Universe(Scenario(0, "stream", habits={"latency": 0.08}), None)
    arn = universe.table.stream.arn

    def sleeps(seconds: float) -> None:
        """The machine does, while an answer is on its way."""
        if seconds:
            universe.world.advance(_SLEEP.total_seconds())

    client = universe.client(sleeps)
    asked_at = datetime.fromtimestamp(int(universe.world.now()), UTC)
    listing = client.list_shards(arn)
    _, began_at = client.get_iterator(arn, listing.shards[0].id, TrimHorizon())
    assert (listing.time, began_at) == (asked_at, asked_at + _SLEEP)
