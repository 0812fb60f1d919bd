"""Items by chance, each with its changes, and a copy of it that is wrong in one of ten ways."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from tests.ledger.ledger import Item
from watcher.time_machine.copied_items import CauseKind

Told = tuple[str | None, CauseKind, int | None]
"""An attribute (None: the whole item), what is wrong, and which of the changes explains it."""


class Faulty(NamedTuple):
    """An item whose copy is wrong."""

    states: list[Item | None]
    """The item after each of its changes."""
    there: Item | None
    expected: list[Told]


class _Step(NamedTuple):
    """A change, as a consumer applies it that keeps no whole images."""

    attribute: str
    how: str
    value: Any


def faulty(kind: str, chance: random.Random) -> Faulty:
    """Returns an item and its copy, in which there is one error of this kind."""
    return _KINDS[kind](chance)


def _applied(item: Item, steps: Sequence[_Step]) -> Item:
    found = dict(item)
    for name, how, value in steps:
        match how:
            case "set":
                found[name] = value
            case "add":
                found[name] = _number(Decimal(found.get(name, {"N": "0"})["N"]) + value)
            case "append":
                found[name] = {"L": [*found.get(name, {"L": []})["L"], value]}
            case "join":
                found[name] = {"SS": sorted({*found.get(name, {"SS": []})["SS"], value})}
    return found


def _number(value: Decimal) -> Item:
    return {"N": f"{value:f}"}


class _Story:
    """An insertion and updates of it. All values, and all that is added, occur once."""

    def __init__(self, chance: random.Random, updates: int | None = None) -> None:
        self._chance = chance
        self.first: Item = {
            "total": _number(self._amount()),
            "city": self._text(),
            "note": self._text(),
            "tags": {"SS": [self._word() for _ in range(3)]},
            "log": {"L": [self._text()]},
        }
        count = chance.randint(4, 9) if updates is None else updates
        self.updates = [self._update() for _ in range(count)]

    def states(self) -> list[Item | None]:
        return [self.copy(range(number)) for number in range(len(self.updates) + 1)]

    def copy(self, order: Sequence[int]) -> Item:
        """The item as a consumer has it that applied the updates of these numbers."""
        item = self.first
        for number in order:
            item = _applied(item, self.updates[number])
        return item

    def touching(self, attribute: str) -> list[int]:
        """The numbers of the updates of an attribute."""
        return [at for at, steps in enumerate(self.updates) if attribute in {s[0] for s in steps}]

    def _update(self) -> list[_Step]:
        steps = [
            _Step("total", "add", self._amount()),
            _Step("city", "set", self._text()),
            _Step("note", "set", self._text()),
            _Step("tags", "join", self._word()),
            _Step("log", "append", self._text()),
        ]
        return self._chance.sample(steps, self._chance.randint(1, 3))

    def _word(self) -> str:
        return f"{self._chance.getrandbits(48):x}"

    def _text(self) -> Item:
        return {"S": self._word()}

    def _amount(self) -> Decimal:
        return Decimal(self._chance.randint(-(10**9), 10**9)).scaleb(self._chance.choice((0, -2)))


def _lost(chance: random.Random) -> Faulty:
    """One change was never applied; what a later one has set since looks right."""
    while True:
        if chance.random() < 0.2:
            return _lost_insertion(chance)
        story = _Story(chance)
        at = chance.randrange(len(story.updates))
        names = [
            step.attribute
            for step in story.updates[at]
            if step.how != "set" or story.touching(step.attribute)[-1] == at
        ]
        if names:
            order = [each for each in range(len(story.updates)) if each != at]
            told: list[Told] = [(name, CauseKind.MISSING, at + 1) for name in sorted(names)]
            return Faulty(story.states(), story.copy(order), told)


def _lost_insertion(chance: random.Random) -> Faulty:
    story = _Story(chance)
    states = story.states()
    kept = [name for name in ("city", "note") if story.touching(name)]
    story.first = {}
    there = story.copy(range(len(story.updates)))
    names = sorted({"city", "log", "note", "tags", "total"} - {*kept})
    return Faulty(states, there, [(name, CauseKind.MISSING, 0) for name in names])


def _repeated(chance: random.Random) -> Faulty:
    """One update was applied twice: at once, or after all others."""
    while True:
        story = _Story(chance)
        count = len(story.updates)
        at = chance.randrange(count)
        is_late = chance.random() < 0.5
        told: list[Told] = []
        for name, how, _ in story.updates[at]:
            if how in ("add", "append"):
                told.append((name, CauseKind.TWICE, at + 1))
            elif how == "set" and is_late and story.touching(name)[-1] != at:
                told.append((name, CauseKind.OUT_OF_ORDER, at + 1))
        # A late one alone that only sets is out of order, and nothing shows that it came twice.
        if any(cause is CauseKind.TWICE for _, cause, _ in told) and _traces(story, told):
            order = [*range(count), at] if is_late else sorted([*range(count), at])
            return Faulty(
                story.states(), story.copy(order), sorted(told, key=lambda each: each[0] or "")
            )


def _traces(story: _Story, told: Sequence[Told]) -> bool:
    """True where the next update of each attribute that is out of order has left its traces."""
    return all(
        cause is not CauseKind.OUT_OF_ORDER or _leaves_trace(story, str(name), (at or 0) - 1)
        for name, cause, at in told
    )


def _leaves_trace(story: _Story, name: str, at: int) -> bool:
    """True where a later update of the attribute sets another for good, which this one does not."""
    own = {step.attribute for step in story.updates[at]}
    return any(
        step.attribute not in own and story.touching(step.attribute)[-1] == later
        for later in story.touching(name)
        if later > at
        for step in story.updates[later]
    )


def _reordered(chance: random.Random) -> Faulty:
    """One update was applied after the next ones."""
    while True:
        story = _Story(chance)
        count = len(story.updates)
        at = chance.randrange(count - 1)
        order = [*(each for each in range(count) if each != at), at]
        told: list[Told] = []
        for name, how, _ in story.updates[at]:
            if how in ("set", "append") and story.touching(name)[-1] != at:
                told.append((name, CauseKind.OUT_OF_ORDER, at + 1))
        if told and _traces(story, told):
            return Faulty(
                story.states(), story.copy(order), sorted(told, key=lambda each: each[0] or "")
            )


def _stale(chance: random.Random) -> Faulty:
    """The copy has ended before the last two or more."""
    story = _Story(chance)
    count = len(story.updates)
    end = chance.randint(0, count - 2)
    told: list[Told] = []
    for name in sorted(story.first):
        lacking = [each for each in story.touching(name) if each >= end]
        if lacking:
            kind = CauseKind.STALE if len(lacking) > 1 else CauseKind.MISSING
            told.append((name, kind, lacking[0] + 1))
    return Faulty(story.states(), story.copy(range(end)), told)


def _value(
    chance: random.Random, name: str, here: Item, there: Item | None, kind: CauseKind
) -> Faulty:
    """An attribute that has its value from the beginning is wrong in the copy."""
    story = _Story(chance)
    story.first = {**story.first, name: here}
    item = story.copy(range(len(story.updates)))
    wrong = {**item, name: there or {}}
    if there is None:
        del wrong[name]
    return Faulty(story.states(), wrong, [(name, kind, None)])


def _truncated(chance: random.Random) -> Faulty:
    text = f"{chance.randint(-999, 999)}.{chance.randint(10**19, 10**20 - 1)}7"
    whole = Decimal(text)
    part = chance.choice(
        (
            Decimal(repr(float(whole))),
            whole.quantize(Decimal("0.01")),
            Decimal(text.partition(".")[0]),
            whole.quantize(Decimal("1e-15"), rounding="ROUND_DOWN"),
        )
    )
    return _value(chance, "price", _number(whole), _number(part), CauseKind.CUT)


def _member(chance: random.Random) -> Faulty:
    kind = chance.choice(("SS", "NS"))
    members = [str(each) for each in chance.sample(range(1_000), chance.randint(2, 9))]
    left = chance.sample(members, chance.randint(1, len(members) - 1))
    return _value(chance, "labels", {kind: members}, {kind: left}, CauseKind.LACKS_MEMBERS)


def _type(chance: random.Random) -> Faulty:
    number = str(chance.randint(-999, 999))
    here, there = chance.choice(
        (
            ({"N": number}, {"S": number}),
            ({"S": number}, {"N": number}),
            ({"BOOL": True}, {"S": "true"}),
            ({"BOOL": False}, {"N": "0"}),
            ({"SS": ["a", "b"]}, {"L": [{"S": "b"}, {"S": "a"}]}),
            ({"NS": ["1", number]}, {"SS": ["1", number]}),
            ({"B": "AAE="}, {"S": "AAE="}),
            ({"M": {"a": {"N": "1"}}}, {"S": '{"a": 1}'}),
        )
    )
    return _value(chance, "odd", here, there, CauseKind.OTHER_TYPE)


def _orphan(chance: random.Random) -> Faulty:
    """The removal was lost, or the item never was in the table."""
    story = _Story(chance)
    if chance.random() < 0.3:
        return Faulty([], story.first, [(None, CauseKind.ORPHAN, None)])
    there = story.copy(range(len(story.updates)))
    removal = len(story.updates) + 1
    return Faulty([*story.states(), None], there, [(None, CauseKind.MISSING, removal)])


def _missing(chance: random.Random) -> Faulty:
    """The insertion was lost, or all changes were."""
    story = _Story(chance, updates=chance.choice((0, 0, 2)))
    kind = CauseKind.STALE if story.updates else CauseKind.MISSING
    return Faulty(story.states(), None, [(None, kind, 0)])


def _by_hand(chance: random.Random) -> Faulty:
    here: Item = {"S": f"Koeln {chance.random()}"}
    there = chance.choice(({"S": f"K\u00f6ln {chance.random()}"}, {"N": "7"}, None))
    return _value(chance, "place", here, there, CauseKind.UNEXPLAINED)


_KINDS: dict[str, Callable[[random.Random], Faulty]] = {
    "lost": _lost,
    "repeated": _repeated,
    "reordered": _reordered,
    "stale": _stale,
    "truncated": _truncated,
    "member": _member,
    "type": _type,
    "orphan": _orphan,
    "missing": _missing,
    "by hand": _by_hand,
}
KINDS = tuple(_KINDS)
