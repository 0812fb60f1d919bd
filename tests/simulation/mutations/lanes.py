"""Wrong edits of how several shards' records are handled at once."""

from types import MappingProxyType

from tests.simulation.mutations.mutant import Mutant

_HANDS = MappingProxyType({"concurrency": 3, "slow": 0.3, "slow_share": 0.3})

LANES = [
    Mutant(
        "a shard's end is heard while its records are still handled",
        "delivery/concurrent.py",
        "        if lane is None or not (lane.is_taken or lane.jobs or lane.later):",
        "        if True:",
        "processes",
        _HANDS,
    ),
    Mutant(
        "two work for the same shard",
        "delivery/concurrent.py",
        "        if not is_taken:",
        "        if True:",
        "processes",
        _HANDS,
    ),
    Mutant(
        "a position moves as a record is begun",
        "delivery/concurrent.py",
        "                lane.in_hand = record, monotonic()\n",
        "                lane.in_hand = record, monotonic()\n"
        "                lane.last = record.sequence_number, None\n",
        "processes",
        _HANDS,
    ),
    Mutant(
        "a handler that hangs holds all shards",
        "delivery/concurrent.py",
        "        if self._bytes >= _BYTES + self._hands.count * 2 * _LANE_BYTES:\n",
        "        if self.at_work:\n",
        "processes",
        MappingProxyType({"concurrency": 3, "events": ["a handler hangs"]}),
    ),
    Mutant(
        "nobody says that a handler hangs",
        "runtime/health.py",
        "                stands.add(_name(origin), now - max(since, tried))\n",
        "                pass\n",
        "processes",
        MappingProxyType({"concurrency": 3, "events": ["a handler hangs"]}),
    ),
    Mutant(
        "items are read while changes are at work",
        "runtime/table_snapshots.py",
        "            if not handover.stands_for(snapshot.origin):\n                return None\n",
        "",
        "processes",
        MappingProxyType({**_HANDS, "snapshot": True, "before": 60}),
    ),
    Mutant(
        "an observer's failure that is to stop the watch does not",
        "delivery/concurrent.py",
        "            self._error = self._error or error",
        "            pass",
        "processes",
        MappingProxyType({"concurrency": 3, "on_error": "stop", "failing": 0.1}),
    ),
]
