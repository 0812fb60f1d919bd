"""Checkpoints in an object of the caller of `watch()`: of one watch, or shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from watcher.aws import lease_object
from watcher.aws.lease_table import SCHEME, LeaseRecord
from watcher.delivery.callables import unfit
from watcher.delivery.coroutines import Coroutines
from watcher.errors import CheckpointError, UsageError, error_text
from watcher.stores.protocol import CheckpointStorage, SharedStorage, Store
from watcher.streams.checkpoint_format import Token, encode_all, from_checkpoint


class CustomStore(Store):
    """A store whose object has `load` and `save` for a token's JSON text, `async` or not."""

    def __init__(self, given: CheckpointStorage) -> None:
        self._given = given
        self._coroutines = Coroutines()
        _refuse_unfit(given, {"load": (), "save": ("token",)})

    @property
    def name(self) -> str:
        """The object's class."""
        return type(self._given).__name__

    def load(self) -> list[Token]:
        """Returns the tokens that its `load` returns; an empty list without any."""
        try:
            text = self._coroutines.finish(self._given.load())
        except Exception as error:
            raise self._refused(_failed("load", error)) from error
        if not text:
            return []
        if not isinstance(text, str | bytes):
            raise self._refused(f"its load gave {type(text).__name__}: give what save got")
        return from_checkpoint(text, self.name, "its load has to give what save got")

    def save(self, tokens: Sequence[Token]) -> None:
        """Calls its `save` with the tokens' JSON text."""
        try:
            self._coroutines.finish(self._given.save(encode_all(tokens).decode()))
        except Exception as error:
            raise self._refused(_failed("save", error)) from error

    def close(self) -> None:
        """Closes the event loop of its coroutines; the caller closes the object."""
        self._coroutines.close()

    def _refused(self, text: str) -> UsageError:
        return UsageError(text, "checkpoint", self.name)


class SharedObject:
    """A `LeaseStorage` whose object has `load` and `replace` for a text with lease and token.

    An exception counts as a missing answer: another watch may get one.
    """

    def __init__(self, given: SharedStorage) -> None:
        self.name = type(given).__name__
        self._given = given
        # Two threads call it, and an asyncio connection belongs to one loop.
        self._coroutines = Coroutines(aside=True)
        self._seen: LeaseRecord | None = None
        self._text: str | None = None  # of `_seen`
        _refuse_unfit(given, {"load": (), "replace": ("new", "old")})

    def prepare(self) -> None:
        """See `LeaseStorage`: the caller has prepared it."""

    def get(self) -> LeaseRecord | None:
        """See `LeaseStorage`."""
        try:
            text = self._coroutines.finish(self._given.load())
        except Exception as error:
            raise self._failed("load", error) from error
        if not text:
            self._seen = self._text = None
            return None
        if not isinstance(text, str | bytes):
            text = f"its load gave {type(text).__name__}: give what replace got"
            raise UsageError(text, "checkpoint", self.name)
        self._seen = lease_object.decode(text, self.name)
        self._text = text if isinstance(text, str) else text.decode()
        return self._seen

    def replace(self, record: LeaseRecord, seen: LeaseRecord | None) -> bool:
        """See `LeaseStorage`."""
        if seen is not None and seen != self._seen and self.get() != seen:
            return False
        new, old = lease_object.encode(record).decode(), None if seen is None else self._text
        try:
            written = self._coroutines.finish(self._given.replace(new, old))
        except Exception as error:
            raise self._failed("replace", error) from error
        if not isinstance(written, bool):
            text = f"its replace gave {written!r}: give True where it wrote, else False"
            raise UsageError(text, "checkpoint", self.name)
        if written:
            self._seen, self._text = record, new
        return written

    def close(self) -> None:
        """See `LeaseStorage`; the caller closes the object."""
        self._coroutines.close()

    def _failed(self, name: str, error: Exception) -> CheckpointError:
        return CheckpointError(_failed(name, error), "checkpoint", self.name)


def _refuse_unfit(given: object, methods: Mapping[str, Sequence[str]]) -> None:
    """Raises UsageError for an object that lacks one of these methods, or its arguments."""
    name = type(given).__name__
    for each, arguments in methods.items():
        method: Any = getattr(given, each, None)
        if not callable(method):
            text = f"give a file, {SCHEME}TABLE/NAME, or an object with load() and save(token)"
            raise UsageError(text, "checkpoint", name)
        if reason := unfit(method, *arguments, is_awaited=True):
            raise UsageError(f"its {each} {reason}", "checkpoint", name)


def _failed(name: str, error: Exception) -> str:
    what = " ".join(f"{type(error).__name__}: {error_text(error)}".split())
    return f"its {name} failed: {what}"
