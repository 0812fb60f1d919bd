"""What gets the records: a callable, or a handler module that offers one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from watcher.delivery.batches import Batches
from watcher.record.record import Record


class Observer(msgspec.Struct, frozen=True):
    """A callable that gets every record, under the name that messages call it by."""

    name: str
    handle: Callable[[Record], Any]
    close: Callable[[], Any] | None = None
    begin: Callable[[str], Any] | None = None
    """Called with the stream's ARN before its first record."""
    batches: Batches | None = None
    """Where `handle` only collects: what it collects into."""
