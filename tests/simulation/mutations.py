"""Small wrong edits of the package: each has to be caught, or a promise has no check."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import watcher

PACKAGE = Path(watcher.__file__).parent


class Mutant(NamedTuple):
    """A text that stands once in a file, and what takes its place."""

    what: str
    file: str
    old: str
    new: str
    engine: str = ""
    """The engine that is to catch it; empty: any."""
    given: Mapping[str, Any] = {}
    """What has to be the case for it to matter, where seeds seldom say so."""

    def edited(self) -> str:
        """The file's text with this edit. Raises ValueError where it does not fit any more."""
        text = Path(PACKAGE, self.file).read_text()
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.file} has it {count} times, not once: {self.old}")
        return text.replace(self.old, self.new)


_HANDS = {"concurrency": 3, "slow": 0.3, "slow_share": 0.3}
_FAILING = {"on_error": "retry", "batch": 0, "events": ["a handler fails"]}
_BEHIND = {"limit": None, "behind_seconds": 1.0, "start": "trim_horizon"}
_ENABLED_AGAIN = {"of_table": True, "events": ["disable"]}
_BEGUN_ANEW = {"others": 0, "snapshot": False, "events": ["begin anew"]}
_SLOW_SHARD = {"habits": {"shard_reads_per_second": 1.0, "latency": 0.01}}

MUTANTS = [
    # What all engines share: shards and their order, positions, losses, tokens.
    Mutant(
        "a child begins early",
        "streams/lineage.py",
        "parent.status is ShardStatus.FINISHED",
        "parent.status is not ShardStatus.WAITING",
    ),
    Mutant(
        "children begin at the start's position",
        "streams/lineage.py",
        "self._start = TrimHorizon()",
        "pass",
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
        "self._add_unlisted_parents(past, now)",
        "pass",
    ),
    Mutant(
        "a hidden parent counts as gone at once",
        "streams/coordinator.py",
        "elif listed_at >= self._unlisted_since[shard.id] + _UNLISTED_SECONDS:",
        "elif listed_at >= self._unlisted_since[shard.id]:",
    ),
    Mutant(
        "a finished shard's children are asked for once, and no listing follows",
        "streams/listing.py",
        "now + self._period,",
        "math.inf,",
    ),
    Mutant(
        "one answer without an iterator is the end",
        "streams/shard_reader.py",
        "(self.closed or (self._has_ended and not parts))",
        "True",
    ),
    Mutant(
        "an end that is none is the end",
        "streams/coordinator.py",
        "self._reopen_ended(asked_at)",
        "pass",
    ),
    Mutant(
        "an end does not wait for a late child",
        "streams/listing.py",
        "self.settle_at(until)",
        "pass",
    ),
    Mutant(
        "a resumed end does not wait for a late child",
        "streams/coordinator.py",
        "self._ask_for_late_children()",
        "pass",
        "processes",
    ),
    Mutant(
        "a failed listing is the last one",
        "streams/listing.py",
        "self._clock.monotonic() + delay",
        "math.inf",
    ),
    Mutant(
        "expired credentials are not renewed for listings",
        "streams/coordinator.py",
        "service.renew_credentials()",
        "pass",
    ),
    Mutant(
        "failing listings are not said",
        "streams/coordinator.py",
        "worth_logging(failures, 1 if kind_of(error) is ErrorKind.OVERDUE else 2)",
        "False",
    ),
    Mutant(
        "a reader that died before it had an iterator begins at LATEST",
        "streams/coordinator.py",
        "shard.hold_latest(self.began_at)",
        "pass",
    ),
    Mutant(
        "the last page of a closed shard is dropped",
        "streams/shard_reader.py",
        "for first, last in parts:",
        "for first, last in parts if self._iterator is not None else ():",
    ),
    Mutant(
        "an expired iterator starts again at LATEST",
        "streams/shard_reader.py",
        "except ExpiredIteratorError as error:\n            self._iterator = None",
        "except ExpiredIteratorError as error:\n"
        "            self.position = Latest()\n"
        "            self._iterator = None",
    ),
    Mutant(
        "LATEST is not held as a time",
        "streams/shard_reader.py",
        "self.position = AtTime(time)",
        "pass",
    ),
    Mutant(
        "the position moves before the page is there",
        "streams/shard_reader.py",
        "body = self.reads.fetch(self._iterator, service)",
        "self.position = Latest()\n        body = self.reads.fetch(self._iterator, service)",
    ),
    Mutant(
        "a new reader begins at its last record, not after it",
        "aws/model.py",
        "else AfterSequence",
        "else AtSequence",
    ),
    Mutant(
        "an iterator at a time is told only once",
        "streams/shard_reader.py",
        "not self._started or not isinstance(self.position, AtSequence | AfterSequence)",
        "not self._started",
        "stream",
        given={"start": "latest", "before": 0, "events": ["expire iterators", "expire iterators"]},
    ),
    Mutant("trimmed records are not said", "streams/shard_reader.py", "return [loss]", "return []"),
    Mutant(
        "a shard that is gone is not said",
        "streams/shard_reader.py",
        "self._loss(str(error))",
        "None",
    ),
    Mutant(
        "an empty page is the end",
        "streams/shard_reader.py",
        "elif wire.NextShardIterator is None and (",
        "elif not wire.Records or wire.NextShardIterator is None and (",
    ),
    Mutant(
        "what the service repeats is delivered again",
        "streams/deduplicator.py",
        "number <= self.newest",
        "False",
    ),
    Mutant(
        "a record that comes out of order counts as a repeat",
        "streams/deduplicator.py",
        "any(map(operator.gt, numbers, numbers[1:]))",
        "False",
        given={"start": "trim_horizon", "faults": {"shuffled_rate": 0.3}},
    ),
    Mutant(
        "a shard that looks open is left, though it was closed",
        "streams/coordinator.py",
        "not is_proven and (is_closed or not self._confirm_settled_listing())",
        "False",
        given={
            "follow": False,
            "start": "trim_horizon",
            "older": 4,
            "habits": {"closed_empty": 100, "latency": 0.05, "closing_lag": 3.0},
        },
    ),
    Mutant(
        "an end up to now comes with the first empty page",
        "streams/end_detector.py",
        "enough and self._clock.monotonic() >= self._quiet_at",
        "self._empty_pages > 0",
    ),
    Mutant(
        "a shard that LATEST calls closed is left as an open one",
        "streams/end_detector.py",
        "if not numbers and wire.NextShardIterator is not None:\n"
        "            self.is_open = True\n"
        "            self._probes[-1] = wire.NextShardIterator\n"
        "            return False",
        "self.is_open = True\n"
        "        if not numbers and wire.NextShardIterator is not None:\n"
        "            self.is_open = True\n"
        "            self._probes[-1] = wire.NextShardIterator\n"
        "            return False",
        given={"follow": False, "start": "trim_horizon", "older": 4},
    ),
    Mutant(
        "expired credentials are not renewed for reads",
        "streams/shard_reader.py",
        "service.renew_credentials()",
        "pass",
    ),
    Mutant(
        "a shard that can't be read is not said",
        "retry.py",
        "failures >= from_failure and failures.bit_count() == 1",
        "False",
    ),
    Mutant(
        "one odd answer to a read ends the reading",
        "streams/persistent_errors.py",
        "error.kind is ErrorKind.UNEXPECTED\n"
        "            and not self.has_worked\n"
        "            and error.failures >= _ODD_ANSWERS",
        "error.kind is ErrorKind.UNEXPECTED",
    ),
    Mutant(
        "one odd answer to a listing ends the reading",
        "streams/coordinator.py",
        "isinstance(\n"
        "            error, TransientError | UnexpectedAnswerError | DeniedError | "
        "CredentialsError\n"
        "        )",
        "isinstance(error, TransientError | UnexpectedAnswerError | DeniedError | "
        "CredentialsError) and (not isinstance(error, UnexpectedAnswerError))",
    ),
    Mutant(
        "no permission ends the reading at once, also later",
        "streams/persistent_errors.py",
        "not self.has_worked or seconds >= TIMING.denied_seconds",
        "True",
    ),
    Mutant(
        "no loss counts in the first minute",
        "streams/losses.py",
        "young and shard.position == self._horizon",
        "young",
    ),
    Mutant(
        "an old checkpoint is not said",
        "streams/losses.py",
        "time and is_stale(time, now)",
        "False",
    ),
    Mutant(
        "a shard that waited for longer than retention is not said",
        "streams/losses.py",
        "shard.has_waited_past_retention(now)",
        "False",
    ),
    Mutant(
        "every restart says a loss",
        "streams/losses.py",
        "shard.has_waited_past_retention(now)",
        "shard.since",
    ),
    Mutant(
        "a token forgets that a shard is finished",
        "streams/checkpoint_format.py",
        "shard.status is ShardStatus.FINISHED",
        "False",
    ),
    Mutant(
        "a token holds LATEST as the time of the save",
        "streams/checkpoint_format.py",
        "min(latest or now, now)",
        "now",
        "processes",
        given={"start": "latest", "shards": 6, "events": ["no more processes", "stop a process"]},
    ),
    Mutant(
        "after_sequence is resumed as at_sequence",
        "streams/checkpoint_format.py",
        "else AfterSequence",
        "else AtSequence",
    ),
    Mutant(
        "a pulled record moves the position behind its whole page",
        "pull/merged_shards.py",
        "self.tracked.move_behind(number",
        "self.tracked.move_behind(self.page.last_sequence_number",
        "stream",
    ),
    Mutant(
        "a token stays before the run of records that is being pulled",
        "pull/merged_shards.py",
        '"""The positions behind the last record taken."""\n        self._settle()',
        '"""The positions behind the last record taken."""\n        pass',
        "stream",
    ),
    Mutant(
        "a pulled shard ends with its last page, not with its last record",
        "pull/merged_shards.py",
        "self._put(ShardBuffer(shard.tracked, shard, iter(found), size_bytes))",
        "if shard.has_ended:\n"
        "                self._drained.append(shard)\n"
        "            self._put(ShardBuffer(shard.tracked, shard, iter(found), size_bytes))",
        "stream",
    ),
    Mutant(
        "a token goes on at the shards' newest records",
        "pull/shard_pool.py",
        "checkpoint_format.resume(token, clock.now())",
        "None",
        "stream",
    ),
    Mutant(
        "a throttled reader asks on at once",
        "streams/read_rate.py",
        "max(0.0, self._began + interval - self._clock.monotonic())",
        "0.0",
        given=_SLOW_SHARD,
    ),
    Mutant(
        "the rate does not shrink",
        "streams/read_rate.py",
        "max(self._rate * share, _READS_PER_SECOND_MIN)",
        "5.0",
        given=_SLOW_SHARD,
    ),
    Mutant(
        "a rate is not below three a second",
        "streams/read_rate.py",
        "_READS_PER_SECOND_MIN = 0.8",
        "_READS_PER_SECOND_MIN = 3.0",
        given=_SLOW_SHARD,
    ),
    # The loop, its processes, its queue and its deliveries.
    Mutant(
        "a process that died is forgotten",
        "runtime/workers.py",
        "self._assignments[shard_key].due_at <= now",
        "False",
        "processes",
    ),
    Mutant(
        "of the shards of a process that died the first is started again",
        "runtime/workers.py",
        "self._ended.extend(worker.shards",
        "self._ended.extend([*worker.shards][:1]",
        "processes",
    ),
    Mutant(
        "the first shard's end ends a shared process",
        "runtime/workers.py",
        "not worker.shards",
        "True",
        "processes",
    ),
    Mutant(
        "a shared process forgets a shard that had a full page",
        "runtime/worker.py",
        "not shard.is_finished",
        "not shard.is_finished and shard.reader.delay",
        "processes",
    ),
    Mutant(
        "a process that can't be started is given up",
        "runtime/workers.py",
        "         self._start_later(shard_key, reading)",
        "         reading.state = AssignmentState.READING",
        "processes",
    ),
    Mutant(
        "what a killed process had begun to send is taken for the next one's",
        "runtime/protocol.py",
        "return inlet.name, None",
        "continue",
        "processes",
    ),
    Mutant(
        "a half message is taken for a whole one",
        "runtime/protocol.py",
        "self._filled == len(self._buffer)",
        "self._filled >= self._head_bytes",
        "processes",
    ),
    Mutant(
        "the position moves before delivery",
        "delivery/sequential.py",
        'deliver(record)\n                kinds.append(wire.eventName or "")',
        'kinds.append(wire.eventName or "")\n                deliver(record)',
        "processes",
    ),
    Mutant(
        "what a handler refuses to take together counts as taken",
        "delivery/sequential.py",
        "chosen and not self._dispatcher.deliver_page(chosen)",
        "(chosen and not self._dispatcher.deliver_page(chosen)) and False",
        "processes",
        given={"together": True, "batch": 0, "failing": 0.1, "on_error": "retry:7"},
    ),
    Mutant(
        "of a filtered page the first records go on, in place of those wanted",
        "streams/messages.py",
        'return b\'{"Records":[%b]}\' % b",".join(raw_records_at(body, records, places))',
        'return b\'{"Records":[%b]}\' % b",".join(raw_records_at(body, records, '
        "range(len(places))))",
        "processes",
        given={"filtered": True},
    ),
    Mutant(
        "a slow page's position is its end, from the first pause on",
        "delivery/progress.py",
        "self._records, self._done - 1",
        "self._records, -1",
        "processes",
    ),
    Mutant(
        "an up-to-now watch moves on from an ended stream",
        "runtime/watched_stream.py",
        "coordinator.is_over",
        "self.coordinator.has_ended",
        "processes",
        given={**_ENABLED_AGAIN, "follow": False},
    ),
    Mutant(
        "as the end begins, a page counts as delivered of which records are left",
        "delivery/sequential.py",
        "is_over and (not self._shutdown.requested or not current.is_under_way)",
        "is_over",
        "processes",
        given={"slow": 0.3, "slow_share": 0.5, "events": ["end the program"] * 6},
    ),
    Mutant(
        "what was missed in a long sleep is not said",
        "streams/coordinator.py",
        'self.losses.report_if_stale("last listing", self.listing.time, listing.time)',
        "pass",
    ),
    Mutant(
        "a token of an unread LATEST does not know since when it is ours",
        "streams/checkpoint_format.py",
        'stored.iterator_type, stored.time, stored.since = "latest", latest, shard.since',
        'stored.iterator_type, stored.time, stored.since = "latest", latest, shard.since\n'
        "            stored.since = None",
        given={"start": "latest", "before": 0, "events": ["kill the program", "stay away"]},
    ),
    Mutant(
        "a handler that failed is passed over under stop",
        "delivery/failures.py",
        'self._on_error.then == "stop" or (lasting and self.dead_letters is None)',
        "lasting and self.dead_letters is None",
        "processes",
    ),
    Mutant(
        "a save waits for ten seconds",
        "stores/checkpoint_saver.py",
        "_SAVE_SECONDS = 1.0",
        "_SAVE_SECONDS = 10.0",
        "processes",
    ),
    Mutant(
        "what moved before a retry is not saved",
        "runtime/loop.py",
        "self.delivery.move_positions()",
        "pass",
        "processes",
        given={"on_error": "retry:7", "failing": 0.1, "events": ["kill the program"]},
    ),
    Mutant(
        "a handler that is tried again for ever is given up",
        "delivery/retries.py",
        "retry.tries > policy.retries or left <= 0",
        "retry.tries > 3 or left <= 0",
        "processes",
        given=_FAILING,
    ),
    Mutant(
        "a record that is tried again counts as delivered where the watch ends",
        "delivery/dispatcher.py",
        "raise Overdue(\n"
        '                    f"handler {handler.name} still fails on {records}, which is '
        'not handled"\n'
        "                )",
        "return False",
        "processes",
        given={
            "on_error": "retry",
            "batch": 0,
            "events": ["a handler fails", "end the program", "end the program"],
        },
    ),
    Mutant(
        "what was delivered is no reason to save",
        "build.py",
        "saver.mark_dirty()",
        "pass",
        "processes",
    ),
    Mutant(
        "the last positions are not saved",
        "runtime/loop.py",
        "last.callback(self.saver.save_last)",
        "pass",
        "processes",
    ),
    Mutant(
        "a batch that waits counts as processed",
        "runtime/watched_stream.py",
        "shard.hold(number)",
        "pass",
        "processes",
    ),
    Mutant(
        "a shard's end does not wait for its batch",
        "runtime/loop.py",
        "self.dispatcher.drain(shard_key)\n"
        "        if self.dispatcher.first_pending(shard_key):  # the watch ends before "
        "its children's turn\n"
        "            return",
        "pass\n        if False:\n            return",
        "processes",
    ),
    Mutant(
        "a table's new stream begins at LATEST",
        "runtime/watched_stream.py",
        "self._new_coordinator(arn, TrimHorizon(), [])",
        "self._new_coordinator(arn, Latest())",
        "processes",
    ),
    Mutant(
        "a table's new stream is never looked for",
        "pull/stream_successor.py",
        "new and self.of_table",
        "False",
        "processes",
    ),
    Mutant(
        "items are read before the changes from now on are",
        "runtime/watched_stream.py",
        "unread and not self.coordinator.lineage.awaits_latest",
        "unread",
        "processes",
        given={"snapshot": True, "start": "latest", "before": 60},
    ),
    Mutant(
        "a page of items that was begun counts as told",
        "pull/table_snapshot.py",
        "count >= len(self._keys)",
        "count > 0",
        "processes",
        given={"snapshot": True, "before": 60, "events": ["kill at a save", "kill the program"]},
    ),
    Mutant(
        "changes are handed over while items wait in a batch",
        "runtime/loop.py",
        "self.delivery.submit(snapshot.shard_key, snapshot.shard, page, then_drain=True)",
        "self.delivery.submit(snapshot.shard_key, snapshot.shard, page, then_drain=False)",
        "processes",
        given={"snapshot": True, "before": 60, "batch": 20, "window": 2.0},
    ),
    Mutant(
        "a read that was answered is taken for a refused one",
        "runtime/worker.py",
        "counters.answers > answers",
        "False",
        "processes",
    ),
    Mutant(
        "a shard counts as stuck though it is read, as nothing new is in it",
        "runtime/health.py",
        "shard.counters.tried_at",
        "0.0",
        "processes",
    ),
    Mutant(
        "a listing that has no answer at once is asked for again",
        "aws/lister.py",
        "if not self._asked[question].done():",
        "if not self._asked[question].done() and self._asked.pop(question):",
        "processes",
        given={"slow_listings": 12.0, "events": ["rotate all", "rotate all"]},
    ),
    Mutant(
        "a slow listing shows what there is when it comes",
        "streams/coordinator.py",
        "asked_at = self._listing_asked_at",
        "asked_at = self._clock.monotonic()",
        "processes",
        given={"slow_listings": 12.0, "follow": False, "events": ["rotate all"] * 3},
    ),
    Mutant(
        "a position that is ahead of a service begun anew is gone on from",
        "streams/coordinator.py",
        "if listing.began_anew(self._since):",
        "if False:",
        "processes",
        given=_BEGUN_ANEW,
    ),
    Mutant(
        "a stream that was created again is read on",
        "streams/coordinator.py",
        "self._refuse_anew(listing)",
        "pass",
        "processes",
        given=_BEGUN_ANEW,
    ),
    # Several shards' records handled at once.
    Mutant(
        "a shard's end is heard while its records are still handled",
        "delivery/concurrent.py",
        "if queue.is_empty:",
        "if True:",
        "processes",
        given=_HANDS,
    ),
    Mutant(
        "two work for the same shard",
        "delivery/concurrent.py",
        "if not is_taken:",
        "if True:",
        "processes",
        given=_HANDS,
    ),
    Mutant(
        "a position moves as a record is begun",
        "delivery/concurrent.py",
        "queue.in_hand, queue.step_since = record, monotonic()",
        "queue.progress._last = lambda: (record.sequence_number, None)\n"
        "                queue.in_hand, queue.step_since = record, monotonic()",
        "processes",
        given=_HANDS,
    ),
    Mutant(
        "a handler that hangs holds all shards",
        "delivery/concurrent.py",
        "self._bytes < self._most_bytes",
        "not self._is_at_work",
        "processes",
        given={"concurrency": 3, "events": ["a handler hangs"]},
    ),
    Mutant(
        "nobody says that a handler hangs",
        "runtime/health.py",
        "late.add(_name(step.shard), now - since_try)",
        "pass",
        "processes",
        given={"concurrency": 3, "events": ["a handler hangs"]},
    ),
    Mutant(
        "items are read while changes are at work",
        "runtime/table_snapshots.py",
        "not delivery.reserve(snapshot.shard_key)",
        "False",
        "processes",
        given={**_HANDS, "snapshot": True, "before": 60},
    ),
    Mutant(
        "a handler's failure that is to stop the watch does not",
        "delivery/concurrent.py",
        "self._error = self._error or error",
        "pass",
        "processes",
        given={"concurrency": 3, "on_error": "stop", "failing": 0.1},
    ),
    # Spark's planner, its offsets and its executors.
    Mutant(
        "a child's records go along with its parent's, and before the last of them",
        "spark/micro_batch.py",
        "shard.has_ended:",
        "True:",
        "spark",
    ),
    Mutant(
        "a child's records go to another task than its parent's last ones",
        "spark/tasks.py",
        "each.between.topmost or each.between.shard_id",
        "each.between.shard_id",
        "spark",
    ),
    Mutant(
        "a shard is finished in the offset before its last pages are",
        "spark/micro_batch.py",
        "shard.has_ended and len(pages) == len(shard.pages)",
        "shard.has_ended",
        "spark",
    ),
    Mutant(
        "maxRecordsPerTrigger cuts no page",
        "spark/micro_batch.py",
        "min(count, self._records)",
        "count",
        "spark",
    ),
    Mutant(
        "an offset forgets finished shards whose children it does not hold",
        "spark/micro_batch.py",
        "shard_id in moved\n"
        "        or shard_id in shards\n"
        "        or shard_id not in with_child\n"
        "        or not (reached.finished or _was_never_there(shard_id, reached, lineage))",
        "shard_id in moved or shard_id in shards or (not (reached.finished or "
        "_was_never_there(shard_id, reached, lineage)))",
        "spark",
    ),
    Mutant(
        "a replayed range goes on to what there is now",
        "pull/ranges.py",
        "page.upto(between.upto)",
        "page",
        "spark",
    ),
    Mutant(
        "pages that are only a part of a range are taken for it",
        "spark/buffered_shard.py",
        "found and found[0].after == start and found[-1].upto == upto",
        "found",
        "spark",
    ),
    Mutant(
        "pages are forgotten when they are planned",
        "spark/buffered_shard.py",
        "self.pages and int(self.pages[0].upto) <= number",
        "self.pages",
        "spark",
    ),
    Mutant(
        "the driver goes on behind a backlog that nobody is left with",
        "spark/buffered_shard.py",
        "self.deferred = msgspec.structs.replace(deferred, created=since)",
        "(self.reader.position, self.reader._iterator) = (self.frontier, None)",
        "spark",
        given=_BEHIND,
    ),
    Mutant(
        "a backlog ends behind the record near the tip",
        "spark/deferred_range.py",
        "last.dynamodb.SequenceNumber",
        "str(int(last.dynamodb.SequenceNumber) + 1)",
        "spark",
        given=_BEHIND,
    ),
    Mutant(
        "a finished range is read again",
        "spark/offsets.py",
        "reached.finished and not before.finished",
        "reached.finished",
        "spark",
    ),
    Mutant(
        "a query is anchored at LATEST when it reads, not when it begins",
        "spark/planner.py",
        "coordinator.restart(shard)",
        "shard.position",
        "spark",
    ),
    Mutant(
        "an executor that can't read does not say so",
        "streams/coordinator.py",
        "if text and (subject := self.read_errors.subject(shard.id, message)):",
        "if False and (subject := self.read_errors.subject(shard.id, message)):",
        "spark",
    ),
    Mutant(
        "a range that began at a time is read again from that time on",
        "spark/offsets.py",
        "reached.first is not None and not isinstance(first, AfterSequence)",
        "False",
        "spark",
        given={"start": "at_time"},
    ),
    Mutant(
        "a table's next stream is gone on with before all of the last one is delivered",
        "spark/planner.py",
        "succession.end is None and coordinator.is_over and self._confirm_done(coordinator)",
        "succession.end is None and coordinator.is_over",
        "spark",
        given=_ENABLED_AGAIN,
    ),
    Mutant(
        "a query of a table stays with a stream that has ended",
        "spark/planner.py",
        "succession.end is None and coordinator.is_over and self._confirm_done(coordinator)",
        "False",
        "spark",
        given=_ENABLED_AGAIN,
    ),
    Mutant(
        "all of a table's streams are planned by the newest one's planner",
        "spark/stream_reader.py",
        "stream == planner.arn or not self.reads(stream)",
        "True",
        "spark",
        given=_ENABLED_AGAIN,
    ),
]
