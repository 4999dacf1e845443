"""What can be wrong with a history, why it cannot be legitimate, and where the rule comes from."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final, NamedTuple

from txnlog.testing.history import Operation

_MOST_LISTED: Final = 6


class Anomaly(enum.StrEnum):
    """The anomalies that the checker finds; ``.meaning`` says what each is."""

    meaning: str

    def __new__(cls, name: str, meaning: str) -> Anomaly:
        """A member with its meaning."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.meaning = meaning
        return member

    # --- the log: offsets, versions, values -------------------------------------------------------------------------

    INCONSISTENT_OFFSETS = (
        "inconsistent offsets",
        "two looks at one offset show different messages: an offset is given once (Jepsen's Kafka workload)",
    )
    OFFSET_GAP = ("offset gap", "committed offsets are dense: markers and aborted data take none")
    OFFSET_OVERLAP = ("offset overlap", "an offset is given once, and a read shows offsets in order")
    OFFSETS_AGAINST_VERSIONS = (
        "offsets against versions",
        "offsets are given when messages become visible, so a later offset never has an earlier version",
    )
    DUPLICATE = ("duplicate", "a message that was produced once is visible at two places (Kafka: idempotent producer)")
    GARBAGE = ("garbage", "a visible message that nobody produced there or in that transaction (Elle: garbage read)")
    NON_MONOTONIC_SEND = (
        "non-monotonic send",
        "the messages of a call keep their order, calls of a transaction too (Jepsen: nonmonotonic-send)",
    )
    SEQUENCE_GAP = ("sequence gap", "a producer's sequences follow each other (Kafka: OutOfOrderSequence)")
    SEQUENCE_REPEATED = ("sequence repeated", "a producer's sequence is visible once, over all of its epochs")

    # --- transactions -----------------------------------------------------------------------------------------------

    ABORTED_READ = ("aborted read", "G1a (Adya): messages or effects of an aborted transaction are seen")
    INTERMEDIATE_READ = (
        "intermediate read",
        "G1b (Adya): a transaction is seen before its commit was even asked for, or a part of its run in a partition",
    )
    LOST_WRITE = ("lost write", "an acknowledged or already seen commit is not in the final read")
    TORN_COMMIT = (
        "torn commit",
        "a transaction is there in one topic, partition or subscription and not in another, or at two versions",
    )
    FAILED_BUT_VISIBLE = (
        "failed but visible",
        "every attempt said that nothing was written, and its effects are there: a failure is a promise too",
    )
    COMMIT_AFTER_TIMEOUT = (
        "commit after timeout",
        "the owner got a timeout as the answer, which the log decides once (Kafka: KIP-890)",
    )
    ZOMBIE_COMMIT = (
        "zombie commit",
        "an owner with an older epoch changed something after a newer one was opened (Kafka: ProducerFenced)",
    )
    EPOCH_MOVED_BACK = ("epoch moved back", "an epoch is the version of the entry that opened it: it only grows")
    TWO_ANSWERS = (
        "two answers",
        "an unknown outcome was asked for and definitely answered in two ways: askers would act on different truths",
    )
    CHANGED_OUTCOME = ("changed outcome", "a transaction ends once: a definite answer never changes")
    MISPLACED_COMMIT = ("misplaced commit", "commit returns the version that shows it, and its offsets")

    OVERTAKEN_COMMIT = (
        "overtaken commit",
        "commits that one client called one after the other, without waiting, come in the order of the calls",
    )

    AGAINST_DECISION = (
        "ended against its decision",
        "a prepared transaction ends as the outside system decided, once and for all, and is never refused (XA)",
    )

    # --- readers ----------------------------------------------------------------------------------------------------

    STALE_READ = ("stale read", "a read of the newest version shows what was acknowledged before it was asked for")
    STALE_COMMIT = ("stale commit", "a commit takes a version behind all that were known before it was asked for")
    UNSEEN = ("unseen", "a read at a version, or a cursor, passed over messages that it had to show")
    FUTURE_READ = ("future read", "a read at a version shows nothing of later versions")
    DIVERGING_SNAPSHOTS = ("diverging snapshots", "two readers of one version saw different messages")

    DELETED_READ = ("deleted read", "a read at a version shows messages that were deleted at or below it")
    ERASED_READ = ("erased read", "a read at a version shows messages that were erased at or below it")

    # --- consumers --------------------------------------------------------------------------------------------------

    SKIPPED_POLL = (
        "skipped poll",
        "a consumer got a later message while an earlier one was free to be delivered (Jepsen: poll-skip)",
    )
    NON_MONOTONIC_POLL = (
        "non-monotonic poll",
        "messages of a partition came in another order than their offsets (Jepsen: nonmonotonic-poll)",
    )
    DUPLICATE_POLL = (
        "duplicate poll",
        "a consumer got a message twice that was neither released nor in a transaction that may have aborted",
    )
    REDELIVERY = ("redelivery after acknowledge", "an acknowledged message came again, and nobody sought back")
    DELETED_UNACKNOWLEDGED = (
        "deleted before it was acknowledged",
        "messages were deleted that a subscription still needed, by a call that keeps those",
    )
    DOUBLE_CONSUME = (
        "double consume",
        "two committed transactions took one message: the first wins, the other gets TransactionConflict (Pulsar)",
    )
    ACKNOWLEDGE_WITHOUT_READ = (
        "acknowledge without read",
        "messages were acknowledged by a consumer that never got them in that epoch: nobody processed them",
    )
    CURSOR_MOVED_BACK = (
        "cursor moved back",
        "what a cursor showed as acknowledged is free again, and nobody sought back",
    )

    ZOMBIE_POLL = (
        "zombie poll",
        "a consumer received messages in a call that began after a newer epoch was known: it must hear of that first",
    )

    COUNT_MOVED_BACK = (
        "redelivery count moved back",
        "a later delivery of a Shared subscription shows fewer redeliveries than an earlier one (Pulsar)",
    )
    UNCOUNTED_REDELIVERY = (
        "uncounted redelivery",
        "a message was delivered again, and its count did not grow: it could be delivered for ever",
    )
    DELIVERED_TOO_OFTEN = (
        "delivered too often",
        "a message came with more redeliveries than its subscription allows: it belongs to the dead letters",
    )
    DEAD_LETTER = ("dead letter", "a dead letter is a message of its source, once, after all deliveries it may have")

    # --- files ------------------------------------------------------------------------------------------------------

    MISSING_FILE = ("missing file", "a file that a readable version needs is gone")
    READABLE_MOVED = ("readable versions moved", "a version is readable until a vacuum says otherwise, and never again")

    # --- what expired ------------------------------------------------------------------------------------------------

    EXPIRED_EARLY = (
        "expired too early",
        "messages were acknowledged because of an age that their topic does not ask for, or that they did not have",
    )
    EXPIRED_AT_WORK = (
        "expired while at work",
        "messages expired that were leased, or acknowledged in a transaction that had not ended",
    )

    # --- key compaction -----------------------------------------------------------------------------------------------

    COMPACTED_NEWEST = (
        "compacted newest",
        "a compaction took a message out that had no newer one of its key in its partition: its state is lost (Kafka)",
    )
    COMPACTED_UNASKED = (
        "compacted unasked",
        "messages went with the entry of somebody who does not compact, or of a topic that was to keep all by then",
    )
    COMPACTED_EARLY = ("compacted too early", "a compaction took messages out that were younger than the topic's lag")
    COMPACTED_UNACKNOWLEDGED = (
        "compacted before it was acknowledged",
        "a compaction took messages out that a subscription still needed, of a topic that keeps those",
    )
    END_OF_KEY_EARLY = (
        "end of a key too early",
        "a message that ended its key went before its time was over: readers had to see that the key is gone (Kafka)",
    )
    KEY_REVIVED = (
        "key revived",
        "the message that ended a key went, and an older one of the key was there yet: it counts again",
    )
    REMOVED_READ = (
        "removed read",
        "a read at a version shows messages that a compaction or a truncation took out at or below it",
    )

    # --- truncation ---------------------------------------------------------------------------------------------------

    TRUNCATED_UNASKED = ("truncated unasked", "messages went with an entry in which no commit truncates their topic")
    TRUNCATED_UNACKNOWLEDGED = (
        "truncated before it was acknowledged",
        "messages went that a subscription needed, with a commit that was to be refused then",
    )
    TORN_TRUNCATION = (
        "torn truncation",
        "with a commit that truncates, some earlier messages of the topic stay, or others come at its version",
    )

    # --- backups ------------------------------------------------------------------------------------------------------

    STALE_BACKUP = ("stale backup", "a backup has what was acknowledged before it was asked for, or the version named")
    LOST_BACKUP = ("lost backup", "a backup that was reported as made can be restored")
    TORN_BACKUP = (
        "torn backup",
        "a restored namespace shows a part of a transaction, or what was not there at the version of the backup",
    )
    INCOMPLETE_BACKUP = (
        "incomplete backup",
        "a restored namespace lacks what was visible at the version of the backup",
    )
    SHARED_IDENTITY = (
        "shared identity",
        "a restored namespace gives TxnIDs as another one does: nobody could distinguish their transactions",
    )

    # --- cycles -----------------------------------------------------------------------------------------------------

    G0 = ("G0", "a cycle of ww edges: two transactions are each before the other in the log (Adya)")
    G1C = ("G1c", "a cycle of ww and wr edges: two transactions each depend on what the other wrote (Adya)")
    G_SINGLE = ("G-single", "a cycle with one rw edge: a reader saw one commit and not another one before it (Adya)")
    G2 = ("G2", "a cycle with several rw edges: readers saw commits in different orders (Adya)")


class Finding(NamedTuple):
    """One anomaly: what it is, in words with names and numbers, and the operations that show it."""

    anomaly: Anomaly
    message: str
    operations: tuple[Operation, ...] = ()

    def __str__(self) -> str:
        numbers = ", ".join(str(operation.number) for operation in self.operations)
        return f"{self.anomaly}: {self.message}" + (f" (operations {numbers})" if numbers else "")


def first_of(items: Iterable[object]) -> str:
    """The first of many items, for messages."""
    found = list(items)
    text = ", ".join(map(str, found[:_MOST_LISTED]))
    return f"{text}, … ({len(found)})" if len(found) > _MOST_LISTED else text


__all__ = ["Anomaly", "Finding", "first_of"]
