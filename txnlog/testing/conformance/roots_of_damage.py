"""Golden roots that are damaged: segments whose bytes are others, logs without their first entry, lost checkpoints.

Of entries and checkpoints each is a namespace of its own, a copy of a small one: what a reader takes shows as rows.
"""

from __future__ import annotations

import base64
import io
import json
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from txnlog.api.namespace import Namespace
from txnlog.data.segment_file import encode
from txnlog.format.actions import Begin, Commit, DeleteRecords, Replace, Share, SliceRows
from txnlog.format.keys import manifest_key, part_key, segment_key
from txnlog.testing.conformance.roots_of_entries import FILES, NUMBER, Change, changed, file_of
from txnlog.testing.conformance.workshop import PARTITION, SCHEMA, Workshop, table_of

# --- segments ---------------------------------------------------------------------------------------------------------


def segments(shop: Workshop) -> str:
    """A topic for each way in which the file of a segment can be another than the log says, and some that are fine."""
    with shop.open() as ns:
        numbers = iter(ns._connection.reserve_block(128))

        def add(name: str, data: bytes | None = None, **changes: Any) -> Path:
            """A topic of this name with one committed segment of two rows; its file."""
            ns.create_topic(name, **({"schema": SCHEMA, "partitions": 2} | changes.pop("topic", {})))
            txn, number = next(numbers), next(numbers)
            table = changes.pop("table", None)
            table = table_of(shop.rows(2)) if table is None else table
            partitions = changes.pop("partitions", {0: 2})
            if data is not None:
                record = ns._connection.topic_record(name)
                changes |= {"file": shop.put(record, number, data), "size_bytes": len(data)}
                changes |= {"checksum": changes.get("checksum", f"crc32:{zlib.crc32(data):08x}")}
            action = shop.lay(ns, name, number, table, partitions, txn, **changes)
            shop.append(ns, Begin(txn), action, Commit(txn))
            folder = ns._connection.topic_record(name).folder
            shop.ask(name)
            return shop.home / segment_key(folder, number, action.file)

        def damage(name: str, change: Callable[[bytes], bytes]) -> None:
            path = add(name)
            path.write_bytes(change(path.read_bytes()))

        add("whole")
        damage("flipped", lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:])
        damage("cut", lambda data: data[:-1])
        damage("longer", lambda data: data + b"\0")
        damage("empty", lambda _: b"")
        add("missing").unlink()
        add("no_parquet", b"PAR1" * 8)
        add("more_rows", table=table_of(shop.rows(3)), rows=2, slices=(SliceRows(0, 2),))
        add("fewer_rows", table=table_of(shop.rows(1)), rows=2, slices=(SliceRows(0, 2),))
        two = table_of(shop.rows(2))
        wrong = two.append_column(PARTITION, pa.array([0, 0], pa.int32()))
        add("other_partitions", table=wrong, partitions={0: 1, 1: 1})
        add("two_partitions", table=two, partitions={0: 1, 1: 1}, partition_column=True)
        add("no_partition_column", table=two, partitions={0: 1, 1: 1})
        add("null_where_none_may_be", table=_loose([pa.array([1, None], pa.int64()), pa.array(["a", "b"])]))
        add("required_column_is_missing", table=two.select(["name"]))
        add("optional_column_is_missing", table=two.select(["id"]))
        add("narrower_type", table=_loose([pa.array([1, 2], pa.int8()), pa.array(["a", "b"])]))
        add("other_type", table=_loose([pa.array([1, 2], pa.int64()), pa.array([1, 2], pa.int64())]))
        add("column_too_many", table=two.append_column("more", pa.array([1, 2])))
        data = encode(two).data
        checksum = _footer_checksum(data)
        add("footer_checksum", data, checksum=checksum)
        chunk = pq.read_metadata(io.BytesIO(data)).row_group(0).column(0)
        place = chunk.data_page_offset + chunk.total_compressed_size - 1  # the last byte of the column's only page
        flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        add("footer_checksum_of_a_damaged_page", flipped, checksum=checksum)
        add("other_footer_checksum", data, checksum="footer-crc32:00000000")
        ns.create_topic("pending", SCHEMA)
        shop.produce(ns, "pending", 2)
        txn, number = next(numbers), next(numbers)
        action = shop.lay(ns, "pending", number, table_of(shop.rows(1)), {0: 1}, txn)
        shop.append(ns, Begin(txn), action)
        (shop.home / segment_key("pending", number, action.file)).unlink()
        shop.ask("pending")
        # Of a segment that is deleted as a whole nothing is read.
        path = add("deleted")
        shop.append(ns, DeleteRecords(ns._connection.topic_record("deleted").id, ((0, 2),)))
        path.unlink()
        _pages_and_nulls(shop, ns, numbers, add)
    return segments.__doc__ or ""


def _pages_and_nulls(shop: Workshop, ns: Namespace, numbers: Iterator[int], add: Callable[..., Path]) -> None:
    """Pages without checksums of their own, null in a row that was deleted, a struct with other fields."""
    two = table_of(shop.rows(2))
    bare = io.BytesIO()
    pq.write_table(two, bare, write_page_checksum=False, store_schema=False)
    add("pages_without_checksums", bare.getvalue())
    add("footer_checksum_of_pages_without_any", bare.getvalue(), checksum=_footer_checksum(bare.getvalue()))
    add("deleted_null", table=_loose([pa.array([None, 2], pa.int64()), pa.array(["a", "b"])]))
    shop.append(ns, DeleteRecords(ns._connection.topic_record("deleted_null").id, ((0, 1),)))
    kind = pa.struct([pa.field("y", pa.int64()), pa.field("z", pa.int64()), pa.field("x", pa.int64())])
    table = pa.table({"s": pa.array([{"y": 1, "z": 2, "x": 3}, {"y": 4, "z": 5}], kind)})
    ns.create_topic("nested", pa.schema([pa.field("s", pa.struct([kind.field("x"), kind.field("y")]))]), delta="off")
    txn, number = next(numbers), next(numbers)
    shop.append(ns, Begin(txn), shop.lay(ns, "nested", number, table, {0: 2}, txn), Commit(txn))
    shop.ask("nested")
    _columns(shop, ns, numbers, add)


def _columns(shop: Workshop, ns: Namespace, numbers: Iterator[int], add: Callable[..., Path]) -> None:
    """Columns that are there twice, that nobody asked for, or that are of other types than something says."""
    two = table_of(shop.rows(2))
    ids = two.column("id")
    add("name_twice", _parquet(pa.table([ids, two.column("name"), ids], names=["id", "name", "id"])))
    add("unknown_name_twice", _parquet(pa.table([ids, two.column("name"), ids, ids], names=["id", "name", "x", "x"])))
    add("partition_that_is_not_asked_for", table=two.append_column(PARTITION.name, pa.array(["a", None])))
    partitions = two.append_column(PARTITION.name, pa.array([0, None], pa.int32()))
    add("partition_that_is_null", table=partitions, partitions={0: 1, 1: 1})
    texts = two.append_column(PARTITION.name, pa.array(["0", "1"]))
    add("partition_of_another_type", table=texts, partitions={0: 1, 1: 1})
    other = pa.schema([pa.field("id", pa.int32()), pa.field("name", pa.date32())])
    said = base64.b64encode(other.serialize().to_pybytes())
    add("arrow_schema_of_other_types", _parquet(two, {"ARROW:schema": said}))
    negative = [("_txn", pa.int64()), ("_version", pa.int64()), ("_timestamp", pa.timestamp("us", "UTC"))]
    stored = two
    for name, kind in negative:
        stored = stored.append_column(name, pa.array([-1, -1], kind))
    for name, table in (("merge_without_its_columns", two), ("merge_of_negative_numbers", stored)):
        ns.create_topic(name, SCHEMA)
        txn, number = next(numbers), next(numbers)
        shop.append(ns, Begin(txn), shop.lay(ns, name, number, table, {0: 2}, txn, compacted=True))
        shop.ask(name)
    letters = pa.schema([pa.field("_source_offset", pa.int64(), nullable=False), pa.field("_dead_reason", pa.string())])
    ns.create_topic("dead_letters", letters)
    ns.produce("dead_letters", [{"_source_offset": 7, "_dead_reason": "late"}, {"_source_offset": 9}])
    shop.ask("dead_letters")
    _types(shop, add)
    _stored(shop, ns, numbers, add, stored)


def _types(shop: Workshop, add: Callable[..., Path]) -> None:
    """Types that Arrow would let count, types that do not widen, and fields that are there twice."""
    two = table_of(shop.rows(2))
    for name, kind in (("large_strings", pa.large_string()), ("a_dictionary", pa.dictionary(pa.int8(), pa.string()))):
        other = pa.schema([SCHEMA.field("id"), pa.field("name", kind)])
        said = base64.b64encode(other.serialize().to_pybytes())
        add(f"arrow_schema_of_{name}", _parquet(two, {"ARROW:schema": said}))
    add("arrow_schema_that_is_broken", _parquet(two, {"ARROW:schema": b"%%%"}))
    add("unsigned_integers", table=_loose([pa.array([1, 2], pa.uint32()), pa.array(["a", "b"])]))
    times = {"schema": pa.schema([pa.field("at", pa.timestamp("us", "UTC"))])}
    for name, kind in (("without_utc", pa.timestamp("us")), ("in_milliseconds", pa.timestamp("ms", "UTC"))):
        add(f"timestamps_{name}", table=pa.table({"at": pa.array([1, 2], kind)}), topic=times)
    schema = pa.schema([pa.field("s", pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.int64())]))])
    for name, names in (("field_twice", "xyx"), ("unknown_field_twice", "zxz")):
        arrays = [pa.array([place, None], pa.int64()) for place in range(3)]
        table = pa.table({"s": pa.StructArray.from_arrays(arrays, names=list(names))})
        add(name, _parquet(table), topic={"schema": schema, "delta": "off"})


def _stored(shop: Workshop, ns: Namespace, numbers: Iterator[int], add: Callable[..., Path], merged: pa.Table) -> None:
    """Columns that a file stores besides the topic's, with values and types that they cannot have."""
    two = table_of(shop.rows(2))
    for name, kind, value in (("negative", pa.int64(), -1), ("narrow", pa.int32(), 1)):
        topic = f"shared_of_{name}_numbers"
        ns.create_topic(topic, SCHEMA)
        txn, number = next(numbers), next(numbers)
        table = two.append_column("_txn", pa.array([value, value], kind))
        segment = shop.lay(ns, topic, number, table, {0: 2}, partition_column=True)
        shop.append(ns, segment, Commit(txn, shares=(Share(number, 0, 2),)))
        shop.ask(topic)
    path = add("merged_rows_of_negative_numbers")
    replaced = int(path.parent.name.partition("=")[2])
    record = ns._connection.topic_record("merged_rows_of_negative_numbers")
    txn, number = next(numbers), next(numbers)
    segment = shop.lay(ns, record.name, number, merged, {0: 2}, txn, compacted=True)
    shop.append(ns, Begin(txn), segment, Replace(record.id, txn, (replaced,), (0,)))
    wrong = two.append_column(PARTITION, pa.array([1, 1], pa.int32()))
    add("deleted_row_of_another_partition", table=wrong, partitions={0: 1, 1: 1})
    shop.append(ns, DeleteRecords(ns._connection.topic_record("deleted_row_of_another_partition").id, ((0, 1),)))


def _parquet(table: pa.Table, metadata: Mapping[str, bytes] | None = None) -> bytes:
    """A file of a table, with these key-value metadata; unlike ``encode`` it takes a name twice."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, store_schema=False, write_page_checksum=True) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(dict(metadata or {}))
    return sink.getvalue()


def _loose(columns: list[pa.Array]) -> pa.Table:
    """A file whose columns are not those of the topic."""
    return pa.table(columns, names=SCHEMA.names)


def _footer_checksum(data: bytes) -> str:
    (length,) = struct.unpack("<I", data[-8:-4])
    return f"footer-crc32:{zlib.crc32(data[-8 - length :]):08x}"


# --- checkpoints ------------------------------------------------------------------------------------------------------


def checkpointed(shop: Workshop) -> None:
    """A log with three checkpoints, of which each holds what the rows of the newest version depend on."""
    with shop.open() as ns:
        topic = ns.create_topic("orders", SCHEMA, partitions=2).id
        shop.produce(ns, "orders", 2, 1)
        txn = ns.begin()
        txn.produce("orders", shop.rows(1), 0)
        txn.flush()
        shop.append(ns, DeleteRecords(topic, ((0, 1),)))
        ns.checkpoint()
        shop.produce(ns, "orders", 1, 1)
        txn.abort()
        ns.checkpoint()
        for _ in range(3):
            shop.produce(ns, "orders", 1)
        ns.optimize("orders")
        ns.checkpoint()
        shop.produce(ns, "orders", 1, 1)


def _manifests(shop: Workshop) -> list[Path]:
    return sorted((shop.home / "_log" / "checkpoints").glob("*.json"))


def _part_of(shop: Workshop, kind: str, place: int = -1) -> Path:
    """The newest part of a kind in one of the checkpoints."""
    parts = json.loads(_manifests(shop)[place].read_bytes())["parts"]
    unique = [part["unique"] for part in parts if part["kind"] == kind][-1]
    return shop.home / part_key(unique)


def _flip(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:60] + bytes([data[60] ^ 1]) + data[61:])


def _edit_manifest(shop: Workshop, **changes: Any) -> None:
    path = _manifests(shop)[-1]
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes), encoding="utf-8")


def _of_another_log(shop: Workshop) -> None:
    """The newest manifest is one of a log that went on otherwise: whole, of the same version, and wrong."""
    path = _manifests(shop)[-1]
    version = int(path.stem)
    fork = Workshop(shop.folder / "fork", "fork")
    with fork.open() as ns:
        ns.create_topic("orders", SCHEMA, partitions=2)
        fork.produce(ns, "orders", 3, 3)
        while ns.snapshot().version < version:
            fork.append(ns)
        assert ns.checkpoint() == version
    for name in (manifest_key(version), *(part_key(path.stem) for path in fork.root.rglob("parts/*.parquet"))):
        shutil.copyfile(fork.home / name, shop.home / name)
    shutil.rmtree(fork.folder)


def _lose_two(shop: Workshop) -> None:
    _manifests(shop)[-1].unlink()
    _flip(_part_of(shop, "hot", -2))


def _lose_all(shop: Workshop) -> None:
    for path in _manifests(shop):
        path.unlink()


LOST: Final[dict[str, Change]] = {
    "manifest_is_missing": lambda shop: _manifests(shop)[-1].unlink(),
    "manifest_is_damaged": lambda shop: _flip(_manifests(shop)[-1]),
    "manifest_of_a_later_format": lambda shop: _edit_manifest(shop, format=2),
    "manifest_of_another_version": lambda shop: _edit_manifest(shop, version=3),
    "hot_part_is_missing": lambda shop: _part_of(shop, "hot").unlink(),
    "hot_part_is_damaged": lambda shop: _flip(_part_of(shop, "hot")),
    "segments_are_missing": lambda shop: _part_of(shop, "segments").unlink(),
    "segments_are_those_of_an_older_run": lambda shop: shutil.copyfile(
        _part_of(shop, "segments", -2), _part_of(shop, "segments")
    ),
    "removals_are_damaged": lambda shop: _flip(_part_of(shop, "removals")),
    "two_are_lost": _lose_two,
    "all_are_lost": _lose_all,
    "checkpoint_of_another_log": _of_another_log,
}
"""Of each variant what is done to the checkpoints; the rows are those of the log all the same."""


BEGINNINGS: Final[dict[str, Change]] = {
    "first_is_another": lambda shop: changed(shop, 0, lambda data: data.replace(b'"writer":"', b'"writer":"0')),
    "first_is_cut": lambda shop: changed(shop, 0, lambda data: data[:-2]),
}
"""Of logs with checkpoints, which cover all of it, what is done to entry 0: the root knows a log by it."""


def variant(made: Workshop, shop: Workshop, name: str, change: Change) -> None:
    """A copy of a namespace, under another name, with a change. There is no root log that could miss it."""
    shop.namespace = name
    shutil.copytree(made.home, shop.home)
    change(shop)
    said = shop.newest()[1].decode("utf-8", errors="replace")
    for rows, stored in FILES:  # files of forged lines that this one is not
        path = shop.home / segment_key("orders", NUMBER, file_of(rows, stored))
        if path.name not in said:
            path.unlink(missing_ok=True)


__all__ = ["BEGINNINGS", "LOST", "checkpointed", "segments", "variant"]
