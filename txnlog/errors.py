"""Every error that txnlog raises, grouped by what the caller does next.

::

    TxnLogError
    ├── RetriableError            try the same call again
    │   ├── OutcomeUnknown        the answer never came: ask again, never assume
    │   └── ConsumerBusy          the subscription is another consumer's, or a query's
    ├── AbortableError            abort the transaction, begin again
    │   ├── TransactionTimedOut
    │   ├── TransactionAborted
    │   ├── TransactionConflict
    │   ├── TransactionHasFailedOperation
    │   └── OutOfOrderSequence
    ├── FencedError               another owner took over: stop
    │   ├── ProducerFenced
    │   ├── ConsumerFenced
    │   └── CoordinatorFenced
    ├── InvalidInputError         fix the call
    │   ├── NameNotAllowed, SchemaMismatch, LimitExceeded, ReadOnly, UnsupportedFeature
    │   ├── InvalidTransactionState, TransactionNotFound
    │   ├── NamespaceNotFound, TopicNotFound, SubscriptionNotFound, TopicExists, SubscriptionExists
    │   ├── VersionNotAvailable, OffsetOutOfRange
    │   └── CalledInItsOwnWork, CalledAfterTheEnd
    ├── StoreError                the store misbehaves or refuses: fix the surroundings
    │   └── AccessDenied, UnsafeStore, ClockSkew, ForeignDeltaLog
    └── CorruptionError           stored bytes are damaged: restore data, nothing was guessed

The text of an error ends with what to do and with whether anything may be durable, unless that goes without saying:
what a look finds out was not written (a call that would have written says it: ``refused_write``), nor was anything by a
wrong call that only reads (``only_looking``; see ``txnlog.replies``). Both are attributes as well (``advice``,
``durable``): a program need not read prose.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final

from txnlog.sentences import Argument, Call, Either, Words

OR_ABORT: Final = Words("or ", Call("abort", "txn_id"), " to make the outcome definite")
"""The other thing to do where the outcome of a transaction is unknown."""


class Durable(enum.Enum):
    """Whether effects of the failed call may be on the store.

    Attributes:
        NOTHING: nothing was written.
        MAYBE: data may be durable.
    """

    NOTHING = "nothing was written"
    MAYBE = "data may be durable"


class TxnLogError(Exception):
    """Base of all errors of txnlog. What it says does not change: ``txnlog.replies`` makes others out of it.

    Attributes:
        message: what happened.
        advice: what to do next.
        durable: whether effects of the failed call may be on the store, as :class:`Durable`.
    """

    _default_advice: ClassVar[str] = "see the message"
    _default_durable: ClassVar[Durable] = Durable.NOTHING
    # Who looks for something that is not there is puzzled by hearing that nothing was written.
    _goes_without_saying: ClassVar[bool] = False

    def __init__(self, message: str, *, advice: str | None = None, durable: Durable | None = None) -> None:
        super().__init__(message)
        self._message = message
        self._advice = self._default_advice if advice is None else advice
        self._durable = self._default_durable if durable is None else durable
        self._unsaid = durable is None and self._goes_without_saying

    @property
    def message(self) -> str:
        """What happened."""
        return self._message

    @property
    def advice(self) -> str:
        """What to do next."""
        return self._advice

    @property
    def durable(self) -> Durable:
        """Whether effects of the failed call may be on the store."""
        return self._durable

    def __str__(self) -> str:
        if self._unsaid and self.durable is Durable.NOTHING:
            return f"{self.message} ({self.advice})"
        return f"{self.message} ({self.advice}; {self.durable.value})"

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Spark workers); keyword arguments need their own way through pickling.
        return (_rebuild, (type(self), self.message, self.__dict__))


def _rebuild(kind: type[TxnLogError], message: str, attributes: dict[str, object]) -> TxnLogError:
    error = kind.__new__(kind, message)
    error.__dict__.update(attributes)
    return error


# --- try the same again -------------------------------------------------------------------------------------------


class RetriableError(TxnLogError):
    """The same call may succeed later; it does not harm an open transaction.

    Out of a block that aborted its transaction for it, the advice is to begin the block again.
    """

    _default_advice = "try the same call again"


class OutcomeUnknown(RetriableError):
    """The store never said whether the entry exists. Neither success nor failure may be assumed.

    Attributes:
        txn_ids: the TxnIDs of the transactions whose outcome is unknown, as text; ``ns.transaction(id)`` takes them.
    """

    _default_advice = "make the same call again, or look whether it was done"
    _default_durable = Durable.MAYBE
    _with_ids: ClassVar[str] = Words("make the same call again, ", OR_ABORT)

    def __init__(
        self,
        message: str,
        *,
        txn_ids: tuple[str, ...] = (),
        advice: str | None = None,
        durable: Durable | None = None,
    ) -> None:
        if txn_ids:
            message = f"{message}, of the transaction {', '.join(txn_ids)}"
            advice = self._with_ids if advice is None else advice
        super().__init__(message, advice=advice, durable=durable)
        self.txn_ids = txn_ids


class ConsumerBusy(RetriableError):
    """The subscription keeps its consumer: while a lease lasts, for one of another name never, for a query until asked.

    So waiting helps in the first case only; the advice says what helps in the others.
    """

    _default_advice = "wait for the lease to end, or close the other consumer"


# --- abort, begin again -------------------------------------------------------------------------------------------


class AbortableError(TxnLogError):
    """The transaction can only be aborted; its work may be done again in a new one."""

    _default_advice = "abort the transaction and begin a new one"


class TransactionTimedOut(AbortableError):
    """The transaction's deadline passed before its end was logged."""

    _default_advice = "begin a new transaction, with a longer timeout_ms if the work needs it"


class TransactionAborted(AbortableError):
    """The log says aborted.

    Attributes:
        reason: ``user``, ``timeout``, ``fenced``, ``admin`` or ``failed``.
    """

    _default_advice = "begin a new transaction"

    def __init__(
        self, message: str, *, reason: str = "user", advice: str | None = None, durable: Durable | None = None
    ) -> None:
        super().__init__(message, advice=advice, durable=durable)
        self.reason = reason


class TransactionConflict(AbortableError):
    """An acknowledged message is claimed by another transaction, or was acknowledged before: the first wins.

    Or a cumulative acknowledgement would take what is still to be delivered to its consumer. Or a topic was dropped and
    made again, and nobody knows which of the two the transaction's rows are for. Or a subscription was dropped and
    created again while the transaction had acknowledgements of it: the new one delivers those messages.
    """


class TransactionHasFailedOperation(AbortableError):
    """An earlier operation of this transaction failed: only the abort is left, and a commit does it."""


class OutOfOrderSequence(AbortableError):
    """A batch leaves a gap after the last sequence, or repeats rows up to it, and new ones or other work with them."""

    _default_advice = "continue at producer.last_sequence(topic, partition) + 1"


# --- another owner took over: stop --------------------------------------------------------------------------------


class FencedError(TxnLogError):
    """Another owner took over; this one must stop."""

    _default_advice = "stop: another owner took over"


class ProducerFenced(FencedError):
    """A newer producer was started under the same name."""

    _default_advice = "stop: a newer producer has this name, or an administrator fenced it"


class ConsumerFenced(FencedError):
    """A newer consumer, a seek or a drop raised the subscription's epoch: the number under which a consumer works.

    Attributes:
        goes_on: whether it is about some messages only, and the consumer that refused them works as before: do not
            stop then.
    """

    goes_on = False
    _default_advice = (
        "stop: whoever took over processes these messages now, and a new consumer here would take the subscription "
        "back. After a seek of its own, a consumer receives again"
    )


class CoordinatorFenced(FencedError):
    """The numbers that the log had reserved for this writer were withdrawn: it was silent for too long.

    Each writer takes the numbers of its transactions and segments from a *block*, which it reserves in the log. A
    vacuum closes the blocks of writers that were silent for ``grace_ms``, and an adoption closes all.
    """

    _default_advice = "open the namespace again and repeat the work; what was not committed is garbage"


# --- fix the call -------------------------------------------------------------------------------------------------


class InvalidInputError(TxnLogError):
    """The call is wrong as it stands; an open transaction is unharmed."""

    _default_advice = "fix the call"


class NameNotAllowed(InvalidInputError):
    """A name outside the allow-list, or one that clashes with another but for case."""


class SchemaMismatch(InvalidInputError):
    """Rows or a schema do not fit; the message names the column."""


class LimitExceeded(InvalidInputError):
    """A documented limit; the message names it and its value."""


class ReadOnly(InvalidInputError):
    """A write through a handle opened with mode="r"."""

    _default_advice = 'open the namespace with mode="rw"'


class UnsupportedFeature(InvalidInputError):
    """The log needs a feature that is missing here, or Spark or this installation lacks one; the message names it."""

    _default_advice = "use a version that has the feature"


def no_delta(*, instead: str | None = None) -> UnsupportedFeature:
    """A Spark session has no Delta. Here, since both ``catalog`` and ``spark_ext`` raise it.

    Args:
        instead: a way that needs none.
    """
    advice = (
        "install the extra 'delta', and build the session with delta.configure_spark_with_delta_pip(builder) and the "
        "settings spark.sql.extensions and spark.sql.catalog.spark_catalog of Delta's documentation"
    )
    return UnsupportedFeature(
        "this session has no Delta", advice=advice if instead is None else f"{advice}; or {instead}"
    )


class InvalidTransactionState(InvalidInputError):
    """The transaction's state does not allow the operation."""


class TransactionNotFound(InvalidInputError):
    """The log remembers no outcome for this id; that is not a negative answer."""

    _default_advice = Words("call ", Call("abort", "txn_id"), " to make the outcome definite")


class NamespaceNotFound(InvalidInputError):
    """No namespace at this path."""

    _default_advice = "check the path, or open with create=True"
    _goes_without_saying = True


class TopicNotFound(InvalidInputError):
    """No such topic; the message offers the nearest name."""

    _goes_without_saying = True


class TopicExists(InvalidInputError):
    """The topic exists already."""

    _default_advice = Words("use ", Argument("if_not_exists", True), " if that is fine")


class SubscriptionNotFound(InvalidInputError):
    """No such subscription on the topic; the message offers the nearest name, or says what was dropped."""

    _goes_without_saying = True
    _number: int | None = None
    """Its id, where that is all the log's state knows: the client knows more (``Connection.naming_dropped``)."""


class SubscriptionExists(InvalidInputError):
    """The subscription exists already."""

    _default_advice = Words("use ", Argument("if_not_exists", True), " if that is fine")


class VersionNotAvailable(InvalidInputError):
    """The version lies in the future or behind the oldest readable one; the message names the range."""

    _goes_without_saying = True


class OffsetOutOfRange(InvalidInputError):
    """An offset outside what the partition holds; the message names the range."""

    _goes_without_saying = True


class _CalledAtAWrongTime(InvalidInputError):
    _always: ClassVar[str]

    def __init__(
        self, message: str | None = None, *, advice: str | None = None, durable: Durable | None = None
    ) -> None:
        super().__init__(self._always if message is None else message, advice=advice, durable=durable)


class CalledInItsOwnWork(_CalledAtAWrongTime):
    """A finalizer, a logging handler or a clock called the client in the middle of the client's own work."""

    _always = "a finalizer, a logging handler or a clock called the client in the middle of the client's own work"
    _default_advice = "make this call in another thread"


class CalledAfterTheEnd(_CalledAtAWrongTime):
    """A finalizer called the client when the program had ended."""

    _always = "a finalizer called the client when the program had ended, and with it the client's threads"
    _default_advice = "call close(), or end a with block, as one of the program's last lines"


# --- fix the surroundings -----------------------------------------------------------------------------------------


class StoreError(TxnLogError):
    """The store misbehaves or refuses: permissions, a full disk, an endpoint that is gone."""

    _default_advice = "check the store, its credentials and its free space"


class AccessDenied(StoreError):
    """The store refuses a call because a right is missing.

    Attributes:
        right: the right: read, list, write or delete.
        url: the address of the object.
    """

    _default_advice = "let an administrator grant it: docs/operations/access.md has the rights of each role"

    def __init__(
        self,
        message: str,
        *,
        right: str = "",
        url: str = "",
        advice: str | None = None,
        durable: Durable | None = None,
    ) -> None:
        if advice is None and right == "write":
            advice = Words(
                self._default_advice,
                "; or ",
                Either(
                    'open with mode="r", which reads topics, subscriptions and their lag',
                    "use the commands that only look: they need no right to write",
                ),
            )
        super().__init__(message, advice=advice, durable=durable)
        self.right = right
        self.url = url


class UnsafeStore(StoreError):
    """The store has no atomic create-if-absent; txnlog refuses to append to it."""

    _default_advice = "use a store that honours create-if-absent; see docs/stores.md"


class ClockSkew(StoreError):
    """This machine's clock is more than a minute ahead of the store's."""

    _default_advice = "set this machine's clock, then open the namespace again"


class ForeignDeltaLog(StoreError):
    """The Delta table of a topic, or one in its place, was written by others than txnlog. It was left as it is."""

    _default_advice = "move it away, or remove its _delta_log, then publish again"


class CorruptionError(TxnLogError):
    """Stored bytes are damaged or contradict each other. Nothing was guessed.

    Attributes:
        segment: the number of the damaged segment, None for damage of another kind of object. A scan leaves out exactly
            this segment with ``exclude_segments=[number]``.
        damage: what is wrong with the segment's object, without what the log says of its rows.
        topic: the name of the segment's topic.
        behind: of a consumer by partition the offset behind the segment: ``consumer.seek(error.behind, error.topic)``.
    """

    _default_advice = "restore the named object from a copy; no damaged data was returned"
    segment: int | None = None
    damage: str = ""
    topic: str | None = None
    behind: Mapping[int, int] = MappingProxyType({})


__all__ = [
    "AbortableError",
    "AccessDenied",
    "CalledAfterTheEnd",
    "CalledInItsOwnWork",
    "ClockSkew",
    "ConsumerBusy",
    "ConsumerFenced",
    "CoordinatorFenced",
    "CorruptionError",
    "Durable",
    "FencedError",
    "ForeignDeltaLog",
    "InvalidInputError",
    "InvalidTransactionState",
    "LimitExceeded",
    "NameNotAllowed",
    "NamespaceNotFound",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "OutcomeUnknown",
    "ProducerFenced",
    "ReadOnly",
    "RetriableError",
    "SchemaMismatch",
    "StoreError",
    "SubscriptionExists",
    "SubscriptionNotFound",
    "TopicExists",
    "TopicNotFound",
    "TransactionAborted",
    "TransactionConflict",
    "TransactionHasFailedOperation",
    "TransactionNotFound",
    "TransactionTimedOut",
    "TxnLogError",
    "UnsafeStore",
    "UnsupportedFeature",
    "VersionNotAvailable",
]
