"""What a commit returns, from what the log says of it: for the first time, repeated, or skipped."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from txnlog.client.skipped_versions import warn_of_larger
from txnlog.fold.sequences import before_first
from txnlog.fold.state import Batch
from txnlog.log.transaction_commands import CommitResult, Duplicate, Skipped
from txnlog.results import Committed

if TYPE_CHECKING:
    from txnlog.client.dropped_subscriptions import DroppedSubscriptions
    from txnlog.client.session import Session


def committed(
    session: Session,
    result: CommitResult,
    subscriptions: Mapping[int, str],
    dropped_subscriptions: DroppedSubscriptions,
) -> Committed:
    """The public form of a commit's result.

    Args:
        session: of the connection that committed, which may be closed by now.
        result: what the log says.
        subscriptions: texts of some by their ids.
        dropped_subscriptions: has the texts of others.
    """
    if isinstance(result, Skipped):
        if result.last is not None and result.wanted is not None:
            warn_of_larger(result.last, result.wanted)
        return Committed(session.txn_id(result.txn), result.version, None, skipped=True)
    topics = session.follower.state.topics  # from any thread: topics are never forgotten
    if isinstance(result, Duplicate):
        return _repeated(session, result)
    offsets = None
    if result.offsets is not None:
        offsets = {(topics[item.topic].name, item.partition): range(item.start, item.end) for item in result.offsets}
    dropped = [
        *[topics[topic].name for topic in result.dropped_topics],
        *[
            subscriptions.get(number) or dropped_subscriptions.text(session.follower, number)
            for number in result.dropped_subscriptions
        ],
    ]
    return Committed(session.txn_id(result.number), result.version, offsets, dropped=tuple(dropped))


def _repeated(session: Session, result: Duplicate) -> Committed:
    """Rows that were there already, with their original offsets. Raises OutOfOrderSequence for some that were not.

    Batches are kept for ever and leave no gap: what is not above the last sequence and not found lies before the first.
    The offsets are None where they are not one range: rows of others may lie between several batches.
    """
    offsets: dict[tuple[str, int], range] | None = {}
    found: list[Batch] = []
    for piece in result.pieces:
        if piece.sequence is None:
            continue
        last = piece.sequence + piece.rows - 1
        batches = session.follower.batches(result.producer, piece.topic, piece.partition, piece.sequence, last)
        if not batches or batches[0].sequence > piece.sequence:
            raise before_first(result.producer, piece.partition, piece.sequence)
        found += batches
        if any(one.offset + one.rows != other.offset for one, other in itertools.pairwise(batches)):
            offsets = None
        if offsets is not None:
            start = batches[0].offset + piece.sequence - batches[0].sequence
            place = (session.follower.state.topics[piece.topic].name, piece.partition)
            offsets[place] = range(start, start + piece.rows)
    transactions = {batch.txn for batch in found}
    txn = session.txn_id(transactions.pop()) if len(transactions) == 1 else None
    return Committed(txn, max(batch.version for batch in found), offsets, duplicate=True)


__all__ = ["committed"]
