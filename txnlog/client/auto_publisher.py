"""Publishing topics by themselves after commits: off the commit path, best-effort, never shown to a committer.

How a topic is published, and as what, is not known here: whoever is named under the entry-point group
``txnlog.publisher`` is asked, for the first time when a topic that wants it was committed to.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from txnlog.client.shadowing import check_not_hidden, not_loaded
from txnlog.client.upkeep import TopicQueue
from txnlog.engine.log_lines import LogLines
from txnlog.engine.runtime import Runtime
from txnlog.errors import TxnLogError, UnsupportedFeature
from txnlog.fold.state import Draft, TopicRecord
from txnlog.format.delta_mode import is_auto
from txnlog.log.follower import Follower
from txnlog.store.base import ObjectInfo, Store

_logger = LogLines("txnlog.publisher")

GROUP: Final = "txnlog.publisher"
"""The entry-point group. What is named there is called with the follower, the namespace's objects and the runtime."""


class Unpublished(NamedTuple):
    """What a published table lacks.

    Attributes:
        shown: the version of the namespace that it shows.
        since_ms: the time of the first entry that it should show as well.
    """

    shown: int
    since_ms: int


class Publisher(Protocol):
    """What an entry point of the group makes. Thread-safe."""

    def publish_after_commit(self, topic: int) -> None:
        """Publish the topic with an id up to what the follower knows, if a version shows it. Raises the error."""

    def publish_auto(self) -> Mapping[str, TxnLogError]:
        """Publish all topics with ``delta="auto"``. Returns by name what failed."""

    def repair_there(self) -> Mapping[str, tuple[int, ...] | TxnLogError]:
        """Write again what is damaged of the published tables that are there. By folder the versions, or the error."""

    def unpublished(self, topic: int) -> Unpublished | None:
        """What the published table of a topic lacks; None where it lacks nothing, or is not there. Reads only."""

    def remains(self, topic: TopicRecord) -> Sequence[Sequence[ObjectInfo]]:
        """What is left of the published table of a topic that no readable version shows: its own log alone.

        In steps: each is deleted before the next one, so that a reader finds the whole table or none.
        """


MakePublisher = Callable[[Follower, Store, Runtime], Publisher]


class AutoPublisher:
    """Publishes what was committed to, in the background: of each topic one time under way, one waiting at most.

    A failure is logged, once until a publication of that topic succeeds; the next commit tries again.
    """

    def __init__(self, follower: Follower, store: Store, runtime: Runtime) -> None:
        self._follower = follower
        self._store = store
        self._runtime = runtime
        # Of the engine alone. Where no topic is published by itself, nothing is noted of a fold.
        self._auto: set[int] = set()
        self._touched: set[int] = set()
        self._queue = TopicQueue(runtime, lambda topic: partial(self._publish, topic))
        self._publisher: Publisher | None = None
        self._failed: set[int] = set()

    def watch(self) -> None:
        """Note from here on which topics change: for a handle that may append. Nobody else publishes by itself."""
        self._runtime.engine.look(self._watch)

    def _watch(self) -> None:
        self._note_modes(self._follower.state.topics)
        self._follower.watch(self._note)

    def _note(self, draft: Draft) -> None:
        topics = draft.topics.changed()
        self._note_modes(topics)
        if self._auto:
            changed = draft.segments.changed().values()
            self._touched.update(topics)
            self._touched.update(record.topic for record in changed if record is not None)
            for number in draft.removals.changed():  # which may be all that a replacement does
                removed = draft.segments.get(number)
                self._touched.update(self._auto if removed is None else (removed.topic,))

    def _note_modes(self, topics: Mapping[int, TopicRecord | None]) -> None:
        for topic, record in topics.items():
            if record is not None and is_auto(record.properties):
                self._auto.add(topic)
            else:
                self._auto.discard(topic)

    def after_append(self) -> None:
        """Have the topics published that changed and want it. To be called in the engine, as what notes them is."""
        touched, self._touched = self._touched, set()
        topics = self._follower.state.topics
        self._queue.begin([topic for topic in touched if is_auto(topics[topic].properties)])

    @staticmethod
    def is_installed() -> bool:
        """Whether there is a publisher at all: where only a part of the package is shipped there may be none."""
        return bool(importlib.metadata.entry_points(group=GROUP))

    def publish_auto(self) -> Mapping[str, TxnLogError]:
        """Publish all topics with ``delta="auto"`` now, in this thread: for maintenance. Returns errors by name.

        Raises UnsupportedFeature where there is no one publisher.
        """
        return self._installed().publish_auto()

    def repair_there(self) -> Mapping[str, tuple[int, ...] | TxnLogError]:
        """Repair the tables that are there, as of ``Publisher.repair_there``; nothing without a publisher."""
        return self._installed().repair_there() if self.is_installed() else {}

    def remains(self, topic: TopicRecord) -> Sequence[Sequence[ObjectInfo]]:
        """What is left of a topic's table, in steps as of ``Publisher.remains``; nothing without a publisher."""
        return self._installed().remains(topic) if self.is_installed() else ()

    def unpublished(self, topic: int) -> Unpublished | None:
        """What the table of a topic lacks, as of ``Publisher.unpublished``; None without a publisher."""
        return self._installed().unpublished(topic) if self.is_installed() else None

    def _installed(self) -> Publisher:
        publisher = self._publisher
        if publisher is None:
            publisher = self._publisher = _load()(self._follower, self._store, self._runtime)
        return publisher

    def _publish(self, topic: int) -> None:
        try:
            self._installed().publish_after_commit(topic)
        except TxnLogError as error:
            self._report(topic, f"{error.message} ({error.advice})")
        except Exception:
            if topic not in self._failed:
                _logger.warning("a topic was not published: a bug, which harms no commit", exc_info=True)
            self._failed.add(topic)
        else:
            self._failed.discard(topic)

    def _report(self, topic: int, why: str) -> None:
        if topic not in self._failed:
            name = self._follower.state.topics[topic].name
            _logger.warning("the topic %r was not published; the next commit tries again: %s", name, why)
        self._failed.add(topic)

    def close(self) -> None:
        """Wait for what is under way and what waits."""
        self._queue.finish()


def _load() -> MakePublisher:
    """The publisher that is installed. Raises UnsupportedFeature where there is not one, or another module hides it."""
    found = list(importlib.metadata.entry_points(group=GROUP))
    if len(found) != 1:
        names = ", ".join(sorted(item.value for item in found)) or "none"
        raise UnsupportedFeature(
            f"there must be one entry point of the group {GROUP}, and there is: {names}",
            advice="install txnlog anew, and no other distribution that publishes topics",
        )
    (point,) = found
    check_not_hidden(point.module)
    try:
        make: MakePublisher = point.load()
    except (AttributeError, ImportError) as error:
        raise not_loaded(f"the publisher {point.value}", point.module, error) from error
    return make


__all__ = ["GROUP", "AutoPublisher", "MakePublisher", "Publisher", "Unpublished"]
