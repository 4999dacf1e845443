"""What became of a batch of an older run of ``spark_ext.process``: committed, in part a dead letter, or still to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from spark_ext.processing.ownership import naming_dropped
from txnlog.api.internals import connection_of
from txnlog.common import ranges
from txnlog.errors import SubscriptionNotFound
from txnlog.fold.acknowledgements import acknowledged_of

if TYPE_CHECKING:
    from spark_ext.processing.ownership import Ownership
    from spark_ext.read.scan import Scan
    from txnlog.api.namespace import Namespace
    from txnlog.data.scan_planner import OffsetRanges


class PartitionNotThereError(Exception):
    """A note in a Delta table names a partition that its topic does not have, and can never have had."""


def was_committed(
    ns: Namespace, owned: Iterable[Ownership], txn: str, read: Mapping[str, OffsetRanges], after: int
) -> bool:
    """Whether a transaction of an older run was committed, which was to acknowledge these offsets.

    A transaction that the log does not show cannot come any more: this run's takeover is after all that older runs
    appended. So it was never committed, or so long ago that the log forgot its outcome. Only in the second case the
    offsets decide, by whether they are acknowledged: a seek or a consumer may have acknowledged them as well.

    Args:
        ns: the namespace.
        owned: what this run owns.
        txn: the transaction's TxnID.
        read: the offsets that it was to acknowledge.
        after: a version of the namespace from before the transaction.

    Raises:
        PartitionNotThereError: ``read`` names a partition that its topic does not have.
        SubscriptionNotFound: one of the subscriptions was dropped meanwhile.
    """
    found = ns.transaction(txn)
    if found.state != "UNKNOWN":
        return found.state == "COMMITTED"
    if connection_of(ns).remembers_outcomes_behind(after):
        return False
    of_topic = {item.topic: item.subscription for item in owned}
    for topic, offsets in read.items():
        if topic not in of_topic:
            continue  # from a run over other topics
        with naming_dropped(connection_of(ns)):
            cursors = connection_of(ns).cursors_of(of_topic[topic])
        for p, (low, high) in offsets.items():
            if p not in cursors:
                raise PartitionNotThereError(f"{txn} read {topic!r} {p}")
            if ranges.subtract(((low, high),), acknowledged_of(cursors[p])):
                return False
    return True


def dead_lettered(
    scan: Scan, owned: Iterable[Ownership], read: Mapping[str, OffsetRanges], after: int
) -> dict[str, dict[int, ranges.Ranges]]:
    """Those of the offsets that are acknowledged, and whose messages are in the dead-letter topic.

    A dead letter names the topic, partition and offset of its message, and not the subscription: if two subscriptions
    of a topic share a dead-letter topic, the dead letters of either count for both. Dead letters that retention deleted
    do not count.

    Args:
        scan: its snapshot is searched for dead letters.
        owned: what this run owns.
        read: the offsets. Those of topics that this run does not own are never returned.
        after: dead letters up to this version do not count: they are of earlier messages at these offsets, or attempts.
    """
    connection = connection_of(scan.namespace)
    result: dict[str, dict[int, ranges.Ranges]] = {}
    for item in owned:
        try:
            record = connection.subscription_record_by_id(item.subscription)
            cursors = connection.cursors_of(item.subscription)
        except SubscriptionNotFound:
            continue  # dropped meanwhile, which the commit reports
        offsets = read.get(item.topic, {})
        done = {p: ranges.intersect((of,), acknowledged_of(cursors[p])) for p, of in offsets.items() if p in cursors}
        done = {p: of for p, of in done.items() if of}
        if not done or record.dead_letter_topic is None:
            continue
        letters = _letters(scan, record.dead_letter_topic, item.topic, done, after)
        both = {p: ranges.intersect(of, letters[p]) for p, of in done.items()}
        result[item.topic] = {p: of for p, of in both.items() if of}
    return result


def _letters(
    scan: Scan, into: str, topic: str, wanted: Mapping[int, ranges.Ranges], after: int
) -> dict[int, ranges.Ranges]:
    """By partition the offsets of a topic with dead letters after a version. It reads the dead letters once."""
    offset = pc.field("_source_offset")
    lowest, highest = min(of[0][0] for of in wanted.values()), max(of[-1][1] for of in wanted.values())
    where = (pc.field("_source_topic") == topic) & (offset >= lowest) & (offset < highest)
    where &= pc.field("_version") > after
    columns = ["_source_topic", "_source_partition", "_source_offset"]
    found: dict[int, ranges.Ranges] = dict.fromkeys(wanted, ())
    for batch in scan.snapshot.scan(into, columns=columns, include_metadata=True):  # a filter would read all columns
        rows = pa.Table.from_batches([batch]).filter(where)
        for p in wanted:
            of = rows.filter(pc.equal(rows.column("_source_partition"), p)).column("_source_offset")
            ranges.include(found, {p: ranges.from_values(of.to_pylist())})
    return found


def what_is_left(
    scan: Scan, owned: Iterable[Ownership], txn: str, read: Mapping[str, OffsetRanges], after: int
) -> dict[str, dict[int, ranges.Range]] | None:
    """The offsets that are still to be committed of a batch whose rows a Delta table has; None where it was committed.

    Offsets of dead letters are left out, unless the rest of a partition is no single range, which no batch can read.

    Args:
        scan: its snapshot is searched for dead letters.
        owned: what this run owns.
        txn: the TxnID of the transaction that was to commit the batch.
        read: the offsets that it was to acknowledge.
        after: a version of the namespace from before the table got the rows.

    Raises:
        PartitionNotThereError: see :func:`was_committed`.
    """
    if was_committed(scan.namespace, owned, txn, read, after):
        return None
    gone = dead_lettered(scan, owned, read, after)
    left: dict[str, dict[int, ranges.Range]] = {}
    for topic, offsets in read.items():
        of_topic = gone.get(topic, {})
        rest = {p: ranges.subtract((of,), of_topic.get(p, ())) for p, of in offsets.items()}
        found = {p: of[0] if len(of) == 1 else offsets[p] for p, of in rest.items() if of}
        if found:
            left[topic] = found
    return left


__all__ = ["PartitionNotThereError", "dead_lettered", "was_committed", "what_is_left"]
