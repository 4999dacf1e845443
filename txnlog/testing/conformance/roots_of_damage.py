"""Golden roots that are damaged: entries that no reader may take, segments whose bytes are others, lost checkpoints.

Of entries and checkpoints each is a namespace of its own, a copy of a small one: what a reader takes shows as rows.
"""

from __future__ import annotations

import io
import json
import shutil
import struct
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from txnlog.actions import Begin, Commit, DeleteRecords, Reserve, SliceRows
from txnlog.keys import entry_key, manifest_key, part_key, segment_key
from txnlog.segment_file import encode
from txnlog.testing.conformance.workshop import PARTITION, SCHEMA, Workshop, compact_json, table_of

Change = Callable[[Workshop], object]


def base(shop: Workshop) -> None:
    """A topic ``orders`` (1) with three rows, one (2) that was dropped, and an open transaction."""
    with shop.open() as ns:
        ns.create_topic("orders", SCHEMA, partitions=2)
        ns.create_topic("gone", SCHEMA)
        shop.tick()
        ns.drop_topic("gone")
        shop.produce(ns, "orders", 2)
        shop.produce(ns, "orders", 0, 1)
        block = Reserve("0" * 32, FIRST, 256)
        for rows, stored in FILES:
            path = shop.home / segment_key("orders", NUMBER, file_of(rows, stored))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_file(rows, stored)[0])
        pending = shop.lay(ns, "orders", FIRST + 1, table_of(shop.rows(1)), {0: 1}, FIRST)
        shop.append(ns, block, Begin(FIRST), pending)


FIRST: Final = 1024
NUMBER: Final = 1100
OTHER: Final = 1101
"""The first number of the block from which forged lines take theirs; it and the next are an open transaction's.

The others are those of a forged segment and of its transaction.
"""


def line(action: str, **fields: Any) -> str:
    """A line of an entry."""
    return compact_json({"action": action} | fields)


@cache
def _file(rows: int, stored: str) -> tuple[bytes, str]:
    """A file of ``orders`` and its checksum: one row for each partition, shared; or rows of partition 0 alone.

    It is there and whole, so that only the line is wrong: a reader that takes the line finds rows.
    """
    found = [{"id": 900 + place, "name": "forged"} for place in range(rows)]
    table = table_of(found)
    if stored == "shared":
        table = table.append_column(pa.field("_txn", pa.int64(), nullable=False), pa.array([OTHER] * rows, pa.int64()))
        table = table.append_column(PARTITION, pa.array(range(rows), pa.int32()))
    elif stored == "compacted":
        for name, kind in (("_txn", pa.int64()), ("_version", pa.int64()), ("_timestamp", pa.timestamp("us", "UTC"))):
            table = table.append_column(pa.field(name, kind, nullable=False), pa.array([4] * rows, kind))
    data = encode(table)
    return data.data, data.checksum


def file_of(rows: int, stored: str) -> str:
    """The name of that file."""
    return f"{int.from_bytes(stored.encode()[:8], 'big') * 16 + rows:032x}.parquet"


FILES: Final = ((1, "shared"), (2, "shared"), (1, "own"), (1, "compacted"), (2, "compacted"))


def segment(rows: int = 2, stored: str = "shared", **changes: Any) -> str:
    """A line that names one of the files: of two rows, one in each partition, shared; or of other rows."""
    data, checksum = _file(rows, stored)
    fields = {"segment": NUMBER, "topic": 1, "file": file_of(rows, stored), "rows": rows, "size_bytes": len(data)}
    slices = [[0, 1, None], [1, 1, None]] if (rows, stored) == (2, "shared") else [[0, rows]]
    return line("segment", **(fields | {"checksum": checksum, "slices": slices} | changes))


def commit(txn: int, *shares: list[Any], **fields: Any) -> str:
    """A line that commits."""
    return line("commit", txn=txn, **({"shares": list(shares)} if shares else {}), **fields)


def forged(*lines: str, **header: Any) -> Change:
    """The next entry has these lines."""
    return lambda shop: shop.forge(*lines, **header)


BOTH: Final = (commit(OTHER, [NUMBER, 0, 1], [NUMBER, 1, 1]),)

REFUSED: Final[dict[str, Change]] = {
    "unknown_action": forged(line("merge", topic=1)),
    "unknown_reader_feature": forged(line("protocol", reader_version=1, writer_version=1, reader_features=["deletes"])),
    "later_reader_version": forged(line("protocol", reader_version=2, writer_version=2)),
    "unknown_field": forged(line("drop_topic", topic=1, cascade=True)),
    "missing_field": forged(line("delete_records", topic=1)),
    "fraction": forged('{"action":"delete_records","topic":1,"before":[[0,1.0]]}'),
    "exponent": forged('{"action":"delete_records","topic":1,"before":[[0,1e0]]}'),
    "boolean_for_integer": forged('{"action":"delete_records","topic":1,"before":[[0,true]]}'),
    "negative": forged(line("vacuum", oldest_readable=-1)),
    "null_for_integer": forged(line("drop_topic", topic=None)),
    "above_63_bits": forged(line("abort", txn=2**63)),
    "text_for_integer": forged(line("drop_topic", topic="1")),
    "schema_without_type": forged(line("topic", name="new", partitions=1, schema={"fields": []})),
    "second_header": forged(line("header", version=9, writer="w", timestamp_ms=1)),
    "empty_line": forged(""),
    "two_objects": forged(line("abort", txn=NUMBER) * 2),
    "no_object": forged('["abort",1100]'),
    "other_previous": forged(previous="0" * 32),
    "other_version": forged(version=7_000),
    "back_in_time": forged(timestamp_ms=1_767_225_600_000),
    "checkpoint_of_the_future": forged(checkpoint=1_000),
    "unknown_header_field": forged(more=1),
    "namespace_again": forged(line("namespace", name="sales", coordinator=0)),
    "number_used_before": forged(line("begin", txn=FIRST)),
    "number_of_a_segment": forged(line("abort", txn=FIRST + 1)),
    "number_never_reserved": forged(line("abort", txn=10_000)),
    "segment_of_no_transaction": forged(segment(1, "own", txn=OTHER)),
    "shares_too_few": forged(segment(), commit(OTHER, [NUMBER, 0, 1])),
    "shares_too_many": forged(segment(), commit(OTHER, [NUMBER, 0, 2], [NUMBER, 1, 1])),
    "shares_of_no_rows": forged(segment(), *BOTH, commit(OTHER + 1, [NUMBER, 0, 0])),
    "share_of_another_partition": forged(segment(1), commit(OTHER, [NUMBER, 1, 1])),
    "share_of_an_older_segment": forged(commit(OTHER, [1, 0, 1])),
    "share_before_pending_rows": forged(segment(), commit(FIRST, [NUMBER, 0, 1], [NUMBER, 1, 1])),
    "slices_descending": forged(segment(slices=[[1, 1], [0, 1]]), *BOTH),
    "slices_twice": forged(segment(slices=[[0, 1], [0, 1]]), commit(OTHER, [NUMBER, 0, 2])),
    "slices_do_not_add_up": forged(segment(rows=3), *BOTH),
    "slice_without_rows": forged(segment(slices=[[0, 2], [1, 0]]), commit(OTHER, [NUMBER, 0, 2])),
    "slice_of_no_partition": forged(segment(slices=[[0, 1], [2, 1]]), commit(OTHER, [NUMBER, 0, 1], [NUMBER, 2, 1])),
    "file_elsewhere": lambda shop: _named(shop, f"../../../{file_of(2, 'shared')}"),
    "file_in_capitals": lambda shop: _named(shop, f"{'A' * 32}.parquet"),
    "checksum_of_another_kind": forged(segment(checksum="md5:00000000"), *BOTH),
    "size_of_nothing": forged(segment(size_bytes=0), *BOTH),
    "compacted_and_shared": forged(segment(1, "compacted", compacted=True), commit(OTHER, [NUMBER, 0, 1])),
    "compacted_and_committed": forged(
        line("begin", txn=OTHER), segment(1, "compacted", compacted=True, txn=OTHER), commit(OTHER)
    ),
    "segment_of_a_dropped_topic": forged(segment(1, topic=2), commit(OTHER, [NUMBER, 0, 1])),
    "topic_dropped_twice": forged(line("drop_topic", topic=2)),
    "topic_that_exists": forged(
        line("topic", name="ORDERS", partitions=1, schema={"type": "struct", "fields": [{"name": "x", "type": "long"}]})
    ),
    "topic_of_a_forbidden_name": forged(
        line("topic", name="a/b", partitions=1, schema={"type": "struct", "fields": [{"name": "x", "type": "long"}]})
    ),
    "topic_with_a_reserved_column": forged(
        line("topic", name="b", partitions=1, schema={"type": "struct", "fields": [{"name": "_x", "type": "long"}]})
    ),
    "earliest_offset_behind_the_end": forged(line("delete_records", topic=1, before=[[0, 4]])),
    "earliest_offset_back": lambda shop: (
        shop.forge(line("delete_records", topic=1, before=[[0, 2]])),
        shop.forge(line("delete_records", topic=1, before=[[0, 1]])),
    ),
    "vacuum_of_the_future": forged(line("vacuum", oldest_readable=1_000)),
    "vacuum_back": lambda shop: (
        shop.forge(line("vacuum", oldest_readable=3)),
        shop.forge(line("vacuum", oldest_readable=2)),
    ),
    "ended_twice": lambda shop: (shop.forge(line("abort", txn=FIRST)), shop.forge(commit(FIRST))),
    "prepared_and_timed_out": forged(line("prepare", txn=FIRST, digest=""), line("abort", txn=FIRST, reason="timeout")),
    "prepared_and_more": forged(line("prepare", txn=FIRST, digest=""), segment(1, "own", txn=FIRST)),
    "replace_of_a_pending_segment": forged(line("replace", topic=1, txn=FIRST, removed=[FIRST + 1], offsets=[0])),
    "replace_with_fewer_offsets": lambda shop: _replaced(shop, 0, rows=1),
    "replace_with_other_offsets": lambda shop: _replaced(shop, 1, rows=2),
    "replace_behind_the_end": lambda shop: _replaced(shop, 2, rows=2),
    "newest_is_cut": lambda shop: _changed(shop, None, lambda data: data[:-1]),
    "newest_has_a_flipped_bit": lambda shop: _changed(shop, None, lambda data: data[:-3] + b"]" + data[-2:]),
    "newest_is_empty": lambda shop: _changed(shop, None, lambda _: b""),
    "newest_is_no_utf8": lambda shop: _changed(shop, None, lambda data: data.replace(b'"begin"', b'"beg\xffn"')),
    "older_has_a_flipped_bit": lambda shop: _changed(shop, 4, lambda data: data.replace(b'"rows":', b'"rowt":')),
    "older_is_another": lambda shop: _changed(shop, 4, lambda data: data.replace(b'"size_bytes":', b'"size_bytes":1')),
    "older_is_missing": lambda shop: (shop.home / entry_key(3)).unlink(),
    "one_before_the_newest_is_missing": lambda shop: (shop.home / entry_key(shop.newest()[0] - 1)).unlink(),
}
"""Of each variant what is done to the root; a reader that takes it answers with rows."""


def _named(shop: Workshop, name: str) -> None:
    """A segment whose file is there, under a name that none may have."""
    path = shop.home / segment_key("orders", NUMBER, name)
    path.write_bytes(_file(2, "shared")[0])
    shop.forge(segment(file=name), *BOTH)


def _replaced(shop: Workshop, first: int, rows: int) -> None:
    """A ``replace`` of the first visible segment, two rows of partition 0 from offset 0 on, by others."""
    removed = json.loads(_lines_of(shop, 4)[1])["segment"]
    shop.forge(
        line("begin", txn=OTHER),
        segment(rows, "compacted", txn=OTHER, compacted=True),
        line("replace", topic=1, txn=OTHER, removed=[removed], offsets=[first]),
    )


def _lines_of(shop: Workshop, version: int) -> list[str]:
    return (shop.home / entry_key(version)).read_text(encoding="utf-8").splitlines()


def _changed(shop: Workshop, version: int | None, change: Callable[[bytes], bytes]) -> None:
    """An entry, or the newest one, with other bytes."""
    path = shop.home / entry_key(shop.newest()[0] if version is None else version)
    data = path.read_bytes()
    changed = change(data)
    assert changed != data, "the entry is as it was expected"
    path.write_bytes(changed)


ACCEPTED: Final[dict[str, Change]] = {
    "no_actions": forged(),
    "defaults_are_written": forged(
        line("begin", txn=NUMBER, timeout_ms=None, producer=None, epoch=None, app_id=None, app_version=None),
        line("abort", txn=NUMBER, reason="user", by=None, why=None),
        line("vacuum", oldest_readable=0),
    ),
    "fields_in_another_order": forged('{ "txn" : 1100 , "reason":"admin", "action" : "abort" }'),
    "unknown_writer_feature": forged(line("protocol", reader_version=1, writer_version=1, writer_features=["deletes"])),
    "later_writer_version": forged(line("protocol", reader_version=1, writer_version=7)),
    "escapes_in_texts": forged('{"action":"abort","txn":1100,"why":"\\u0041\\ud83d\\ude00\\n","by":"\\/"}'),
}
"""Entries that look unusual and are fine."""


# --- segments ---------------------------------------------------------------------------------------------------------


def segments(shop: Workshop) -> str:
    """A topic for each way in which the file of a segment can be another than the log says, and some that are fine."""
    with shop.open() as ns:
        numbers = iter(ns._connection.reserve_block(128))

        def add(name: str, data: bytes | None = None, **changes: Any) -> Path:
            """A topic of this name with one committed segment of two rows; its file."""
            ns.create_topic(name, SCHEMA, partitions=2)
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
    return segments.__doc__ or ""


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


__all__ = ["ACCEPTED", "LOST", "REFUSED", "base", "checkpointed", "segments", "variant"]
