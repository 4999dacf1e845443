"""The kinds of operations of a history: what was asked, and what was answered.

========================  =============================================================  ==============================
kind                      arguments                                                      result
========================  =============================================================  ==============================
``begin``                 txn, producer, epoch
``produce``               txn, topic, partition, values, sequence, producer, epoch       version, offsets, duplicate
``acknowledge``           txn, topic, subscription, epoch, ranges, cumulative            version
``receive``               topic, subscription, epoch                                     messages, epoch
``negative_acknowledge``  topic, subscription, epoch, ranges (none: all)
``commit``                txn                                                            version, offsets, skipped,
                                                                                         duplicate, dropped
``abort``                 txn
``prepare``               txn
``complete``              txn, commit                                                    version, offsets, dropped
``outcome``               txn, forced                                                    state, version
``read``                  version (None: the newest), topics (None: all)                 version, rows
``open_producer``         name                                                           epoch
``open_consumer``         topic, subscription                                            epoch
``create_subscription``   topic, subscription, positions (left out: 0), shared,
                          max_redeliveries
``seek``                  topic, subscription, positions                                 epoch
``cursors``               topic, subscription                                            cursors
``drop_topic``            topic
``drop_subscription``     topic, subscription
``vacuum``                                                                               oldest_readable
``optimize``              topic
``alter_topic``           topic, column
``delete_records``        before, unbounded                                              version
``erase``                 topic, values, upto                                            version
``compact``               topic (None: all)                                              version
``truncate``              txn, topic, kept
``backup``                version (None: the newest)                                     version
``restore``               name, version                                                  version, coordinator
``read_restored``         name, version                                                  rows, txn
``final``                                                                                rows, outcomes, cursors, dead,
                                                                                         missing, expired, created,
                                                                                         keyed, removed, truncated
========================  =============================================================  ==============================

``txn`` is the TxnID in text; None is a plain call outside of transactions (``producer`` and ``epoch`` say whose it is,
if anybody's). ``final`` is the read of everything after all faults are over: ``rows`` without those of dead-letter
topics, which ``dead`` has, ``missing`` what the log names and the store does not have, ``expired`` what was
acknowledged because of its age, ``keyed`` the keys of messages, ``removed`` what key compaction took out, and
``truncated`` what went with commits that truncate. What
``read_restored`` shows is what a restored namespace has at the version of its backup; its ``txn`` is new there.
"""

from __future__ import annotations

import msgspec

from txnlog.testing.operation_parts import (
    Before,
    Created,
    CursorAt,
    DeadLetter,
    Ended,
    Expired,
    Keyed,
    Message,
    MissingFile,
    OffsetRange,
    PartitionRows,
    Removed,
    Span,
    Truncated,
)

# --- arguments ------------------------------------------------------------------------------------------------------


class _Arguments(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True, forbid_unknown_fields=True):
    """Base of what was asked; the tag is the operation's kind."""


class Begin(_Arguments, frozen=True, tag="begin"):
    """A transaction, of a named producer or of nobody."""

    txn: str
    producer: str | None = None
    epoch: int | None = None


class Produce(_Arguments, frozen=True, tag="produce"):
    """Values for one partition; ``sequence`` is that of the first."""

    txn: str | None
    topic: str
    partition: int
    values: tuple[int, ...]
    sequence: int | None = None
    producer: str | None = None
    epoch: int | None = None


class Acknowledge(_Arguments, frozen=True, tag="acknowledge"):
    """Messages acknowledged on a subscription; cumulative: everything before them in their partitions as well."""

    txn: str | None
    topic: str
    subscription: str
    epoch: int | None
    ranges: tuple[OffsetRange, ...]
    cumulative: bool = False


class Receive(_Arguments, frozen=True, tag="receive"):
    """The next messages of a consumer, which holds an epoch of the subscription."""

    topic: str
    subscription: str
    epoch: int | None = None


class NegativeAcknowledge(_Arguments, frozen=True, tag="negative_acknowledge"):
    """Messages released to be delivered again; no ranges: all of them."""

    topic: str
    subscription: str
    epoch: int | None = None
    ranges: tuple[OffsetRange, ...] = ()


class Commit(_Arguments, frozen=True, tag="commit"):
    """The end of a transaction that is to be visible."""

    txn: str


class Abort(_Arguments, frozen=True, tag="abort"):
    """The end of a transaction that is to be invisible."""

    txn: str


class Prepare(_Arguments, frozen=True, tag="prepare"):
    """A transaction is to wait for a decision from outside."""

    txn: str


class Complete(_Arguments, frozen=True, tag="complete"):
    """The decision from outside about a prepared transaction, whoever brings it."""

    txn: str
    commit: bool


class Outcome(_Arguments, frozen=True, tag="outcome"):
    """How a transaction ended; ``forced``: it is to be aborted now, also where it is prepared."""

    txn: str
    forced: bool = False


class Read(_Arguments, frozen=True, tag="read"):
    """Everything that is visible at a version, or at the newest one."""

    version: int | None = None
    topics: tuple[str, ...] | None = None


class OpenProducer(_Arguments, frozen=True, tag="open_producer"):
    """A new producer with a name; it fences the ones before it."""

    name: str


class OpenConsumer(_Arguments, frozen=True, tag="open_consumer"):
    """A new consumer of a subscription. One of a Failover subscription may wait long until it gets an epoch."""

    topic: str
    subscription: str


class CreateSubscription(_Arguments, frozen=True, tag="create_subscription"):
    """A subscription that begins at these positions, (partition, offset).

    ``shared``: several consumers have it at once, and every delivery but the first is counted.
    """

    topic: str
    subscription: str
    positions: tuple[tuple[int, int], ...] = ()
    shared: bool = False
    max_redeliveries: int | None = None


class Seek(_Arguments, frozen=True, tag="seek"):
    """Cursors begin anew at these positions, (partition, offset)."""

    topic: str
    subscription: str
    positions: tuple[tuple[int, int], ...]


class Cursors(_Arguments, frozen=True, tag="cursors"):
    """The cursors of a subscription."""

    topic: str
    subscription: str


class DropTopic(_Arguments, frozen=True, tag="drop_topic"):
    """The end of a topic and of its subscriptions."""

    topic: str


class DropSubscription(_Arguments, frozen=True, tag="drop_subscription"):
    """The end of a subscription."""

    topic: str
    subscription: str


class Vacuum(_Arguments, frozen=True, tag="vacuum"):
    """The deletion of files that nobody needs any more."""


class Optimize(_Arguments, frozen=True, tag="optimize"):
    """Small segments become big ones: nothing that anybody reads changes."""

    topic: str


class AlterTopic(_Arguments, frozen=True, tag="alter_topic"):
    """One column more, in which all rows have null."""

    topic: str
    column: str


class DeleteRecords(_Arguments, frozen=True, tag="delete_records"):
    """Messages before some offsets are deleted, by hand or because of their topic's settings.

    Attributes:
        before: the offsets, by topic and partition.
        unbounded: which messages go is not known: it may be any.
    """

    before: tuple[Before, ...] = ()
    unbounded: bool = False


class Erase(_Arguments, frozen=True, tag="erase"):
    """Messages of some values are erased: their offsets are holes from then on.

    Attributes:
        upto: the newest version that was known before: what is visible there is surely looked at.
    """

    topic: str
    values: tuple[int, ...]
    upto: int


class Compact(_Arguments, frozen=True, tag="compact"):
    """Of each key of a topic only the newest message is to stay; of all topics that ask for it, in maintenance."""

    topic: str | None = None


class Truncate(_Arguments, frozen=True, tag="truncate"):
    """The earlier messages of a topic are to go with the commit of a transaction.

    Attributes:
        kept: what a subscription has not acknowledged is kept: the commit is refused.
    """

    txn: str
    topic: str
    kept: bool = False


class Backup(_Arguments, frozen=True, tag="backup"):
    """A backup of a version, or of the newest one."""

    version: int | None = None


class Restore(_Arguments, frozen=True, tag="restore"):
    """A namespace of this name is made out of the backup of a version."""

    name: str
    version: int


class ReadRestored(_Arguments, frozen=True, tag="read_restored"):
    """A transaction in what was restored, and then everything that is visible there at the version of its backup."""

    name: str
    version: int


class Final(_Arguments, frozen=True, tag="final"):
    """The read of everything after all faults are over."""


Arguments = (
    Begin
    | Produce
    | Acknowledge
    | Receive
    | NegativeAcknowledge
    | Commit
    | Abort
    | Prepare
    | Complete
    | Outcome
    | Read
    | OpenProducer
    | OpenConsumer
    | CreateSubscription
    | Seek
    | Cursors
    | DropTopic
    | DropSubscription
    | Vacuum
    | Optimize
    | AlterTopic
    | DeleteRecords
    | Erase
    | Compact
    | Truncate
    | Backup
    | Restore
    | ReadRestored
    | Final
)

# --- results --------------------------------------------------------------------------------------------------------


class _Result(msgspec.Struct, frozen=True, tag_field="of", omit_defaults=True, forbid_unknown_fields=True):
    """Base of what was answered; the tag is the kind of the operation."""


class Produced(_Result, frozen=True, tag="produce"):
    """Inside a transaction nothing but ``duplicate`` is known yet."""

    version: int | None = None
    offsets: tuple[Span, ...] = ()
    duplicate: bool = False


class Acknowledged(_Result, frozen=True, tag="acknowledge"):
    """The version that shows it, of a plain one."""

    version: int | None = None


class Received(_Result, frozen=True, tag="receive"):
    """The messages, in the order of delivery, and the epoch of their consumer, where it got that in this very call."""

    messages: tuple[Message, ...]
    epoch: int | None = None


class Committed(_Result, frozen=True, tag="commit"):
    """Visible at a version; skipped and duplicate: nothing was written now, the version is the original one's.

    ``dropped``: what was dropped meanwhile, without which it was committed.
    """

    version: int | None
    offsets: tuple[Span, ...] = ()
    skipped: bool = False
    duplicate: bool = False
    dropped: tuple[str, ...] = ()


class OutcomeShown(_Result, frozen=True, tag="outcome"):
    """The state of a transaction; only ``COMMITTED`` and ``ABORTED`` are answers for ever."""

    state: str
    version: int | None = None


class Shown(_Result, frozen=True, tag="read"):
    """The version that was read; a partition that is left out is empty."""

    version: int
    rows: tuple[PartitionRows, ...]


class Completed(_Result, frozen=True, tag="complete"):
    """The version that shows a commit, its offsets, and what was dropped meanwhile; of an abort nothing."""

    version: int | None = None
    offsets: tuple[Span, ...] = ()
    dropped: tuple[str, ...] = ()


class Vacuumed(_Result, frozen=True, tag="vacuum"):
    """Versions below this one may have lost files."""

    oldest_readable: int


class ProducerOpened(_Result, frozen=True, tag="open_producer"):
    """The epoch is a version of the log."""

    epoch: int


class ConsumerOpened(_Result, frozen=True, tag="open_consumer"):
    """The epoch is a version of the log; the same one for all consumers of a Shared subscription."""

    epoch: int


class Sought(_Result, frozen=True, tag="seek"):
    """The epoch that the subscription has from here on, a version of the log."""

    epoch: int | None = None


class CursorsShown(_Result, frozen=True, tag="cursors"):
    """One for each partition."""

    cursors: tuple[CursorAt, ...]


class Deleted(_Result, frozen=True, tag="delete_records"):
    """The version from which on the messages are gone; None where nothing was deleted."""

    version: int | None = None


class Erased(_Result, frozen=True, tag="erase"):
    """A version from which on the messages are gone."""

    version: int


class Compacted(_Result, frozen=True, tag="compact"):
    """The version from which on the messages are gone; None where none had to go."""

    version: int | None = None


class BackedUp(_Result, frozen=True, tag="backup"):
    """The version that can be restored."""

    version: int


class Restored(_Result, frozen=True, tag="restore"):
    """The version that was restored, and the coordinator id of the TxnIDs to come."""

    version: int
    coordinator: int


class RestoredShown(_Result, frozen=True, tag="read_restored"):
    """What was read of what was restored, and the TxnID of a transaction in it."""

    rows: tuple[PartitionRows, ...]
    txn: str


class FinalState(_Result, frozen=True, tag="final"):
    """Everything at the end; a partition that is left out is empty, an outcome that is left out is not remembered.

    ``rows`` has also what was deleted, erased, compacted or truncated, as it was before: it is the log that all else is
    compared with. Of a subscription that ``created`` leaves out, nobody looked when it was created: it counts as there
    from the beginning.
    """

    rows: tuple[PartitionRows, ...]
    outcomes: tuple[Ended, ...] = ()
    cursors: tuple[CursorAt, ...] = ()
    dead: tuple[DeadLetter, ...] = ()
    missing: tuple[MissingFile, ...] = ()
    expired: tuple[Expired, ...] = ()
    created: tuple[Created, ...] = ()
    keyed: tuple[Keyed, ...] = ()
    removed: tuple[Removed, ...] = ()
    truncated: tuple[Truncated, ...] = ()


class Done(_Result, frozen=True, tag="done"):
    """Nothing more is to be said."""


Result = (
    Produced
    | Acknowledged
    | Received
    | Committed
    | OutcomeShown
    | Shown
    | Completed
    | Vacuumed
    | ProducerOpened
    | ConsumerOpened
    | Sought
    | CursorsShown
    | Deleted
    | Erased
    | Compacted
    | BackedUp
    | Restored
    | RestoredShown
    | FinalState
    | Done
)

__all__ = [
    "Abort",
    "Acknowledge",
    "Acknowledged",
    "AlterTopic",
    "Arguments",
    "BackedUp",
    "Backup",
    "Begin",
    "Commit",
    "Committed",
    "Compact",
    "Compacted",
    "Complete",
    "Completed",
    "ConsumerOpened",
    "CreateSubscription",
    "Cursors",
    "CursorsShown",
    "DeleteRecords",
    "Deleted",
    "Done",
    "DropSubscription",
    "DropTopic",
    "Erase",
    "Erased",
    "Final",
    "FinalState",
    "NegativeAcknowledge",
    "OpenConsumer",
    "OpenProducer",
    "Optimize",
    "Outcome",
    "OutcomeShown",
    "Prepare",
    "Produce",
    "Produced",
    "ProducerOpened",
    "Read",
    "ReadRestored",
    "Receive",
    "Received",
    "Restore",
    "Restored",
    "RestoredShown",
    "Result",
    "Seek",
    "Shown",
    "Sought",
    "Truncate",
    "Vacuum",
    "Vacuumed",
]
