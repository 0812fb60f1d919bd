"""The destinations of dead letters, from which `replay` reads: files, S3, functions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias
from urllib.parse import quote

from watcher.aws.config import AwsConfig, blaming
from watcher.errors import UsageError
from watcher.files import append_lines
from watcher.records.record import Record

_S3 = re.compile(r"s3://(?P<bucket>[^/]+)/?(?P<prefix>.*)")
_OTHER_URL = re.compile(r"[a-z][a-z0-9+.-]*://")


TakeDeadLetter: TypeAlias = Callable[[dict[str, Any]], object]
"""A function of the user's that takes each dead letter: its line of JSON as a dict."""


class DeadLetter(NamedTuple):
    """A record that a handler has finally failed on."""

    record: Record
    handler: str
    line: bytes
    """One line of JSON: the whole record, the handler and the error."""


class DeadLetters(Protocol):
    """A destination of dead letters."""

    name: str
    """The name that messages use for it."""

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """Writes these letters; raises the destination's error."""

    def close(self) -> None:
        """Closes the destination."""


def open_dead_letters(place: str | TakeDeadLetter, aws: AwsConfig) -> DeadLetters:
    """Opens the destination in `dead-letter:PLACE`. Raises UsageError."""
    if not isinstance(place, str):
        return _Function(place)
    if matched := _S3.fullmatch(place):
        with blaming(place, "on_error"):
            return _Bucket(place, matched, aws)
    if _OTHER_URL.match(place):
        raise UsageError(f"{place}: use a file or s3://BUCKET/PREFIX", "on_error")
    return _File(place)


class _File:
    def __init__(self, place: str) -> None:
        self.name = place
        try:
            self._file = append_lines(place)
        except OSError as error:
            raise UsageError(f"can't write {place}: {error.strerror}", "on_error") from None

    def put(self, letters: Sequence[DeadLetter]) -> None:
        self._file.write(b"".join(letter.line + b"\n" for letter in letters))

    def close(self) -> None:
        self._file.close()


class _Function:
    def __init__(self, function: TakeDeadLetter) -> None:
        self.name = getattr(function, "__name__", repr(function))
        self._function = function

    def put(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            self._function(json.loads(letter.line))

    def close(self) -> None:
        """Does nothing: the function is the caller's."""


class _Bucket:
    """An S3 bucket with one object per letter; the same letter replaces its object."""

    def __init__(self, name: str, matched: re.Match[str], aws: AwsConfig) -> None:
        self.name = name
        self._bucket, prefix = matched.groups()
        self._prefix = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
        self._client = aws.boto3_session().client("s3")

    def put(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            record = letter.record
            parts = record.table or "stream", record.shard_id, record.sequence_number.zfill(40)
            key = self._prefix + "/".join(quote(each, safe="") for each in parts)
            key += f"-{quote(letter.handler, safe='')}.json"
            self._client.put_object(Bucket=self._bucket, Key=key, Body=letter.line + b"\n")

    def close(self) -> None:
        self._client.close()


def bucket_letters(place: str, aws: AwsConfig) -> Iterator[bytes] | None:
    """Returns the lines of the letters in `s3://…`, in the shards' order; None for another place.

    The objects stay, as a file does.
    """
    matched = _S3.fullmatch(place)
    return matched and _lines(matched["bucket"], matched["prefix"], aws)


def _lines(bucket: str, prefix: str, aws: AwsConfig) -> Iterator[bytes]:
    client = aws.boto3_session().client("s3")
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for each in page.get("Contents", ()):
            answer = client.get_object(Bucket=bucket, Key=each["Key"])
            yield from answer["Body"].read().splitlines(keepends=True)
