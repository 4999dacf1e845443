"""What the arguments and results of operations are made of: rows, ranges of offsets, cursors, files."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A visible message: where it is, what it is, who wrote it and the version that shows it."""

    offset: int
    value: int
    txn: str
    version: int


class PartitionRows(NamedTuple):
    """What a read shows of one partition, as it came."""

    topic: str
    partition: int
    rows: tuple[Row, ...]


class Span(NamedTuple):
    """The offsets ``[start, end)`` that a commit says it was given in one partition."""

    topic: str
    partition: int
    start: int
    end: int


class OffsetRange(NamedTuple):
    """The offsets ``[start, end)`` of one partition."""

    partition: int
    start: int
    end: int


class Message(NamedTuple):
    """A message as a consumer received it."""

    partition: int
    offset: int
    value: int
    redeliveries: int


class CursorAt(NamedTuple):
    """One partition of a subscription: what lies below ``cursor`` is acknowledged, and the ranges above it."""

    topic: str
    subscription: str
    partition: int
    cursor: int
    acknowledged: tuple[tuple[int, int], ...]


class Created(NamedTuple):
    """A subscription, and the version whose entry created it."""

    topic: str
    subscription: str
    version: int


class Before(NamedTuple):
    """An offset of a partition, and whether what a subscription has not acknowledged below it is kept."""

    topic: str
    partition: int
    offset: int
    kept: bool = False


class DeadLetter(NamedTuple):
    """A message of a Shared subscription that lies in its dead-letter topic, and the version that brought it there."""

    topic: str
    subscription: str
    partition: int
    offset: int
    value: int
    redeliveries: int
    version: int


class MissingFile(NamedTuple):
    """A file that is not there though the log names it; read at versions below ``until`` (None: at all later ones)."""

    file: str
    until: int | None


class Expired(NamedTuple):
    """Messages that were acknowledged on a subscription because of their age, in the entry of ``version``.

    Attributes:
        age_ms: of the youngest of them, by the time of that entry and of the one that committed it.
        ttl_ms: the age that the topic asked for; None: it asked for none.
        busy: the offsets of those that were leased, or acknowledged in a transaction that had not ended.
    """

    topic: str
    subscription: str
    partition: int
    ranges: tuple[tuple[int, int], ...]
    version: int
    age_ms: int
    ttl_ms: int | None
    busy: tuple[tuple[int, int], ...] = ()


class Keyed(NamedTuple):
    """The key of a message, None where it has none; ``ended``: it has no value, so that its key is gone."""

    topic: str
    partition: int
    offset: int
    key: str | None
    ended: bool = False


class Removed(NamedTuple):
    """A message that is not shown any more since the entry of ``version``, in which segments were written again.

    Attributes:
        age_ms: its age, by the time of that entry and of the one that committed it.
        asked: whether its topic was to be compacted by then, and the entry is that of somebody who compacts.
        lag_ms: how old a message had to be.
        kept_ms: how old one had to be that ended its key, to go for that alone.
        needed_by: subscriptions that had not acknowledged it, where the topic keeps what they need.
    """

    topic: str
    partition: int
    offset: int
    version: int
    age_ms: int
    asked: bool = True
    lag_ms: int = 0
    kept_ms: int = 0
    needed_by: tuple[str, ...] = ()


class Truncated(NamedTuple):
    """A message that is not shown any more since the entry of ``version``, in which somebody's commit truncates.

    Attributes:
        needed_by: subscriptions that had not acknowledged it.
    """

    topic: str
    partition: int
    offset: int
    version: int
    needed_by: tuple[str, ...] = ()


class Ended(NamedTuple):
    """The state of a transaction (``COMMITTED``, ``ABORTED``, ``OPEN``, …) and the version at which it ended."""

    txn: str
    state: str
    version: int | None


__all__ = [
    "Before",
    "Created",
    "CursorAt",
    "DeadLetter",
    "Ended",
    "Expired",
    "Keyed",
    "Message",
    "MissingFile",
    "OffsetRange",
    "PartitionRows",
    "Removed",
    "Row",
    "Span",
    "Truncated",
]
