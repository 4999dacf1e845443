"""The identity of the batches of ``process`` in a Delta table: their offsets, noted in the commit of their rows."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec

from spark_ext.delta.idempotence import AppendsFirst, CommittingTransaction, Table, app_of
from spark_ext.processing.batch_plan import Batch, End, offsets_text
from spark_ext.processing.earlier_batches import PartitionNotThereError
from spark_ext.processing.ownership import Ownership
from txnlog.common import ranges
from txnlog.common.ids import TxnId
from txnlog.common.validation import shortened
from txnlog.errors import (
    ConsumerFenced,
    CorruptionError,
    Durable,
    InvalidInputError,
    LimitExceeded,
    OutcomeUnknown,
    StoreError,
    TransactionConflict,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from txnlog.client.connection import Connection

_logger: Final = logging.getLogger("txnlog.spark")

_Offsets: TypeAlias = Mapping[str, Mapping[int, ranges.Range]]

WhatIsLeft: TypeAlias = Callable[[str, _Offsets, int], _Offsets | None]
"""From TxnID, offsets and version of a batch whose rows a Delta table has, the offsets that are still to be committed.

None where the batch was committed; empty where all of its messages are dead letters.
"""

_RUN_BITS: Final = 28
"""Low bits of a version, which number a run's batches: 268 million batches, and runs up to version 2**35 of the log (54
years of 20 entries a second)."""

_TAKING_ATTEMPTS: Final = 5
"""Attempts to take a table over: each older run that still writes can make one of them fail."""

_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class _NotedEnd(msgspec.Struct, frozen=True):
    """An :class:`spark_ext.processing.batch_plan.End` in a note."""

    version: _Number
    offsets: dict[str, dict[_Number, _Number]]


class BatchRecord(msgspec.Struct, frozen=True):
    """The note in the Delta commit of a batch's rows.

    Attributes:
        txn: the TxnID of the transaction that is to commit the batch in the log.
        offsets: by topic and partition the range of offsets that it read.
        end: where it ended.
        entry: version and digest of the newest entry at that time. A log without this entry was restored to an older
            state: it has other messages at these offsets, or gives this TxnID to other transactions. None in notes of
            older releases of this library, for which the log is unknown.
    """

    txn: str
    offsets: dict[str, dict[_Number, tuple[_Number, _Number]]]
    end: _NotedEnd
    entry: tuple[_Number, str] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for values that no batch has."""
        try:
            canonical = str(TxnId.parse(self.txn)) == self.txn
        except InvalidInputError:
            canonical = False
        if not canonical or not self.offsets.keys() <= self.end.offsets.keys():
            raise ValueError
        if not all(low < high for of in self.offsets.values() for low, high in of.values()):
            raise ValueError

    @classmethod
    def of(cls, batch: Batch, txn: TxnId, entry: tuple[int, str]) -> BatchRecord:
        """The note for a batch."""
        offsets = {topic: dict(sorted(of.items())) for topic, of in sorted(batch.offsets.items())}
        end = {topic: dict(sorted(of.items())) for topic, of in batch.end.offsets.items()}
        return cls(str(txn), offsets, _NotedEnd(batch.end.version, end), entry)

    def to_dict(self) -> dict[str, Any]:
        """The note as JSON objects."""
        written: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return written


class RepeatBatchError(Exception):
    """A Delta table has the rows of a batch that was not committed in the log: that batch must be processed next."""

    def __init__(self, table: str, delta_version: int, record: BatchRecord) -> None:
        super().__init__(_left_in(table, delta_version))
        self.record = record
        self.end = End(record.end.version, record.end.offsets)


def _left_in(table: str, delta_version: int) -> str:
    since = "" if delta_version < 0 else f", since its version {delta_version}"
    return f"the Delta table {shortened(table)} has a batch that was never committed{since}"


@dataclass(frozen=True, slots=True)
class _Known:
    """The last batch that was appended to a table, and the table's version with its note (-1: not known)."""

    record: BatchRecord | None = None
    delta_version: int = -1


@dataclass(slots=True)
class RunIdentity:
    """The identity of one run of ``process``, whose versions are above those of every older run.

    So once it took a table over, Delta skips what older runs append.

    Attributes:
        connection: the namespace's connection.
        name: the name of the application, from the ids of the subscriptions.
        epoch: the epoch that the run took, which increases from run to run.
    """

    connection: Connection
    name: str
    epoch: int
    _app: str = ""
    _next: int = 0
    _tables: dict[str, _Known] = field(default_factory=dict)
    _seen: dict[str, Table] = field(default_factory=dict)
    _reported: set[tuple[str, str]] = field(default_factory=set)

    @property
    def app(self) -> str:
        """The application in Delta tables."""
        self._app = self._app or app_of(self.connection, self.name)
        return self._app

    def next_version(self) -> int:
        """A version that this run has not used."""
        if self._next >= 1 << _RUN_BITS:
            raise LimitExceeded(
                f"a run can write to Delta tables {1 << _RUN_BITS} times at most", advice="start the run again"
            )
        self._next += 1
        return (self.epoch << _RUN_BITS) + self._next - 1

    def of(self, batch: Batch, connection: Connection, what_is_left: WhatIsLeft) -> BatchIdentity:
        """The identity of a batch; ``connection`` is that of its transaction."""
        return BatchIdentity(self, batch, connection, what_is_left)

    def left(self, what_is_left: WhatIsLeft) -> tuple[str, int] | None:
        """A table with the rows of a batch that is not committed in the log, and the table's version with its note.

        It looks at the tables that this run wrote to, or tried to. Where the outcome of an append is unknown it is
        found out now, and the table cannot get the rows any more.
        """
        for table in self._seen.values():
            known = self.known(table, what_is_left)
            left = self.still_open(table, self.app, known, what_is_left)
            if left is not None:
                version = known.delta_version
                if version < 0:
                    version = next((v for v, of in table.newest_records(self.app) if of.get("txn") == left.txn), -1)
                return table.name, version
        return None

    def see(self, table: Table) -> None:
        """Remember that a table may have rows of a batch. Call it before any request to the table."""
        self._seen[table.id] = table

    def still_open(self, table: Table, app: str, known: _Known, what_is_left: WhatIsLeft) -> BatchRecord | None:
        """The uncommitted batch whose rows a table has, without its dead letters; None where there is none.

        Dead letters are never processed again: waiting for them would hold up the subscription for good. They are
        logged once.

        Raises:
            CorruptionError: the batch is not of this log, or the note names partitions that do not exist.
        """
        record = known.record
        if record is None:
            return None
        if record.entry is not None and not self.connection.has_entry(*record.entry):
            raise CorruptionError(
                f"the Delta table {shortened(table.name)} has a batch of {app} from a log with another version "
                f"{record.entry[0]} than this one: this log was restored to an older state, or is a copy of such a one",
                advice="compare the table's rows with the topics, then continue with a new subscription that begins "
                "after them",
                durable=Durable.NOTHING,
            )
        # The end of a batch does not show when it was planned: the log may have been much longer by then.
        after = record.end.version if record.entry is None else record.entry[0]
        try:
            left = what_is_left(record.txn, record.offsets, after)
        except PartitionNotThereError as error:
            raise _damaged(table, app, known.delta_version) from error
        if left is None:
            return None
        if left != record.offsets and (table.id, record.txn) not in self._reported:
            self._reported.add((table.id, record.txn))
            text = "%s (%s): its messages are dead letters by now%s, and its rows are in the table as well"
            but = f", but for {offsets_text(left)}" if left else ""
            _logger.error(text, _left_in(table.name, known.delta_version), offsets_text(record.offsets), but)
        return msgspec.structs.replace(record, offsets=left) if left else None

    def known(self, table: Table, what_is_left: WhatIsLeft) -> _Known:
        """The run's knowledge of a table, which it takes over from older runs at the first call.

        Raises:
            ConsumerFenced: a newer run took the table over.
            CorruptionError: the note in the table is damaged, or of another log.
            InvalidInputError: a run over other topics with one of these subscriptions left an uncommitted batch there.
        """
        self.see(table)
        found = self._tables.get(table.id)
        if found is None:
            found = self._taken_over(table, self.app)
            for app in self._overlapping(table):
                other = self._taken_over(table, app)
                left = self.still_open(table, app, other, what_is_left)
                if left is not None:
                    raise InvalidInputError(
                        f"the Delta table {shortened(table.name)} has a batch of a run over other topics that was "
                        f"never committed: {offsets_text(left.offsets)}",
                        advice="run once over those topics, which repeats that batch; if its messages were "
                        "acknowledged otherwise, seek to their first offsets before",
                    )
            self._tables[table.id] = found
        return found

    def _overlapping(self, table: Table) -> list[str]:
        """The applications of other runs that share a subscription with this run."""
        prefix, _, own = self.app.rpartition("/")
        mine = set(own.split("+"))
        known = table.apps(f"{prefix}/")
        return [app for app in known if app != self.app and mine & set(app.rpartition("/")[2].split("+"))]

    def _taken_over(self, table: Table, app: str) -> _Known:
        """Take an application in a table over from older runs, and read its last batch.

        From then on the table accepts no append of an older run, not even of one that hangs right before its append.
        """
        for attempt in itertools.count(1):
            version = self.next_version()
            try:
                self.commit(table, app, version, partial(table.take, app, version, {"taken": self.epoch}))
                break
            except TransactionConflict:
                if attempt == _TAKING_ATTEMPTS:
                    raise
        for delta_version, record in table.newest_records(app):
            if "offsets" in record:
                try:
                    found = msgspec.convert(record, BatchRecord, str_keys=True)
                except msgspec.ValidationError as error:
                    raise _damaged(table, app, delta_version) from error
                return _Known(found, delta_version)
        return _Known()

    def commit(self, table: Table, app: str, version: int, write: Callable[[], None]) -> None:
        """Write under a version of an application, and check that it is the last one afterwards.

        Raises:
            ConsumerFenced: the version was not written, or not by this run, or is not the last one.
            OutcomeUnknown: the version was written, and it is unknown whether it is the last one.
        """
        refused: TransactionConflict | None = None
        try:
            write()
        except TransactionConflict as error:
            last = table.last(app)
            if last is None or last < version:  # an older run came first, or the table was replaced
                raise
            refused = error
        try:
            if refused is not None or table.last(app) != version:
                raise ConsumerFenced(
                    f"another run of {app}, perhaps over a copy of the namespace, took the Delta table "
                    f"{shortened(table.name)} over",
                    durable=Durable.MAYBE,
                ) from refused
        except StoreError as error:
            raise OutcomeUnknown(
                f"the Delta table {shortened(table.name)} has version {version} of {app}, and it is unknown whether "
                f"another run took the table over since: {error.message}",
                advice="do the same work again: rows that the table has are not appended a second time",
            ) from error

    def note(self, table: Table, record: BatchRecord | None) -> None:
        """Remember the last appended batch; None if it is unknown, so that it is read from the table next time."""
        if record is None:
            self._tables.pop(table.id, None)
        else:
            self._tables[table.id] = _Known(record)


@dataclass(frozen=True, slots=True)
class BatchIdentity(AppendsFirst):
    """The identity of one batch of a run."""

    run: RunIdentity
    batch: Batch
    connection: Connection
    what_is_left: WhatIsLeft

    def attach(self, txn: CommittingTransaction, table: Table, df: DataFrame, options: Mapping[str, str]) -> None:
        """See :class:`Identity`. From now on a failing handler makes no dead letters of a batch that the table has."""
        self.run.see(table)
        AppendsFirst.attach(self, txn, table, df, options)

    def append(self, table: Table, df: DataFrame, txn: TxnId, options: Mapping[str, str]) -> None:
        """See :class:`AppendsFirst`. Raises RepeatBatchError where another batch must come first."""
        run, app = self.run, self.run.app
        known = run.known(table, self.what_is_left)
        left = run.still_open(table, app, known, self.what_is_left)
        record = BatchRecord.of(self.batch, txn, self.connection.newest_entry)
        if left is not None:
            if not record.end.offsets.keys() <= left.end.offsets.keys():
                raise _damaged(table, app, known.delta_version)
            if left.offsets != record.offsets:
                raise RepeatBatchError(table.name, known.delta_version, left)
            _logger.info("%s has this batch already: nothing is appended (%s)", table.name, self.batch)
        version, noted_there = run.next_version(), record.to_dict()
        run.note(table, None)
        if left is not None:  # the table has the rows; now another transaction is to commit the batch
            run.commit(table, app, version, partial(table.take, app, version, noted_there))
        else:
            run.commit(table, app, version, partial(table.append, df, app, version, noted_there, options))
        run.note(table, record)


def of_run(connection: Connection, owned: tuple[Ownership, ...]) -> RunIdentity:
    """The identity of a run that took subscriptions over."""
    names = "+".join(str(item.subscription) for item in sorted(owned, key=lambda item: item.subscription))
    return RunIdentity(connection, f"process/{names}", max(item.epoch for item in owned))


def _damaged(table: Table, app: str, delta_version: int) -> CorruptionError:
    """The error for a damaged note, which cannot be ignored: its batch would be appended once more."""
    return CorruptionError(
        f"the note about a batch of {app} in version {delta_version} of the Delta table {shortened(table.name)} is "
        "damaged, or was not written by this library",
        advice="compare the table's rows with the topics, then continue with a new subscription that begins after them",
        durable=Durable.NOTHING,
    )


__all__ = ["BatchIdentity", "BatchRecord", "RepeatBatchError", "RunIdentity", "WhatIsLeft", "of_run"]
