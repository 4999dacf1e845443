"""Merging small segments after commits: off the commit path, best-effort, never shown to a committer.

No process is chosen for it. Each one that appends counts the small segments that it knows of, and draws how many it
lets come together; so mostly one of them is first, and the others see from its entry that there is nothing left to do.
Where two begin at once the second one's entry replaces nothing. Which of them one merge takes is in
``maintenance/merge_plan.py`` (``newest``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from txnlog.client.upkeep import TopicQueue
from txnlog.common.limits import AUTO_MERGE_BYTES, AUTO_MERGE_SEGMENTS
from txnlog.engine.log_lines import LogLines
from txnlog.engine.runtime import Runtime
from txnlog.errors import AccessDenied, TopicNotFound, TxnLogError
from txnlog.fold.state import Draft, SegmentRecord, State
from txnlog.format.merge_mode import MERGE
from txnlog.log.follower import Follower
from txnlog.log.small_segments import is_small

_logger = LogLines("txnlog.merger")

_SPREAD: Final = 0.5
"""Clients of one log let up to this share of the interval more segments come together: mostly one of them is first."""

_MOST_KNOWN: Final = 4_096
"""Small segments of a topic that are kept in mind; older ones are left to ``optimize``."""

MergeSmall = Callable[[int, Sequence[SegmentRecord], int], object]
"""Merges small segments of a topic, in no order, that were there at a version. Called in a thread."""


class _Topic:
    """What is known of the small segments of one topic.

    Attributes:
        small: those that are there.
        came: how many came since the last merge that was tried, of those that are there yet.
        due_at: so many are to come together before the next one.
    """

    __slots__ = ("came", "due_at", "small")

    def __init__(self, due_at: int) -> None:
        self.small: dict[int, SegmentRecord] = {}
        self.came = 0
        self.due_at = due_at

    def note(self, record: SegmentRecord) -> None:
        """A small segment came."""
        self.small[record.number] = record
        self.came += 1
        if len(self.small) > _MOST_KNOWN:
            del self.small[next(iter(self.small))]

    def note_removal(self, number: int) -> None:
        """A segment was replaced."""
        self.small.pop(number, None)
        self.came = min(self.came, len(self.small))

    @property
    def is_due(self) -> bool:
        """Whether enough came together."""
        return self.came >= self.due_at


class AutoMerger:
    """Merges what is small of the topics that were committed to, one topic at a time.

    Attributes:
        interval: small segments of a topic that may come together before they are merged.
    """

    def __init__(self, follower: Follower, runtime: Runtime, merge: MergeSmall) -> None:
        self._follower = follower
        self._runtime = runtime
        self._merge = merge
        self.interval = AUTO_MERGE_SEGMENTS
        # Of the engine alone.
        self._topics: dict[int, _Topic] = {}
        self._is_denied = False
        self._queue = TopicQueue(runtime, self._merge_if_due)

    def watch(self) -> None:
        """Note from here on which small segments there are: for a handle that may append."""
        self._runtime.engine.look(self._watch)

    def _watch(self) -> None:
        state = self._follower.state
        self._note_segments(state, state.segments)
        self._note_removals(state.removals)
        self._follower.watch(self._note)

    def _note(self, draft: Draft) -> None:
        self._note_segments(draft, draft.segments.changed())
        self._note_removals(draft.removals.changed())
        for number, topic in draft.topics.changed().items():
            if topic is None or topic.dropped:
                self._topics.pop(number, None)

    def _note_segments(self, state: Draft | State, found: Mapping[int, SegmentRecord | None]) -> None:
        for record in found.values():
            if record is None or record.state != "visible" or not is_small(record, AUTO_MERGE_BYTES):
                continue
            topic = state.topics.get(record.topic)
            if topic is None or topic.dropped:
                continue
            if record.topic not in self._topics:
                self._topics[record.topic] = _Topic(self._drawn())
            self._topics[record.topic].note(record)

    def _note_removals(self, found: Mapping[int, int | None]) -> None:
        if found:
            for topic in self._topics.values():
                for number in found:
                    topic.note_removal(number)

    def after_append(self) -> None:
        """Have merged what is due. To be called in the engine."""
        if not self._is_denied:
            self._queue.begin(
                [number for number, item in self._topics.items() if item.is_due and self._is_wanted(number)]
            )

    def _drawn(self) -> int:
        return self.interval + int(self._runtime.jitter(1.0) * _SPREAD * self.interval)

    def _is_wanted(self, number: int) -> bool:
        return MERGE.of(self._follower.state.topics[number].properties) == "auto"

    def _merge_if_due(self, number: int) -> Callable[[], None] | None:
        topic = self._topics.get(number)
        if topic is None or not topic.is_due:
            return None
        # What is there, and at which version: a merge may begin when others have merged it, and forgotten that.
        merge = partial(self._quietly, number, list(topic.small.values()), self._follower.state.head.version)
        # What cannot be merged is tried again once as much came besides.
        topic.came, topic.due_at = 0, self._drawn()
        return merge

    def _quietly(self, topic: int, small: Sequence[SegmentRecord], version: int) -> None:
        try:
            self._merge(topic, small, version)
        except TopicNotFound:
            pass  # dropped meanwhile
        except AccessDenied as error:
            self._is_denied = True
            _logger.debug("small segments are left to others: %s", error.message)
        except TxnLogError as error:
            _logger.warning("small segments were not merged, and are later: %s", error.message)
        except Exception:
            _logger.exception("small segments were not merged: a bug, which harms no commit")

    def close(self) -> None:
        """Begin nothing new, and wait for what is under way: before the handle is closed, which it needs."""
        self._queue.stop()


__all__ = ["AutoMerger", "MergeSmall"]
