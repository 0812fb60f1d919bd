"""`watch(tail=N)`: exactly the last N changes, and then all that come."""

from pathlib import Path
from typing import Any

from tests.simulator import Simulator, judge
from watcher import watch

SHARDS = 4


def see(sim: Simulator, count: int, **settings: Any) -> list[str]:
    """The numbers of what comes."""
    seen: list[str] = []
    settings = {"follow": False, **settings}
    observe = settings.pop("observe", lambda record: None)

    def note(record: Any) -> None:
        seen.append(record.sequence_number)
        observe(record)

    watch("orders", [note], tail=count, region="us-east-1", endpoint_url=sim.endpoint, **settings)
    return seen


def spread(sim: Simulator, count: int) -> None:
    """Changes over all shards, each in a second of its own."""
    for number in range(count):
        sim.write(f"key-{number % 13}")
        sim.advance(1)


def test_what_comes_meanwhile_and_later_follows_once(sim: Simulator) -> None:
    spread(sim, 20)
    more = iter(range(12))

    def go_on(record: Any) -> None:
        if next(more, None) is not None:
            sim.write("key-1")

    seen = see(sim, 6, follow=True, max_records=18, observe=go_on)
    assert not any(judge(sim.records[-18:], seen))


def test_a_checkpoint_that_exists_goes_before_it(sim: Simulator, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    spread(sim, 10)
    first = see(sim, 4, checkpoint=file, max_records=1)
    rest = see(sim, 2, checkpoint=file)
    assert not any(judge(sim.records[-4:], first + rest))
