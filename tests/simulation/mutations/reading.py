"""What all engines share: shards and their order, positions, losses, tokens."""

from __future__ import annotations

from tests.simulation.mutations.mutant import Mutant

READING = [
    # Which shards are read when
    Mutant(
        "a child begins early",
        "streams/lineage.py",
        "or self.shards[shard.parent].status is ShardStatus.FINISHED",
        "or self.shards[shard.parent].status is not ShardStatus.WAITING",
    ),
    Mutant(
        "children begin at the start's position",
        "streams/lineage.py",
        "            self._start = TrimHorizon()\n            self._first = False",
        "            self._first = False",
    ),
    Mutant(
        "a resumed watch begins unknown shards at LATEST",
        "streams/lineage.py",
        "start if resumed is None else TrimHorizon()",
        "Latest()",
    ),
    Mutant(
        "a parent that no listing shows does not count",
        "streams/lineage.py",
        "        self._add_unlisted_parents(past, now)\n",
        "",
    ),
    Mutant(
        "a hidden parent is read at once",
        "streams/unlisted_parents.py",
        "if shard.expected or self._is_overdue(hidden):",
        "if True:",
    ),
    Mutant(
        "a hidden parent that answers errors counts as gone",
        "streams/unlisted_parents.py",
        "if isinstance(error, ShardNotFoundError | TrimmedDataError):",
        "if error is not None:",
    ),
    Mutant(
        "a finished shard's children are asked for once, and no listing follows",
        "streams/listing_schedule.py",
        "self._due, self._wanted = now + self._period, math.inf",
        "self._due, self._wanted = math.inf, math.inf",
    ),
    Mutant(
        "an end does not wait for a late child",
        "streams/listing_schedule.py",
        "            self.settled_at = until\n",
        "            pass\n",
    ),
    Mutant(
        "a resumed end does not wait for a late child",
        "streams/coordinator.py",
        "        self._ask_for_late_children()\n",
        "",
        "processes",
    ),
    Mutant(
        "a failed listing is the last one",
        "streams/listing_schedule.py",
        "        self._due = self._wanted = self._clock.monotonic() + pause\n",
        "        self._due = self._wanted = math.inf\n",
    ),
    Mutant(
        "expired credentials are not renewed for listings",
        "streams/coordinator.py",
        "            self._trouble(error)\n            service.renew()\n",
        "            self._trouble(error)\n",
    ),
    Mutant(
        "failing listings are not said",
        "streams/coordinator.py",
        "if worth_logging(failures, 1 if kind_of(error) is ErrorKind.OVERDUE else 2):",
        "if False:",
    ),
    Mutant(
        "a reader that died before it had an iterator begins at LATEST",
        "streams/coordinator.py",
        "            shard.position = AtTime(self.began_at)\n",
        "            pass\n",
    ),
    # The reading of one shard
    Mutant(
        "the last page of a closed shard is dropped",
        "streams/shard_reader.py",
        "        for first, last in parts:\n",
        "        for first, last in parts if self._iterator is not None else ():\n",
    ),
    Mutant(
        "an expired iterator starts again at LATEST",
        "streams/shard_reader.py",
        "        except ExpiredIteratorError as error:\n            self._iterator = None\n",
        "        except ExpiredIteratorError as error:\n            self._iterator = None\n"
        "            self.position = Latest()\n",
    ),
    Mutant(
        "LATEST is not held as a time",
        "streams/shard_reader.py",
        "            self.position = AtTime(time)\n",
        "            pass\n",
    ),
    Mutant(
        "the position moves before the page is there",
        "streams/shard_reader.py",
        "            body = self.reads.page(self.streams, self._iterator)\n",
        "            self.position = Latest()\n"
        "            body = self.reads.page(self.streams, self._iterator)\n",
    ),
    Mutant(
        "a new reader begins at its last record, not after it",
        "streams/shard_reader.py",
        "self.position = AfterSequence(number)",
        "self.position = AtSequence(number)",
    ),
    Mutant(
        "an iterator at a time is told only once",
        "streams/shard_reader.py",
        "if not self._started or not isinstance(self.position, AtSequence | AfterSequence):",
        "if not self._started:",
        "stream",
        given={"start": "latest", "before": 0, "events": ["expire iterators", "expire iterators"]},
    ),
    Mutant(
        "trimmed records are not said",
        "streams/shard_reader.py",
        "            self.pause = 0.0\n            return [loss]\n",
        "            self.pause = 0.0\n            return []\n",
    ),
    Mutant(
        "a shard that is gone is not said",
        "streams/shard_reader.py",
        "            messages.append(self._finish(closed=True, gone=self._loss(str(error))))\n",
        "            messages.append(self._finish(closed=True))\n",
    ),
    Mutant(
        "an empty page is the end",
        "streams/shard_reader.py",
        "        elif wire.NextShardIterator is None:\n",
        "        elif wire.NextShardIterator is None or not wire.Records:\n",
    ),
    Mutant(
        "what the service repeats is delivered again",
        "streams/deduplicator.py",
        "            elif number < self.newest or not events or event in events:\n",
        "            elif False:\n",
    ),
    Mutant(
        "a shard that looks open is left, though it was closed",
        "streams/coordinator.py",
        "if self.is_closed(shard.id) or not (message.proven or self._knows_what_is_open()):",
        "if False:",
        given={"follow": False, "start": "trim_horizon", "older": 4},
    ),
    Mutant(
        "an end up to now comes with the first empty page",
        "streams/caught_up.py",
        "return enough and seconds >= _EMPTY_SECONDS and self.is_due",
        "return self._empty_pages > 0",
    ),
    Mutant(
        "a shard that LATEST calls closed is left as an open one",
        "streams/caught_up.py",
        "        if not numbers and wire.NextShardIterator is not None:\n",
        "        self.is_open = True\n"
        "        if not numbers and wire.NextShardIterator is not None:\n",
        given={"follow": False, "start": "trim_horizon", "older": 4},
    ),
    Mutant(
        "expired credentials are not renewed for reads",
        "streams/shard_reader.py",
        "            self.streams.renew()\n",
        "",
    ),
    Mutant(
        "a shard that can't be read is not said",
        "retry.py",
        "return failures >= unsaid and failures.bit_count() == 1",
        "return False",
    ),
    Mutant(
        "one odd answer to a read ends the reading",
        "streams/refusals.py",
        "if trouble.kind is ErrorKind.ODD and not self.has_worked and trouble.failures",
        "if trouble.kind is ErrorKind.ODD and trouble.failures + 2",
    ),
    Mutant(
        "one odd answer to a listing ends the reading",
        "streams/coordinator.py",
        "except (TransientError, OddAnswerError, DeniedError) as error:",
        "except (TransientError, DeniedError) as error:",
    ),
    Mutant(
        "no permission ends the reading at once, also later",
        "streams/refusals.py",
        "if not self.has_worked or seconds >= _DENIED_SECONDS:",
        "if True:",
    ),
    # Losses
    Mutant(
        "no loss counts in the first minute",
        "streams/losses.py",
        "not (young and shard.position == self._horizon)",
        "not young",
    ),
    Mutant(
        "an old checkpoint is not said",
        "streams/losses.py",
        "if time and is_stale(time, now):",
        "if False:",
    ),
    Mutant(
        "a shard that waited for longer than retention is not said",
        "streams/losses.py",
        "if shard.has_outwaited(now):",
        "if False:",
    ),
    Mutant(
        "every restart says a loss",
        "streams/losses.py",
        "if shard.has_outwaited(now):",
        "if shard.since:",
    ),
    # Tokens
    Mutant(
        "a token forgets that a shard is finished",
        "streams/token.py",
        "        finished=shard.status is ShardStatus.FINISHED,\n",
        "",
    ),
    Mutant(
        "a token holds LATEST as the time of the save",
        "streams/token.py",
        "    latest = min(latest or now, now)\n",
        "    latest = now\n",
        "processes",
        given={"start": "latest", "shards": 6, "events": ["no more processes", "stop a process"]},
    ),
    Mutant(
        "a token leaves out what waits for its parent",
        "streams/token.py",
        "        if shard.status is not ShardStatus.FINISHED or not lineage.children(shard.id)\n",
        "        if shard.status is not ShardStatus.WAITING\n"
        "        and (shard.status is not ShardStatus.FINISHED or not lineage.children(shard.id))\n",
    ),
    Mutant(
        "after_sequence is resumed as at_sequence",
        "streams/token.py",
        'AtSequence(number) if stored.iterator_type == "at_sequence" else AfterSequence(number)',
        "AtSequence(number)",
    ),
    # Stream
    Mutant(
        "a pulled record moves the position with the one behind it",
        "pull/merged.py",
        "        shard.tracked.position = AfterSequence(record.sequence_number)\n"
        "        self._buffer(shard)\n",
        "        self._buffer(shard)\n        shard.tracked.position = shard.reader.position\n",
        "stream",
    ),
    Mutant(
        "a pulled shard ends with its last page, not with its last record",
        "pull/merged.py",
        "            shard.buffered = True\n        else:\n",
        "            shard.buffered = True\n        if record is None or shard.ended:\n",
        "stream",
    ),
    Mutant(
        "a token goes on at the shards' newest records",
        "pull/merged.py",
        "            tokens.resume(token) if token else None,\n",
        "            None,\n",
        "stream",
    ),
    # How often a shard is read that others read, too
    Mutant(
        "a throttled reader asks on at once",
        "streams/rate_limit.py",
        "        interval = 1 / self._rate\n",
        "        return 0.0\n        interval = 1 / self._rate\n",
        given={"habits": {"shard_reads_per_second": 1.0, "latency": 0.01}},
    ),
    Mutant(
        "the rate does not shrink",
        "streams/rate_limit.py",
        "            self._rate = max(self._rate * share, _LEAST)\n",
        "            self._rate = _MOST\n",
        given={"habits": {"shard_reads_per_second": 1.0, "latency": 0.01}},
    ),
    Mutant(
        "a rate is not below three a second",
        "streams/rate_limit.py",
        "_LEAST = 0.8",
        "_LEAST = 3.0",
        given={"habits": {"shard_reads_per_second": 1.0, "latency": 0.01}},
    ),
]
