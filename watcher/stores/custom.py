"""A checkpoint kept by an object that the caller of `watch()` gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from watcher.aws.lease_table import SCHEME
from watcher.delivery.callables import unfit
from watcher.delivery.coroutines import Coroutines
from watcher.errors import UsageError, error_text
from watcher.stores.protocol import CheckpointStorage, Store
from watcher.streams.checkpoint_format import Token, encode_all, from_checkpoint


class CustomStore(Store):
    """An object whose `load` and `save` take care of a token's JSON text, `async` or not."""

    def __init__(self, given: CheckpointStorage) -> None:
        self._given = given
        self._coroutines = Coroutines()
        for name, arguments in {"load": (), "save": ("token",)}.items():
            method: Any = getattr(given, name, None)
            if not callable(method):
                raise self._refused(
                    f"give a file, {SCHEME}TABLE/NAME, or an object with load() and save(token)"
                )
            if reason := unfit(method, *arguments, is_awaited=True):
                raise self._refused(f"its {name} {reason}")

    @property
    def name(self) -> str:
        """The object's class."""
        return type(self._given).__name__

    def load(self) -> list[Token]:
        """Returns what its `load` gives; none where that is nothing."""
        try:
            text = self._coroutines.finish(self._given.load())
        except Exception as error:
            raise self._failed("load", error) from error
        if not text:
            return []
        if not isinstance(text, str | bytes):
            raise self._refused(f"its load gave {type(text).__name__}: give what save got")
        return from_checkpoint(text, self.name, "its load has to give what save got")

    def save(self, tokens: Sequence[Token]) -> None:
        """Give it the tokens' JSON text."""
        try:
            self._coroutines.finish(self._given.save(encode_all(tokens).decode()))
        except Exception as error:
            raise self._failed("save", error) from error

    def close(self) -> None:
        """Close the event loop of its coroutines; the object is the caller's."""
        self._coroutines.close()

    def _failed(self, name: str, error: Exception) -> UsageError:
        what = " ".join(f"{type(error).__name__}: {error_text(error)}".split())
        return self._refused(f"its {name} failed: {what}")

    def _refused(self, text: str) -> UsageError:
        return UsageError(text, "checkpoint", self.name)
