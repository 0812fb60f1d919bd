"""One GetRecords answer: raw bytes whose records are decoded where they are needed."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from watcher.aws.json_text import mend, read
from watcher.aws.model import ShardKey
from watcher.errors import OddAnswerError, TransientError
from watcher.records.record import Record
from watcher.records.wire import WireRecord


class WirePage(msgspec.Struct, gc=False):
    """GetRecords' answer, each record's images undecoded."""

    Records: list[WireRecord]
    NextShardIterator: str | None = None


class _RawPage(msgspec.Struct, gc=False):
    Records: list[msgspec.Raw]


# Where the member is the answer's first, or its last: there it can be nothing else.
_MEMBER = rb'"NextShardIterator"\s*:\s*"([ !#-\[\]-~]+)"\s*'
_is_first = re.compile(rb"\s*\{\s*" + _MEMBER).match
_is_last = re.compile(_MEMBER + rb"\}\s*\Z").search
_ITERATOR_BYTES = 4096
_FEW = 100
_NEAR_BYTES = 8 * 1024

_wire_page = msgspec.json.Decoder(WirePage)
_wire_record = msgspec.json.Decoder(WireRecord)
_NO_PAGE = "GetRecords: an answer that is not a page of records"
_raw_page = msgspec.json.Decoder(_RawPage)


def decode(body: bytes) -> WirePage:
    """The page's structure; 1.8 ms for 1,000 records, where botocore takes 230.

    Raises TransientError for a body that is not whole, OddAnswerError for one that is no page.
    """
    try:
        if not body.isascii():
            str(body, "utf-8")  # the images are not looked at here
        return read(_wire_page, body)
    except msgspec.ValidationError as error:
        raise OddAnswerError(f"{_NO_PAGE}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TransientError(f"{_NO_PAGE}: {error}") from None


def next_iterator(body: bytes) -> str | None:
    """The NextShardIterator of a page that may yet be none; None also where it takes a search."""
    found = _is_first(body) or _is_last(body, max(0, len(body) - _ITERATOR_BYTES))
    return found and found[1].decode("ascii")


def raw_records(body: bytes) -> list[msgspec.Raw]:
    """Each record's wire JSON, byte for byte."""
    try:
        return _raw_page.decode(body).Records
    except msgspec.DecodeError:
        return _unmended(bytes(body), mend(bytes(body)))


def raws_of(
    body: bytes, wires: Sequence[WireRecord], places: Sequence[int]
) -> Sequence[bytes | msgspec.Raw]:
    """The wire JSON of some of a page's records, byte for byte.

    A shortcut: where they begin alike, a few are found by their numbers, and by how the next one
    begins; what is found is read and compared. To read the whole page again takes much longer.
    """
    if len(places) <= _FEW:
        with contextlib.suppress(ValueError, msgspec.DecodeError):
            return list(_found(body, wires, places))
    raws = raw_records(body)
    return [raws[place] for place in places]


def _found(body: bytes, wires: Sequence[WireRecord], places: Sequence[int]) -> Iterator[bytes]:
    """Raises ValueError or DecodeError where they can't be found."""
    end = body.index(b"{", body.index(b"["))
    beginning = body[end : body.index(b":", end) + 1]
    size, before = (len(body) - end) // max(1, len(wires)), 0
    for place in places:
        text = b'"%b"' % wires[place].dynamodb.SequenceNumber.encode()
        # Records are often of one size: then it is near, and the rest need not be searched.
        near = end + (place - before) * size
        number = body.find(text, max(end, near - _NEAR_BYTES), near + _NEAR_BYTES)
        if number < 0:
            number = body.index(text, end)
        before = place
        begin = body.rindex(beginning, 0, number)
        end = body.find(b"," + beginning, number)
        if end < 0:
            end = body.rindex(b"]")
        raw = body[begin:end]
        if not raw.endswith(b"}") or read(_wire_record, raw) != wires[place]:
            raise ValueError("no record, or another one")
        yield raw


def _unmended(body: bytes, mended: bytes) -> list[msgspec.Raw]:
    """As it came: a mended page's records stand where the page's own do."""
    found = []
    end = 0
    for raw in _raw_page.decode(mended).Records:
        begin = mended.index(bytes(raw), end)
        end = begin + len(bytes(raw))
        found.append(msgspec.Raw(body[begin:end]))
    return found


class RecordPage:
    """Records of one page, in their order, decoded no further than somebody looks."""

    def __init__(self, body: bytes | _Body, origin: ShardKey, places: Sequence[int]) -> None:
        self.origin = origin
        """The shard that they were read from."""
        self._body = body if isinstance(body, _Body) else _Body(body)
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @property
    def table(self) -> str:
        """The name of the table that was changed."""
        return self.origin.table

    def __iter__(self) -> Iterator[Record]:
        body, origin, from_wire = self._body, self.origin, Record.from_wire
        for place, wire in zip(self._places, self.wires, strict=True):
            yield from_wire(wire, body, place, origin)

    def __getitem__(self, part: slice) -> RecordPage:
        """Some of them."""
        return RecordPage(self._body, self.origin, self._places[part])

    def filtered(self, wanted: Callable[[WireRecord], bool]) -> RecordPage:
        """Those that are wanted."""
        pairs = zip(self._places, self.wires, strict=True)
        return RecordPage(self._body, self.origin, [place for place, wire in pairs if wanted(wire)])

    def masked(self, wanted: Callable[[WireRecord], bool] | None) -> Iterator[Record | None]:
        """Each, None in the place of one that is not wanted."""
        body, origin, from_wire = self._body, self.origin, Record.from_wire
        for place, wire in zip(self._places, self.wires, strict=True):
            is_wanted = wanted is None or wanted(wire)
            yield from_wire(wire, body, place, origin) if is_wanted else None

    @property
    def wires(self) -> list[WireRecord]:
        """Their fields, the images undecoded."""
        return _chosen(self._body.wires, self._places)

    @property
    def raws(self) -> list[msgspec.Raw]:
        """Their wire JSON, byte for byte."""
        return _chosen(self._body.raws, self._places)


class _Body:
    """A page's bytes, taken apart once somebody looks."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def __getitem__(self, place: int) -> msgspec.Raw:
        return self.raws[place]

    @functools.cached_property
    def raws(self) -> list[msgspec.Raw]:
        return raw_records(self._body)

    @functools.cached_property
    def wires(self) -> list[WireRecord]:
        return read(_wire_page, self._body).Records


_T = TypeVar("_T")


def _chosen(each: list[_T], places: Sequence[int]) -> list[_T]:
    if isinstance(places, range):
        return each[places.start : places.stop]
    return [each[place] for place in places]


def records(
    body: bytes, origin: ShardKey, first: int = 0, last: int | None = None
) -> Iterator[Record]:
    """The records `first:last` of a page, each made when its turn comes."""
    opened = _Body(body)
    end = len(opened.wires) if last is None else last
    return iter(RecordPage(opened, origin, range(first, end)))
