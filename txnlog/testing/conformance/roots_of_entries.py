"""Golden roots with forged entries: those that no reader may take, and those that look unusual and are fine."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import pyarrow as pa

from txnlog.data.segment_file import encode
from txnlog.format.actions import Begin, Reserve
from txnlog.format.keys import entry_key, segment_key
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


def topic(kind: Any, *columns: str) -> str:
    """A line that creates a topic whose columns are all of a type."""
    fields = [{"name": name, "type": kind} for name in columns or ("x",)]
    return line("topic", name="new", partitions=1, schema={"type": "struct", "fields": fields})


def _nested(depth: int) -> Any:
    """A type of so many lists in each other."""
    kind: Any = "long"
    for _ in range(depth):
        kind = {"type": "array", "elementType": kind}
    return kind


def subscription(kind: str, *start: int, **fields: Any) -> str:
    """A line that creates a subscription of ``orders``."""
    return line("subscription", topic=1, name="billing", type=kind, start=start, lease_ms=30_000, **fields)


def _consumers(shop: Workshop, kind: str) -> None:
    """A subscription, and two consumers of it that one entry opens."""
    number = shop.forge(subscription(kind, 2, 0))
    shop.forge(*(line("consumer", subscription=number, name=name) for name in ("a", "b")))


def _produced(shop: Workshop, *, again: bool) -> None:
    """A transaction of a producer, of which the commit may name the producer, too."""
    owner = {"producer": "loader", "epoch": shop.newest()[0] + 1}
    shop.forge(
        line("producer", name="loader"), line("begin", txn=OTHER, **owner), commit(OTHER, **(owner if again else {}))
    )


def _without_deleted(shop: Workshop) -> None:
    """A ``replace`` of rows of which the first is deleted by the others."""
    shop.forge(line("delete_records", topic=1, before=[[0, 1]]))
    _replaced(shop, 1, rows=1)


def _replaced_twice(shop: Workshop) -> None:
    """What was left out, because it was deleted, comes in again with the next ``replace``."""
    _without_deleted(shop)
    number, txn = NUMBER + 2, NUMBER + 3
    path = shop.home / segment_key("orders", number, file_of(2, "compacted"))
    path.parent.mkdir(parents=True)
    path.write_bytes(_file(2, "compacted")[0])
    shop.forge(
        line("begin", txn=txn),
        segment(2, "compacted", segment=number, txn=txn, compacted=True),
        line("replace", topic=1, txn=txn, removed=[NUMBER], offsets=[0]),
    )


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
    "unknown_action_in_front_of_a_bad_line": forged(line("merge"), line("abort", txn=-1)),
    "bad_line_in_front_of_an_unknown_action": forged(line("abort", txn=-1), line("merge")),
    "refused_action_in_front_of_an_unknown_one": forged(line("abort", txn=10_000), line("merge")),
    "unknown_field_behind_a_later_reader_version": forged(
        line("protocol", reader_version=2, writer_version=2), line("drop_topic", topic=1, cascade=True)
    ),
    "unknown_action_in_another_version": forged(line("merge"), version=7_000),
    "unknown_action_and_more": forged(line("merge") + "{}"),
    "action_without_a_name": forged(line("")),
    "line_of_white_space": forged(" "),
    "byte_order_mark": forged(f"\ufeff{line('abort', txn=NUMBER)}"),
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
    "statistics_of_two": forged(segment(statistics={"id": [1, 2]}), *BOTH),
    "statistics_with_a_list": forged(segment(statistics={"id": [[1], 2, 0]}), *BOTH),
    "statistics_beyond_a_float": forged(segment(statistics={"id": [1.5, 2, 0]}).replace("1.5", "1e400"), *BOTH),
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
    "topic_of_33_levels": forged(topic(_nested(32))),
    "column_with_a_blank": forged(topic("long", "a b")),
    "column_of_256_characters": forged(topic("long", "x" * 256)),
    "columns_that_are_equal_but_for_case": forged(topic("long", "Stra\u00dfe", "STRASSE")),
    "subscription_behind_the_end": forged(subscription("shared", 3, 1)),
    "two_consumers_of_an_exclusive_subscription": lambda shop: _consumers(shop, "exclusive"),
    "commit_that_names_its_application_again": forged(
        line("begin", txn=OTHER, app_id="a", app_version=1), commit(OTHER, app_id="a", app_version=1)
    ),
    "commit_that_names_its_producer_again": lambda shop: _produced(shop, again=True),
    "commit_that_names_a_topic_as_dropped": forged(commit(FIRST, dropped_topics=[1])),
    "commit_that_names_a_topic_that_never_was": forged(commit(FIRST, dropped_topics=[3])),
    "commit_that_names_a_subscription_of_the_future": forged(commit(FIRST, dropped_subscriptions=[1_000])),
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
    "replace_that_brings_deleted_offsets_back": _replaced_twice,
    "replace_behind_the_end": lambda shop: _replaced(shop, 2, rows=2),
    "newest_is_cut": lambda shop: changed(shop, None, lambda data: data[:-1]),
    "newest_has_a_flipped_bit": lambda shop: changed(shop, None, lambda data: data[:-3] + b"]" + data[-2:]),
    "newest_is_empty": lambda shop: changed(shop, None, lambda _: b""),
    "newest_is_no_utf8": lambda shop: changed(shop, None, lambda data: data.replace(b'"begin"', b'"beg\xffn"')),
    "older_has_a_flipped_bit": lambda shop: changed(shop, 4, lambda data: data.replace(b'"rows":', b'"rowt":')),
    "older_is_another": lambda shop: changed(shop, 4, lambda data: data.replace(b'"size_bytes":', b'"size_bytes":1')),
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
    shop.forge(
        line("begin", txn=OTHER),
        segment(rows, "compacted", txn=OTHER, compacted=True),
        line("replace", topic=1, txn=OTHER, removed=[first_segment(shop)], offsets=[first]),
    )


def first_segment(shop: Workshop) -> int:
    """The number of the first visible segment, two rows of partition 0."""
    second_line = (shop.home / entry_key(4)).read_text(encoding="utf-8").splitlines()[1]
    number: int = json.loads(second_line)["segment"]
    return number


def changed(shop: Workshop, version: int | None, change: Callable[[bytes], bytes]) -> None:
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
    "white_space_and_carriage_returns": lambda shop: changed(
        shop, None, lambda data: b"\t" + data.replace(b"\n", b" \r\n")
    ),
    "statistics_of_other_types": forged(
        segment(statistics={"id": ["a", True, None], "name": [1.5, None, 0], "more": [None, 2, 9]}), *BOTH
    ),
    "topic_of_32_levels": forged(topic(_nested(31))),
    "columns_of_unusual_names": forged(topic("long", "a\u00a0b", "\u0085", "\U0001f600" * 255, "a.b", "a/b")),
    "subscription_at_the_end": lambda shop: (
        shop.forge(line("delete_records", topic=1, before=[[0, 1]])),
        shop.forge(subscription("shared", 2, 0), line("seek", subscription=shop.newest()[0] + 1, positions=[[0, 0]])),
    ),
    "two_consumers_of_a_shared_subscription": lambda shop: _consumers(shop, "shared"),
    "producer_in_the_entry_of_its_transaction": lambda shop: _produced(shop, again=False),
    "commit_that_names_what_was_dropped": forged(commit(FIRST, dropped_topics=[2], dropped_subscriptions=[1])),
    "replace_without_deleted_rows": _without_deleted,
    "escapes_in_texts": forged('{"action":"abort","txn":1100,"why":"\\u0041\\ud83d\\ude00\\n","by":"\\/"}'),
}
"""Entries that look unusual and are fine."""


__all__ = [
    "ACCEPTED",
    "FILES",
    "FIRST",
    "NUMBER",
    "OTHER",
    "REFUSED",
    "Change",
    "base",
    "changed",
    "commit",
    "file_of",
    "first_segment",
    "forged",
    "line",
    "segment",
    "subscription",
    "topic",
]
