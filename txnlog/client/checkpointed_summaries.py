"""Summaries of the segments of all topics, for one handle: what its checkpoint says is looked at once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from txnlog.fold.state import State
from txnlog.log.checkpoint_codec import Manifest, Part
from txnlog.log.checkpoint_reader import UnusableCheckpoint
from txnlog.log.follower import Follower
from txnlog.log.segment_summary import CheckpointedSegments, RecentSegments, SegmentSummary


class SegmentSummaries:
    """Makes summaries for one handle. What the newest checkpoint says is kept until the handle reads from another."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._last: tuple[Manifest | None, CheckpointedSegments] = (None, CheckpointedSegments((), ()))

    def now(self) -> SegmentSummary:
        """The summary of the newest state that this client knows."""
        return self._follower.over_checkpoints(lambda: self.of(self._follower.look(self.recent)))

    def recent(self, state: State) -> RecentSegments:
        """What a look at the state needs to find for a summary of it."""
        return RecentSegments(
            self._follower.base,
            tuple([record for record in state.segments.values() if record.state == "visible"]),
            frozenset(state.removals),
        )

    def of(self, recent: RecentSegments) -> SegmentSummary:
        """The summary. Raises UnusableCheckpoint: to be called by ``over_checkpoints`` of the follower."""
        base, checkpointed = self._last
        if recent.base is not base:
            checkpointed = self._checkpointed(recent.base)
            self._last = (recent.base, checkpointed)
        return SegmentSummary(recent, checkpointed)

    def _checkpointed(self, base: Manifest | None) -> CheckpointedSegments:
        if base is None:
            return CheckpointedSegments((), ())
        read_run = self._follower.log.checkpoints.read_run
        return CheckpointedSegments(
            [_visible(read_run(part), part) for part in base.runs("segments")],
            [read_run(part) for part in base.runs("removals")],
        )


def _visible(run: pa.Table, part: Part) -> pa.Table:
    """The visible segments of a run. Raises UnusableCheckpoint where the log could not say that of one."""
    found = run.filter(pc.equal(run.column("state"), "visible"))
    offsets = pc.struct_field(pc.list_flatten(found.column("slices")), "offset")
    if offsets.null_count or found.column("timestamp_ms").null_count:
        raise UnusableCheckpoint(part, "a row of segments contradicts itself")
    return found


__all__ = ["SegmentSummaries"]
