"""The offsets that the streaming source writes into a query's offset log, and that the sinks read there.

They are self-describing: a sink sees which of a query's sources are txnlog's, their namespace and subscription, and the
range that a batch read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from txnlog.errors import ConsumerFenced, InvalidInputError
from txnlog.format.retention import MESSAGE_TTL_MS

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.common.ids import Coordinators

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A position of a stream: the offsets in every topic and partition up to which it has read.

    The mappings by topic have the topics of ``topic_ids``; ``start`` and ``epochs`` may be empty instead.

    Attributes:
        namespace: the namespace's name.
        coordinator: its coordinator id, which distinguishes namespaces of one name in a root.
        version: the version of the namespace at which these offsets were the ends (for a query's first offset: the
            version that was read). With ``splitTransactions`` perhaps a version of which they include only a part.
        subscription: the subscription whose cursor follows the stream, None for none.
        topic_ids: the ids of the topics, which distinguish topics of one name.
        offsets: by topic and partition the offset after the last row.
        start: where the batch that ends here begins; empty for the first offset of a query. It makes a batch complete:
            Spark asks for the first offset again when it replays batch 0, and "latest" has moved by then.
        query: identifies the query of this checkpoint over all its runs, since Spark does not name the query to a
            source; None where no batch was planned yet.
        epochs: by topic the subscription's epoch when the batch was planned. If it is another one later, somebody has
            opened or moved the subscription since.
        log: identifies the log (``Connection.log_label``), among namespaces of several roots, and from one that was
            deleted and created again; None in offsets of older releases.
        entry: version and digest of the newest entry, which distinguish a log from one that was restored to an older
            state and got other entries; None in offsets of older releases.
    """

    namespace: str
    coordinator: int
    version: int
    subscription: str | None
    topic_ids: Mapping[str, int] = field(default_factory=dict)
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    start: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    query: str | None = None
    epochs: Mapping[str, int] = field(default_factory=dict)
    log: str | None = None
    entry: tuple[int, str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The offset as Spark writes it into the offset log, always in the same order."""
        return {
            "format": FORMAT,
            "namespace": self.namespace,
            "coordinator": self.coordinator,
            "version": self.version,
            "subscription": self.subscription,
            "topic_ids": dict(sorted(self.topic_ids.items())),
            "offsets": _written(self.offsets),
            "start": _written(self.start),
            "query": self.query,
            "epochs": dict(sorted(self.epochs.items())),
            "log": self.log,
            "entry": None if self.entry is None else list(self.entry),
        }

    @classmethod
    def from_dict(cls, value: Any) -> StreamOffset:
        """Parse an offset of a checkpoint. Raises InvalidInputError for one of another source or another format."""
        if not _is_ours(value):
            raise InvalidInputError(
                "the checkpoint contains an offset of another source",
                advice="the query was changed: start it with a new checkpointLocation",
            )
        if value["format"] != FORMAT:
            raise InvalidInputError(
                f"the checkpoint's offsets have the format {ascii(value['format'])[:20]}, this version knows {FORMAT}",
                advice="use the version of txnlog that wrote it, or a new checkpointLocation",
            )
        try:
            found = cls(
                _text(value["namespace"]),
                _number(value["coordinator"]),
                _number(value["version"]),
                None if value["subscription"] is None else _text(value["subscription"]),
                {topic: _number(number) for topic, number in value["topic_ids"].items()},
                _parsed(value["offsets"]),
                _parsed(value["start"]),
                None if value.get("query") is None else _text(value["query"]),
                {topic: _number(epoch) for topic, epoch in value.get("epochs", {}).items()},
                None if value.get("log") is None else _text(value["log"]),
                None if value.get("entry") is None else _entry(*value["entry"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise _damaged() from None
        topics = found.topic_ids.keys()
        if found.offsets.keys() != topics or any(
            item.keys() not in (topics, set()) for item in (found.start, found.epochs)
        ):
            raise _damaged()
        return found

    @classmethod
    def from_text(cls, text: str) -> StreamOffset | None:
        """Parse a line of the offset log; None for an offset of another source.

        Raises InvalidInputError as ``from_dict``, and for duplicate names, of which a parser would use the last.
        """
        try:
            if not _is_ours(json.loads(text)):
                return None
        except (ValueError, RecursionError):
            return None
        try:
            value = json.loads(text, object_pairs_hook=_without_doubles)
        except ValueError:
            raise _damaged() from None
        return cls.from_dict(value)

    def is_of(self, name: str, coordinators: Coordinators, log: str) -> bool:
        """Whether the offsets are of this namespace and this log, perhaps from before the namespace was adopted."""
        return self.namespace == name and self.coordinator in coordinators and self.log in (None, log)

    def check_partitions(self, connection: Connection) -> None:
        """Raise InvalidInputError unless the offsets have exactly the partitions of each topic, whose number is fixed.

        Only for offsets of the connection's namespace. Topics that do not exist are left to the caller.
        """
        live = {record.id: record.partitions for record in connection.live_topics()}
        counts = {topic: live[number] for topic, number in self.topic_ids.items() if number in live}
        for offsets in (self.offsets, self.start):
            for topic in offsets.keys() & counts.keys():
                wanted = range(counts[topic])
                strange = [partition for partition in offsets[topic] if partition not in wanted]
                if strange:
                    raise _damaged(
                        f"of partition {str(strange[0])[:20]} of the topic {topic!r}, which has {len(wanted)}"
                    )
                missing = [partition for partition in wanted if partition not in offsets[topic]]
                if missing:
                    raise _damaged(f"without partition {missing[0]} of the topic {topic!r}, which has {len(wanted)}")


def _damaged(what: str = "") -> InvalidInputError:
    return InvalidInputError(
        f"the checkpoint contains a damaged offset{what and ': '}{what}",
        advice="restore it, or use a new checkpointLocation",
    )


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _written(offsets: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    return {
        topic: {str(partition): offset for partition, offset in sorted(found.items())}
        for topic, found in sorted(offsets.items())
    }


def _parsed(value: Any) -> dict[str, dict[int, int]]:
    return {
        topic: {_partition(partition): _number(offset) for partition, offset in found.items()}
        for topic, found in value.items()
    }


def _partition(text: str) -> int:
    partition = int(text)
    if str(partition) != text:  # "00" would be 0 as well, and a duplicate would hide another offset
        raise ValueError
    return partition


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def _entry(version: Any, digest: Any) -> tuple[int, str]:
    return _number(version), _text(digest)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


LEAVE_THE_OTHER_RUN: Final = (
    "stop this run, and leave the other one alone; start this one again only once the other run has ended"
)
"""The advice for a run that lost: two that are started again and again would take the batches from each other."""


def cursor_moved(topic: str, partition: int, checkpoint: int, cursor: int, name: str) -> InvalidInputError:
    """The error where the cursor of the subscription ``name`` is not where a query's checkpoint continues."""
    if checkpoint < cursor:
        advice = (
            "restore the newest checkpoint if this is an older copy of it; if another run with this checkpoint is at "
            "work, stop this one and leave that one alone; if a consumer or another query acknowledged messages beyond "
            f"the checkpoint, this query has not processed offsets {checkpoint} to {cursor - 1}: seek back to process "
            "them, and give that one a subscription of its own; otherwise a new checkpointLocation continues at the "
            "cursor: it repeats nothing, skips what lies between, and has no state of aggregates, windows and joins; "
            "seek back only to process the messages between, those that this query did process once more"
        )
    else:
        advice = (
            "stop the query and seek the subscription to the checkpoint's offset, with a consumer that is opened with "
            "takeover=True, to continue from there; a new checkpointLocation continues at the cursor, and processes "
            "the messages between once more"
        )
    return InvalidInputError(
        f"partition {partition} of {topic!r}: the checkpoint continues at offset {checkpoint}, but the cursor of the "
        f"subscription {name!r} is at {cursor}",
        advice=advice,
    )


def overtaken(topic: str, partition: int, checkpoint: int, cursor: int, name: str) -> ConsumerFenced:
    """The error where somebody else's query moved the cursor on, which this run saw where its checkpoint is."""
    return ConsumerFenced(
        f"another run or query took messages of the subscription {name!r} while this run was at work: partition "
        f"{partition} of {topic!r}: this run continues at offset {checkpoint}, but the cursor is at {cursor}",
        advice=LEAVE_THE_OTHER_RUN,
    )


def can_expire(connection: Connection, topic: int) -> bool:
    """Whether ``maintain`` moves cursors of a topic past its expired messages, so that nobody else need be at work."""
    return MESSAGE_TTL_MS.of(connection.topic_record_by_id(topic).properties) is not None


def expired(topic: str, partition: int, checkpoint: int, cursor: int, name: str) -> ConsumerFenced:
    """The error where messages that a query has not processed may have expired (see :func:`can_expire`)."""
    return ConsumerFenced(
        f"partition {partition} of {topic!r}: this query continues at offset {checkpoint}, but the cursor of the "
        f"subscription {name!r} is at {cursor}: the messages between expired (the topic has message_ttl_ms), or "
        "another run or query took them",
        advice=f"if another run is at work, {LEAVE_THE_OTHER_RUN}; if the messages expired, a new checkpointLocation "
        "continues at the cursor and skips them",
    )


def _is_ours(value: Any) -> bool:
    """Whether a parsed offset of a query is one of txnlog's, of any format."""
    return isinstance(value, dict) and {"format", "namespace", "coordinator", "offsets"} <= value.keys()


__all__ = ["FORMAT", "LEAVE_THE_OTHER_RUN", "StreamOffset", "can_expire", "cursor_moved", "expired", "overtaken"]
