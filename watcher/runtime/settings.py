"""How to watch: what the user has chosen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from watcher.aws.config import AwsConfig
from watcher.aws.model import Latest, Position
from watcher.aws.price import PRICE
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.shutdown import STOP_SECONDS
from watcher.records.filters import RecordFilter
from watcher.records.wire import WireRecord


def _never() -> bool:
    return False


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to watch: what `watch()` and the command line let the user choose."""

    connection: AwsConfig = AwsConfig()
    start: Position = Latest()
    follow: bool = True
    end: datetime | None = None
    """Records made later are left out; None: of any time."""
    tail: int | None = None
    """Begin with so many of the last changes, in place of `start`."""
    snapshot: bool = False
    """Hand over the items that exist, too."""
    on_stale: str = "trim-horizon"
    """What to do where a checkpoint is older than retention: fail, trim-horizon, snapshot."""
    max_records: int | None = None
    fail_on_data_loss: bool = False
    poll_max: float = 1.0
    """The longest pause between two reads of an idle shard, in seconds."""
    wanted: RecordFilter | None = None
    """Whether a record goes to the observers at all; None: every one."""
    on_error: FailurePolicy = FailurePolicy()
    price: float = PRICE
    """Dollars for 100,000 GetRecords calls."""
    stop_timeout: float = STOP_SECONDS
    asked_to_stop: Callable[[], bool] = _never
    """Whether somebody wants the watch to end, beside the signals."""

    @property
    def on_wire(self) -> Callable[[WireRecord], bool] | None:
        """`wanted`, before a record is made."""
        return None if self.wanted is None else self.wanted.matches_wire
