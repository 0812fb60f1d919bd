"""The loop, its processes, its queue and its deliveries."""

from __future__ import annotations

from tests.simulation.mutations.edits import (
    after,
    argument,
    attribute,
    both,
    called,
    comparison,
    condition,
    constant,
    earlier,
    instead,
    returned,
    without,
)
from tests.simulation.mutations.mutant import Mutant

_FAILING = {"on_error": "retry", "batch": 0, "events": ["a handler fails"]}

WATCH = [
    # The loop, its processes and its queue
    Mutant(
        "a process that died is forgotten",
        "Workers.to_restart",
        condition("due_at", becomes="False"),
        "processes",
    ),
    Mutant(
        "of the shards of a process that died the first is started again",
        "Workers._reap",
        argument("extend", 0, becomes="[*{it}][:1]"),
        "processes",
    ),
    Mutant(
        "the first shard's end ends a shared process",
        "Workers._release",
        condition("shards", becomes="True"),
        "processes",
    ),
    Mutant(
        "a shared process forgets a shard that had a full page",
        "ReadScheduler.done",
        condition("is_finished", becomes="{it} and {object}.reader.delay"),
        "processes",
    ),
    Mutant(
        "a process that can't be started is given up",
        "Workers.start",
        instead("_start_later", do="{1}.state = AssignmentState.READING"),
        "processes",
    ),
    Mutant(
        "what a killed process had begun to send is taken for the next one's",
        "MessageQueue.receive",
        instead("return", "name", do="continue"),
        "processes",
    ),
    Mutant(
        "a half message is taken for a whole one",
        "_Inlet.read",
        condition("_filled", becomes="{left} >= self._head_bytes"),
        "processes",
    ),
    Mutant(
        "the position moves before delivery",
        "SequentialDelivery._one_by_one",
        earlier("eventName"),
        "processes",
    ),
    Mutant(
        "what a handler refuses to take together counts as taken",
        "SequentialDelivery._deliver_together",
        condition("deliver_page", becomes="{it} and False"),
        "processes",
        given={"together": True, "batch": 0, "failing": 0.1, "on_error": "retry:7"},
    ),
    Mutant(
        "of a filtered page the first records go on, in place of those wanted",
        "messages._of",
        argument("raw_records_at", 2, becomes="range(len({it}))"),
        "processes",
        given={"filtered": True},
    ),
    Mutant(
        "a slow page's position is its end, from the first pause on",
        "SequentialDelivery.move_positions",
        condition("isinstance", becomes="True"),
        "processes",
    ),
    Mutant(
        "an up-to-now watch moves on from an ended stream",
        "WatchedStream.find_end",
        condition("is_over", becomes="not self.coordinator.has_ended"),
        "processes",
        given={"follow": False, "of_table": True, "events": ["disable"]},
    ),
    Mutant(
        "as the end begins, a page counts as delivered of which records are left",
        "SequentialDelivery._take_turn",
        condition("_is_whole", becomes="{0}"),
        "processes",
    ),
    Mutant(
        "what was missed in a long sleep is not said",
        "Coordinator._listed",
        without("report_if_stale"),
    ),
    Mutant(
        "a token of an unread LATEST does not know since when it is ours",
        "checkpoint_format._stored",
        after("since", "latest", do="{object}.since = None"),
        given={"start": "latest", "before": 0, "events": ["kill the program", "stay away"]},
    ),
    Mutant(
        "a handler that failed is passed over under stop",
        "FailedRecordSink.take",
        condition("then", becomes="{1}"),
        "processes",
    ),
    Mutant(
        "a save waits for ten seconds",
        "checkpoint_saver._SAVE_SECONDS",
        constant(becomes="10.0"),
        "processes",
    ),
    Mutant(
        "what moved before a retry is not saved",
        "Manager.save_before_retry",
        without("move_positions"),
        "processes",
        given={"on_error": "retry:7", "failing": 0.1, "events": ["kill the program"]},
    ),
    Mutant(
        "a handler that is tried again for ever is given up",
        "Retries._pause",
        comparison("failures", becomes="{left} > 3", nth=1),
        "processes",
        given=_FAILING,
    ),
    Mutant(
        "a record that is tried again counts as delivered where the watch ends",
        "Dispatcher._wait",
        instead("Overdue", do="return False"),
        "processes",
        given={**_FAILING, "events": ["a handler fails", "end the program", "end the program"]},
    ),
    Mutant(
        "what was delivered is no reason to save",
        "Progress.move",
        without("_mark_dirty"),
        "processes",
    ),
    Mutant(
        "the last positions are not saved",
        "Manager._end",
        without("save_last"),
        "processes",
    ),
    Mutant(
        "a batch that waits counts as processed",
        "WatchedStream.token",
        without("hold"),
        "processes",
    ),
    Mutant(
        "a shard's end does not wait for its batch",
        "Manager._finish",
        both(without("drain"), condition("first_pending", becomes="False")),
        "processes",
    ),
    Mutant(
        "a table's new stream begins at LATEST",
        "WatchedStream.move_on",
        called("_new_coordinator", becomes="{function}({0}, Latest())"),
        "processes",
    ),
    Mutant(
        "a table's new stream is never looked for",
        "SuccessorSearch.search",
        condition("of_table", becomes="False"),
        "processes",
    ),
    # The items that exist, in between the changes
    Mutant(
        "items are read before the changes from now on are",
        "WatchedStream.snapshot_is_due",
        returned("awaits_latest", becomes="{0}"),
        "processes",
        given={"snapshot": True, "start": "latest", "before": 60},
    ),
    Mutant(
        "a page of items that was begun counts as told",
        "TableSnapshot.stored",
        condition("_keys", becomes="{left} > 0"),
        "processes",
        given={"snapshot": True, "before": 60, "events": ["kill at a save", "kill the program"]},
    ),
    Mutant(
        "changes are handed over while items wait in a batch",
        "Manager._receive_items",
        argument("submit", "then_drain", becomes="False"),
        "processes",
        given={"snapshot": True, "before": 60, "batch": 20, "window": 2.0},
    ),
    # What it says of its health
    Mutant(
        "a read that was answered is taken for a refused one",
        "AssignedShard.read",
        argument("attempt", "answered", becomes="False", nth=1),
        "processes",
    ),
    Mutant(
        "a shard counts as stuck though it is read, as nothing new is in it",
        "HealthChecker._check_shards",
        attribute("tried_at", becomes="0.0"),
        "processes",
    ),
]
