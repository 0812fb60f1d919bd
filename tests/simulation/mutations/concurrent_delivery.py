"""Wrong edits of how several shards' records are handled at once."""

from types import MappingProxyType

from tests.simulation.mutations.edits import after, condition, guard, returned, without
from tests.simulation.mutations.mutant import Mutant

_HANDS = MappingProxyType({"concurrency": 3, "slow": 0.3, "slow_share": 0.3})

CONCURRENT_DELIVERY = [
    Mutant(
        "a shard's end is heard while its records are still handled",
        "ConcurrentDelivery._ends_behind_records",
        condition("is_empty", becomes="True"),
        "processes",
        _HANDS,
    ),
    Mutant(
        "two work for the same shard",
        "ConcurrentDelivery._add",
        guard("submit", becomes="True"),
        "processes",
        _HANDS,
    ),
    Mutant(
        "a position moves as a record is begun",
        "ConcurrentDelivery._deliver",
        after(
            "in_hand",
            nth=0,
            do="{object}.last = {object}.in_hand[0].sequence_number, None",
        ),
        "processes",
        _HANDS,
    ),
    Mutant(
        "a handler that hangs holds all shards",
        "ConcurrentDelivery.has_room",
        returned("_bytes", becomes="not self._is_at_work"),
        "processes",
        MappingProxyType({"concurrency": 3, "events": ["a handler hangs"]}),
    ),
    Mutant(
        "nobody says that a handler hangs",
        "HealthChecker._check_handlers",
        without("add", nth=0),
        "processes",
        MappingProxyType({"concurrency": 3, "events": ["a handler hangs"]}),
    ),
    Mutant(
        "items are read while changes are at work",
        "TableSnapshots.next",
        condition("reserve", becomes="False"),
        "processes",
        MappingProxyType({**_HANDS, "snapshot": True, "before": 60}),
    ),
    Mutant(
        "a handler's failure that is to stop the watch does not",
        "ConcurrentDelivery._turn",
        without("_error"),
        "processes",
        MappingProxyType({"concurrency": 3, "on_error": "stop", "failing": 0.1}),
    ),
]
