"""Bytes of a checkpoint and back: a manifest, one Parquet part of hot state, and runs of cold rows. Pure.

Hot state (topics, cursors, open transactions, producers ...) is one part of ``(table, row)`` pairs, rows as JSON.
Cold rows (outcomes, segments, removals, sequenced batches) are columnar runs: a checkpoint adds the rows that ended
since the one before, and its manifest names all runs, so old rows are never written again until runs are merged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from txnlog.common.format_limits import FORMAT_VERSION, MAX_NUMBER
from txnlog.common.names import parse_label
from txnlog.common.signal_errors import raise_of_handler
from txnlog.errors import CorruptionError, InvalidInputError, UnsupportedFeature
from txnlog.fold.state import (
    AppRecord,
    Batch,
    Block,
    Cursor,
    Head,
    NamespaceRecord,
    Outcome,
    ProducerRecord,
    SegmentRecord,
    SegmentSlice,
    Sequences,
    State,
    Statistics,
    StreamRecord,
    SubscriptionRecord,
    TopicRecord,
    TransactionRecord,
)
from txnlog.format.actions import Verdict
from txnlog.format.codec import digest_of
from txnlog.format.keys import FILE_NAME, UNIQUE

PartKind = Literal["hot", "outcomes", "segments", "removals", "batches"]
COLD_KINDS: Final[tuple[PartKind, ...]] = ("outcomes", "segments", "removals", "batches")

Key2 = tuple[int, int]
_HOT: Final[dict[str, Any]] = {
    "heads": tuple[str, Head],
    "topics": tuple[int, TopicRecord],
    "topic_names": tuple[str, int],
    "ends": tuple[Key2, int],
    "starts": tuple[Key2, int],
    "subscriptions": tuple[int, SubscriptionRecord],
    "subscription_names": tuple[tuple[int, str], int],
    "cursors": tuple[Key2, Cursor],
    "blocks": tuple[int, Block],
    "used": tuple[int, str],
    "producers": tuple[str, ProducerRecord],
    "sequences": tuple[tuple[str, int, int], Sequences],
    "transactions": tuple[int, TransactionRecord],
    "apps": tuple[str, AppRecord],
    "streams": tuple[str, StreamRecord],
    "segments": tuple[int, SegmentRecord],
    "namespaces": tuple[int, NamespaceRecord],
    "namespace_names": tuple[str, int],
    "verdicts": tuple[tuple[str, str], Verdict],
}
"""Key and value of every hot table. ``used`` holds bitmaps wider than JSON's numbers, so as hexadecimal text;
``segments`` only the pending ones."""

_decoders: Final = {name: msgspec.json.Decoder(kind) for name, kind in _HOT.items()}
_encode: Final = msgspec.json.Encoder().encode
_HOT_SCHEMA: Final = pa.schema([pa.field("table", pa.string(), False), pa.field("row", pa.binary(), False)])
_SLICE: Final = pa.struct(
    [
        pa.field("partition", pa.int32(), False),
        pa.field("rows", pa.int64(), False),
        pa.field("offset", pa.int64()),
        pa.field("sequence", pa.int64()),
    ]
)
_NUMBERS: Final = pa.list_(pa.field("element", pa.int64(), False))
_COLD_SCHEMAS: Final[dict[str, pa.Schema]] = {
    "outcomes": pa.schema(
        [
            pa.field("number", pa.int64(), False),
            pa.field("version", pa.int64(), False),
            pa.field("timestamp_ms", pa.int64(), False),
            pa.field("committed", pa.bool_(), False),
            pa.field("reason", pa.string(), False),
            pa.field("digest", pa.string()),
            pa.field("dropped_topics", _NUMBERS),
            pa.field("dropped_subscriptions", _NUMBERS),
        ]
    ),
    "segments": pa.schema(
        [
            pa.field("number", pa.int64(), False),
            pa.field("topic", pa.int64(), False),
            pa.field("file", pa.string(), False),
            pa.field("rows", pa.int64(), False),
            pa.field("size_bytes", pa.int64(), False),
            pa.field("checksum", pa.string(), False),
            pa.field("slices", pa.list_(pa.field("element", _SLICE, False)), False),
            pa.field("state", pa.string(), False),
            pa.field("logged_version", pa.int64(), False),
            pa.field("txn", pa.int64()),
            pa.field("ended_version", pa.int64()),
            pa.field("timestamp_ms", pa.int64()),
            pa.field("compacted", pa.bool_(), False),
            pa.field("statistics", pa.string(), False),
            pa.field("extent", pa.int64()),
        ]
    ),
    "removals": pa.schema([pa.field("number", pa.int64(), False), pa.field("version", pa.int64(), False)]),
    "batches": pa.schema(
        [
            pa.field("producer", pa.string(), False),
            *(pa.field(n, pa.int64(), False) for n in ("topic", "partition", "sequence", "rows", "offset")),
            pa.field("version", pa.int64(), False),
            pa.field("txn", pa.int64(), False),
        ]
    ),
}

_OPTIONAL: Final[Mapping[str, str]] = {"segments": "extent"}
"""By kind the column that a part has only where it says something: who does not know it can read all other parts."""

_SORTED_BY: Final[dict[PartKind, tuple[str, ...]]] = {
    "outcomes": ("number",),
    "segments": ("topic", "number"),
    "removals": ("number",),
    "batches": ("producer", "topic", "partition", "sequence"),
}
"""So that a look-up touches few row groups."""


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """One Parquet object of a checkpoint: its unique name, digest, size; for cold runs the versions it covers."""

    kind: PartKind
    unique: str
    digest: str
    size_bytes: int
    rows: int
    first_version: int
    last_version: int
    timestamp_ms: int


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """What a checkpoint is: the state at ``version``, whose entry has ``digest``. Created last, never overwritten."""

    format: int
    version: int
    digest: str
    timestamp_ms: int
    parts: tuple[Part, ...]

    def runs(self, kind: PartKind) -> tuple[Part, ...]:
        """The parts of one kind, oldest first."""
        return tuple(part for part in self.parts if part.kind == kind)


_manifest_decoder = msgspec.json.Decoder(Manifest)
_SMALL_PART_BYTES: Final = 1 << 20


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of a manifest."""
    return msgspec.json.format(_encode(manifest), indent=1) + b"\n"


def decode_manifest(data: bytes, version: int) -> Manifest:
    """The manifest at a version. Raises CorruptionError, or UnsupportedFeature for a later format."""
    try:
        manifest = _manifest_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptionError(f"the checkpoint manifest {version} is damaged: {ascii(str(error))[:200]}") from None
    if manifest.format > FORMAT_VERSION:
        raise UnsupportedFeature(f"the checkpoint {version} has format {manifest.format}", advice="use a newer txnlog")
    if manifest.version != version or len(manifest.runs("hot")) != 1:
        raise CorruptionError(f"the checkpoint manifest {version} contradicts itself")
    if not all(UNIQUE.fullmatch(part.unique) for part in manifest.parts):
        raise CorruptionError(f"the checkpoint manifest {version} names a part by something else than 32 digits")
    return manifest


def _to_parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True, store_schema=False)
    return sink.getvalue().to_pybytes()


def check_part(data: bytes, part: Part) -> None:
    """Raise CorruptionError unless the bytes of a part are exactly those that the manifest names."""
    if len(data) != part.size_bytes or digest_of(data) != part.digest:
        raise CorruptionError(f"the checkpoint part {part.unique} ({part.kind}) is not what its manifest names")


def read_part(data: bytes, part: Part) -> pa.Table:
    """The rows of a part. Raises CorruptionError unless the bytes are exactly those that the manifest names."""
    check_part(data, part)
    schema = _HOT_SCHEMA if part.kind == "hot" else _COLD_SCHEMAS[part.kind]
    try:
        # Not pq.read_table, whose way over a dataset costs half a millisecond; threads pay for big parts only.
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        table = file.read(use_threads=len(data) > _SMALL_PART_BYTES)
        optional = _OPTIONAL.get(part.kind)
        if optional is not None and table.column_names == schema.names[:-1]:
            table = table.append_column(optional, pa.nulls(table.num_rows, schema.field(optional).type))
        if table.num_rows == part.rows and table.column_names == schema.names:
            return table.cast(schema)
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError) as error:
        raise_of_handler(error)
        # A digest says who wrote it, not that it is a part.
        said = ascii(str(error))[1:-1][:200]
        raise CorruptionError(f"the checkpoint part {part.unique} ({part.kind}) does not decode: {said}") from None
    raise CorruptionError(f"the checkpoint part {part.unique} ({part.kind}) has other rows than its manifest names")


def encode_part(
    kind: PartKind, table: pa.Table, unique: str, span: tuple[int, int], timestamp_ms: int
) -> tuple[Part, bytes]:
    """A part: for a cold run rows that ended in the versions ``span`` (inclusive), the last of them at a time."""
    optional = _OPTIONAL.get(kind)
    if optional is not None and table.column(optional).null_count == table.num_rows:
        table = table.drop_columns(optional)
    data = _to_parquet(table)
    part = Part(kind, unique, digest_of(data), len(data), table.num_rows, span[0], span[1], timestamp_ms)
    return part, data


# --- hot ------------------------------------------------------------------------------------------------------------


def encode_hot(state: State, unique: str) -> tuple[Part, bytes]:
    """The part that holds the hot tables of a state."""
    tables: list[str] = []
    rows: list[bytes] = []
    for name in _HOT:
        for key, value in sorted(getattr(state, name).items()):
            if name == "segments" and value.state != "pending":
                continue
            tables.append(name)
            rows.append(_encode((key, f"{value:x}" if name == "used" else value)))
    table = pa.table([pa.array(tables, pa.string()), pa.array(rows, pa.binary())], schema=_HOT_SCHEMA)
    head = state.head
    return encode_part("hot", table, unique, (head.version, head.version), head.timestamp_ms)


def decode_hot(table: pa.Table) -> State:
    """The state that a hot part holds; its cold tables are empty."""
    state = State()
    tables = {name: getattr(state, name) for name in _HOT}
    names = table.column("table").to_pylist()
    for name, row in zip(names, table.column("row").to_pylist(), strict=True):
        decoder = _decoders.get(name)
        if decoder is None:
            raise CorruptionError(f"a checkpoint has the unknown table {name[:40]!a}")
        try:
            key, value = decoder.decode(row)
            tables[name][key] = int(value, 16) if name == "used" else value
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise CorruptionError(f"a checkpoint's row of {name} is damaged: {ascii(str(error))[:200]}") from None
    return state


# --- cold -----------------------------------------------------------------------------------------------------------


def cold_rows(state: State) -> dict[PartKind, pa.Table]:
    """The cold rows that a state holds, as sorted tables."""
    rows: dict[PartKind, list[dict[str, Any]]] = {
        "outcomes": [_outcome_row(item) for item in state.outcomes.values()],
        "segments": [_segment_row(item) for item in state.segments.values() if item.state != "pending"],
        "removals": [{"number": number, "version": version} for number, version in state.removals.items()],
        "batches": [msgspec.structs.asdict(batch) for batch in state.batches.values()],
    }
    return {kind: _sorted(kind, pa.Table.from_pylist(found, _COLD_SCHEMAS[kind])) for kind, found in rows.items()}


def _sorted(kind: PartKind, table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in _SORTED_BY[kind]])


def _outcome_row(outcome: Outcome) -> dict[str, Any]:
    return {
        "number": outcome.number,
        "version": outcome.version,
        "timestamp_ms": outcome.timestamp_ms,
        "committed": outcome.state == "COMMITTED",
        "reason": outcome.reason,
        "digest": outcome.digest if outcome.prepared else None,
        "dropped_topics": outcome.dropped_topics or None,
        "dropped_subscriptions": outcome.dropped_subscriptions or None,
    }


def _segment_row(record: SegmentRecord) -> dict[str, Any]:
    row = msgspec.structs.asdict(record)
    row["slices"] = [msgspec.structs.asdict(item) for item in record.slices]
    row["statistics"] = _encode(record.statistics).decode()
    return row


_ENDED: Final = frozenset({"visible", "aborted"})
_statistics_decoder = msgspec.json.Decoder(Statistics)


def segments_of(table: pa.Table, topic: int | None = None, without: Collection[int] = ()) -> list[SegmentRecord]:
    """The segment records of a cold run, of one topic or of all. Raises CorruptionError for what is none.

    ``without``: the numbers of segments that are left out.
    """
    if topic is not None:
        table = table.filter(pc.equal(table.column("topic"), topic))
    if without:
        known = pc.is_in(table.column("number"), value_set=pa.array(list(without), pa.int64()))
        table = table.filter(pc.invert(known))
    return [_segment_of(row) for row in table.to_pylist()]


def _segment_of(row: dict[str, Any]) -> SegmentRecord:
    """One of them. ``read_part`` saw to the types of the columns; what they say is looked at here."""
    try:
        row["slices"] = tuple([SegmentSlice(**item) for item in row["slices"]])
        row["statistics"] = _statistics_decoder.decode(row["statistics"])
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError) as error:
        raise CorruptionError(f"a checkpoint's row of segments is damaged: {ascii(str(error))[:200]}") from None
    record = SegmentRecord(**row)
    if not FILE_NAME.fullmatch(record.file):
        raise CorruptionError(f"a checkpoint gives segment {record.number} the file name {record.file[:60]!a}")
    if (
        record.ended_version is None
        or record.state not in _ENDED
        or sum([item.rows for item in record.slices]) != record.rows
        or (record.state == "visible" and None in [item.offset for item in record.slices])
    ):
        raise CorruptionError(f"a checkpoint's row of segment {record.number} contradicts itself")
    return record


def outcome_in(table: pa.Table, number: int) -> Outcome | None:
    """The outcome of one transaction in a cold run. Raises CorruptionError for what is none.

    Its offsets stand in the entry at its version, and its digest too, unless it was prepared.
    """
    at = pc.index(table.column("number"), number).as_py()
    if at < 0:
        return None
    row = table.slice(at, 1).to_pylist()[0]
    digest, version = row["digest"], row["version"]
    topics, subscriptions = tuple(row["dropped_topics"] or ()), tuple(row["dropped_subscriptions"] or ())
    if any(item is None or not 0 <= item <= version for item in (0, *topics, *subscriptions)):
        raise CorruptionError(f"a checkpoint's row of outcome {number} contradicts itself")
    if not row["committed"] and (digest is not None or topics or subscriptions):
        raise CorruptionError(f"a checkpoint's row of outcome {number} contradicts itself: it was aborted")
    if digest:
        try:
            parse_label("digest", digest)
        except InvalidInputError:
            raise CorruptionError(f"a checkpoint gives outcome {number} the digest {digest[:60]!a}") from None
    return Outcome(
        number,
        "COMMITTED" if row["committed"] else "ABORTED",
        version,
        row["timestamp_ms"],
        row["reason"],
        digest or "",
        prepared=digest is not None,
        dropped_topics=topics,
        dropped_subscriptions=subscriptions,
    )


def removals_in(table: pa.Table) -> dict[int, int]:
    """Which segments a cold run says were replaced, and at which version."""
    numbers, versions = (table.column(name).to_numpy().tolist() for name in ("number", "version"))
    return dict(zip(numbers, versions, strict=True))


def batches_in(table: pa.Table, producer: str, topic: int, partition: int, first: int, last: int) -> list[Batch]:
    """The sequenced batches of a cold run that hold sequences from ``first`` to ``last``."""
    found = table.filter(
        (pc.field("producer") == producer)
        & (pc.field("topic") == topic)
        & (pc.field("partition") == partition)
        & (pc.field("sequence") <= min(last, MAX_NUMBER))
        & (pc.scalar(first) - pc.field("sequence") < pc.field("rows"))  # their sum may be above what 64 bits hold
    )
    return [Batch(**row) for row in found.to_pylist()]


def merge_runs(kind: PartKind, tables: Sequence[pa.Table], *, expired_before_ms: int) -> pa.Table:
    """Several runs as one, sorted again; outcomes that ended before the given time of the log are dropped."""
    table = pa.concat_tables(tables)
    if kind == "outcomes":
        table = table.filter(pc.field("timestamp_ms") >= expired_before_ms)
    return _sorted(kind, table)


def trim(state: State, version: int) -> None:
    """Drop the cold rows that a checkpoint at ``version`` holds. Only memory: what the state means does not change."""
    for number in [n for n, outcome in state.outcomes.items() if outcome.version <= version]:
        del state.outcomes[number]
    ended: Iterable[SegmentRecord] = list(state.segments.values())
    for record in ended:
        if record.ended_version is not None and record.ended_version <= version:
            del state.segments[record.number]
    for number in [n for n, removed in state.removals.items() if removed <= version]:
        del state.removals[number]
    for key in [k for k, batch in state.batches.items() if batch.version <= version]:
        del state.batches[key]


def untrim(state: State, earlier: State) -> None:
    """Put back the cold rows that the state of an earlier version holds, which ``trim`` dropped. May be done twice.

    They are the same rows in every later state: cold rows are never changed or dropped by an entry.
    """
    for name in COLD_KINDS:
        table, rows = getattr(state, name), getattr(earlier, name)
        for key, row in rows.items():
            if name != "segments" or row.state != "pending":
                table.setdefault(key, row)


__all__ = [
    "COLD_KINDS",
    "Manifest",
    "Part",
    "PartKind",
    "batches_in",
    "check_part",
    "cold_rows",
    "decode_hot",
    "decode_manifest",
    "encode_hot",
    "encode_manifest",
    "encode_part",
    "merge_runs",
    "outcome_in",
    "read_part",
    "removals_in",
    "segments_of",
    "trim",
    "untrim",
]
