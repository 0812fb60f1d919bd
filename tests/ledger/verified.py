"""One comparison of a copy with a ledger's table, by chance all through, while both are written."""

import json
import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from unittest import mock

from tests.ledger.ledger import DisturbedTables, Item, Ledger
from watcher.aws.model import WireItem
from watcher.time_machine.copied_items import Form
from watcher.time_machine.copies import CopyPosition
from watcher.time_machine.verify import Verification, Verifier

LAG = 60
"""So many seconds a copy may be behind whose position is not known."""
WRONG: Item = {"by": {"S": "hand"}}


class HandCopy:
    """A copy as a test says it is."""

    label = "copy"
    columns: frozenset[str] | None = None

    def __init__(
        self, items: dict[str, Item], position: CopyPosition | None = None, form: Form = Form.WIRE
    ) -> None:
        self.held = items
        self.position = position or CopyPosition()
        self.form = form

    def items(self) -> Iterator[Item]:
        return (copied(each, self.form) for each in self.held.values())

    def as_copied(self, item: WireItem) -> WireItem:
        return item


def copied(item: Item, form: Form) -> Item:
    """The item as a copy of this form has it."""
    return {name: value_of(value, form) for name, value in item.items()}


def value_of(value: Item, form: Form) -> Item:
    ((kind, content),) = value.items()
    if form is Form.WIRE:
        return value
    match kind:
        case "SS" | "NS" | "BS":
            part = "N" if kind == "NS" else "S"
            made: Item = {"L": [{part: each} for each in reversed(content)]}
        case "L":
            made = {"L": [value_of(each, Form.JSON) for each in content]}
        case "M":
            made = {"M": copied(content, Form.JSON)}
        case "B":
            made = {"S": content}
        case _:
            made = value
    if form is Form.COLUMNS and not {"S", "NULL"} & made.keys():
        return {"S": json.dumps(plain(made))}
    return made


def plain(value: Item) -> object:
    ((kind, content),) = value.items()
    match kind:
        case "L":
            return [plain(each) for each in content]
        case "M":
            return {name: plain(each) for name, each in content.items()}
        case "N":
            return json.loads(content)
        case "NULL":
            return None
    return content


def verify_while_written(seed: int) -> None:
    """Raises AssertionError where a difference is made up, or one that there is is not found."""
    chance = random.Random(seed)
    with Ledger(seed, keys=chance.choice((3, 40, 200))) as ledger:
        ledger.clock.sleep(3600)
        ledger.write(chance.randint(1, 400))
        copy = chance.choice((_lagging, _at_a_position, _while_it_is_copied))(ledger, chance)
        copy.form = chance.choice((*Form, Form.JSON))
        sorting_bytes = chance.choice((5_000, 16_000_000))
        # A scan that may take longer than the stream keeps changes: it is read before, too.
        scan_time = timedelta(hours=chance.choice((12, 48)))
        with (
            mock.patch("watcher.time_machine.sorted_lines.MEMORY_BYTES", sorting_bytes),
            mock.patch("watcher.time_machine.verify.LONGEST_SCAN", scan_time),
        ):
            _check(seed, chance, ledger, copy)


def _check(seed: int, chance: random.Random, ledger: Ledger, copy: HandCopy) -> None:
    found = _verified(ledger, copy)
    assert found.differing == 0, f"seed {seed}: {found.found}"
    if copy.held:
        wrong = chance.choice(sorted(copy.held))
        copy.held[wrong] = {**copy.held[wrong], **WRONG}
        found = _verified(ledger, copy)
        keys = [each.key["pk"]["S"] for each in found.found]
        assert (found.differing, keys) == (1, [wrong]), f"seed {seed}: {wrong}, {found.found}"
        (difference,) = found.found[0].differences
        assert difference.missing is None, f"seed {seed}: {difference}"


def _verified(ledger: Ledger, copy: HandCopy) -> Verification:
    tables = DisturbedTables(ledger, lambda: ledger.write(ledger.random.randint(0, 9)))
    return Verifier(ledger.sources(tables), copy, lag=timedelta(seconds=LAG)).run()


def _between(ledger: Ledger, chance: random.Random, first: int, last: int) -> dict[str, Item]:
    """Each item as it was at some moment from the beginning of one second to another's end."""
    found: dict[str, Item] = {}
    for key, past in ledger.past.items():
        states = [None, *(item for _, item in past)]
        low = bisect_left(past, first, key=lambda each: each[0])
        high = bisect_right(past, last, key=lambda each: each[0])
        if (item := states[chance.randint(low, high)]) is not None:
            found[key] = item
    return found


def _lagging(ledger: Ledger, chance: random.Random) -> HandCopy:
    return HandCopy(_between(ledger, chance, ledger.second - LAG, ledger.second))


def _at_a_position(ledger: Ledger, chance: random.Random) -> HandCopy:
    copy = HandCopy(dict(ledger.now), CopyPosition(token=ledger.token()))
    ledger.write(chance.randint(0, 300))
    return copy


def _while_it_is_copied(ledger: Ledger, chance: random.Random) -> HandCopy:
    before, first = dict(ledger.now), ledger.token()
    began = {key: len(past) for key, past in ledger.past.items()}
    ledger.write(chance.randint(0, 100))
    items = {}
    for key, past in ledger.past.items():
        states = [before.get(key), *(item for _, item in past[began.get(key, 0) :])]
        if (item := chance.choice(states)) is not None:
            items[key] = item
    position = CopyPosition(token=first, copied_at=datetime.fromtimestamp(ledger.second + 1, UTC))
    ledger.clock.sleep(chance.choice((0, 30)))
    ledger.write(chance.randint(0, 300))
    return HandCopy(items, position)
