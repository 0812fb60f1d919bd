"""A checkpoint in an object of the caller of `watch()`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from watcher.aws import s3
from watcher.aws.lease_table import SCHEME
from watcher.delivery.callables import unfit
from watcher.errors import UsageError, error_text
from watcher.stores.protocol import CheckpointStorage, Store
from watcher.streams.checkpoint_format import Token, encode_all, from_checkpoint

_FORMS = f"a file, {SCHEME}TABLE/NAME, {s3.SCHEME}BUCKET/KEY, or an object with load() and save()"


class CustomStore(Store):
    """A store whose object has `load` and `save` for a token's JSON text."""

    def __init__(self, given: CheckpointStorage) -> None:
        self._given = given
        for each, arguments in {"load": (), "save": ("token",)}.items():
            method: Any = getattr(given, each, None)
            if not callable(method):
                raise self._refused(f"give {_FORMS}")
            if reason := unfit(method, *arguments):
                raise self._refused(f"its {each} {reason}")

    @property
    def name(self) -> str:
        """The object's class."""
        return type(self._given).__name__

    def load(self) -> list[Token]:
        """Returns the tokens that its `load` returns; an empty list for None."""
        try:
            text = self._given.load()
        except Exception as error:
            raise self._failed("load", error) from error
        if text is None:
            return []
        if not isinstance(text, str | bytes):
            raise self._refused(f"its load gave {type(text).__name__}: give what save got")
        return from_checkpoint(text, self.name, "its load has to give what save got, or None")

    def save(self, tokens: Sequence[Token]) -> None:
        """Calls its `save` with the tokens' JSON text."""
        try:
            self._given.save(encode_all(tokens).decode())
        except Exception as error:
            raise self._failed("save", error) from error

    def _failed(self, name: str, error: Exception) -> UsageError:
        what = " ".join(f"{type(error).__name__}: {error_text(error)}".split())
        return self._refused(f"its {name} failed: {what}")

    def _refused(self, text: str) -> UsageError:
        return UsageError(text, "checkpoint", self.name)
