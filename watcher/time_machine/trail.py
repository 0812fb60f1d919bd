"""A CloudTrail trail's log files, in a folder or in S3: those that a time matters for are read.

https://docs.aws.amazon.com/awscloudtrail/latest/userguide/cloudtrail-log-file-examples.html
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from watcher.aws.config import AwsConfig
from watcher.aws.s3 import SCHEME, ObjectsClient
from watcher.aws.trail_events import calls_in
from watcher.clock import CLOCK, Clock
from watcher.errors import UsageError
from watcher.formatting.style import time_text
from watcher.formatting.text import grouped
from watcher.pull.call_pool import CallPool
from watcher.records.record import Record
from watcher.time_machine.callers import APART, Answer, Callers
from watcher.time_machine.limits import LIMITS, TimeMachineLimits

logger = logging.getLogger("watcher")

_NAME: Final = re.compile(
    r"(?P<prefix>\d{12}_CloudTrail_[a-z0-9-]+_)(?P<time>\d{8}T\d{4})Z_\w+\.json(?:\.gz)?"
)
_ACCOUNT: Final = re.compile(r"\d{12}")
_LOGS: Final = "CloudTrail"
_ENDINGS: Final = (".json", ".json.gz")
_GZIP: Final = b"\x1f\x8b"
_BROKEN: Final = (OSError, EOFError, ValueError, zlib.error, msgspec.MsgspecError)


class LogFile(NamedTuple):
    """A log file, and when CloudTrail delivered it."""

    location: str
    delivered: datetime | None
    """The minute of its delivery; None where its name does not tell."""


class TrailReading:
    """The calls read from a trail, and the gaps that it may have."""

    def __init__(self, read_at: datetime, limits: TimeMachineLimits = LIMITS) -> None:
        self.read_at = read_at
        self.files: list[LogFile] = []
        self.broken: list[LogFile] = []
        """The files that can't be read."""
        self._limits = limits

    def incomplete(self, second: int) -> str:
        """Returns why the trail may lack calls of this second (epoch); "" where it has them all."""
        time = datetime.fromtimestamp(second, UTC)
        settled = time + self._limits.log_delay
        if self.read_at < settled:
            return f"logs come 5 to 15 minutes late: ask again after {_text(settled)}"
        end = time + self._limits.latest_log
        if not any(_may_hold(each, time, end) for each in self.files):
            return f"the trail has no file from {_text(time)} to {_text(end)}"
        for each in self.broken:
            if _may_hold(each, time, end):
                return f"{os.path.basename(each.location)} can't be read"
        return ""


_SELECTORS: Final = (
    '[{{"FieldSelectors":[{{"Field":"eventCategory","Equals":["Management"]}}]}},'
    '{{"FieldSelectors":[{{"Field":"eventCategory","Equals":["Data"]}},'
    '{{"Field":"resources.type","Equals":["AWS::DynamoDB::Table"]}},'
    '{{"Field":"resources.ARN","Equals":["{table}"]}},'
    '{{"Field":"readOnly","Equals":["false"]}}]}}]'
)


def _hint(table: str) -> str:
    """Returns what has CloudTrail log a table's calls from now on."""
    selectors = shlex.quote(_SELECTORS.format(table=table))
    return (
        "where its data events are off, this switches them on, for calls to come (it takes the "
        "place of the trail's selectors: add those that it has): aws cloudtrail "
        f"put-event-selectors --trail-name TRAIL --advanced-event-selectors {selectors}"
    )


def _may_hold(file: LogFile, first: datetime, end: datetime) -> bool:
    """True where a file may hold calls since `first`, if those are delivered by `end`."""
    if file.delivered is None:
        return True
    last_second = file.delivered + timedelta(seconds=59 + APART)
    return first <= last_second and file.delivered <= end + timedelta(seconds=APART)


class Trail:
    """The log files below a place: a folder, or an `s3://` URL; also one file.

    The place may be any folder of CloudTrail's layout, from the bucket down, for an account or an
    organization. Raises UsageError where there is no such place, StreamError where S3 refuses.
    """

    def __init__(
        self,
        place: str,
        connection: AwsConfig,
        *,
        clock: Clock = CLOCK,
        limits: TimeMachineLimits = LIMITS,
    ) -> None:
        self.place = place.rstrip("/") or place
        self._tree: _Tree
        self._tree = _Objects(connection) if place.startswith(SCHEME) else _Folders()
        try:
            if not self._tree.is_file(self.place):
                next(self._tree.entries(self.place, ""), None)
        except OSError as error:
            raise _no_place(error, place) from None
        self._clock = clock
        self._limits = limits

    def answers(self, records: Iterable[Record], table: str = "") -> list[Answer]:
        """Returns who made each of these changes; see `Callers` for the `table`."""
        callers = Callers(table)
        keys = [callers.add_change(each) for each in records]
        reading = self.read(callers)
        return [callers.answer(each, reading.incomplete) for each in keys]

    def read(self, callers: Callers) -> TrailReading:
        """Reads the calls that may have made the added changes."""
        now = datetime.fromtimestamp(self._clock.time(), UTC)
        reading = TrailReading(now, self._limits)
        if callers.first is None or callers.last is None:
            return reading
        first = datetime.fromtimestamp(callers.first, UTC)
        end = datetime.fromtimestamp(callers.last, UTC) + self._limits.latest_log
        try:
            reading.files = [*self.files(callers.tables, first, end)]
        except OSError as error:
            raise _no_place(error, self.place) from None
        for file, content in self._contents(reading.files):
            try:
                for call in calls_in(content(), callers.tables):
                    callers.add_call(call)
            except _BROKEN as error:
                reading.broken.append(file)
                logger.warning(f"{file.location} can't be read, and is left out: {error}")
        logger.info(f"Read {grouped(len(reading.files), 'log file')} of {self.place}")
        if first + self._limits.log_delay < now:
            for table in sorted(callers.tables - callers.written):
                logger.warning(f"{self.place} has no call that writes to {table}: {_hint(table)}")
        return reading

    def files(self, tables: Iterable[str], first: datetime, end: datetime) -> Iterator[LogFile]:
        """Yields the files that may hold calls of these tables (ARNs) since `first`.

        `end` is when the last of them are delivered.
        """
        if self._tree.is_file(self.place):
            yield LogFile(self.place, _delivered(self.place))
            return
        yield from self._below(self.place, _Wanted(tables, first, end))

    def _below(self, folder: str, wanted: _Wanted) -> Iterator[LogFile]:
        parts = folder.split("/")
        after = wanted.first_name(parts)
        folders: list[str] = []
        for name, is_folder in self._tree.entries(folder, after):
            file = LogFile(f"{folder}/{name}", _delivered(name))
            if is_folder:
                folders.append(name)
            elif file.delivered is not None and file.delivered > wanted.end:
                if after:  # a day's files are in the order of their times
                    break
            elif name.endswith(_ENDINGS) and _may_hold(file, wanted.first, wanted.end):
                yield file
        for name in wanted.folders(parts, folders):
            yield from self._below(f"{folder}/{name}", wanted)

    def _contents(self, files: Sequence[LogFile]) -> Iterator[tuple[LogFile, Callable[[], bytes]]]:
        """Yields the files with their contents, some of which are read ahead."""
        pool = CallPool(most=self._limits.log_threads)
        left = deque(files)
        ahead: deque[tuple[LogFile, Future[bytes]]] = deque()
        try:
            while left or ahead:
                if len(ahead) <= self._limits.log_threads:
                    some = [left.popleft() for _ in range(min(len(left), self._limits.log_threads))]
                    calls = [partial(self._content, each.location) for each in some]
                    ahead.extend(zip(some, pool.start(calls), strict=True))
                file, future = ahead.popleft()
                yield file, future.result
        finally:
            pool.close()

    def _content(self, location: str) -> bytes:
        packed = self._tree.read(location)
        return _unpacked(packed, self._limits.log_bytes) if packed[:2] == _GZIP else packed


def _no_place(error: OSError, place: str) -> UsageError:
    """Returns what to say of a place that can't be listed."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return UsageError("there is no such folder", "who", place)
    return UsageError(f"can't read it: {error.strerror or error}", "who", place)


class _Wanted:
    """The folders of a trail's layout that may hold files delivered between two times.

    `AWSLogs/[o-ORGANIZATION/]ACCOUNT/CloudTrail/REGION/YYYY/MM/DD/`
    """

    def __init__(self, tables: Iterable[str], first: datetime, end: datetime) -> None:
        self.first = first - timedelta(seconds=APART)
        self.end = end
        places = [each.split(":", 5) for each in tables]
        self._regions = {each[3] for each in places if len(each) > 4}
        self._accounts = {each[4] for each in places if len(each) > 4}

    def folders(self, parts: Sequence[str], names: Sequence[str]) -> list[str]:
        """Returns those of the folders below `parts` that may hold some."""
        dated = _below_region(parts)
        if dated is not None and len(dated) < len(_DATE):
            return [each for each in names if self._is_of_then((*dated, each))]
        if _is_logs(parts):
            return _only(self._regions, names)
        if _ACCOUNT.fullmatch(parts[-1]):
            return _only({_LOGS}, names)
        accounts = [each for each in names if _ACCOUNT.fullmatch(each)]
        others = [each for each in names if each not in accounts and each not in _OTHER_LOGS]
        return [*_only(self._accounts, accounts), *others]

    def first_name(self, parts: Sequence[str]) -> str:
        """Returns the name behind which the files of a day begin that are wanted; "" for all."""
        dated = _below_region(parts)
        if dated is None or len(dated) != len(_DATE):
            return ""
        account, _, region = parts[-len(_DATE) - 3 : -len(_DATE)]
        return f"{account}_CloudTrail_{region}_{self.first:%Y%m%dT%H%MZ}"

    def _is_of_then(self, dated: Sequence[str]) -> bool:
        """True for a year, a month or a day in which some were delivered."""
        cut = "/".join(_DATE[: len(dated)])
        first, end = (time.strftime(cut) for time in (self.first, self.end))
        return first <= "/".join(dated) <= end


_DATE: Final = ("%Y", "%m", "%d")
_OTHER_LOGS: Final = ("CloudTrail-Digest", "CloudTrail-Insight", "CloudTrail-NetworkActivity")


def _is_logs(parts: Sequence[str]) -> bool:
    """True for an account's folder of CloudTrail's logs."""
    return parts[-1] == _LOGS and len(parts) > 1 and bool(_ACCOUNT.fullmatch(parts[-2]))


def _below_region(parts: Sequence[str]) -> Sequence[str] | None:
    """Returns the year, month and day of a folder in a region's; None for another folder."""
    for at in range(len(parts) - 1, 1, -1):
        if _is_logs(parts[:at]):
            return parts[at + 1 :]
    return None


def _only(wanted: set[str], names: Sequence[str]) -> list[str]:
    """Returns the names that are wanted; all of them where none is."""
    return [each for each in names if each in wanted] or list(names)


class _Tree(Protocol):
    """Folders and files, or the prefixes and objects of a bucket."""

    def is_file(self, place: str) -> bool: ...

    def entries(self, folder: str, after: str) -> Iterator[tuple[str, bool]]:
        """Yields the names in a folder behind `after`, in order; True for folders."""

    def read(self, place: str) -> bytes: ...


class _Folders:
    def is_file(self, place: str) -> bool:
        return Path(place).is_file()

    def entries(self, folder: str, after: str) -> Iterator[tuple[str, bool]]:
        with os.scandir(folder) as found:
            yield from sorted((each.name, each.is_dir()) for each in found if each.name > after)

    def read(self, place: str) -> bytes:
        return Path(place).read_bytes()


class _Objects:
    def __init__(self, connection: AwsConfig) -> None:
        self._client = ObjectsClient(connection)

    def is_file(self, place: str) -> bool:
        return place.endswith(_ENDINGS)

    def entries(self, folder: str, after: str) -> Iterator[tuple[str, bool]]:
        found = self._client.entries(folder, after)
        first = next(found, None)
        if first is None and not after:
            raise FileNotFoundError(folder)
        return chain([first] if first else [], found)

    def read(self, place: str) -> bytes:
        return self._client.whole(place)


def _delivered(name: str) -> datetime | None:
    found = _NAME.fullmatch(os.path.basename(name))
    return found and datetime.strptime(found["time"], "%Y%m%dT%H%M").replace(tzinfo=UTC)


def _unpacked(packed: bytes, most: int) -> bytes:
    """Returns what a gzip file holds. Raises EOFError, ValueError, zlib.error for a broken one."""
    parts: list[bytes] = []
    left = most
    while packed:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        parts.append(member.decompress(packed, left + 1))
        left -= len(parts[-1])
        if left < 0:
            raise ValueError(f"more than {most:,} bytes, which is no log file of CloudTrail's")
        if not member.eof:
            raise EOFError("it ends too early")
        packed = member.unused_data
    return b"".join(parts)


def _text(time: datetime) -> str:
    return time_text(time.astimezone())
