"""Finds who made a change, by the log files of a CloudTrail trail.

https://docs.aws.amazon.com/awscloudtrail/latest/userguide/cloudtrail-log-file-examples.html
"""

from __future__ import annotations

import enum
import gzip
import io
import logging
import math
import os
import re
import zlib
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from watcher.aws.arns import table_of
from watcher.aws.config import AwsConfig
from watcher.aws.model import CLOCKS_APART
from watcher.aws.s3 import SCHEME, ObjectsClient
from watcher.aws.trail_events import Call, Caller, ItemWrite, calls_in
from watcher.clock import CLOCK, Clock
from watcher.errors import UsageError
from watcher.formatting.style import local_time
from watcher.formatting.text import grouped, printable
from watcher.records.diff import number_text
from watcher.records.record import Record
from watcher.time_machine.item_keys import Identity, identity

logger = logging.getLogger("watcher")

APART: Final = int(CLOCKS_APART.total_seconds())
"""The most seconds between a change's time and its call's, both cut to the second."""
TTL: Final = Caller("time-to-live")
REDACTED: Final = "the trail does not tell which keys the call wrote"
TOO_FEW: Final = "there are more changes then than calls that the trail has"
AT_THE_EDGE: Final = "the call may have made a change just outside --from and --until"
NO_CALL: Final = "the trail has no call that wrote this key then"
# A user agent's first product: `Boto3/1.43.2 md/…`, `[aws-cli/2.1 …]`.
_PROGRAM: Final = re.compile(r"\[?([^\s/\]]+)")
_keys: Final = msgspec.json.Decoder(dict[str, dict[str, str]])


class Certainty(enum.Enum):
    """The certainty with which a trail names a change's caller."""

    CERTAIN = "certain"
    """One caller wrote this key in these seconds."""
    SEVERAL = "one of several"
    """More callers than one wrote it, or may have."""
    MAY_BE = "may be"
    """One caller may have written it; the reason says what is open."""
    UNKNOWN = "unknown"
    """No call is known; the reason says why."""


class Answer(msgspec.Struct, frozen=True):
    """The callers that may have made a change, and the certainty."""

    certainty: Certainty
    callers: tuple[Caller, ...] = ()
    reason: str = ""
    """The reason why it is not certain; "" where it is."""

    @property
    def names(self) -> str:
        """The callers' names on a line, with what is open: `may be role/api`."""
        names = [each.name for each in self.callers]
        if len(names) > len({*names}):  # of several accounts
            names = [f"{each.account}:{each.name}" for each in self.callers]
        may_be = "may be " if self.certainty is Certainty.MAY_BE else ""
        return may_be + (" or ".join(map(printable, names)) or "(unknown)")

    def text(self, account: str = "") -> str:
        """Returns a line for people, which names the account of callers outside `account`."""
        texts = " or ".join(_caller_text(each, account) for each in self.callers)
        may_be = "may be " if self.certainty is Certainty.MAY_BE else ""
        return f"{may_be}by {texts or 'whom is unknown'}   {self.reason or 'certain'}"


def _caller_text(caller: Caller, account: str) -> str:
    other = "" if caller.account in ("", account) else f"{caller.account}:"
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

    `table` is the ARN of the table of records that don't tell theirs. Changes before `start` and
    after `until` are not added.
    """

    def __init__(
        self, table: str = "", start: datetime | None = None, until: datetime | None = None
    ) -> None:
        self._table = table
        self._start = -math.inf if start is None else start.timestamp()
        self._until = math.inf if until is None else until.timestamp()
        # The seconds of an item's removals, and those of its other changes.
        self._changes: dict[tuple[str, Identity, bool], list[int]] = {}
        self._kinds: dict[str, dict[str, str]] = {}
        self._known: dict[str, Call] = {}
        self._calls: dict[tuple[str, Identity], list[TimedCall]] | None = None
        # The calls whose keys are not told, by table and second.
        self._unsure: dict[tuple[str, int], list[tuple[ItemWrite, TimedCall]]] = {}
        self._answers: dict[tuple[str, Identity, bool], dict[int, Answer]] = {}
        self.first: int | None = None
        """The earliest second (epoch) of an added change."""
        self.last: int | None = None
        self.written: set[str] = set()
        """The tables (ARNs) of which a call that writes was added, successful or not."""
        self.incomplete: Callable[[int], str] = lambda second: ""
        """Returns why calls of a second (epoch) may be lacking; "" where all were added."""

    @property
    def tables(self) -> frozenset[str]:
        """The ARNs of the tables of the added changes."""
        return frozenset(self._kinds)

    def change_key(self, record: Record) -> ChangeKey:
        """Returns what tells a change from others. Raises UsageError for one of no known table."""
        keys, seconds = record.wire.dynamodb.Keys, record.wire.dynamodb.ApproximateCreationDateTime
        table = table_of(record.stream) or self._table
        if not table:
            raise UsageError("it needs the table's ARN: name its stream, too", "who")
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
            self._changes.setdefault((table, item, removes), []).append(second)
            self.first = second if self.first is None else min(second, self.first)
            self.last = second if self.last is None else max(second, self.last)
        return key

    def add_call(self, call: Call) -> None:
        """Takes in a call; of one that several accounts or trails have, the fullest counts."""
        tables = call.tables & self.tables
        self.written |= tables
        if call.failed or not any(True for _ in self._writes(call)):
            return
        name = call.id or f"#{len(self._known)}"
        before = self._known.get(name)
        # The log of a table's account has only the id of another account's caller.
        if before is None or ("/" in call.caller.name) > ("/" in before.caller.name):
            self._known[name] = call
            self._calls = None

    def _writes(self, call: Call) -> Iterator[tuple[str, ItemWrite, Identity | None]]:
        """Yields a call's writes that may have made a change, each with its table and its item.

        The item is None where the trail does not tell its whole key.
        """
        for table in call.tables & self.tables:
            kinds = self._kinds[table]
            for write in call.writes_to(table):
                item = None
                if kinds.keys() <= write.key.keys():
                    item = tuple(sorted((n, _text(write.key[n], kinds[n])) for n in kinds))
                changes = (table, item or (), True), (table, item or (), False)
                if item is None or not self._changes.keys().isdisjoint(changes):
                    yield table, write, item

    def answer(self, change: ChangeKey) -> Answer:
        """Returns who made a change that was added."""
        table, item, removes, second, caller = change
        if caller:
            return Answer(Certainty.CERTAIN, (Caller(caller),))
        if second is None:
            return Answer(Certainty.UNKNOWN, reason="the change has no time")
        if self._calls is None:
            self._calls = self._index()
        group = table, item, removes
        if group not in self._answers:
            seconds = self._changes[group]
            calls = [*self._calls.get((table, item), ()), *self._redacted(table, item, seconds)]
            found = join(seconds, calls, removes=removes, incomplete=self.incomplete)
            self._answers[group] = dict(found)
        return self._answers[group][second]

    def _index(self) -> dict[tuple[str, Identity], list[TimedCall]]:
        calls: dict[tuple[str, Identity], list[TimedCall]] = {}
        self._unsure, self._answers = {}, {}
        for call in self._known.values():
            for table, write, item in self._writes(call):
                doubt = f"the call ended with {call.error}" if call.error else ""
                if not doubt and (item is None or write.removes is None):
                    doubt = REDACTED
                if not doubt and not self._start + APART <= call.time <= self._until - APART:
                    doubt = AT_THE_EDGE
                timed = TimedCall(call.time, call.caller, write.removes, doubt)
                if item is None:
                    self._unsure.setdefault((table, call.time), []).append((write, timed))
                else:
                    calls.setdefault((table, item), []).append(timed)
        return calls

    def _redacted(self, table: str, item: Identity, seconds: Iterable[int]) -> Iterator[TimedCall]:
        """Yields the calls around these seconds that may have written an item."""
        kinds = self._kinds[table]
        near = {at for each in seconds for at in range(each - APART, each + APART + 1)}
        for second in near if self._unsure else ():
            for write, timed in self._unsure.get((table, second), ()):
                if all(_text(write.key[n], kinds[n]) == v for n, v in item if n in write.key):
                    yield timed


def _text(text: str, kind: str) -> str:
    return number_text(text) if kind == "N" else text


def join(
    seconds: Iterable[int],
    calls: Iterable[TimedCall],
    *,
    removes: bool,
    incomplete: Callable[[int], str] = lambda second: "",
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


def _without_call(changes: Sequence[int], calls: Iterable[int]) -> set[int]:
    """Returns the seconds of those changes for which the calls are too few.

    Which change of several close ones has no call is not known: so it may be each of them.
    """
    found: set[int] = set()
    close: list[int] = []
    left, is_short = deque(calls), False
    for second in changes:
        if close and second > close[-1] + 2 * APART:
            close, is_short = [], False
        close.append(second)
        while left and left[0] < second - APART:
            left.popleft()
        if left and left[0] <= second + APART:
            left.popleft()
        else:
            is_short = True
        found.update(close if is_short else ())
    return found


def _answer(found: Sequence[TimedCall], lacking: str) -> Answer:
    callers = tuple(_merged(each.caller for each in found))
    if not callers:
        return Answer(Certainty.UNKNOWN, reason=lacking or NO_CALL)
    if len(callers) > 1:
        reason = f"{len(callers)} callers within {APART} s"
        return Answer(Certainty.SEVERAL, callers, f"{reason}; {lacking}" if lacking else reason)
    return Answer(Certainty.MAY_BE if lacking else Certainty.CERTAIN, callers, lacking)


def _merged(callers: Iterable[Caller]) -> Iterator[Caller]:
    """Yields each caller once, with what all of its calls have in common."""
    by_name: dict[tuple[str, str], set[tuple[str, str, str]]] = {}
    for each in callers:
        details = each.session, each.address, each.agent
        by_name.setdefault((each.account, each.name), set()).add(details)
    for (account, name), several in sorted(by_name.items()):
        common = (each[0] if len({*each}) == 1 else "" for each in zip(*several, strict=True))
        yield Caller(name, account, *common)


# A trail's log files, in a folder or in S3

_NAME: Final = re.compile(r"\d{12}_CloudTrail_[a-z0-9-]+_(\d{8}T\d{4})Z_\w+\.json(?:\.gz)?")
# `AWSLogs/[o-ORGANIZATION/]ACCOUNT/CloudTrail/REGION/YYYY/MM/DD`
_LAYOUT: Final = re.compile(r"(?:.*/)?(\d{12})(?:/([^/]+)(?:/([^/]+)((?:/\d+)*))?)?")
_DATE: Final = "/%Y/%m/%d"
_ENDINGS: Final = (".json", ".json.gz")
_GZIP: Final = b"\x1f\x8b"
# About 5 minutes, as a rule at most 15.
_LOG_DELAY: Final = timedelta(minutes=15)
# A call is looked for in the log files that are delivered so long after it.
_LATEST_LOG: Final = timedelta(minutes=30)
LOG_BYTES: Final = 512 * 1024 * 1024
"""The most that a log file may unpack to: CloudTrail's are of some megabytes."""
_BROKEN: Final = (OSError, EOFError, ValueError, zlib.error, msgspec.MsgspecError)


class LogFile(NamedTuple):
    """A log file, and when CloudTrail delivered it."""

    location: str
    delivered: datetime | None
    """The minute of its delivery; None where its name does not tell."""

    def may_hold(self, first: datetime, end: datetime) -> bool:
        """True where it may hold calls since `first`, if those are delivered by `end`."""
        if self.delivered is None:
            return True
        last_second = self.delivered + timedelta(seconds=59 + APART)
        return first <= last_second and self.delivered <= end + CLOCKS_APART


class Trail:
    """The log files below a place: a folder, or an `s3://` URL.

    The place may be any folder of CloudTrail's layout, from the bucket down, for an account or an
    organization. Raises UsageError where there is no such place, StreamError where S3 refuses.
    """

    def __init__(self, path: str, connection: AwsConfig, *, clock: Clock = CLOCK) -> None:
        self.path = path.rstrip("/") or path
        self._s3 = ObjectsClient(connection) if path.startswith(SCHEME) else None
        self._clock = clock
        next(self._entries(self.path), None)
        self.files: list[LogFile] = []
        """The files that may hold calls."""
        self.broken: list[LogFile] = []
        """The files that can't be read."""

    def read(self, callers: Callers) -> None:
        """Reads the calls that may have made the added changes."""
        now = datetime.fromtimestamp(self._clock.time(), UTC)
        callers.incomplete = partial(self._incomplete, now)
        if callers.first is None or callers.last is None:
            return
        first = datetime.fromtimestamp(callers.first, UTC)
        end = datetime.fromtimestamp(callers.last, UTC) + _LATEST_LOG
        self.files = [*self._files(self.path, callers.tables, first - CLOCKS_APART, end)]
        for file in self.files:
            try:
                for call in calls_in(self._content(file.location), callers.tables):
                    callers.add_call(call)
            except _BROKEN as error:
                self.broken.append(file)
                logger.warning(f"{file.location} can't be read, and is left out: {error}")
        logger.info(f"Read {grouped(len(self.files), 'log file')} of {self.path}")
        if first + _LOG_DELAY < now:
            for table in sorted(callers.tables - callers.written):
                logger.warning(
                    f"{self.path} has no call that writes to {table}: have the trail log its data "
                    "events (aws cloudtrail put-event-selectors)"
                )

    def _incomplete(self, read_at: datetime, second: int) -> str:
        """Returns why the trail may lack calls of this second (epoch); "" where it has them all."""
        time = datetime.fromtimestamp(second, UTC)
        settled = time + _LOG_DELAY
        if read_at < settled:
            return f"logs come 5 to 15 minutes late: ask again after {local_time(settled)}"
        end = time + _LATEST_LOG
        if not any(each.may_hold(time, end) for each in self.files):
            return f"the trail has no file from {local_time(time)} to {local_time(end)}"
        broken = (os.path.basename(e.location) for e in self.broken if e.may_hold(time, end))
        return next((f"{each} can't be read" for each in broken), "")

    def _files(
        self, folder: str, tables: Iterable[str], first: datetime, end: datetime
    ) -> Iterator[LogFile]:
        """Yields the files below a folder that may hold calls of these tables (ARNs)."""
        for name, is_folder in self._entries(folder):
            minute = _NAME.fullmatch(name)
            delivered = minute and datetime.strptime(minute[1] + "+0000", "%Y%m%dT%H%M%z")
            file = LogFile(f"{folder}/{name}", delivered)
            if not is_folder:
                if name.endswith(_ENDINGS) and file.may_hold(first, end):
                    yield file
            elif _may_hold(file.location, tables, first, end):
                yield from self._files(file.location, tables, first, end)

    def _content(self, location: str) -> bytes:
        packed = Path(location).read_bytes() if self._s3 is None else self._s3.whole(location)
        if packed[:2] != _GZIP:
            return packed
        with gzip.open(io.BytesIO(packed)) as file:
            content = file.read(LOG_BYTES + 1)
        if len(content) > LOG_BYTES:
            raise ValueError(f"more than {LOG_BYTES:,} bytes: not a log file of CloudTrail")
        return content

    def _entries(self, folder: str) -> Iterator[tuple[str, bool]]:
        """Yields the names in a folder, in order; True for folders. Raises UsageError."""
        try:
            if self._s3 is None:
                with os.scandir(folder) as found:
                    names = sorted((each.name, each.is_dir()) for each in found)
            elif not (names := [*self._s3.entries(folder)]):
                raise FileNotFoundError(folder)
        except OSError as error:
            text = f"can't read it: {error.strerror or error}"
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                text = "there is no such folder"
            raise UsageError(text, "who", self.path) from None
        yield from names


def _may_hold(folder: str, tables: Iterable[str], first: datetime, end: datetime) -> bool:
    """True for a folder below which logs of these tables' calls may be, by CloudTrail's layout."""
    place = _LAYOUT.fullmatch(folder)
    if place is None:
        return True
    account, service, region, date = place.groups()
    arns = [each.split(":") for each in tables]
    if service is None:
        return any(each[4] == account for each in arns)
    form = _DATE[: 3 * (date or "").count("/")]
    return (
        service == "CloudTrail"
        and (region is None or any(each[3] == region for each in arns))
        and (not date or first.strftime(form) <= date <= end.strftime(form))
    )
