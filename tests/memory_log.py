"""A commit log in memory, for tests of the pure core: it encodes, decodes and folds what a test gives it.

``Log.entry`` is writer and reader at once. A refused action raises its typed refusal, after it was checked that the
draft and the state are as before and that a reader who finds the same entry on a store calls it damage. An accepted
entry is folded from its bytes, and what the writer saw in its draft must be the very same state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from txnlog.errors import CorruptionError, TxnLogError, UnsupportedFeature
from txnlog.fold.apply import apply, apply_entry, begin_entry, finish_entry
from txnlog.fold.state import Cursor, Draft, Outcome, State, TransactionRecord
from txnlog.format import schema as schemas
from txnlog.format.actions import (
    Acknowledgement,
    AnyAction,
    Commit,
    Header,
    Namespace,
    PartitionRanges,
    Producer,
    Protocol,
    Reserve,
    Segment,
    Share,
    SliceRows,
    Subscription,
    SubscriptionType,
    Topic,
)
from txnlog.format.codec import Entry, decode_entry, digest_of, encode_action, encode_entry
from txnlog.format.schema import StructType
from txnlog.testing.scheduler import START_MS

WRITER = "0" * 32
SCHEMA = schemas.from_arrow(pa.schema([pa.field("name", pa.string()), pa.field("amount", pa.int64())]))
PROTOCOL = Protocol(1, 1)


def tables_of(state: State | Draft) -> dict[str, dict[Any, Any]]:
    """All tables of a state or a draft, as dictionaries of their own."""
    if isinstance(state, State):
        return {name: dict(table) for name, table in state.as_tables().items()}
    return {name: dict(getattr(state, name).items()) for name in (*State.__slots__, "unclaimed")}


class Log:
    """A log that begins with a protocol, a namespace and a block of 1,024 numbers, unless told to begin empty."""

    def __init__(self, *, begun: bool = True, coordinator: int = 7) -> None:
        self.state = State()
        self.stored: list[bytes] = []
        self.now_ms = START_MS
        self._number = -1
        if begun:
            self.entry(PROTOCOL, Namespace("sales", coordinator), Reserve(WRITER, 0, 1024))

    # --- entries ----------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The newest version."""
        return self.state.head.version

    def header(self, **changes: Any) -> Header:
        """The header that the next entry should have."""
        head = self.state.head
        fields: dict[str, Any] = {
            "version": head.version + 1,
            "writer": WRITER,
            "timestamp_ms": self.now_ms,
            "previous": head.digest,
            "checkpoint": head.checkpoint,
        }
        return Header(**(fields | changes))

    def entry(self, *actions: AnyAction, after_ms: int = 1_000) -> int:
        """Append one entry and return its version; raises the refusal of the first action that is refused."""
        self.now_ms += after_ms
        header = self.header()
        try:
            self._write(header, actions)
        except TxnLogError:
            self._check_refused(header, actions)
            raise
        data = encode_entry(header, [encode_action(action) for action in actions])
        self.fold(data)
        return header.version

    def _write(self, header: Header, actions: Sequence[AnyAction]) -> None:
        """What a writer does before it appends: apply to a draft, refuse without a trace."""
        before = tables_of(self.state)
        draft = self.state.draft()
        begin_entry(draft, header)
        for action in actions:
            mark, drafted = draft.savepoint(), tables_of(draft)
            try:
                apply(draft, action, header)
            except TxnLogError:
                draft.rollback(mark)
                assert tables_of(draft) == drafted, "a refused action leaves the draft as it was"
                raise
            finally:
                assert tables_of(self.state) == before, "a draft leaves the state as it was"
        finish_entry(draft, "")

    def _check_refused(self, header: Header, actions: Sequence[AnyAction]) -> None:
        """What a reader does with an entry that should never have been written: nothing, and says so."""
        try:
            lines = [encode_action(action) for action in actions]
        except TxnLogError:
            return
        data = encode_entry(header, lines)
        other = self.state.copy()
        with pytest.raises((CorruptionError, UnsupportedFeature), match=f"entry {header.version}"):
            apply_entry(other, decode_entry(data, header.version))
        assert tables_of(other) == tables_of(self.state), "a failed entry leaves the state as it was"

    def fold(self, data: bytes) -> Entry:
        """Fold the bytes of the next entry; the draft of a writer must have come to the same state."""
        entry = decode_entry(data, self.version + 1)
        written = self.state.copy()
        draft = written.draft()
        begin_entry(draft, entry.header)
        for action in entry.actions:
            apply(draft, action, entry.header)
        finish_entry(draft, digest_of(data))
        draft.merge()
        apply_entry(self.state, entry)
        assert tables_of(written) == tables_of(self.state), "validation and replay are the same fold"
        self.stored.append(data)
        return entry

    def replayed(self) -> State:
        """The state that folding the stored bytes from the beginning gives."""
        state = State()
        for version, data in enumerate(self.stored):
            apply_entry(state, decode_entry(data, version))
        return state

    # --- building blocks --------------------------------------------------------------------------------------------

    def number(self) -> int:
        """A number that nothing has used yet."""
        self._number += 1
        return self._number

    def topic(
        self,
        name: str = "orders",
        partitions: int = 1,
        *,
        key: str | None = None,
        schema: StructType = SCHEMA,
    ) -> int:
        """Create a topic; returns its id."""
        return self.entry(Topic(name, schema, partitions, key))

    def subscription(
        self,
        topic: int,
        name: str = "billing",
        type: SubscriptionType = "exclusive",  # noqa: A002 - the name in the protocol
        **options: Any,
    ) -> int:
        """Create a subscription at the beginning of its topic; returns its id, which is its first epoch."""
        record = self.state.topics[topic]
        start = options.pop("start", (0,) * record.partitions)
        return self.entry(Subscription(topic, name, type, start, options.pop("lease_ms", 30_000), **options))

    def producer(self, name: str = "loader") -> int:
        """Start a producer; returns its epoch."""
        return self.entry(Producer(name))

    def segment(
        self,
        topic: int,
        rows: Mapping[int, int],
        txn: int | None = None,
        *,
        sequences: Mapping[int, int] | None = None,
        **changes: Any,
    ) -> Segment:
        """A segment action with a new number; ``rows`` and ``sequences`` (of the first row) by partition."""
        number = changes.pop("segment", None)
        number = self.number() if number is None else number
        fields: dict[str, Any] = {
            "segment": number,
            "topic": topic,
            "file": f"{number:032x}.parquet",
            "rows": sum(rows.values()),
            "size_bytes": 1_000,
            "checksum": "crc32:00000000",
            "slices": tuple(SliceRows(p, n, (sequences or {}).get(p)) for p, n in sorted(rows.items())),
            "txn": txn,
        }
        return Segment(**(fields | changes))

    def produce(self, topic: int, rows: Mapping[int, int] | int = 1, **options: Any) -> int:
        """Rows outside a transaction, one atomic entry; returns the TxnID's number."""
        by_partition = {0: rows} if isinstance(rows, int) else rows
        segment = self.segment(topic, by_partition)
        txn = self.number()
        sequences = options.pop("sequences", {})
        shares = tuple(Share(segment.segment, p, n, sequences.get(p)) for p, n in sorted(by_partition.items()))
        self.entry(segment, Commit(txn, shares=shares, **options))
        return txn

    # --- looking ----------------------------------------------------------------------------------------------------

    def ends(self, topic: int) -> dict[int, int]:
        """The end of every partition of a topic."""
        record = self.state.topics[topic]
        return {partition: self.state.ends.get((topic, partition), 0) for partition in range(record.partitions)}

    def cursor(self, subscription: int, partition: int = 0) -> Cursor:
        """One partition's cursor."""
        return self.state.cursors[subscription, partition]

    def epoch(self, subscription: int) -> int:
        """The subscription's epoch."""
        return self.state.subscriptions[subscription].epoch

    def outcome(self, txn: int) -> Outcome:
        """How a transaction ended."""
        return self.state.outcomes[txn]

    def transaction(self, txn: int) -> TransactionRecord:
        """A transaction that has not ended."""
        return self.state.transactions[txn]

    def offsets(self, txn: int) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """The offsets that a commit gave, by topic and partition."""
        result: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for item in self.outcome(txn).offsets or ():
            result.setdefault((item.topic, item.partition), []).append((item.start, item.end))
        return result


def ranges_of(ranges: Mapping[int, Iterable[tuple[int, int]]]) -> tuple[PartitionRanges, ...]:
    """Ranges by partition, as the log writes them."""
    return tuple(PartitionRanges(partition, tuple(found)) for partition, found in sorted(ranges.items()))


def individually(
    subscription: int, ranges: Mapping[int, Iterable[tuple[int, int]]], *, epoch: int | None = None
) -> Acknowledgement:
    """Messages acknowledged one by one; the epoch is the first one unless told."""
    return Acknowledgement(subscription, subscription if epoch is None else epoch, ranges_of(ranges))


def cumulatively(subscription: int, ends: Mapping[int, int], *, epoch: int | None = None) -> Acknowledgement:
    """Everything below an offset acknowledged; the epoch is the first one unless told."""
    return Acknowledgement(
        subscription, subscription if epoch is None else epoch, cumulative=tuple(sorted(ends.items()))
    )
