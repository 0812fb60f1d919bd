"""Small wrong edits of the core: each of them has to be caught, or a promise has no check."""

from __future__ import annotations

import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

_ROOT = Path(__file__).parents[2]
_SEEDS = 2000


class Mutant(NamedTuple):
    """An edit: in a file of the package, this text (which is there once) becomes another."""

    what: str
    file: str
    before: str
    after: str
    engine: str = ""
    """The engine that is to catch it; empty: any."""
    given: Mapping[str, Any] = MappingProxyType({})
    """What has to be the case for it to matter, where seeds seldom say so."""


MUTANTS = [
    # Which shards are read when
    Mutant(
        "a child begins early",
        "reading/lineage.py",
        "or self.shards[shard.parent].status is Status.FINISHED",
        "or self.shards[shard.parent].status is not Status.WAITING",
    ),
    Mutant(
        "children begin at the start's position",
        "reading/lineage.py",
        "            self._start = TrimHorizon()\n            self._first = False",
        "            self._first = False",
    ),
    Mutant(
        "a resumed watch begins unknown shards at LATEST",
        "reading/lineage.py",
        "start if resumed is None else TrimHorizon()",
        "Latest()",
    ),
    Mutant(
        "a parent that no listing shows does not count",
        "reading/lineage.py",
        "        self._add_unlisted_parents(past, now)\n",
        "",
    ),
    Mutant(
        "a hidden parent is read at once",
        "reading/hidden.py",
        "if shard.expected or self._is_overdue(hidden):",
        "if True:",
    ),
    Mutant(
        "a hidden parent that answers errors counts as gone",
        "reading/hidden.py",
        "if isinstance(error, ShardNotFoundError | TrimmedDataError):",
        "if error is not None:",
    ),
    Mutant(
        "a finished shard's children are asked for once, and no listing follows",
        "reading/roster.py",
        "now + _LISTING_SECONDS + listing.pages * self.sharers / _PAGES_A_SECOND",
        "math.inf",
    ),
    Mutant(
        "an end does not wait for a late child",
        "reading/late_children.py",
        "            self.settled_at = until\n",
        "            pass\n",
    ),
    Mutant(
        "a resumed end does not wait for a late child",
        "reading/roster.py",
        "        self._ask_for_late_children()\n",
        "",
        "processes",
    ),
    Mutant(
        "a failed listing is the last one",
        "reading/roster.py",
        "        self._listing_due = self._clock.monotonic() + pause\n",
        "        self._listing_due = math.inf\n",
    ),
    Mutant(
        "expired credentials are not renewed for listings",
        "reading/roster.py",
        "            self._trouble(error)\n            service.renew()\n",
        "            self._trouble(error)\n",
    ),
    Mutant(
        "failing listings are not said",
        "reading/roster.py",
        "if worth_saying(self._failures, unsaid=2):",
        "if False:",
    ),
    Mutant(
        "a reader that died before it had an iterator begins at LATEST",
        "reading/roster.py",
        "            shard.position = AtTime(self.began_at)\n",
        "            pass\n",
    ),
    # The reading of one shard
    Mutant(
        "the last page of a closed shard is dropped",
        "reading/shard_reader.py",
        "        for first, last in parts:\n",
        "        for first, last in parts if self._iterator is not None else ():\n",
    ),
    Mutant(
        "an expired iterator starts again at LATEST",
        "reading/shard_reader.py",
        "        except ExpiredIteratorError as error:\n            self._iterator = None\n",
        "        except ExpiredIteratorError as error:\n            self._iterator = None\n"
        "            self.position = Latest()\n",
    ),
    Mutant(
        "LATEST is not held as a time",
        "reading/shard_reader.py",
        "            self.position = AtTime(time)\n",
        "            pass\n",
    ),
    Mutant(
        "the position moves before the page is there",
        "reading/shard_reader.py",
        "        self._iterator = wire.NextShardIterator\n",
        "        self._iterator = wire.NextShardIterator or self._iterator\n",
    ),
    Mutant(
        "a new reader begins at its last record, not after it",
        "reading/shard_reader.py",
        "            self.position = AfterSequence(number)\n",
        "            self.position = AtSequence(number)\n",
    ),
    Mutant(
        "an iterator at a time is told only once",
        "reading/shard_reader.py",
        "if not self._started or not isinstance(self.position, AtSequence | AfterSequence):",
        "if not self._started:",
        "stream",
        given={"start": "latest", "before": 0, "events": ["expire iterators", "expire iterators"]},
    ),
    Mutant(
        "trimmed records are not said",
        "reading/shard_reader.py",
        "            self.pause = 0.0\n            return [loss]\n",
        "            self.pause = 0.0\n            return []\n",
    ),
    Mutant(
        "a shard that is gone is not said",
        "reading/shard_reader.py",
        "            messages.append(self._finish(closed=True, gone=self._loss(str(error))))\n",
        "            messages.append(self._finish(closed=True))\n",
    ),
    Mutant(
        "an empty page is the end",
        "reading/shard_reader.py",
        "        elif wire.NextShardIterator is None:\n",
        "        elif wire.NextShardIterator is None or not wire.Records:\n",
    ),
    Mutant(
        "what the service repeats is delivered again",
        "reading/sieve.py",
        "            elif number < self.newest or not events or event in events:\n",
        "            elif False:\n",
    ),
    Mutant(
        "a shard that looks open is left, though it was closed",
        "reading/roster.py",
        "            if self.is_closed(shard.id) or not self._knows_what_is_open():\n",
        "            if False:\n",
        given={"follow": False, "start": "trim_horizon", "older": 4},
    ),
    Mutant(
        "an end up to now comes with the first empty page",
        "reading/open_end.py",
        "return empty_pages >= EMPTY_PAGES and self.is_due",
        "return empty_pages > 0",
    ),
    Mutant(
        "expired credentials are not renewed for reads",
        "reading/shard_reader.py",
        "            self.streams.renew()\n",
        "",
    ),
    Mutant(
        "a shard that can't be read is not said",
        "backoff.py",
        "return failures >= unsaid and failures.bit_count() == 1",
        "return False",
    ),
    Mutant(
        "one odd answer to a read ends the reading",
        "reading/refusals.py",
        "if trouble.kind is Kind.ODD and not self._has_worked and trouble.failures",
        "if trouble.kind is Kind.ODD and trouble.failures + 2",
    ),
    Mutant(
        "one odd answer to a listing ends the reading",
        "reading/roster.py",
        "except (TransientError, OddAnswerError, DeniedError) as error:",
        "except (TransientError, DeniedError) as error:",
    ),
    Mutant(
        "no permission ends the reading at once, also later",
        "reading/refusals.py",
        "if not self._has_worked or now - since >= _DENIED_SECONDS:",
        "if True:",
    ),
    # Losses
    Mutant(
        "no loss counts in the first minute",
        "reading/losses.py",
        "not (young and shard.position == self._horizon)",
        "not young",
    ),
    Mutant(
        "an old checkpoint is not said",
        "reading/losses.py",
        "if time and now - time > RETENTION:",
        "if False:",
    ),
    Mutant(
        "a shard that waited for longer than retention is not said",
        "reading/losses.py",
        "if shard.has_outwaited(now):",
        "if False:",
    ),
    Mutant(
        "every restart says a loss",
        "reading/losses.py",
        "if shard.has_outwaited(now):",
        "if shard.since:",
    ),
    # Tokens
    Mutant(
        "a token forgets that a shard is finished",
        "reading/token.py",
        "        finished=shard.status is Status.FINISHED,\n",
        "",
    ),
    Mutant(
        "a token holds LATEST as the time of the save",
        "reading/token.py",
        "    latest = latest or now\n",
        "    latest = now\n",
        "processes",
        given={"start": "latest", "shards": 6, "events": ["no more processes", "stop a process"]},
    ),
    Mutant(
        "a token leaves out what waits for its parent",
        "reading/token.py",
        "        if shard.status is not Status.FINISHED or not lineage.children(shard.id)\n",
        "        if shard.status is not Status.WAITING\n"
        "        and (shard.status is not Status.FINISHED or not lineage.children(shard.id))\n",
    ),
    Mutant(
        "after_sequence is resumed as at_sequence",
        "reading/token.py",
        'AtSequence(number) if stored.iterator_type == "at_sequence" else AfterSequence(number)',
        "AtSequence(number)",
    ),
    # The loop, its processes and its queue
    Mutant(
        "a process that died is forgotten",
        "engine/workers.py",
        "if self._runs[origin].due <= now",
        "if False",
        "processes",
    ),
    Mutant(
        "of the shards of a process that died the first is started again",
        "engine/workers.py",
        "        self._over.extend(worker.shards)\n",
        "        self._over.extend([*worker.shards][:1])\n",
        "processes",
    ),
    Mutant(
        "the first shard's end ends a shared process",
        "engine/workers.py",
        "            if not worker.shards:\n                worker.process.dismiss()",
        "            if True:\n                worker.process.dismiss()",
        "processes",
    ),
    Mutant(
        "a shared process forgets a shard that had a full page",
        "engine/readers.py",
        "        if not reading.is_over:\n            self._turns",
        "        if not reading.is_over and reading.reader.pause:\n            self._turns",
        "processes",
    ),
    Mutant(
        "a process that can't be started is given up",
        "engine/workers.py",
        "            self._start_later(work.origin, run)\n            return\n",
        "            run.life = Life.READING\n            return\n",
        "processes",
    ),
    Mutant(
        "what a killed process had begun to send is taken for the next one's",
        "engine/shared_queue.py",
        "                self._held -= held\n                self._drop(inlet)\n"
        "                return inlet.name, None\n",
        "                self._held -= held\n                self._drop(inlet)\n"
        "                continue\n",
        "processes",
    ),
    Mutant(
        "a half message is taken for a whole one",
        "engine/shared_queue.py",
        "            if self._filled == len(self._buffer):",
        "            if self._filled >= self._head_bytes:",
        "processes",
    ),
    Mutant(
        "the position moves before delivery",
        "engine/handover.py",
        "                deliver(record)\n",
        "                self._behind = records, index\n                deliver(record)\n",
        "processes",
    ),
    Mutant(
        "what an observer refuses to take together counts as taken",
        "engine/handover.py",
        "            return False\n        is_whole",
        "            pass\n        is_whole",
        "processes",
        given={"together": True, "batch": 0, "failing": 0.1, "on_error": "retry:7"},
    ),
    Mutant(
        "of a filtered page the first records go on, in place of those wanted",
        "reading/parts.py",
        "[raws[place] for place in places]",
        "[raws[place] for place in range(len(places))]",
        "processes",
        given={"filtered": True},
    ),
    Mutant(
        "a slow page's position is its end, from the first pause on",
        "engine/handover.py",
        "                    self.move()\n                    yield\n",
        "                    self.move()\n"
        "                    shard.position = AfterSequence(page.last_sequence_number)\n"
        "                    yield\n",
        "processes",
    ),
    Mutant(
        "an up-to-now watch moves on from an ended stream",
        "engine/followed.py",
        "if not roster.has_ended or roster.stopped_short:",
        "if not roster.has_ended:",
        "processes",
        given={"follow": False, "of_table": True, "events": ["disable"]},
    ),
    Mutant(
        "a draining watch does not save",
        "engine/manager.py",
        "            self._keep_house()\n            if self._receive():\n",
        "            if self._receive():\n",
        "processes",
        given={"slow": 0.3, "slow_share": 0.5, "events": ["end the program", "kill the program"]},
    ),
    Mutant(
        "what was missed in a long sleep is not said",
        "reading/roster.py",
        '            self.losses.say_if_old("last listing", self.listing.time, listing.time)\n',
        "            pass\n",
    ),
    Mutant(
        "a token of an unread LATEST does not know since when it is ours",
        "reading/token.py",
        'stored.iterator_type, stored.time, stored.since = "latest", latest, shard.since',
        'stored.iterator_type, stored.time = "latest", latest',
        given={"start": "latest", "before": 0, "events": ["kill the program", "stay away"]},
    ),
    Mutant(
        "an observer that failed is passed over under stop",
        "delivery/on_error.py",
        'if self._on_error.policy == "stop" or (',
        "if (",
        "processes",
    ),
    Mutant(
        "a save waits for ten seconds",
        "engine/checkpoint.py",
        "_SAVE_SECONDS = 1.0",
        "_SAVE_SECONDS = 10.0",
        "processes",
    ),
    Mutant(
        "what moved before a retry is not saved",
        "engine/manager.py",
        "        self._handover.move()\n        self._keeper.moved()\n",
        "        self._handover.move()\n",
        "processes",
        given={"on_error": "retry:7", "failing": 0.1, "events": ["kill the program"]},
    ),
    Mutant(
        "what was delivered before a failure is not saved",
        "engine/manager.py",
        "        finally:\n            self._keeper.moved()\n",
        "        finally:\n            pass\n",
        "processes",
    ),
    Mutant(
        "the last positions are not saved",
        "engine/manager.py",
        "            self._keeper.end()\n",
        "            pass\n",
        "processes",
    ),
    Mutant(
        "a batch that waits counts as processed",
        "engine/followed.py",
        "                shard.hold(number)\n",
        "                pass\n",
        "processes",
    ),
    Mutant(
        "a shard's end does not wait for its batch",
        "engine/manager.py",
        "        self._dispatcher.settle(origin)\n        if self._dispatcher.unsettled(origin):",
        "        if False:",
        "processes",
    ),
    Mutant(
        "a table's new stream begins at LATEST",
        "engine/followed.py",
        "self._new_roster(arn, TrimHorizon(), [])",
        "self._new_roster(arn, Latest())",
        "processes",
    ),
    Mutant(
        "a table's new stream is never looked for",
        "engine/next_stream.py",
        "        if new and self.of_table:\n",
        "        if False:\n",
        "processes",
    ),
    # Stream
    Mutant(
        "a pulled record moves the position with the one behind it",
        "reading/puller.py",
        "        shard.tracked.position = AfterSequence(record.sequence_number)\n"
        "        self._buffer(shard)\n",
        "        self._buffer(shard)\n        shard.tracked.position = shard.reader.position\n",
        "stream",
    ),
    Mutant(
        "a pulled shard ends with its last page, not with its last record",
        "reading/puller.py",
        "            shard.buffered = True\n            return\n",
        "            shard.buffered = True\n"
        "            if not shard.ended:\n                return\n",
        "stream",
    ),
    Mutant(
        "a token goes on at the shards' newest records",
        "reading/puller.py",
        "            tokens.resume(token) if token else None,\n",
        "            None,\n",
        "stream",
    ),
    # Spark
    Mutant(
        "a child's records go along with its parent's last ones",
        "spark/micro_batch.py",
        "or not above.has_ended or above.pages:",
        "or not above.has_ended:",
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
        "        if page.count > records:",
        "        if False:",
        "spark",
    ),
    Mutant(
        "an offset forgets finished shards whose children it does not hold",
        "spark/micro_batch.py",
        "        or shard_id not in with_child\n",
        "",
        "spark",
    ),
    Mutant(
        "a replayed range goes on to what there is now",
        "spark/ranges.py",
        "            part = page if between.upto is None else page.upto(between.upto)\n",
        "            part = page\n",
        "spark",
    ),
    Mutant(
        "pages that are only a part of a range are taken for it",
        "spark/read_ahead.py",
        "whole = found and found[0].after == start and found[-1].upto == upto",
        "whole = found",
        "spark",
    ),
    Mutant(
        "pages are forgotten when they are planned",
        "spark/read_ahead.py",
        "            while self.pages and int(self.pages[0].upto) <= number:",
        "            while self.pages:",
        "spark",
    ),
    Mutant(
        "the driver goes on behind a backlog that nobody is left with",
        "spark/read_ahead.py",
        "        self.left = what\n",
        "",
        "spark",
        MappingProxyType({"limit": None, "behind_seconds": 1.0, "start": "trim_horizon"}),
    ),
    Mutant(
        "a backlog ends behind the record near the tip",
        "spark/backlog.py",
        "                return records[0].dynamodb.SequenceNumber\n",
        "                return str(int(records[0].dynamodb.SequenceNumber) + 1)\n",
        "spark",
        MappingProxyType({"limit": None, "behind_seconds": 1.0, "start": "trim_horizon"}),
    ),
    Mutant(
        "a finished range is read again",
        "spark/offsets.py",
        "        if before.finished:\n            continue\n",
        "",
        "spark",
    ),
    Mutant(
        "a query is anchored at LATEST when it reads, not when it begins",
        "spark/planner.py",
        "                    roster.begin_again(shard),\n",
        "                    shard.position,\n",
        "spark",
    ),
    Mutant(
        "an executor that can't read does not say so",
        "spark/ranges.py",
        "        if worth_saying(troubles[-1].failures):",
        "        if False:",
        "spark",
    ),
]


class Catch(NamedTuple):
    """How a mutant was caught."""

    seed: str = ""
    check: str = ""
    text: str = ""


def show_all(jobs: int) -> int:
    """Try all, and print which check has caught each; 1 where one was not."""
    missed = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        catches = pool.map(tried, MUTANTS)
        for mutant, catch in zip(MUTANTS, catches, strict=True):
            verdict = f"{catch.check:12} seed {catch.seed}" if catch.check else "NOT CAUGHT"
            print(f"{mutant.what:76} {verdict}", flush=True)
            if not catch.check:
                missed.append(mutant)
                print(f"  {catch.text}")
    print(f"{len(MUTANTS) - len(missed)} of {len(MUTANTS)} mutants caught")
    return bool(missed)


def tried(mutant: Mutant) -> Catch:
    """Run a copy of the package with this edit, until a seed sees it."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "watcher")
        shutil.copytree(_ROOT / "watcher", package)
        path = package / mutant.file
        text = path.read_text()
        if text.count(mutant.before) != 1:
            return Catch(text=f"{mutant.file} does not hold its text once any more")
        path.write_text(text.replace(mutant.before, mutant.after))
        for each in ("simulator", "simulation"):
            shutil.copytree(_ROOT / "tests" / each, Path(folder, "tests", each))
        # Else the tests of an installed tree would be found before these.
        shutil.copy(_ROOT / "tests" / "__init__.py", Path(folder, "tests"))
        command = [sys.executable, "-m", "tests.simulation", "--until-caught"]
        command += ["--seeds", str(_SEEDS)] + (["--engine", mutant.engine] if mutant.engine else [])
        command += ["--given", json.dumps(dict(mutant.given))]
        environment = os.environ | {"PYTHONPATH": folder, "PYTHONHASHSEED": "0"}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600
        )
    if done.stdout.count("\t") < 2:
        return Catch(text=done.stderr.strip().splitlines()[-1] if done.returncode else "")
    return Catch(*done.stdout.strip().split("\t", 2))
