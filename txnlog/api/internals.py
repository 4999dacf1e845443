"""What ``catalog``, ``spark_ext`` and the command line do with handles beyond their public calls; free to change.

It is no wall: where these need more than a call of a handle, they import from any folder of ``txnlog``.

The handles have these under private names, so that ``help()`` and tab completion show what is documented.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace
    from txnlog.api.transaction import Transaction
    from txnlog.client.connection import Connection
    from txnlog.client.truncation import Wanted
    from txnlog.format.actions import Acknowledgement, Segment, StreamBatch


def connection_of(namespace: Namespace) -> Connection:
    """What a namespace and all that it makes work through."""
    return namespace._connection


def end_overdue(namespace: Namespace, subscriptions: Sequence[int]) -> None:
    """End transactions that claim messages of subscriptions and are overdue: somebody waits for them."""
    from txnlog.client import acknowledgement_conflicts  # noqa: PLC0415 - Spark's executors lack what this imports

    acknowledgement_conflicts.end_overdue(namespace._connection, subscriptions)


def check_open(txn: Transaction) -> None:
    """Raise the conflict with more work: it has ended, was fenced, or the outcome of its end is unknown."""
    txn._add(txn._machine.check_open)


def acknowledge_ranges(txn: Transaction, wanted: list[Acknowledgement]) -> None:
    """Add acknowledgements by offsets instead of received messages."""
    with txn._connection.naming_dropped():
        txn._add(partial(txn._machine.acknowledge_ranges, wanted))


def adopt_segments(txn: Transaction, segments: Iterable[Segment]) -> None:
    """Add segments that were written elsewhere (Spark's executors) under numbers of this client's blocks.

    Those that it was given before are left out, so that a call that was interrupted can be repeated.
    """
    txn._add(partial(txn._machine.adopt_segments, with_kept_statistics(txn._connection, segments)))


def with_kept_statistics(connection: Connection, segments: Iterable[Segment]) -> list[Segment]:
    """Segments that were written elsewhere, with those statistics that their topics keep in the log."""
    import msgspec  # noqa: PLC0415 - Spark's executors lack it

    from txnlog.format.kept_statistics import kept_statistics  # noqa: PLC0415

    topic = connection.topic_record_by_id
    return [
        msgspec.structs.replace(item, statistics=kept_statistics(topic(item.topic).properties, item.statistics))
        for item in segments
    ]


def check_truncatable(txn: Transaction, topic: str, wanted: Wanted) -> None:
    """Raise what refuses a truncation by what is known now. See :func:`txnlog.client.truncation.check_truncatable`."""
    from txnlog.client import truncation  # noqa: PLC0415 - Spark's executors lack what this imports

    truncation.check_truncatable(
        txn._connection,
        topic,
        "overwriting a topic",
        txn.id.number,
        txn._machine.work.acknowledgements,
        wanted=wanted,
    )


def truncate(txn: Transaction, topic: str, wanted: Wanted) -> None:
    """See ``Transaction.truncate``."""
    txn._truncate(topic, wanted)


def set_stream(txn: Transaction, batch: StreamBatch) -> None:
    """Bind the commit to a micro-batch: a replay of it is skipped."""
    txn._add(partial(txn._machine.set_stream, batch))


def discard(txn: Transaction) -> bool:
    """Abort, unless a commit is under way or its outcome is unknown; never raises.

    Returns whether it was not committed, and will not be.
    """
    return txn._discard()


def leave(txn: Transaction, error: BaseException | None) -> None:
    """End a block that goes wrong: ``discard``. For an error that advises to call again raises one to begin again."""
    txn._leave(error)


def leave_outcome_open(txn: Transaction) -> None:
    """Go on without asking for the unknown outcome of a commit: its claims end here, and the log decides."""
    txn._machine.claims.drop()


__all__ = [
    "acknowledge_ranges",
    "adopt_segments",
    "check_open",
    "check_truncatable",
    "connection_of",
    "discard",
    "end_overdue",
    "leave",
    "leave_outcome_open",
    "set_stream",
    "truncate",
    "with_kept_statistics",
]
