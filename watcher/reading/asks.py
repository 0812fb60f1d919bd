"""What a roster asks the service."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Question(Enum):
    """The kinds of questions."""

    LISTING = "all shards"
    CHILDREN = "the children of a finished shard"
    HIDDEN = "whether a shard that only its child names is there"


class Ask(NamedTuple):
    """A question that is due; `shard_id` is of the shard that it is about, if of one."""

    question: Question
    shard_id: str = ""
