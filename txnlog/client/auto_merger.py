"""Merging small segments after commits: off the commit path, best-effort, never shown to a committer.

No process is chosen for it. Each one that appends counts the small segments that it knows of, and draws how many it
lets come together; so mostly one of them is first, and the others see from its entry that there is nothing left to do.
Where two begin at once the second one's entry replaces nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from txnlog.client.background import BackgroundWork
from txnlog.common.limits import AUTO_MERGE_BYTES, AUTO_MERGE_SEGMENTS
from txnlog.engine.log_lines import LogLines
from txnlog.engine.runtime import Runtime
from txnlog.errors import AccessDenied, TopicNotFound, TxnLogError
from txnlog.fold.state import Draft, SegmentRecord
from txnlog.format.merge_mode import merge_mode
from txnlog.log.follower import Follower

_logger = LogLines("txnlog.merger")

_SPREAD: Final = 0.5
"""Clients of one log draw a delay up to this share of the interval: mostly one of them is first."""

_MOST_KNOWN: Final = 4_096
"""Small segments of a topic that are kept in mind; older ones are left to ``optimize``."""

_PAUSE_MS: Final = 5.0
"""Before a merge: its first steps would take the interpreter from the commit that asks for it."""

Merge = Callable[[int, Sequence[SegmentRecord]], object]
"""Merges small segments of a topic, which are given in the order of their numbers. Called in a thread."""


class AutoMerger:
    """Merges what is small of the topics that were committed to, one topic at a time.

    Attributes:
        interval: small segments of a topic that may come together before they are merged.
    """

    def __init__(self, follower: Follower, runtime: Runtime, merge: Merge) -> None:
        self._follower = follower
        self._runtime = runtime
        self._merge = merge
        self.interval = AUTO_MERGE_SEGMENTS
        # Of the engine alone.
        self._small: dict[int, dict[int, SegmentRecord]] = {}
        self._wanted: dict[int, int] = {}
        self._waiting: dict[int, None] = {}
        self._is_closing = False
        self._is_denied = False
        self._background = BackgroundWork(runtime)

    def watch(self) -> None:
        """Note from here on which small segments there are: for a handle that may append."""
        self._runtime.engine.look(self._watch)

    def _watch(self) -> None:
        state = self._follower.state
        self._note_segments(state.segments)
        self._note_removals(state.removals)
        self._follower.watch(self._note)

    def _note(self, draft: Draft) -> None:
        self._note_segments(draft.segments.changed())
        self._note_removals(draft.removals.changed())

    def _note_segments(self, found: Mapping[int, SegmentRecord | None]) -> None:
        for number, record in found.items():
            if record is not None and record.state == "visible" and record.size_bytes * 2 <= AUTO_MERGE_BYTES:
                small = self._small.setdefault(record.topic, {})
                small[number] = record
                if len(small) > _MOST_KNOWN:
                    del small[next(iter(small))]

    def _note_removals(self, found: Mapping[int, int | None]) -> None:
        if found:
            for small in self._small.values():
                for number in found:
                    small.pop(number, None)

    def after_append(self) -> None:
        """Have merged what is due. To be called in the engine."""
        if self._is_closing or self._is_denied:
            return
        for topic, small in self._small.items():
            if len(small) >= self._due(topic) and self._is_wanted(topic):
                self._waiting[topic] = None
        if self._waiting:
            self._background.begin(self._work)

    def _due(self, topic: int) -> int:
        found = self._wanted.get(topic)
        if found is None:
            found = self._wanted[topic] = self._drawn()
        return found

    def _drawn(self) -> int:
        return self.interval + int(self._runtime.jitter(1.0) * _SPREAD * self.interval)

    def _is_wanted(self, topic: int) -> bool:
        record = self._follower.state.topics[topic]
        return not record.dropped and merge_mode(record.properties) == "auto"

    async def _work(self) -> None:
        while self._waiting:
            if not self._is_closing:
                await self._runtime.pause(_PAUSE_MS)
            topic = next(iter(self._waiting))
            del self._waiting[topic]
            small = list(self._small.get(topic, {}).values())
            if len(small) >= self._due(topic):
                await self._runtime.job(partial(self._quietly, topic, small))
            # What could not be merged is tried again once as much came besides.
            self._wanted[topic] = len(self._small.get(topic, {})) + self._drawn()

    def _quietly(self, topic: int, small: Sequence[SegmentRecord]) -> None:
        try:
            self._merge(topic, small)
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
        self._runtime.engine.look(self._begin_closing)
        self._background.wait()

    def _begin_closing(self) -> None:
        self._is_closing = True
        self._waiting.clear()


__all__ = ["AutoMerger", "Merge"]
