"""What all engines share: shards and their order, positions, losses, tokens."""

from __future__ import annotations

from tests.simulation.mutations.edits import (
    after,
    argument,
    assigned,
    before,
    called,
    comparison,
    condition,
    constant,
    in_handler,
    logic,
    looped_over,
    returned,
    without,
)
from tests.simulation.mutations.mutant import Mutant

READING = [
    # Which shards are read when
    Mutant(
        "a child begins early",
        "Lineage.is_ready",
        comparison("FINISHED", becomes="{left} is not ShardStatus.WAITING"),
    ),
    Mutant(
        "children begin at the start's position",
        "Lineage.update",
        without("_start", "TrimHorizon"),
    ),
    Mutant(
        "a resumed watch begins unknown shards at LATEST",
        "Lineage.__init__",
        assigned("_start", becomes="Latest()"),
    ),
    Mutant(
        "a parent that no listing shows does not count",
        "Lineage.update",
        without("_add_unlisted_parents"),
    ),
    Mutant(
        "a hidden parent is read at once",
        "UnlistedParents.readable",
        condition("expected", becomes="True"),
    ),
    Mutant(
        "a hidden parent that answers errors counts as gone",
        "UnlistedParents.on_answers",
        condition("ShardNotFoundError", becomes="{0} is not None"),
    ),
    Mutant(
        "a finished shard's children are asked for once, and no listing follows",
        "ListingSchedule.on_listing",
        assigned("_due", becomes="math.inf", nth=0),
    ),
    Mutant(
        "an end that is none is the end",
        "Coordinator._listed",
        without("_reopen_ended"),
    ),
    Mutant(
        "an end does not wait for a late child",
        "ListingSchedule.on_finished",
        without("settle_at"),
    ),
    Mutant(
        "a resumed end does not wait for a late child",
        "Coordinator.start",
        without("_ask_for_late_children"),
        "processes",
    ),
    Mutant(
        "a failed listing is the last one",
        "ListingSchedule.on_failure",
        assigned("_due", becomes="math.inf"),
    ),
    Mutant(
        "expired credentials are not renewed for listings",
        "Coordinator._on_refusal",
        without("renew_credentials"),
    ),
    Mutant(
        "failing listings are not said",
        "Coordinator._listing_failed",
        condition("worth_logging", becomes="False"),
    ),
    Mutant(
        "a reader that died before it had an iterator begins at LATEST",
        "Coordinator.restart",
        without("hold_latest"),
    ),
    # The reading of one shard
    Mutant(
        "the last page of a closed shard is dropped",
        "ShardReader._on_page",
        looped_over("moved_behind", becomes="{it} if self._iterator is not None else ()"),
    ),
    Mutant(
        "an expired iterator starts again at LATEST",
        "ShardReader._answered",
        in_handler("ExpiredIteratorError", do="self.position = Latest()"),
    ),
    Mutant(
        "LATEST is not held as a time",
        "ShardReader._get_iterator",
        without("AtTime"),
    ),
    Mutant(
        "the position moves before the page is there",
        "ShardReader._read",
        before("fetch", do="self.position = Latest()"),
    ),
    Mutant(
        "a new reader begins at its last record, not after it",
        "moved_behind",
        called("AfterSequence", becomes="AtSequence({0})"),
    ),
    Mutant(
        "an iterator at a time is told only once",
        "ShardReader._get_iterator",
        condition("_started", becomes="not self._started"),
        "stream",
        given={"start": "latest", "before": 0, "events": ["expire iterators", "expire iterators"]},
    ),
    Mutant(
        "trimmed records are not said",
        "ShardReader._on_trimmed",
        returned(becomes="[]", nth=0),
    ),
    Mutant(
        "a shard that is gone is not said",
        "ShardReader._answered",
        argument("_finish", "gone", becomes="None"),
    ),
    Mutant(
        "an empty page is the end",
        "ShardReader._on_page",
        condition("NextShardIterator", becomes="{it} or not {object}.Records"),
    ),
    Mutant(
        "what the service repeats is delivered again",
        "Deduplicator._fresh",
        condition("newest", becomes="False", nth=1),
    ),
    Mutant(
        "a record that comes out of order counts as a repeat",
        "Deduplicator.through",
        condition("gt", becomes="False"),
        given={"start": "trim_horizon", "faults": {"shuffled_rate": 0.3}},
    ),
    Mutant(
        "a shard that looks open is left, though it was closed",
        "Coordinator._on_caught_up",
        condition("_confirm_settled_listing", becomes="False"),
        given={
            "follow": False,
            "start": "trim_horizon",
            "older": 4,
            "habits": {"closed_empty": 100, "latency": 0.05, "closing_lag": 3.0},
        },
    ),
    Mutant(
        "an end up to now comes with the first empty page",
        "EndDetector._is_quiet",
        returned("_quiet_at", becomes="self._empty_pages > 0"),
    ),
    Mutant(
        "a shard that LATEST calls closed is left as an open one",
        "EndDetector._read_probe",
        after("numbers_of", do="self.is_open = True"),
        given={"follow": False, "start": "trim_horizon", "older": 4},
    ),
    Mutant(
        "expired credentials are not renewed for reads",
        "ShardReader._answered",
        without("renew_credentials"),
    ),
    Mutant(
        "a shard that can't be read is not said",
        "retry.worth_logging",
        returned(becomes="False"),
    ),
    Mutant(
        "one odd answer to a read ends the reading",
        "PersistentErrors.on_error",
        condition("UNEXPECTED", becomes="{0}"),
    ),
    Mutant(
        "one odd answer to a listing ends the reading",
        "Coordinator._on_refusal",
        condition(
            "UnexpectedAnswerError",
            becomes="{it} and not isinstance({0}, UnexpectedAnswerError)",
        ),
    ),
    Mutant(
        "no permission ends the reading at once, also later",
        "PersistentErrors.on_error",
        condition("denied_seconds", becomes="True"),
    ),
    # Losses
    Mutant(
        "no loss counts in the first minute",
        "Losses._counts",
        logic("_horizon", becomes="{0}"),
    ),
    Mutant(
        "an old checkpoint is not said",
        "Losses.report_if_stale",
        condition("is_stale", becomes="False"),
    ),
    Mutant(
        "a shard that waited for longer than retention is not said",
        "Losses.report_if_waited_past_retention",
        condition("has_waited_past_retention", becomes="False"),
    ),
    Mutant(
        "every restart says a loss",
        "Losses.report_if_waited_past_retention",
        condition("has_waited_past_retention", becomes="{object}.since"),
    ),
    # Tokens
    Mutant(
        "a token forgets that a shard is finished",
        "checkpoint_format._stored",
        argument("TokenShard", "finished", becomes="False"),
    ),
    Mutant(
        "a token holds LATEST as the time of the save",
        "checkpoint_format.make",
        called("min", becomes="{1}"),
        "processes",
        given={"start": "latest", "shards": 6, "events": ["no more processes", "stop a process"]},
    ),
    Mutant(
        "after_sequence is resumed as at_sequence",
        "checkpoint_format._position",
        called("AfterSequence", becomes="AtSequence({0})"),
    ),
    # Stream
    Mutant(
        "a pulled record moves the position behind its whole page",
        "ShardBuffer.settle",
        argument("move_behind", 0, becomes="self.page.last_sequence_number"),
        "stream",
    ),
    Mutant(
        "a token stays before the run of records that is being pulled",
        "MergedShards.token",
        without("_settle"),
        "stream",
    ),
    Mutant(
        "a pulled shard ends with its last page, not with its last record",
        "MergedShards._collect",
        after("is_held", do="if {object}.has_ended: self._drained.append({object})"),
        "stream",
    ),
    Mutant(
        "a token goes on at the shards' newest records",
        "ShardPool.__init__",
        called("resume", becomes="None"),
        "stream",
    ),
    # How often a shard is read that others read, too
    Mutant(
        "a throttled reader asks on at once",
        "AdaptiveRateLimit.delay",
        returned("_began", becomes="0.0"),
        given={"habits": {"shard_reads_per_second": 1.0, "latency": 0.01}},
    ),
    Mutant(
        "the rate does not shrink",
        "AdaptiveRateLimit.on_throttled",
        assigned("_rate", becomes="5.0", nth=1),
        given={"habits": {"shard_reads_per_second": 1.0, "latency": 0.01}},
    ),
    Mutant(
        "a rate is not below three a second",
        "read_rate._READS_PER_SECOND_MIN",
        constant(becomes="3.0"),
        given={"habits": {"shard_reads_per_second": 1.0, "latency": 0.01}},
    ),
]
