"""How GetShardIterator is asked for an iterator at a position."""

from __future__ import annotations

from typing import Any

from watcher.service.model import (
    AfterSequence,
    AtSequence,
    AtTime,
    Latest,
    Position,
    TrimHorizon,
)


def iterator_at(position: Position) -> dict[str, Any]:
    """The parameters that say where."""
    match position:
        case Latest():
            return {"ShardIteratorType": "LATEST"}
        case TrimHorizon():
            return {"ShardIteratorType": "TRIM_HORIZON"}
        case AtSequence(number):
            return {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "SequenceNumber": number}
        case AfterSequence(number):
            return {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": number}
        case AtTime(moment):
            return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": moment}
