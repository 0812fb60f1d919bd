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
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec

from watcher.aws.arns import table_of
from watcher.aws.config import AwsConfig
from watcher.aws.model import CLOCKS_APART
from watcher.aws.s3 import SCHEME, ObjectsClient
from watcher.aws.trail_events import Call, Caller, ItemWrite, calls_in
from watcher.call_pool import CallPool
from watcher.clock import CLOCK, Clock
from watcher.errors import UsageError
from watcher.formatting.style import time_text
from watcher.formatting.text import grouped, printable
from watcher.records.diff import number_text
from watcher.records.record import Record
from watcher.time_machine.item_keys import Identity, identity

APART: Final = int(CLOCKS_APART.total_seconds())
"""The most seconds between a change's time and its call's, both cut to the second."""
TTL: Final = Caller("time-to-live")
REDACTED: Final = "the trail does not tell which keys the call wrote"
TOO_FEW: Final = "there are more changes then than calls that the trail has"
AT_THE_EDGE: Final = "the call may have made a change just outside --from and --until"
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
        texts = " or ".join(map(printable, names))
        return f"{MAY_BE} {texts}" if self.certainty is Certainty.MAY_BE else texts or UNKNOWN

    def text(self, account: str = "") -> str:
        """Returns a line for people, which names the account of callers outside `account`."""
        texts = [_caller_text(each, account) for each in self.callers]
        match self.certainty:
            case Certainty.CERTAIN:
                return f"by {texts[0]}   certain"
            case Certainty.SEVERAL:
                return f"by {' or '.join(texts)}   {self.reason}"
            case Certainty.MAY_BE:
                return f"{MAY_BE} by {texts[0]}   {self.reason}"
        return f"by whom is unknown   {self.reason}"


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
                    if not doubt and not self._start + APART <= call.time <= self._until - APART:
                        doubt = AT_THE_EDGE
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
    remaining, is_short = iter(calls), False
    call = next(remaining, None)
    for second in changes:
        if cluster and second > cluster[-1] + 2 * APART:
            found.update(cluster if is_short else ())
            cluster, is_short = [], False
        cluster.append(second)
        while call is not None and call < second - APART:
            call = next(remaining, None)
        if call is not None and call <= second + APART:
            call = next(remaining, None)
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


# A trail's log files, in a folder or in S3

logger = logging.getLogger("watcher")

_NAME: Final = re.compile(r"\d{12}_CloudTrail_[a-z0-9-]+_(\d{8}T\d{4})Z_\w+\.json(?:\.gz)?")
_ACCOUNT: Final = re.compile(r"\d{12}")
# `AWSLogs/[o-ORGANIZATION/]ACCOUNT/CloudTrail/REGION/YYYY/MM/DD/`: an account's logs and below.
_LOGS: Final = re.compile(r"(?:.*/)?(\d{12})/CloudTrail(?:/([^/]+)((?:/\d+)*))?")
_OTHER_LOGS: Final = ("CloudTrail-Digest", "CloudTrail-Insight", "CloudTrail-NetworkActivity")
_DATE: Final = "/%Y/%m/%d"
_ENDINGS: Final = (".json", ".json.gz")
_GZIP: Final = b"\x1f\x8b"
# About 5 minutes, as a rule at most 15.
_LOG_DELAY: Final = timedelta(minutes=15)
# A call is looked for in the log files that are delivered so long after it.
_LATEST_LOG: Final = timedelta(minutes=30)
LOG_BYTES: Final = 512 * 1024 * 1024
"""The most that a log file may unpack to: CloudTrail's are of some megabytes."""
# S3 takes its time for each file.
_LOG_THREADS: Final = 4
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
        return first <= last_second and self.delivered <= end + timedelta(seconds=APART)


class TrailReading:
    """The calls read from a trail, and the gaps that it may have."""

    def __init__(self, read_at: datetime) -> None:
        self.read_at = read_at
        self.files: list[LogFile] = []
        self.broken: list[LogFile] = []
        """The files that can't be read."""

    def incomplete(self, second: int) -> str:
        """Returns why the trail may lack calls of this second (epoch); "" where it has them all."""
        time = datetime.fromtimestamp(second, UTC)
        settled = time + _LOG_DELAY
        if self.read_at < settled:
            return f"logs come 5 to 15 minutes late: ask again after {_local_time(settled)}"
        end = time + _LATEST_LOG
        if not any(each.may_hold(time, end) for each in self.files):
            return f"the trail has no file from {_local_time(time)} to {_local_time(end)}"
        for each in self.broken:
            if each.may_hold(time, end):
                return f"{os.path.basename(each.location)} can't be read"
        return ""


class _Wanted(NamedTuple):
    """The part of a trail's layout that may hold calls of some tables."""

    accounts: set[str]
    regions: set[str]
    first: datetime
    """The time of the first call."""
    end: datetime
    """The time when the last of the files are delivered."""

    @classmethod
    def of(cls, tables: Iterable[str], first: datetime, end: datetime) -> _Wanted:
        """Returns what may hold calls of the tables of these ARNs."""
        arns = [each.split(":") for each in tables]
        first -= timedelta(seconds=APART)
        return cls({each[4] for each in arns}, {each[3] for each in arns}, first, end)

    def folders(self, folder: str, place: re.Match[str] | None, names: list[str]) -> list[str]:
        """Returns those of a folder's folders that may hold some; `place` is as _LOGS matches."""
        if place is None and _ACCOUNT.fullmatch(os.path.basename(folder)):
            return [each for each in names if each == "CloudTrail"] or names
        if place is None:
            numbers = [each for each in names if _ACCOUNT.fullmatch(each)]
            others = [each for each in names if each not in numbers and each not in _OTHER_LOGS]
            return [*([each for each in numbers if each in self.accounts] or numbers), *others]
        if place[2] is None:
            return [each for each in names if each in self.regions] or names
        form = _DATE[: 3 * place[3].count("/") + 3]
        first, end = self.first.strftime(form), self.end.strftime(form)
        return [each for each in names if first <= f"{place[3]}/{each}" <= end]


class Trail:
    """The log files below a place: a folder, or an `s3://` URL; also one file.

    The place may be any folder of CloudTrail's layout, from the bucket down, for an account or an
    organization. Raises UsageError where there is no such place, StreamError where S3 refuses.
    """

    def __init__(self, path: str, connection: AwsConfig, *, clock: Clock = CLOCK) -> None:
        self.path = path.rstrip("/") or path
        self._s3 = ObjectsClient(connection) if path.startswith(SCHEME) else None
        self._clock = clock
        try:
            if not self._is_file:
                next(self._entries(self.path), None)
        except OSError as error:
            raise _no_place(error, path) from None

    def answers(self, records: Iterable[Record], callers: Callers) -> list[Answer]:
        """Returns who made each of these changes."""
        keys = [callers.add_change(each) for each in records]
        reading = self.read(callers)
        return [callers.answer(each, reading.incomplete) for each in keys]

    def read(self, callers: Callers) -> TrailReading:
        """Reads the calls that may have made the added changes."""
        now = datetime.fromtimestamp(self._clock.time(), UTC)
        reading = TrailReading(now)
        if callers.first is None or callers.last is None:
            return reading
        first = datetime.fromtimestamp(callers.first, UTC)
        end = datetime.fromtimestamp(callers.last, UTC) + _LATEST_LOG
        try:
            if self._is_file:
                reading.files = [LogFile(self.path, _delivered(self.path))]
            else:
                reading.files = [*self._files(self.path, _Wanted.of(callers.tables, first, end))]
        except OSError as error:
            raise _no_place(error, self.path) from None
        for file, content in self._contents(reading.files):
            try:
                for call in calls_in(content.result(), callers.tables):
                    callers.add_call(call)
            except _BROKEN as error:
                reading.broken.append(file)
                logger.warning(f"{file.location} can't be read, and is left out: {error}")
        logger.info(f"Read {grouped(len(reading.files), 'log file')} of {self.path}")
        if first + _LOG_DELAY < now:
            for table in sorted(callers.tables - callers.written):
                logger.warning(
                    f"{self.path} has no call that writes to {table}: have the trail log its data "
                    "events (aws cloudtrail put-event-selectors)"
                )
        return reading

    def _files(self, folder: str, wanted: _Wanted) -> Iterator[LogFile]:
        """Yields the files below a folder that may hold wanted calls."""
        place = _LOGS.fullmatch(folder)
        after = ""
        if place and place[3] and place[3].count("/") == 3:  # a day's files are in their order
            after = f"{place[1]}_CloudTrail_{place[2]}_{wanted.first:%Y%m%dT%H%MZ}"
        folders: list[str] = []
        for name, is_folder in self._entries(folder, after):
            file = LogFile(f"{folder}/{name}", _delivered(name))
            if is_folder:
                folders.append(name)
            elif after and file.delivered is not None and file.delivered > wanted.end:
                break
            elif name.endswith(_ENDINGS) and file.may_hold(wanted.first, wanted.end):
                yield file
        for name in wanted.folders(folder, place, folders):
            yield from self._files(f"{folder}/{name}", wanted)

    def _contents(self, files: Iterable[LogFile]) -> Iterator[tuple[LogFile, Future[bytes]]]:
        """Yields the files with their contents, some of which are read ahead."""
        pool = CallPool(most=_LOG_THREADS)
        ahead: deque[tuple[LogFile, Future[bytes]]] = deque()
        try:
            for file in files:
                (content,) = pool.start([partial(self._content, file.location)], few=0)
                ahead.append((file, content))
                if len(ahead) > _LOG_THREADS:
                    yield ahead.popleft()
            yield from ahead
        finally:
            pool.close()

    def _content(self, location: str) -> bytes:
        packed = Path(location).read_bytes() if self._s3 is None else self._s3.whole(location)
        if packed[:2] != _GZIP:
            return packed
        with gzip.open(io.BytesIO(packed)) as file:
            content = file.read(LOG_BYTES + 1)
        if len(content) > LOG_BYTES:
            raise ValueError(f"more than {LOG_BYTES:,} bytes: not a log file of CloudTrail")
        return content

    @property
    def _is_file(self) -> bool:
        path = self.path
        return Path(path).is_file() if self._s3 is None else path.endswith(_ENDINGS)

    def _entries(self, folder: str, after: str = "") -> Iterator[tuple[str, bool]]:
        """Yields the names in a folder behind `after`, in order; True for folders."""
        if self._s3 is None:
            with os.scandir(folder) as found:
                yield from sorted((each.name, each.is_dir()) for each in found if each.name > after)
            return
        is_empty = not after
        for each in self._s3.entries(folder, after):
            is_empty = False
            yield each
        if is_empty:
            raise FileNotFoundError(folder)


def _no_place(error: OSError, path: str) -> UsageError:
    """Returns what to say of a place that can't be listed."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return UsageError("there is no such folder", "who", path)
    return UsageError(f"can't read it: {error.strerror or error}", "who", path)


def _delivered(name: str) -> datetime | None:
    found = _NAME.fullmatch(os.path.basename(name))
    return found and datetime.strptime(found[1], "%Y%m%dT%H%M").replace(tzinfo=UTC)


def _local_time(time: datetime) -> str:
    return time_text(time.astimezone())
