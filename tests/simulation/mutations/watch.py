"""The loop, its processes, its queue and its deliveries."""

from __future__ import annotations

from tests.simulation.mutations.mutant import Mutant

WATCH = [
    # The loop, its processes and its queue
    Mutant(
        "a process that died is forgotten",
        "runtime/workers.py",
        "if self._runs[origin].due <= now",
        "if False",
        "processes",
    ),
    Mutant(
        "of the shards of a process that died the first is started again",
        "runtime/workers.py",
        "        self._over.extend(worker.shards)\n",
        "        self._over.extend([*worker.shards][:1])\n",
        "processes",
    ),
    Mutant(
        "the first shard's end ends a shared process",
        "runtime/workers.py",
        "            if not worker.shards:\n                worker.process.dismiss()",
        "            if True:\n                worker.process.dismiss()",
        "processes",
    ),
    Mutant(
        "a shared process forgets a shard that had a full page",
        "runtime/worker.py",
        "        if not reading.is_over:\n            pause",
        "        if not reading.is_over and reading.reader.pause:\n            pause",
        "processes",
    ),
    Mutant(
        "a process that can't be started is given up",
        "runtime/workers.py",
        "            self._start_later(work.origin, run)\n            return\n",
        "            run.life = AssignmentState.READING\n            return\n",
        "processes",
    ),
    Mutant(
        "what a killed process had begun to send is taken for the next one's",
        "runtime/protocol.py",
        "                self._held -= held\n                self._drop(inlet)\n"
        "                return inlet.name, None\n",
        "                self._held -= held\n                self._drop(inlet)\n"
        "                continue\n",
        "processes",
    ),
    Mutant(
        "a half message is taken for a whole one",
        "runtime/protocol.py",
        "            if self._filled == len(self._buffer):",
        "            if self._filled >= self._head_bytes:",
        "processes",
    ),
    Mutant(
        "the position moves before delivery",
        "delivery/sequential.py",
        '                deliver(record)\n                kinds.append(wire.eventName or "")\n',
        '                kinds.append(wire.eventName or "")\n                deliver(record)\n',
        "processes",
    ),
    Mutant(
        "what an observer refuses to take together counts as taken",
        "delivery/sequential.py",
        "            return False\n        is_whole",
        "            pass\n        is_whole",
        "processes",
        given={"together": True, "batch": 0, "failing": 0.1, "on_error": "retry:7"},
    ),
    Mutant(
        "of a filtered page the first records go on, in place of those wanted",
        "streams/messages.py",
        "raws_of(body, records, places)",
        "raws_of(body, records, range(len(places)))",
        "processes",
        given={"filtered": True},
    ),
    Mutant(
        "a slow page's position is its end, from the first pause on",
        "delivery/sequential.py",
        "                self.move()\n                yield\n",
        "                self.move()\n"
        "                shard.position = AfterSequence(page.last_sequence_number)\n"
        "                yield\n",
        "processes",
    ),
    Mutant(
        "an up-to-now watch moves on from an ended stream",
        "runtime/watched_stream.py",
        "if not coordinator.has_ended or coordinator.left:",
        "if not coordinator.has_ended:",
        "processes",
        given={"follow": False, "of_table": True, "events": ["disable"]},
    ),
    Mutant(
        "as the end begins, a page counts as delivered of which records are left",
        "delivery/sequential.py",
        "if not ending.has_begun or self._done == page.count:",
        "if True:",
        "processes",
    ),
    Mutant(
        "what was missed in a long sleep is not said",
        "streams/coordinator.py",
        '            self.losses.say_if_old("last listing", self.listing.time, listing.time)\n',
        "            pass\n",
    ),
    Mutant(
        "a token of an unread LATEST does not know since when it is ours",
        "streams/token.py",
        'stored.iterator_type, stored.time, stored.since = "latest", latest, shard.since',
        'stored.iterator_type, stored.time = "latest", latest',
        given={"start": "latest", "before": 0, "events": ["kill the program", "stay away"]},
    ),
    Mutant(
        "an observer that failed is passed over under stop",
        "delivery/failures.py",
        'if self._on_error.policy == "stop" or (',
        "if (",
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
        "        self._handover.move()\n        self._keeper.moved()\n",
        "        self._handover.move()\n",
        "processes",
        given={"on_error": "retry:7", "failing": 0.1, "events": ["kill the program"]},
    ),
    Mutant(
        "what was delivered before a failure is not saved",
        "runtime/loop.py",
        "        finally:\n            self._keeper.moved()\n",
        "        finally:\n            pass\n",
        "processes",
    ),
    Mutant(
        "the last positions are not saved",
        "runtime/loop.py",
        "            self._keeper.end()\n",
        "            pass\n",
        "processes",
    ),
    Mutant(
        "a batch that waits counts as processed",
        "runtime/watched_stream.py",
        "                shard.hold(number)\n",
        "                pass\n",
        "processes",
    ),
    Mutant(
        "a shard's end does not wait for its batch",
        "runtime/loop.py",
        "        self._dispatcher.settle(origin)\n        if self._dispatcher.unsettled(origin):",
        "        if False:",
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
        "runtime/watched_stream.py",
        "        if new and self.of_table:\n",
        "        if False:\n",
        "processes",
    ),
    # The items that exist, in between the changes
    Mutant(
        "items are read before the changes from now on are",
        "runtime/watched_stream.py",
        "        return unread and not self.coordinator.lineage.awaits_latest\n",
        "        return unread\n",
        "processes",
        given={"snapshot": True, "start": "latest", "before": 60},
    ),
    Mutant(
        "a page of items that was begun counts as told",
        "pull/table_snapshot.py",
        "        if count >= len(self._keys):\n",
        "        if count > 0:\n",
        "processes",
        given={"snapshot": True, "before": 60, "events": ["kill at a save", "kill the program"]},
    ),
    Mutant(
        "changes are handed over while items wait in a batch",
        "runtime/loop.py",
        "            self._handover.settle(snapshot.origin)\n",
        "            pass\n",
        "processes",
        given={"snapshot": True, "before": 60, "batch": 20, "window": 2.0},
    ),
    # What it says of its health
    Mutant(
        "a read that was answered is taken for a refused one",
        "runtime/worker.py",
        "answered=self._tally.answers > answers",
        "answered=False",
        "processes",
    ),
    Mutant(
        "a shard counts as stuck though it is read, as nothing new is in it",
        "runtime/health.py",
        "if now - max(since, tried) > self._read_seconds",
        "if now - since > self._read_seconds",
        "processes",
    ),
]
