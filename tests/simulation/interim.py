"""To be deleted: the engine of before, made to run on virtual time by patching modules."""

from __future__ import annotations

import contextlib
import random
import traceback
from typing import Any
from unittest import mock

from watcher.errors import CredentialsError, StreamError
from watcher.reading.messages import Failed, Page, Trouble
from watcher.reading.shard_reader import ShardReader

MODULES = (
    "watcher.engine.manager",
    "watcher.engine.figures",
    "watcher.reading.unlisted",
    "watcher.service.connect",
    "watcher.delivery.dispatcher",
    "watcher.delivery.batches",
    "watcher.stream",
)


def patched(life: Any, rng: random.Random) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    for module in MODULES:
        stack.enter_context(mock.patch(module + ".time", life))
    stack.enter_context(mock.patch("watcher.reading.shard_reader.random", rng))
    return stack


def steps(work: Any, tally: Any, client: Any) -> Any:
    try:
        client.tally = tally
        reader = ShardReader(
            client,
            work.arn,
            work.shard_id,
            work.position,
            until=work.until,
            idle_pause=work.idle_pause,
        )
        refusals = 0
        while not reader.finished:
            try:
                messages = reader.read()
            except CredentialsError as error:
                refusals += 1
                yield Trouble(str(error), refusals)
                yield min(0.5 * refusals, 5.0)
                client.renew()
                continue
            refusals = 0
            for message in messages:
                if isinstance(message, Page):
                    tally.read(message.last - message.first)
                yield message
            yield reader.pause
    except StreamError as error:
        yield Failed(str(error), fatal=True)
    except Exception:
        yield Failed(traceback.format_exc(), fatal=False)
