"""By what a Delta table knows the batches of ``process``: by their offsets, which it keeps with the rows."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec

from spark_ext.delta.idempotence import AppendsFirst, CommittingTransaction, Table, app_of
from spark_ext.processing.batch_plan import Batch, Claim, End, PartitionNotThereError, offsets_text
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
"""Tells by its TxnID, offsets and version which offsets of a batch that a Delta table has are still to be committed.

None where it was committed; none of them where somebody gave up on all.
"""

_RUN_BITS: Final = 28
"""Of a version in a run of ``process``: 268 million batches, and runs up to version 2**35 of the log (54 years of 20
entries a second)."""

_TAKING_ATTEMPTS: Final = 5
"""Older runs that still write while a newer one takes the table over: each can do so once."""

_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class _NotedEnd(msgspec.Struct, frozen=True):
    """As of :class:`spark_ext.processing.batch_plan.End`."""

    version: _Number
    offsets: dict[str, dict[_Number, _Number]]


class BatchRecord(msgspec.Struct, frozen=True):
    """What is noted with the rows of a batch.

    Attributes:
        txn: the transaction that is to commit it here.
        offsets: by topic and partition the range that it read.
        end: where it ended.
        entry: version and digest of the newest entry that there was: a log without it was put back to an older state,
            and has other messages at these offsets, or gives other transactions this one's id. None where an older
            version of this library noted the batch: which log it was of is unknown then.
    """

    txn: str
    offsets: dict[str, dict[_Number, tuple[_Number, _Number]]]
    end: _NotedEnd
    entry: tuple[_Number, str] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for what no batch has."""
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
        """What is noted of a batch."""
        offsets = {topic: dict(sorted(of.items())) for topic, of in sorted(batch.offsets.items())}
        end = {topic: dict(sorted(of.items())) for topic, of in batch.end.offsets.items()}
        return cls(str(txn), offsets, _NotedEnd(batch.end.version, end), entry)

    def to_dict(self) -> dict[str, Any]:
        """As it is noted."""
        written: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return written


class RepeatBatchError(Exception):
    """A Delta table has the rows of a batch that no entry commits: that batch must come next, and no other."""

    def __init__(self, table: str, delta_version: int, record: BatchRecord) -> None:
        super().__init__(_left_in(table, delta_version))
        self.record = record
        self.end = End(record.end.version, record.end.offsets)


def _left_in(table: str, delta_version: int) -> str:
    since = "" if delta_version < 0 else f", since its version {delta_version}"
    return f"the Delta table {shortened(table)} has a batch that was never committed{since}"


@dataclass(frozen=True, slots=True)
class _Known:
    """What a run knows of a table: the last batch that went there, and the transaction that was to commit it."""

    record: BatchRecord | None = None
    delta_version: int = -1


@dataclass(slots=True)
class RunIdentity:
    """Of one run of ``process``: its versions are above those of every older run.

    So what an older run appends is skipped from the moment on when this one takes the table over.

    Attributes:
        connection: of the namespace.
        name: of the subscriptions.
        epoch: of the run's claim: it grows from run to run.
    """

    connection: Connection
    name: str
    epoch: int
    _app: str = ""
    _next: int = 0
    _tables: dict[str, _Known] = field(default_factory=dict)
    _seen: dict[str, Table] = field(default_factory=dict)
    _told: set[tuple[str, str]] = field(default_factory=set)

    @property
    def app(self) -> str:
        """The application in Delta tables."""
        self._app = self._app or app_of(self.connection, self.name)
        return self._app

    def next_version(self) -> int:
        """A version that this run has not used."""
        if self._next >= 1 << _RUN_BITS:
            raise LimitExceeded(f"a run writes to Delta tables {1 << _RUN_BITS} times at most", advice="start it again")
        self._next += 1
        return (self.epoch << _RUN_BITS) + self._next - 1

    def of(self, batch: Batch, connection: Connection, what_is_left: WhatIsLeft) -> BatchIdentity:
        """Of a batch; ``connection`` is its transaction's."""
        return BatchIdentity(self, batch, connection, what_is_left)

    def left(self, what_is_left: WhatIsLeft) -> tuple[str, int] | None:
        """A table that has rows of a batch which no entry commits, and with which version of it that is noted.

        Of those that this run wrote to, or tried to: where nobody told whether it took the rows, it is asked now, and
        can take them no more.
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
        """Know of a table that it may have rows of a batch, before anything is asked of it."""
        self._seen[table.id] = table

    def still_open(self, table: Table, app: str, known: _Known, what_is_left: WhatIsLeft) -> BatchRecord | None:
        """The batch whose rows a table has and that no entry commits, without what of it was given up; None for none.

        What was given up never comes: to wait for it would hold the subscription up for good. It is told once.

        Raises:
            CorruptionError: the log is not the one that this batch was of, or what is noted cannot be of it.
        """
        record = known.record
        if record is None:
            return None
        if record.entry is not None and not self.connection.has_entry(*record.entry):
            raise CorruptionError(
                f"the Delta table {shortened(table.name)} has a batch of {app} from a log with another version "
                f"{record.entry[0]} than this one, which was put back to an older state, or is a copy of that",
                advice="compare the table's rows with the topics, then go on with a new subscription, which begins "
                "behind them",
                durable=Durable.NOTHING,
            )
        # Where a batch ends tells nothing of when it was planned: it may end long before what was there by then.
        after = record.end.version if record.entry is None else record.entry[0]
        try:
            left = what_is_left(record.txn, record.offsets, after)
        except PartitionNotThereError as error:
            raise _damaged(table, app, known.delta_version) from error
        if left is None:
            return None
        if left != record.offsets and (table.id, record.txn) not in self._told:
            self._told.add((table.id, record.txn))
            text = "%s (%s): its messages are dead letters by now%s, and its rows are in the table as well"
            but = f", but for {offsets_text(left)}" if left else ""
            _logger.error(text, _left_in(table.name, known.delta_version), offsets_text(record.offsets), but)
        return msgspec.structs.replace(record, offsets=left) if left else None

    def known(self, table: Table, what_is_left: WhatIsLeft) -> _Known:
        """What is known of a table; at first it is taken over from older runs.

        Raises:
            ConsumerFenced: a newer run has done that.
            CorruptionError: what is noted there is damaged, or of another log.
            InvalidInputError: a run over other topics with one of these subscriptions left a batch there.
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
                        advice="run once over those topics, which brings that batch again; where others took its "
                        "messages, seek to where they begin before",
                    )
            self._tables[table.id] = found
        return found

    def _overlapping(self, table: Table) -> list[str]:
        """Applications of runs that have other subscriptions beside one of this run's."""
        prefix, _, own = self.app.rpartition("/")
        mine = set(own.split("+"))
        known = table.apps(f"{prefix}/")
        return [app for app in known if app != self.app and mine & set(app.rpartition("/")[2].split("+"))]

    def _taken_over(self, table: Table, app: str) -> _Known:
        """What an application has in a table, after which nothing of older runs is appended under it any more.

        Also nothing of one that hangs right before its append.
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
        """Write under a version.

        Raises:
            ConsumerFenced: that was not written, or not by this run, or is not the last there.
            OutcomeUnknown: it was written, and the table does not tell whether it is the last there.
        """
        refused: TransactionConflict | None = None
        try:
            write()
        except TransactionConflict as error:
            last = table.last(app)
            if last is None or last < version:  # an older run was quicker, or the table is another one
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
                f"the Delta table {shortened(table.name)} took version {version} of {app}, and does not tell whether "
                f"another run took it over since: {error.message}",
                advice="do the same work again: rows that it took are not appended a second time",
            ) from error

    def note(self, table: Table, record: BatchRecord | None) -> None:
        """Remember what was appended last; None where that is not known, so that the table is asked again."""
        if record is None:
            self._tables.pop(table.id, None)
        else:
            self._tables[table.id] = _Known(record)


@dataclass(frozen=True, slots=True)
class BatchIdentity(AppendsFirst):
    """Of one batch of a run."""

    run: RunIdentity
    batch: Batch
    connection: Connection
    what_is_left: WhatIsLeft

    def attach(self, txn: CommittingTransaction, table: Table, df: DataFrame, options: Mapping[str, str]) -> None:
        """See :class:`Identity`. A handler that fails from here on gives up on no batch that the table has."""
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
        if left is not None:  # the rows are there; who is to commit them is another transaction now
            run.commit(table, app, version, partial(table.take, app, version, noted_there))
        else:
            run.commit(table, app, version, partial(table.append, df, app, version, noted_there, options))
        run.note(table, record)


def of_run(connection: Connection, claims: tuple[Claim, ...]) -> RunIdentity:
    """Of a run that claimed subscriptions."""
    names = "+".join(str(item.subscription) for item in sorted(claims, key=lambda item: item.subscription))
    return RunIdentity(connection, f"process/{names}", max(item.epoch for item in claims))


def _damaged(table: Table, app: str, delta_version: int) -> CorruptionError:
    """Nothing is guessed: taken for none, the batch whose rows are there would be appended once more."""
    return CorruptionError(
        f"what the Delta table {shortened(table.name)} notes about a batch of {app} with its version {delta_version} "
        "is damaged, or not of this library",
        advice="compare its rows with the topics, then go on with a new subscription, which begins behind them",
        durable=Durable.NOTHING,
    )


__all__ = ["BatchIdentity", "BatchRecord", "RepeatBatchError", "RunIdentity", "WhatIsLeft", "of_run"]
