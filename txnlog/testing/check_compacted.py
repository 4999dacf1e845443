"""Key compaction: of each key the newest message stays, and nothing goes that its topic asks to keep.

A message may go because there is a newer one of its key in its partition, which was visible in front of the entry. One
that ended its key may go for its age, behind all older ones. So at every version a reader finds of each key the newest
message, or, where that ended it, none.
"""

from __future__ import annotations

from collections.abc import Iterator

from txnlog.testing import operation_parts as parts
from txnlog.testing.anomalies import Anomaly, Finding
from txnlog.testing.facts import NEVER, Facts, Place


def check(facts: Facts) -> Iterator[Finding]:
    """Findings of what compactions took out."""
    if facts.removed:
        keys = _Keys(facts)
        for item in facts.removed:
            yield from keys.check(item)


class _Keys:
    """The messages of each key."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._keyed: dict[tuple[Place, int], parts.Keyed] = {}
        self._of_key: dict[tuple[Place, str], list[tuple[int, int]]] = {}
        """By partition and key the offset and the version of each message."""
        for item in facts.keyed:
            place = (item.topic, item.partition)
            self._keyed[place, item.offset] = item
            row = facts.row(place, item.offset)
            if item.key is not None and row is not None:
                self._of_key.setdefault((place, item.key), []).append((item.offset, row.version))

    def check(self, item: parts.Removed) -> Iterator[Finding]:
        """One message that went."""
        place = (item.topic, item.partition)
        text = f"{item.topic}/{item.partition}@{item.offset} went at {item.version}"
        if not item.asked:
            yield Finding(Anomaly.COMPACTED_UNASKED, f"{text}, and nobody had asked for that")
        if item.age_ms < item.lag_ms:
            yield Finding(Anomaly.COMPACTED_EARLY, f"{text}, {item.age_ms} ms old; asked for are {item.lag_ms}")
        if item.needed_by:
            yield Finding(Anomaly.COMPACTED_UNACKNOWLEDGED, f"{text}, which {', '.join(item.needed_by)} needed")
        message = self._keyed.get((place, item.offset))
        if message is None or message.key is None:
            yield Finding(Anomaly.COMPACTED_NEWEST, f"{text}, and has no key")
            return
        same = self._of_key[place, message.key]
        if any(offset > item.offset and version < item.version for offset, version in same):
            return
        if not message.ended:
            yield Finding(Anomaly.COMPACTED_NEWEST, f"{text}, the newest one of {message.key!r}")
            return
        if item.age_ms < item.kept_ms:
            text_of_age = f"{text}, {item.age_ms} ms old, and ended {message.key!r}: {item.kept_ms} are asked for"
            yield Finding(Anomaly.END_OF_KEY_EARLY, text_of_age)
        removals = self._facts.removals[place]
        left = [offset for offset, _ in same if offset < item.offset and removals.get(offset, NEVER) > item.version]
        if left:
            yield Finding(Anomaly.KEY_REVIVED, f"{text}, and ended {message.key!r}, of which {left} was there yet")


__all__ = ["check"]
