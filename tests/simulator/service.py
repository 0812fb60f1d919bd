"""Answers the service's operations over the model, with the faults asked for; still no sockets."""

import base64
import binascii
import json
import struct
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from .errors import ODD, THROTTLES, ServiceError, invalid, not_found
from .faults import Faults
from .model import Shard, Stream, World, compact
from .naming import ACCOUNT
from .tables import Items

_STREAMS = "DynamoDBStreams_20120810."
_TABLES = "DynamoDB_20120810."
_ITERATOR = struct.Struct(">16sQQd")  # nonce, index of the shard, of the record, time of issue
_ODD_BODIES = {
    "cbor": (200, b"\xbfgRecords\x80qNextShardIteratoraa\xff"),
    "garbage": (200, b"\x00\xff\xfe<>"),
    "page": (200, b"<html><head><title>Sign in</title></head><body>Hotel Wi-Fi</body></html>"),
    "else": (200, b'{"ok":true}'),
    "status-204": (204, b""),
}
_PAGE = b"<html><head><title>%d</title></head><body>caf\xe9, says the proxy</body></html>"
_PLAIN_ERROR = b"<html><body><b>Http/1.1 Service Unavailable</b></body> </html>"
_PAGE_BYTES = 1024 * 1024
Parameters = dict[str, Any]


class Reply(NamedTuple):
    """What the connection has to do: send a body, or misbehave in the named way."""

    status: int
    body: bytes
    trouble: str = ""  # hang, drip, reset, reset-midway, truncate, invalid-json
    delay: float = 0.0
    cut: int = 0  # how much of the body a troubled answer has


@dataclass
class _Planned:
    operation: str
    error: str
    times: int
    shard_id: str | None


class Service:
    """The operations, and the counts of what was asked and what went wrong on purpose."""

    def __init__(self, world: World, faults: Faults) -> None:
        self.world = world
        self.calls: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        """How many calls came too often, by shard or by operation; and …"""
        self.begun: Counter[str] = Counter()
        """… how many iterators were asked for, by shard."""
        self.injected: Counter[str] = Counter()
        self._planned: list[_Planned] = []
        self._buckets: dict[str, tuple[float, float]] = {}
        self._places: list[tuple[Stream, Shard]] = []
        self._place_of: dict[str, int] = {}
        self._emptied: Counter[str] = Counter()
        self._handlers: dict[str, Callable[[Parameters], bytes]] = {
            _STREAMS + "ListStreams": self._start_new_streams,
            _STREAMS + "DescribeStream": self._describe_stream,
            _STREAMS + "GetShardIterator": self._get_shard_iterator,
            _STREAMS + "GetRecords": self._get_records,
            _TABLES + "DescribeTable": self._describe_table,
            **{_TABLES + name: call for name, call in Items(world).handlers().items()},
        }
        self.set_faults(faults)

    def set_faults(self, faults: Faults) -> None:
        self.faults = faults
        self.world.granularity = faults.granularity
        self.world.ending_past_last = faults.ending_past_last
        self.world.ahead_rate = faults.ahead_rate

    def fail_next(self, operation: str, error: str, times: int, shard_id: str | None) -> None:
        """Plan an error code or a trouble for the next calls.

        Or `empty`, an empty page; or `ends`, one without a next iterator, though the shard is open.
        """
        self._planned.append(_Planned(operation, error, times, shard_id))

    def date(self, answered_at: float | None = None) -> int:
        """The Date header of an answer given then, or else now; in epoch seconds."""
        skew, rate = self.faults.date_skew, self.faults.date_skew_rate
        if skew and rate < 1 and self.world.rng.random() >= rate:
            skew = 0.0
        return int((self.world.now() if answered_at is None else answered_at) + skew)

    def forget_failures(self) -> None:
        """Plan no failures any more."""
        self._planned.clear()

    def answer(self, target: str, body: bytes, access_key: str | None) -> Reply:
        """What comes of a request as it is on the wire."""
        try:
            parameters = self._parse(body)
        except ServiceError as error:
            operation = target.partition(".")[2]
            self.calls[operation] += 1
            return Reply(error.status, error.body())
        return self.ask(target, parameters, access_key)

    def ask(self, target: str, parameters: Parameters, access_key: str | None) -> Reply:
        """What comes of a call of the operation `target` with these parameters."""
        operation = target.partition(".")[2]
        self.calls[operation] += 1
        try:
            if operation == "GetRecords":
                self.reads[self._shard_asked(parameters) or ""] += 1
            trouble = self._trouble(operation, parameters)
            if trouble in ("hang", "reset"):
                reply = Reply(0, b"", trouble)
            elif trouble == "unavailable":
                reply = Reply(503, _PLAIN_ERROR)
            elif trouble in _ODD_BODIES:
                reply = Reply(*_ODD_BODIES[trouble])
            elif trouble.startswith("status-"):
                status = int(trouble.removeprefix("status-"))
                reply = Reply(status, _PAGE % status)
            else:
                reply = self._answer(target, parameters, access_key, trouble)
        except ServiceError as error:
            reply = Reply(error.status, error.body())
        faults = self.faults
        delay = faults.latency
        if faults.latency_jitter:
            delay += self.world.rng.random() * faults.latency_jitter
        return reply._replace(delay=delay) if delay else reply

    def _answer(
        self, target: str, parameters: Parameters, access_key: str | None, trouble: str
    ) -> Reply:
        if trouble and trouble[0].isupper():
            raise ServiceError(trouble)
        operation = target.partition(".")[2]
        self._authorise(operation, access_key)
        self._limit(operation, parameters)
        handler = self._handlers.get(target)
        if handler is None:
            raise ServiceError("UnknownOperationException", f"Unknown operation {target}")
        if trouble == "empty" and not self._is_past_end(parameters):
            return Reply(200, self._empty_page(parameters))
        if trouble == "ends":  # an open shard seems to be closed
            if self._use_iterator(parameters)[1].closed is None:
                return Reply(200, b'{"Records":[]}')
            trouble = ""
        body = handler(parameters)
        cut = self.world.rng.randrange(len(body)) if trouble else 0
        return Reply(200, body, trouble, cut=cut)

    @staticmethod
    def _parse(body: bytes) -> Parameters:
        try:
            parameters = json.loads(body or b"{}")
        except ValueError:
            raise ServiceError("SerializationException", "Malformed JSON") from None
        if not isinstance(parameters, dict):
            raise ServiceError("SerializationException", "Not an object")
        return parameters

    # What goes wrong on purpose

    def _trouble(self, operation: str, parameters: Parameters) -> str:
        """The fault this call has to suffer: an error code, a trouble, or none."""
        kind = self._planned_trouble(operation, parameters) or self._chance(operation)
        if kind:
            self.injected[kind] += 1
        return kind

    def _planned_trouble(self, operation: str, parameters: Parameters) -> str:
        for plan in self._planned:
            if plan.operation != operation:
                continue
            if plan.shard_id is None or plan.shard_id == self._shard_asked(parameters):
                plan.times -= 1
                if plan.times <= 0:
                    self._planned.remove(plan)
                return plan.error
        return ""

    def _chance(self, operation: str) -> str:
        faults, rng = self.faults, self.world.rng
        if faults.operations and operation not in faults.operations:
            return ""
        if faults.hang_rate and rng.random() < faults.hang_rate:
            return rng.choice(("hang", "drip"))
        if faults.reset_rate and rng.random() < faults.reset_rate:
            return rng.choice(("reset", "reset-midway"))
        if faults.error_rate and rng.random() < faults.error_rate:
            return rng.choice(("InternalServerError", "ServiceUnavailable", "unavailable"))
        if faults.odd_rate and rng.random() < faults.odd_rate:
            return rng.choice(ODD)
        if faults.throttle_rate and rng.random() < faults.throttle_rate:
            return rng.choice(THROTTLES)
        if faults.truncate_rate and rng.random() < faults.truncate_rate:
            return "truncate"
        if faults.invalid_json_rate and rng.random() < faults.invalid_json_rate:
            return "invalid-json"
        empty = faults.empty_page_rate if operation == "GetRecords" else 0.0
        return "empty" if empty and rng.random() < empty else ""

    def _authorise(self, operation: str, access_key: str | None) -> None:
        faults = self.faults
        if access_key is None:
            raise ServiceError("MissingAuthenticationTokenException")
        if access_key in faults.expired_access_keys:
            raise ServiceError("ExpiredTokenException")
        if faults.auth_error and operation in (faults.auth_operations or (operation,)):
            raise ServiceError(faults.auth_error)

    def _limit(self, operation: str, parameters: Parameters) -> None:
        rate = self.faults.shard_reads_per_second
        if operation == "GetRecords" and rate:
            self._spend(self._shard_asked(parameters) or "", rate)

    def _spend(self, name: str, rate: float) -> None:
        """Take one token of a bucket that holds a second's worth."""
        now = self.world.now()
        tokens, then = self._buckets.get(name, (rate, now))
        tokens = min(max(rate, 1.0), tokens + (now - then) * rate)
        self._buckets[name] = (tokens - 1 if tokens >= 1 else tokens, now)
        if tokens < 1:
            self.injected["rate-limit"] += 1
            self.refused[name] += 1
            raise ServiceError("ThrottlingException")

    def _shard_asked(self, parameters: Parameters) -> str | None:
        if "ShardIterator" not in parameters:
            shard_id = parameters.get("ShardId")
            return shard_id if isinstance(shard_id, str) else None
        try:
            return self._open_iterator(parameters)[1].id
        except ServiceError:
            return None

    # The operations

    def _start_new_streams(self, parameters: Parameters) -> bytes:
        table = parameters.get("TableName")
        after = parameters.get("ExclusiveStartStreamArn")
        limit = min(_limit(parameters, 100), self.faults.list_page)
        streams = [
            stream
            for stream in list(self.world.streams.values())
            if table in (None, stream.table.name)
            and stream.table.account == ACCOUNT
            and stream.is_kept(self._horizon())
        ]
        streams.sort(key=lambda stream: stream.arn)
        if after is not None:
            streams = [stream for stream in streams if stream.arn > after]
        page = streams[:limit]
        listed = [
            {"StreamArn": s.arn, "TableName": s.table.name, "StreamLabel": s.label} for s in page
        ]
        answer: Parameters = {"Streams": listed}
        if len(streams) > limit:
            answer["LastEvaluatedStreamArn"] = page[-1].arn
        return compact(answer).encode()

    def _describe_stream(self, parameters: Parameters) -> bytes:
        stream = self._stream(parameters)
        stream.expire(self._horizon())
        limit = min(_limit(parameters, 100), self.faults.describe_page)
        after = parameters.get("ExclusiveStartShardId") or ""
        shards = [s for s in stream.shards.values() if s.id > after and self._is_listed(s)]
        parent = self._filtered_parent(parameters)
        if parent is not None and self.faults.child_filter:
            shards = [shard for shard in shards if shard.parent == parent]
        shards.sort(key=lambda shard: shard.id)
        page = shards[:limit]
        answer: Parameters = {
            "StreamArn": stream.arn,
            "StreamLabel": stream.label,
            "StreamStatus": stream.status,
            "StreamViewType": stream.view_type,
            "CreationRequestDateTime": stream.created,
            "TableName": stream.table.name,
            "KeySchema": _key_schema(stream.table.key_names),
            "Shards": [self._listed(shard) for shard in page],
        }
        if len(shards) > limit:
            answer["LastEvaluatedShardId"] = page[-1].id
        elif self.faults.endless_listing and parent is None:
            answer["LastEvaluatedShardId"] = f"~{int(after.partition('~')[2] or 0) + 1}"
        return compact({"StreamDescription": answer}).encode()

    def _get_shard_iterator(self, parameters: Parameters) -> bytes:
        stream = self._stream(parameters)
        shard = stream.shard(str(_required(parameters, "ShardId")))
        shard.expire(self._horizon())
        shard = stream.shard(shard.id)
        kind = _required(parameters, "ShardIteratorType")
        if kind == "TRIM_HORIZON":
            index = shard.first
        elif kind == "LATEST":
            index = len(shard.numbers)
        elif kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
            index = self._index_of(shard, parameters, after=kind.startswith("AFTER"))
        elif kind == "AT_TIMESTAMP" and self.faults.at_timestamp:
            index = self._index_at(shard, parameters)
        else:
            raise invalid(
                f"1 validation error detected: Value '{kind}' at 'shardIteratorType' failed to "
                "satisfy constraint: Member must satisfy enum value set: [AFTER_SEQUENCE_NUMBER, "
                "LATEST, AT_SEQUENCE_NUMBER, TRIM_HORIZON]"
            )
        self.begun[shard.id] += 1
        return compact({"ShardIterator": self._iterator(stream, shard, index)}).encode()

    def _get_records(self, parameters: Parameters) -> bytes:
        limit = min(_limit(parameters, 1000), self.faults.max_records)
        stream, shard, index = self._use_iterator(parameters)
        is_ahead = shard.closed is not None and index < len(shard.numbers)
        if is_ahead and self._emptied[shard.id] < self.faults.closed_empty:
            self._emptied[shard.id] += 1
            return self._empty_page(parameters)
        rng, short = self.world.rng, self.faults.short_page_rate
        if self.faults.back_rate and rng.random() < self.faults.back_rate:
            self.injected["back"] += 1
            index = rng.randint(shard.first, index)
        if short and rng.random() < short:
            limit = rng.randint(1, max(1, min(limit, len(shard.numbers) - index)))
        bodies = self._page(shard, index, limit)
        index += len(bodies)
        if self.faults.shuffled_rate and rng.random() < self.faults.shuffled_rate:
            self.injected["shuffled"] += 1
            rng.shuffle(bodies)
        ended = shard.closed is not None and index >= len(shard.numbers)
        if ended and not (bodies and self.faults.last_page_empty):
            return b'{"Records":[' + b",".join(bodies) + b"]}"
        follows = self._iterator(stream, shard, index).encode()
        return b'{"Records":[%b],"NextShardIterator":"%b"}' % (b",".join(bodies), follows)

    def _is_past_end(self, parameters: Parameters) -> bool:
        """Whether nothing can follow: then no page is empty that has a next one.

        So does DynamoDB Local, and AWS: where LATEST of a closed shard is read, it has ended.
        """
        _, shard, index, _ = self._open_iterator(parameters)
        return shard.closed is not None and index >= len(shard.numbers)

    def _empty_page(self, parameters: Parameters) -> bytes:
        stream, shard, index = self._use_iterator(parameters)
        follows = self._iterator(stream, shard, index)
        return compact({"Records": [], "NextShardIterator": follows}).encode()

    def _describe_table(self, parameters: Parameters) -> bytes:
        name = str(_required(parameters, "TableName"))
        if ":" in name:
            if self.faults.table_arns == "refused":
                raise invalid("Invalid table/index name.")
            if self.faults.table_arns == "stripped":
                name = name.rpartition(":table/")[2]
        tables = self.world.tables
        by_arn = (each for each in tables.values() if each.arn == name)
        table = tables.get(name) or next(by_arn, None)
        if table is None:
            raise not_found(f"Table: {name} not found")
        answer: Parameters = {
            "TableName": table.name,
            "TableArn": table.arn,
            "TableStatus": "ACTIVE",
            "CreationDateTime": table.created,
            "KeySchema": _key_schema(table.key_names),
            "AttributeDefinitions": [
                {"AttributeName": name, "AttributeType": "S"} for name in table.key_names
            ],
        }
        if table.is_replicated:
            answer["Replicas"] = [{"RegionName": "eu-west-1", "ReplicaStatus": "ACTIVE"}]
        if table.streams and table.stream.is_kept(self._horizon()):
            stream = table.stream
            answer["LatestStreamArn"] = stream.arn
            answer["LatestStreamLabel"] = stream.label
            if stream.disabled is None:
                answer["StreamSpecification"] = {
                    "StreamEnabled": True,
                    "StreamViewType": stream.view_type,
                }
        return compact({"Table": answer}).encode()

    # Streams and listings

    def _horizon(self) -> float:
        return self.world.now() - self.faults.retention

    def _stream(self, parameters: Parameters) -> Stream:
        arn = str(_required(parameters, "StreamArn"))
        if "/stream/" not in arn and arn not in self.world.streams:
            raise invalid(f"Invalid StreamArn: {arn}")
        return self.world.stream(arn, self.faults.retention)

    def _is_listed(self, shard: Shard) -> bool:
        if shard.gone:
            return False
        lag = 0.0 if shard.parent is None else self._lag(shard, self.faults.listing_lag)
        if self.faults.children_first and shard.generation % 2 == 0:
            lag = 0.0
        return shard.created + lag <= self.world.now()

    def _lag(self, shard: Shard, lag: float) -> float:
        return lag * shard.lag_share if self.faults.lag_jitter else lag

    def _listed(self, shard: Shard) -> Parameters:
        numbers = {"StartingSequenceNumber": str(shard.start)}
        lag = self._lag(shard, self.faults.closing_lag)
        if shard.closed is not None and shard.closed + lag <= self.world.now():
            numbers["EndingSequenceNumber"] = str(shard.end)
        listed: Parameters = {"ShardId": shard.id, "SequenceNumberRange": numbers}
        if shard.parent is not None:
            listed["ParentShardId"] = shard.parent
        return listed

    @staticmethod
    def _filtered_parent(parameters: Parameters) -> str | None:
        wanted = parameters.get("ShardFilter")
        if wanted is None:
            return None
        if wanted.get("Type") != "CHILD_SHARDS" or "ShardId" not in wanted:
            raise invalid("ShardFilter must be of type CHILD_SHARDS and name a ShardId")
        return str(wanted["ShardId"])

    # CheckpointStorage

    @staticmethod
    def _index_of(shard: Shard, parameters: Parameters, after: bool) -> int:
        text = parameters.get("SequenceNumber")
        if text is None:
            raise invalid("SequenceNumber is required for this ShardIteratorType")
        if not (isinstance(text, str) and text.isdecimal() and 21 <= len(text) <= 40):
            raise invalid(f"Invalid SequenceNumber: {text}")
        number = int(text)
        newest = shard.numbers[-1] if shard.numbers else shard.start
        if shard.takes_any and number > newest:
            return shard.first
        if not shard.is_anew and not shard.start <= number <= max(newest, shard.end or 0):
            raise invalid(f"SequenceNumber {text} is not within shard {shard.id}")
        if shard.first and number <= shard.numbers[shard.first - 1]:
            raise ServiceError("TrimmedDataAccessException")
        return (bisect_right if after else bisect_left)(shard.numbers, number)

    def _index_at(self, shard: Shard, parameters: Parameters) -> int:
        moment = parameters.get("Timestamp")
        if not isinstance(moment, int | float):
            raise invalid("Timestamp is required for ShardIteratorType AT_TIMESTAMP")
        if moment > self.world.now():
            raise invalid("Timestamp must not be in the future")
        return max(shard.first, bisect_left(shard.times, moment))

    def _iterator(self, stream: Stream, shard: Shard, index: int) -> str:
        place = self._place_of.get(shard.id)
        if place is None:
            place = self._place_of[shard.id] = len(self._places)
            self._places.append((stream, shard))
        nonce = self.world.rng.randbytes(16)
        packed = _ITERATOR.pack(nonce, place, index, self.world.now())
        return f"{stream.arn}|1|{base64.b64encode(packed).decode()}"

    def _use_iterator(self, parameters: Parameters) -> tuple[Stream, Shard, int]:
        """The stream, shard and index to read from, if this iterator may still be used."""
        stream, shard, index, issued = self._open_iterator(parameters)
        if issued + self.faults.iterator_seconds < self.world.now():
            raise ServiceError("ExpiredIteratorException")
        self.world.stream(stream.arn, self.faults.retention)
        shard.expire(self._horizon())
        stream.shard(shard.id)
        if index < shard.first:
            raise ServiceError("TrimmedDataAccessException")
        return stream, shard, index

    def _open_iterator(self, parameters: Parameters) -> tuple[Stream, Shard, int, float]:
        """What is written in an iterator: stream, shard, index, time of issue."""
        text = str(_required(parameters, "ShardIterator"))
        try:
            packed = base64.b64decode(text.rpartition("|")[2], validate=True)
            _, place, index, issued = _ITERATOR.unpack(packed)
            stream, shard = self._places[place]
        except (binascii.Error, struct.error, IndexError):
            raise invalid("Invalid ShardIterator") from None
        return stream, shard, index, issued

    def _page(self, shard: Shard, index: int, limit: int) -> list[bytes]:
        bodies = shard.bodies[index : index + limit]
        most = _PAGE_BYTES
        if sum(map(len, bodies)) <= most:
            return bodies
        size = 0
        for count, body in enumerate(bodies):
            size += len(body)
            if size > most:
                return bodies[: max(1, count)]
        return bodies


def _required(parameters: Parameters, name: str) -> Any:
    value = parameters.get(name)
    if not value:
        raise invalid(
            f"1 validation error detected: Value null at '{name}' failed to satisfy "
            "constraint: Member must not be null"
        )
    return value


def _limit(parameters: Parameters, most: int) -> int:
    limit = parameters.get("Limit", most)
    if not isinstance(limit, int) or not 1 <= limit <= most:
        raise invalid(
            f"1 validation error detected: Value '{limit}' at 'limit' failed to satisfy "
            f"constraint: Member must be between 1 and {most}"
        )
    return limit


def _key_schema(names: tuple[str, ...]) -> list[dict[str, str]]:
    kinds = ("HASH", "RANGE")
    return [
        {"AttributeName": name, "KeyType": kind} for name, kind in zip(names, kinds, strict=False)
    ]
