"""The shards that one worker reads, side by side: whose turn it is, and how many at once.

Nothing waits or runs by itself here: a worker's threads drive it, or a test, a step at a time.
"""

from __future__ import annotations

import math
import random
import traceback

from watcher.clock import CLOCK, Clock
from watcher.engine.orders import Work
from watcher.errors import StreamError
from watcher.reading.messages import Failed, Finished, Message, Page
from watcher.reading.parts import Chosen
from watcher.reading.shard_reader import ShardReader
from watcher.reading.turns import Turns
from watcher.record.origin import Origin
from watcher.service.model import AtTime, Latest, Service
from watcher.service.tally import Tally

# So many answers are waited for at once: each may bring a megabyte.
_AT_ONCE = 4
# One that takes so long does not count any more, or it would hold the other shards.
_SLOW_SECONDS = 0.25
_AT_ONCE_MAX = 32
# Turns of idle shards come together, so often a second: a read among others costs a third of one
# for which the process has to wake.
_TOGETHER_SECONDS = 0.5
# A shard whose records wait to be delivered is left alone so long, unless that is said again.
_REST_SECONDS = 0.5


class Reading:
    """A shard that is being read."""

    def __init__(
        self,
        work: Work,
        streams: Service,
        tally: Tally,
        clock: Clock = CLOCK,
        chosen: Chosen | None = None,
    ) -> None:
        self.origin = work.origin
        self.reader = ShardReader(
            streams,
            work.arn,
            work.shard_id,
            work.position,
            closed=work.closed,
            until=work.until,
            end=work.end,
            chosen=chosen,
            poll_max=work.poll_max,
            clock=clock,
        )
        self.is_over = False
        """Whether it was read to its end, or can't be read any further."""
        self._latest = work.latest
        self._tally = tally
        self._clock = clock

    def read(self) -> list[Message]:
        """One attempt: what the manager is to hear of it."""
        answers = self._tally.answers
        try:
            messages = self.reader.read()
        except StreamError as error:
            messages = [Failed(str(error), fatal=True)]
        except Exception:
            messages = [Failed(traceback.format_exc(), fatal=False)]
        self._tally.attempt(self._clock.monotonic(), answered=self._tally.answers > answers)
        if messages and self._latest and isinstance(self.reader.position, Latest):
            # It could not be begun: "latest" is not whenever it can be.
            self.reader.position = AtTime(self._latest)
        # Before they are sent: a shard's place on the board may then soon be another's.
        for message in messages:
            if isinstance(message, Page):
                self._tally.read(message.read)
            self.is_over |= isinstance(message, Finished | Failed)
        if self.reader.caught_up and not self.is_over:
            self._tally.reach_tip(self._clock.monotonic())
        return messages


class Readers:
    """A worker's shards; one that is slow, or refused, does not hold the others."""

    def __init__(self, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._phase = random.uniform(0, _TOGETHER_SECONDS)  # not the same in all workers
        self._turns: Turns[Reading] = Turns(clock)
        # Since when an answer is waited for; no end to it where one has come, and waits to be sent.
        self._at_work: dict[Reading, float] = {}
        self._to_rest: dict[Origin, float] = {}
        self._to_hurry: set[Reading] = set()  # of those, since they are being read just now

    def __len__(self) -> int:
        return len(self._turns) + len(self._at_work)

    def begin(self, reading: Reading) -> None:
        """Read this one as well."""
        self._turns.rest(reading, 0.0)

    def wait(self) -> float:
        """Seconds until `next` may have something; none or less: now."""
        return max(self._turns.wait(), self._room_in())

    def next(self) -> Reading | None:
        """The one to be read now, if there is one and room for it; `done` is to follow."""
        if self.wait() > 0:
            return None
        reading = self._turns.next()
        assert reading is not None
        if (seconds := self._to_rest.pop(reading.origin, 0.0) - self._clock.monotonic()) > 0:
            self._turns.rest(reading, seconds)
            return self.next()
        self._at_work[reading] = self._clock.monotonic()
        return reading

    def has_answer(self, reading: Reading) -> None:
        """What it has read is now to be sent."""
        self._at_work[reading] = math.inf

    def done(self, reading: Reading) -> None:
        """All is sent: it rests, as long as it wants to, or is over."""
        del self._at_work[reading]
        if reading in self._to_hurry:
            self._to_hurry.remove(reading)
            reading.reader.hurry()
        if not reading.is_over:
            pause = self._shortened(reading.reader.pause)
            self._turns.rest(reading, max(pause, reading.reader.least_pause))

    def hurry(self, arn: str) -> None:
        """The shards of this stream that are seldom read, as they were idle, are read now."""
        self._turns.hurry(lambda reading: reading.origin.stream == arn and reading.reader.hurry())
        self._to_hurry.update(reading for reading in self._at_work if reading.origin.stream == arn)

    def close(self, origin: Origin) -> None:
        """This shard gets no more records; its turn has come, however long it was idle."""

        def closes(reading: Reading) -> bool:
            if reading.origin == origin:
                reading.reader.closed = True
            return reading.origin == origin

        self._turns.hurry(closes)
        for reading in self._at_work:
            closes(reading)

    def rest(self, origin: Origin) -> None:
        """Do not read this shard for a moment."""
        self._to_rest[origin] = self._clock.monotonic() + _REST_SECONDS

    def _shortened(self, pause: float) -> float:
        """A long pause ends with those of others."""
        if pause < 2 * _TOGETHER_SECONDS:
            return pause
        return pause - (self._clock.monotonic() + self._phase + pause) % _TOGETHER_SECONDS

    def _room_in(self) -> float:
        """Seconds until one more may be read."""
        if len(self._at_work) >= _AT_ONCE_MAX:
            return math.inf
        slow_since = self._clock.monotonic() - _SLOW_SECONDS
        quick = sorted(since for since in self._at_work.values() if since > slow_since)
        return 0.0 if len(quick) < _AT_ONCE else quick[len(quick) - _AT_ONCE] - slow_since
