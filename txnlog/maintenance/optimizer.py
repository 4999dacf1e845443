"""Merging small segments into big ones while others write and read (PROTOCOL.md, ``replace``).

Each merge is one entry of its own: what is planned is read and written, then the log is asked to replace it. Where
others were ahead it is planned again. An optimize that stops anywhere leaves files that no entry names, for vacuum.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from txnlog.client.positions import start_offsets
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.limits import AUTO_MERGE_BYTES, MAX_SEGMENT_BYTES
from txnlog.common.validation import whole_number
from txnlog.fold.state import SegmentRecord, TopicRecord
from txnlog.maintenance import merge_plan
from txnlog.maintenance.merge_plan import Merge
from txnlog.maintenance.merging import Merger
from txnlog.replies import IfUnknown, refused_write
from txnlog.results import Optimized

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

_MOST_ROUNDS: Final = 100
"""Each leaves fewer segments, unless others are always ahead."""

Progress = Callable[[str, int, int], object]
"""Called with the topic at work, the segments merged so far, and those that are to be merged as far as is known."""


def begin(
    connection: Connection,
    topic: str,
    target_size_bytes: int,
    *,
    max_bytes: int | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Optimization:
    """Begin to merge the small segments of a topic (see ``Namespace.optimize``): to be run, or only foreseen."""
    target_size_bytes = check_target(target_size_bytes)
    if max_bytes is not None:
        max_bytes = whole_number("max_bytes", max_bytes, 0, MAX_NUMBER)
    if not dry_run:
        connection.check_writes()
    with contextlib.nullcontext() if dry_run else refused_write():
        connection.follower.refresh()
        record = connection.topic_record(topic)
    return Optimization(connection, record, target_size_bytes, max_bytes, progress)


def check_target(target_size_bytes: int) -> int:
    """The size as a whole number, or InvalidInputError."""
    return whole_number("target_size_bytes", target_size_bytes, 1, MAX_SEGMENT_BYTES)


@dataclass(slots=True)
class _Done:
    """What was done so far."""

    version: int | None = None
    merged: int = 0
    written: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    entries: int = 0
    lost_races: int = 0


class Optimization:
    """One optimize of one topic: of what was visible when it began, and of what it made of that."""

    def __init__(
        self,
        connection: Connection,
        topic: TopicRecord,
        target_size_bytes: int,
        max_bytes: int | None,
        progress: Progress | None,
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._target = target_size_bytes
        self._max_bytes = max_bytes
        self._progress = progress
        self._merger = Merger(connection, topic, IfUnknown.OPTIMIZE)
        self._begun = connection.follower.version
        self._own: set[int] = set()
        self._known = 0
        self._done = _Done()

    def foresee(self) -> Optimized:
        """What it would begin with."""
        wanted = self._plan()
        self._done.merged = sum(len(merge.removed) for merge in wanted)
        self._done.written = sum(len(merge.outputs) for merge in wanted)
        self._done.read_bytes = sum(merge.size_bytes for merge in wanted)
        return self._result(finished=not wanted, dry_run=True)

    def run(self) -> Optimized:
        """Merge until nothing is left, or as much was read as one call may."""
        for _ in range(_MOST_ROUNDS):
            wanted = self._plan()
            if not wanted:
                return self._result(finished=True)
            for index, merge in enumerate(wanted):
                if self._is_enough(merge):
                    return self._result(finished=False)
                if not self._merge(merge):
                    self._done.lost_races += 1
                    break  # what is known of the others is as old
                self._report(wanted[index + 1 :])
        return self._result(finished=False)

    def run_newest(self, small: Sequence[SegmentRecord], version: int) -> None:
        """Merge what is worth it of small segments that were visible at a version, once, in the background."""
        self._merger.is_gentle = True
        self._known = version  # not the newest: by then they may be merged, and that may be forgotten
        follower = self._connection.follower
        starts = follower.look(lambda _state: start_offsets(follower, self._topic))
        chosen = merge_plan.newest(small, self._target)
        for merge in merge_plan.merges(chosen, {}, self._known, starts, self._target):
            if not self._merge(merge):
                return

    def so_far(self) -> Optimized:
        """What it did before an error ended it."""
        return self._result(finished=False)

    def _plan(self) -> list[Merge]:
        """What is to be merged by what the log shows now."""
        follower = self._connection.follower
        self._known, starts = follower.look(lambda state: (state.head.version, start_offsets(follower, self._topic)))
        records, removals = follower.segments(self._topic.id)
        return merge_plan.merges(
            records,
            removals,
            self._known,
            starts,
            self._target,
            lambda item: item.number in self._own or (item.ended_version or 0) <= self._begun,
        )

    def _is_enough(self, merge: Merge) -> bool:
        """Whether as much was read as was allowed: one merge is done in any case."""
        if self._max_bytes is None or not self._done.entries:
            return False
        return self._done.read_bytes + merge.size_bytes > self._max_bytes

    def _report(self, left: Sequence[Merge]) -> None:
        if self._progress is not None:
            known = self._done.merged + sum(len(merge.removed) for merge in left)
            self._progress(self._topic.name, self._done.merged, known)

    def _result(self, *, finished: bool, dry_run: bool = False) -> Optimized:
        done = self._done
        return Optimized(
            self._topic.name,
            done.version,
            done.merged,
            done.written,
            done.read_bytes,
            done.written_bytes,
            done.entries,
            done.lost_races,
            finished,
            dry_run,
        )

    def _merge(self, merge: Merge) -> bool:
        """Merge. False where the segments are not all there any more."""
        merged = self._merger.merge(merge, self._known)  # a look at these says nothing of those of the next merge
        if merged is None:
            return False
        done = self._done
        done.version = merged.version
        done.entries += 1
        done.merged += len(merge.removed)
        done.written += len(merged.segments)
        done.read_bytes += merge.size_bytes
        done.written_bytes += sum(segment.size_bytes for segment in merged.segments)
        self._own.update(segment.segment for segment in merged.segments)
        return True


def merge_newest(connection: Connection, topic: int, small: Sequence[SegmentRecord], version: int) -> None:
    """Merge what is worth it of small segments that a topic had at a version. Nothing where others were ahead.

    Clients that commit call it in the background (``client/auto_merger.py``).
    """
    record = connection.topic_record_by_id(topic)
    Optimization(connection, record, AUTO_MERGE_BYTES, None, None).run_newest(small, version)


__all__ = ["Optimization", "Progress", "begin", "check_target", "merge_newest"]
