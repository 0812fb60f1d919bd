"""Who made a change: a stream's changes joined with the calls that a CloudTrail trail holds.

A stream holds no caller but time-to-live's. A trail holds the caller, the second and the key of
each call: so table, key and time join the two, as far as their clocks agree.
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from watcher.aws.arns import table_of
from watcher.aws.model import CLOCKS_APART
from watcher.aws.trail_events import Call, Caller, ItemWrite
from watcher.errors import UsageError
from watcher.formatting.text import printable
from watcher.records.keys import number_text
from watcher.records.record import Record
from watcher.time_machine.item_keys import Identity, identity

APART: Final = int(CLOCKS_APART.total_seconds())
"""The most seconds between a change's time and its call's, both cut to the second."""
TTL: Final = Caller("time-to-live")
REDACTED: Final = "the trail does not tell which keys the call wrote"
TOO_FEW: Final = "there are more changes then than calls that the trail has"
NO_CALL: Final = "the trail has no call that wrote this key then"
NO_CALLS: Final = "the trail has no call that writes to this table"
ADDED_LATER: Final = "it was made after the trail was read"
MAY_BE: Final = "may be"
UNKNOWN: Final = "(unknown)"
# A user agent's first product: `Boto3/1.43.2 md/…`, `[aws-cli/2.1 …]`.
_PROGRAM: Final = re.compile(r"\[?([^\s/\]]+)")
Incomplete: TypeAlias = Callable[[int], str]
"""Returns why a trail may lack calls of a second (epoch); "" where it has them all."""
_keys: Final = msgspec.json.Decoder(dict[str, dict[str, str]])


class Certainty(enum.Enum):
    """How far a trail tells who made a change."""

    CERTAIN = "certain"
    """One caller wrote this key in these seconds."""
    SEVERAL = "one of several"
    """More callers than one wrote it, or may have."""
    MAY_BE = "may be"
    """One caller may have written it; the reason says what is open."""
    UNKNOWN = "unknown"
    """No call is known; the reason says why."""


class Answer(msgspec.Struct, frozen=True):
    """Who made a change, as far as is known."""

    certainty: Certainty
    callers: tuple[Caller, ...] = ()
    reason: str = ""
    """The reason why it is not certain; "" where it is."""

    @property
    def names(self) -> str:
        """The callers' names on a line, with what is open: `may be role/api`."""
        texts = " or ".join(printable(each.name) for each in self.callers)
        return f"{MAY_BE} {texts}" if self.certainty is Certainty.MAY_BE else texts or UNKNOWN

    def text(self, account: str = "", between: str = "   ") -> str:
        """Returns a line for people, which names the account of callers outside `account`.

        `between` stands before what tells how sure it is.
        """
        texts = [_caller_text(each, account) for each in self.callers]
        match self.certainty:
            case Certainty.CERTAIN:
                return f"by {texts[0]}{between}certain"
            case Certainty.SEVERAL:
                return f"by {' or '.join(texts)}{between}{self.reason}"
            case Certainty.MAY_BE:
                return f"{MAY_BE} by {texts[0]}{between}{self.reason}"
        return f"by whom is unknown{between}{self.reason}"


def _caller_text(caller: Caller, account: str) -> str:
    other = f"{caller.account}:" if account and caller.account not in ("", account) else ""
    session = f"session {caller.session}" if caller.session else ""
    agent = _PROGRAM.match(caller.agent)
    details = [each for each in (session, caller.address, agent and agent[1]) if each]
    return printable(f"{other}{caller.name}" + (f" ({', '.join(details)})" if details else ""))


class ChangeKey(NamedTuple):
    """A change as the trail's calls are compared with it."""

    table: str
    item: Identity
    removes: bool
    second: int | None
    caller: str = ""
    """The caller that the stream itself names; "" where it names none."""


class TimedCall(NamedTuple):
    """A call that wrote an item, or may have."""

    time: int
    caller: Caller
    removes: bool | None
    """True for a call that only removes, False for one that never does; None: not known."""
    doubt: str = ""
    """The reason why it may not have written the item; "" where it has."""


class Callers:
    """Finds who made changes: `add_change`, then `add_call` of the trail, then `answer` for each.

    `table` is the ARN of the table of records that don't tell theirs.
    """

    def __init__(self, table: str = "") -> None:
        self._table = table
        self._changes: dict[tuple[str, Identity], dict[bool, list[int]]] = {}
        self._kinds: dict[str, dict[str, str]] = {}
        self._known: dict[str, Call] = {}
        self._calls: dict[tuple[str, Identity], list[TimedCall]] | None = None
        self._unsure: dict[str, list[tuple[ItemWrite, TimedCall]]] = {}
        self._answers: dict[tuple[str, Identity], dict[tuple[bool, int], Answer]] = {}
        self.first: int | None = None
        """The earliest second (epoch) of an added change."""
        self.last: int | None = None
        self.written: set[str] = set()
        """The tables (ARNs) of which a call that writes was added, successful or not."""

    @property
    def tables(self) -> frozenset[str]:
        """The ARNs of the tables of the added changes."""
        return frozenset(self._kinds)

    def change_key(self, record: Record) -> ChangeKey:
        """Returns what tells a change from others. Raises UsageError for one of no known table."""
        keys, seconds = record.wire.dynamodb.Keys, record.wire.dynamodb.ApproximateCreationDateTime
        table = table_of(record.stream) or self._table
        if not table:
            raise UsageError("it takes the table's ARN: name its stream, too", "who")
        if table not in self._kinds:
            found = _keys.decode(keys)
            self._kinds[table] = {name: kind for name, each in found.items() for kind in each}
        who = record.wire.userIdentity or {}
        caller = who.get("principalId") or who.get("PrincipalId") or who.get("type") or ""
        return ChangeKey(
            table,
            identity(keys),
            record.event_name == "REMOVE",
            None if seconds is None else int(seconds),
            TTL.name if record.expired_by_ttl else caller,
        )

    def add_change(self, record: Record) -> ChangeKey:
        """Takes in a change, for `answer`. Raises UsageError for one of no known table."""
        key = self.change_key(record)
        table, item, removes, second, caller = key
        if second is not None and not caller:
            by_kind = self._changes.setdefault((table, item), {})
            by_kind.setdefault(removes, []).append(second)
            self.first = second if self.first is None else min(second, self.first)
            self.last = second if self.last is None else max(second, self.last)
        return key

    def adding(self, records: Iterable[Record]) -> Iterator[Record]:
        """Passes records on, and takes in each."""
        for record in records:
            self.add_change(record)
            yield record

    def add_call(self, call: Call) -> None:
        """Takes in a call; of one that several accounts or trails have, the fullest counts."""
        tables = call.tables & self.tables
        self.written |= tables
        if call.failed or not self._is_wanted(call, tables):
            return
        name = call.id or f"#{len(self._known)}"
        before = self._known.get(name)
        if before is None or _is_named(call.caller) > _is_named(before.caller):
            self._known[name] = call
            self._calls = None

    def answer(self, change: ChangeKey, incomplete: Incomplete = lambda second: "") -> Answer:
        """Returns who made a change.

        `incomplete` returns why the trail may lack calls of a second; "" where it has them all.
        """
        table, item, removes, second, caller = change
        if caller:
            return Answer(Certainty.CERTAIN, (Caller(caller),))
        if second is None:
            return Answer(Certainty.UNKNOWN, reason="the change has no time")
        if self._calls is None:
            self._index()
        if (table, item) not in self._answers:
            self._answers[table, item] = dict(self._joined((table, item), incomplete))
        late = Answer(Certainty.UNKNOWN, reason=ADDED_LATER)
        return self._answers[table, item].get((removes, second), late)

    def _is_wanted(self, call: Call, tables: frozenset[str]) -> bool:
        """True where it may have written an item that is asked for."""
        if self.first is None or self.last is None:
            return False
        if not self.first - APART <= call.time <= self.last + APART:
            return False
        for table in tables:
            for write in call.writes_to(table):
                found = self._item(table, write)
                if found is None or (table, found) in self._changes:
                    return True
        return False

    def _item(self, table: str, write: ItemWrite) -> Identity | None:
        """Returns the item that was written; None where the trail does not tell its whole key."""
        kinds = self._kinds[table]
        if not kinds.keys() <= write.key.keys():
            return None
        return tuple(sorted((name, _text(write.key[name], kinds[name])) for name in kinds))

    def _index(self) -> None:
        self._calls, self._unsure, self._answers = {}, {}, {}
        for call in self._known.values():
            for table in call.tables & self.tables:
                for write in call.writes_to(table):
                    item = self._item(table, write)
                    doubt = f"the call ended with {call.error}" if call.error else ""
                    if not doubt and (item is None or write.removes is None):
                        doubt = REDACTED
                    timed = TimedCall(call.time, call.caller, write.removes, doubt)
                    if item is None:
                        self._unsure.setdefault(table, []).append((write, timed))
                    elif (table, item) in self._changes:
                        self._calls.setdefault((table, item), []).append(timed)
        for rows in self._unsure.values():
            rows.sort(key=_time_of)

    def _unsure_at(self, item: tuple[str, Identity]) -> Iterator[tuple[ItemWrite, TimedCall]]:
        """Yields the calls with keys that are not told, of the seconds of an item's changes."""
        rows = self._unsure.get(item[0], [])
        seconds = {each for some in self._changes.get(item, {}).values() for each in some}
        near: set[int] = set()
        for second in seconds if rows else ():
            first = bisect_left(rows, second - APART, key=_time_of)
            near.update(range(first, bisect_right(rows, second + APART, lo=first, key=_time_of)))
        return (rows[index] for index in sorted(near))

    def _joined(
        self, item: tuple[str, Identity], incomplete: Incomplete
    ) -> Iterator[tuple[tuple[bool, int], Answer]]:
        table, key = item
        kinds = self._kinds[table]
        calls = list((self._calls or {}).get(item, ()))
        calls += (
            timed
            for write, timed in self._unsure_at(item)
            if all(_text(write.key[n], kinds[n]) == v for n, v in key if n in write.key)
        )
        for removes, seconds in self._changes.get(item, {}).items():
            for second, answer in join(seconds, calls, removes=removes, incomplete=incomplete):
                if answer.reason == NO_CALL and table not in self.written:
                    answer = msgspec.structs.replace(answer, reason=NO_CALLS)
                yield (removes, second), answer


def join(
    seconds: Iterable[int],
    calls: Iterable[TimedCall],
    *,
    removes: bool,
    incomplete: Incomplete = lambda second: "",
) -> Iterator[tuple[int, Answer]]:
    """Yields who made the changes of one item at these seconds: all removals, or all others.

    A call that succeeded makes one change of an item at most, and none where nothing changed.
    """
    changes = sorted(seconds)
    fitting = sorted(
        (each for each in calls if each.removes in (None, removes)), key=lambda each: each.time
    )
    short = _without_call(changes, [each.time for each in fitting if not each.doubt])
    times = [each.time for each in fitting]
    for second in dict.fromkeys(changes):
        found = fitting[bisect_left(times, second - APART) : bisect_right(times, second + APART)]
        doubt = next((each.doubt for each in found if each.doubt), "")
        is_short = bool(found) and second in short
        yield second, _answer(found, incomplete(second) or (doubt or TOO_FEW) * is_short)


def _without_call(changes: Sequence[int], calls: Sequence[int]) -> set[int]:
    """Returns the seconds of those changes for which the calls are too few.

    Which change of several close ones has no call is not known: so it may be each of them.
    """
    found: set[int] = set()
    cluster: list[int] = []
    left, is_short = iter(calls), False
    call = next(left, None)
    for second in changes:
        if cluster and second > cluster[-1] + 2 * APART:
            found.update(cluster if is_short else ())
            cluster, is_short = [], False
        cluster.append(second)
        while call is not None and call < second - APART:
            call = next(left, None)
        if call is not None and call <= second + APART:
            call = next(left, None)
        else:
            is_short = True
    found.update(cluster if is_short else ())
    return found


def _answer(found: Sequence[TimedCall], lacking: str) -> Answer:
    callers = tuple(_merged(each.caller for each in found))
    if not callers:
        return Answer(Certainty.UNKNOWN, reason=lacking or NO_CALL)
    if len(callers) > 1:
        reason = f"{len(callers)} callers within {APART} s"
        return Answer(Certainty.SEVERAL, callers, f"{reason}; {lacking}" if lacking else reason)
    if lacking:
        return Answer(Certainty.MAY_BE, callers, lacking)
    return Answer(Certainty.CERTAIN, callers)


def _merged(callers: Iterable[Caller]) -> Iterator[Caller]:
    """Yields each caller once, with what all of its calls have in common."""
    by_name: dict[tuple[str, str], set[Caller]] = {}
    for each in callers:
        by_name.setdefault((each.account, each.name), set()).add(each)
    for (account, name), same in sorted(by_name.items()):
        details = (
            {each.session for each in same},
            {each.address for each in same},
            {each.agent for each in same},
        )
        yield Caller(name, account, *(min(each) if len(each) == 1 else "" for each in details))


def _is_named(caller: Caller) -> bool:
    """False where the log of a table's account has only the id of another account's caller."""
    return "/" in caller.name


def _time_of(row: tuple[ItemWrite, TimedCall]) -> int:
    return row[1].time


def _text(text: str, kind: str) -> str:
    return number_text(text) if kind == "N" else text
