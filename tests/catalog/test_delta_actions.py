"""What a Delta version says, by the fold alone: statistics, and what is read back of a commit."""

from __future__ import annotations

import contextlib
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.delta_log.commit import Identity, TableMetadata, TableVersion, commit_lines
from catalog.delta_log.commit_stamp import DamagedCommitError, claimed_version, same_content, stamp_of
from catalog.delta_log.statistics import statistics_json
from catalog.publication.topic_table import CONFIGURATION
from catalog.publication.topic_versions import TopicHistory, add_action, schema_json
from tests.memory_log import Log
from tests.unit.random_entries import append, entries
from txnlog.common.limits import STATISTICS_COLUMNS
from txnlog.fold.state import SegmentRecord, SegmentSlice
from txnlog.fold.visibility import is_visible
from txnlog.format.schema import ArrayType, StructField, StructType


def record(statistics: dict[str, Any]) -> SegmentRecord:
    slices = (SegmentSlice(0, 3, 0),)
    return SegmentRecord(1, 1, "x.parquet", 3, 10, "", slices, "visible", 1, 2, 1, 1_000, statistics=statistics)


def told(kind: Any, low: Any, high: Any, nulls: int | None = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        statistics_json(record({"x": (low, high, nulls)}), StructType((StructField("x", kind),)))
    )
    assert found.pop("numRecords") == 3
    return {name: values["x"] for name, values in found.items() if values}


@pytest.mark.parametrize(
    ("kind", "low", "high", "wanted"),
    [
        ("long", -(2**63), 2**63 - 1, (-(2**63), 2**63 - 1)),
        ("byte", 1, 2, (1, 2)),
        ("double", -0.5, 1e300, (-0.5, 1e300)),
        ("float", 0.10000000149011612, 2, (0.10000000149011612, 2)),
        ("string", "a", "b" * 31 + "\U0010ffff", ("a", "b" * 31 + "\U0010ffff")),
        ("date", "0001-01-01", "9999-12-31", ("0001-01-01", "9999-12-31")),
        (
            "timestamp",
            "2026-01-01T00:00:00.001999Z",
            "2026-01-01T00:00:00.001001Z",
            ("2026-01-01T00:00:00.001Z", "2026-01-01T00:00:00.002Z"),
        ),
        (
            "timestamp",
            "1969-12-31T23:59:59.999999Z",
            "1969-12-31T23:59:59.999000Z",
            ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
        ),
        (
            "timestamp",
            "9999-12-31T23:59:59.999999Z",
            "9999-12-31T23:59:59.999001Z",
            ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999999Z"),
        ),
        ("decimal(9,2)", "-12.34", "0.10", (-12.34, 0.1)),
        ("decimal(38,10)", "1234567890123450.0", "0.0000000001", (1234567890123450.0, 1e-10)),
        ("decimal(38,0)", "-123456789012345678", "123456789012345678", (-123456789012347000, 123456789012347000)),
        ("decimal(16,0)", "-9999999999999999", "9999999999999999", (None, None)),
        ("boolean", False, True, (False, True)),
        ("boolean", 0, "true", (None, None)),
        ("string", None, None, ("", None)),
        ("long", None, None, (None, None)),
        ("long", True, 1.5, (None, None)),
        ("long", "1", None, (None, None)),
        ("timestamp", "yesterday", 7, (None, None)),
        ("decimal(9,2)", "NaN", "x", (None, None)),
    ],
)
def test_bounds_hold_or_are_left_out(kind: str, low: Any, high: Any, wanted: tuple[Any, Any]) -> None:
    found = told(kind, low, high)
    assert (found.get("minValues"), found.get("maxValues")) == wanted
    assert found["nullCount"] == 0


def test_what_the_log_does_not_know_is_left_out() -> None:
    assert told("long", 1, 2, None) == {}, "bounds without a count of nulls are taken for those of a column without"
    assert told("long", None, None, 3) == {"nullCount": 3}
    assert told(StructType((StructField("a", "long"),)), 1, 2) == {"minValues": {}, "maxValues": {}}
    assert told("binary", None, None) == {"nullCount": 0}
    assert json.loads(statistics_json(record({"gone": (1, 2, 0)}), StructType((StructField("x", "long"),)))) == {
        "numRecords": 3,
        "nullCount": {},
    }


BOUNDED = {"a": (1, 2, 0), "b": (1.5, None, 1), "c": (None, None, 3), "d": ("", "x", 0), "e": (None, None, 1)}


def test_the_bounds_of_a_side_are_stated_of_all_columns_or_of_none() -> None:
    kinds: dict[str, Any] = {"a": "long", "b": "double", "c": "date", "d": "string", "e": "binary"}
    kinds |= {"f": StructType((StructField("x", "long"),)), "g": ArrayType("long")}
    schema = StructType(tuple(StructField(name, kind) for name, kind in kinds.items()))
    found = json.loads(statistics_json(record(BOUNDED), schema))
    assert found == {
        "numRecords": 3,
        "minValues": {"a": 1, "b": 1.5, "d": "", "f": {}},
        "nullCount": {"a": 0, "b": 1, "c": 3, "d": 0, "e": 1},
    }


def test_bounds_are_stated_though_those_of_columns_behind_the_first_ones_are_not_known() -> None:
    columns = [StructField(f"c{number}", "long") for number in range(STATISTICS_COLUMNS + 1)]
    known = {field.name: (1, 2, 0) for field in columns[:-1]}
    found = json.loads(statistics_json(record(known), StructType(tuple(columns))))
    assert found["maxValues"] == dict.fromkeys(known, 2)
    del known["c5"]
    found = json.loads(statistics_json(record(known), StructType(tuple(columns))))
    assert found.keys() == {"numRecords", "nullCount"}


def test_columns_that_came_after_a_file_are_null_in_it() -> None:
    older = StructType((StructField("x", "long"),))
    newer = StructType((*older.fields, StructField("y", "long"), StructField("z", ArrayType("long"))))
    known = record({"x": (1, 2, 0)})
    assert json.loads(statistics_json(known, newer, older)) == {
        "numRecords": 3,
        "minValues": {"x": 1},
        "maxValues": {"x": 2},
        "nullCount": {"x": 0, "y": 3},
    }
    assert json.loads(statistics_json(known, newer)) == {"numRecords": 3, "nullCount": {"x": 0}}, "it may have them"


@pytest.mark.parametrize(
    ("kind", "text", "wanted"),
    [
        ("decimal(15,3)", "123456789012.345", "123456789012.345"),
        ("decimal(9,2)", "0.10", "0.10"),
        ("decimal(15,10)", "0E-10", "0.0000000000"),
        ("decimal(15,10)", "0.0000001000", "0.0000001000"),
        ("decimal(38,0)", "123456789012345678901234567890", "123456789012347000000000000000"),
    ],
)
def test_a_decimal_is_a_number_with_all_its_digits_and_no_exponent(kind: str, text: str, wanted: str) -> None:
    assert f'"maxValues":{{"x":{wanted}}}' in statistics_json(
        record({"x": (text, text, 0)}), StructType((StructField("x", kind),))
    )


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**17), max_value=10**17))
def test_the_bounds_of_a_decimal_hold_also_for_who_reads_doubles(value: Decimal) -> None:
    found = statistics_json(
        record({"x": (f"{value:f}", f"{value:f}", 0)}), StructType((StructField("x", "decimal(38,4)"),))
    )
    for read in (Decimal, lambda text: Decimal(repr(float(text)))):
        told = json.loads(found, parse_float=read, parse_int=read)
        assert told["minValues"]["x"] <= value <= told["maxValues"]["x"]


def test_of_columns_metadata_only_comments_are_published() -> None:
    field = StructField("x", "long", metadata={"comment": "how many", "delta.generationExpression": "1"})
    fields = json.loads(schema_json(StructType((field,))))["fields"]
    assert fields[0] == {"name": "x", "type": "long", "nullable": True, "metadata": {"comment": "how many"}}


# --- back -------------------------------------------------------------------------------------------------------------

IDENTITY = Identity(7, topic=3)
SHOWN = TableVersion(4, 42, 1_000, 40)


def written(**changes: Any) -> bytes:
    actions = [{"remove": {"path": "a", "dataChange": False}}]
    return commit_lines(IDENTITY, SHOWN, actions, **({"operation": "WRITE"} | changes))


def test_a_commit_says_what_it_shows() -> None:
    stamp = stamp_of(written())
    assert stamp.is_of(IDENTITY)
    assert not stamp.is_of(Identity(7, topic=4))
    assert not stamp.is_of(Identity(8, topic=3))
    assert not stamp.is_of(Identity(7, table="segments"))
    assert (stamp.before, stamp.version, stamp.timestamp_ms, stamp.ended) == (40, 42, 1_000, False)
    assert stamp_of(written(ended=True)).ended
    assert claimed_version(written()) == 42


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"version":42', b'"version":43'),
        (b'"inCommitTimestamp":1000', b'"inCommitTimestamp":1001'),
        (b'"domain":"txnlog"', b'"domain":"other"'),
        (b'"txnlog":{', b'"other":{'),
        (
            b"{",
            b"",
        ),
    ],
)
def test_a_commit_that_contradicts_itself_is_damaged(old: bytes, new: bytes) -> None:
    with pytest.raises(DamagedCommitError):
        stamp_of(written().replace(old, new, 1))


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_any_bytes_are_damaged_or_not_ours(data: bytes) -> None:
    with contextlib.suppress(DamagedCommitError):
        assert stamp_of(data).fields is None
    assert claimed_version(data) is None
    assert not same_content(written(), data)


DEEP = json.dumps("[" * 100_000).encode()
HUGE = b"1" + b"0" * 400


@pytest.mark.parametrize(
    "line",
    [
        b'{"domainMetadata":{"domain":"txnlog","configuration":%s}}' % DEEP,
        b'{"domainMetadata":' + b"[" * 100_000,
    ],
)
def test_what_is_too_deep_is_damage(line: bytes) -> None:
    with pytest.raises(DamagedCommitError):
        stamp_of(line + b"\n")


def test_a_version_beyond_all_numbers_is_damage() -> None:
    data = (
        written().replace(b'"version":42', b'"version":' + HUGE).replace(b'\\"version\\":42', b'\\"version\\":' + HUGE)
    )
    assert data.count(HUGE) == 2
    with pytest.raises(DamagedCommitError, match="does not say its version"):
        _ = stamp_of(data).version


@pytest.mark.parametrize(
    "line",
    [
        b'{"add":{"path":"a","partitionValues":{},"size":1,"dataChange":true,"stats":%s}}' % DEEP,
        b'{"metaData":{"id":"a","schemaString":%s,"partitionColumns":[]}}' % DEEP,
    ],
)
def test_deep_texts_are_other_content(line: bytes) -> None:
    assert not same_content(written(), written() + line + b"\n")
    assert not same_content(written() + b"{}\n", written() + line + b"\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"provider":"parquet"', b'"provider":"parquex"'),
        (b'"delta.appendOnly":"true"', b'"delta.appendOnly":"trua"'),
        (b'"configuration":{', b'"configuration":{"delta.columnMapping.mode":"name",'),
        (b'"dataChange":true', b'"dataChange":true,"deletionVector":{"storageType":"u"}'),
        (b'"removed":false', b'"removed":true'),
        (b'"dataChange":true', b'"dataChange":1'),
        (b'"inCommitTimestamp":1000', b'"inCommitTimestamp":1000.0'),
        (b'"modificationTime"', b'"modificationTimf"'),
    ],
)
def test_what_readers_go_by_is_content(old: bytes, new: bytes) -> None:
    columns = StructType((StructField("x", "long"),))
    metadata = TableMetadata("id", "orders", 1, CONFIGURATION).as_json(schema_json(columns))
    added = add_action(record({"x": (1, 2, 0)}), columns, changes=True)
    data = commit_lines(IDENTITY, SHOWN, [{"add": added}], operation="WRITE", metadata=metadata)
    assert data.count(old) == 1
    assert same_content(data, data.replace(b'"engineInfo":"txnlog"', b'"engineInfo":"txnlog 9"'))
    assert not same_content(data, data.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (rb"\"maxValues\":{\"x\":2}", rb"\"maxValues\":{\"x\":3}", True),
        (rb",\"maxValues\":{\"x\":2}", b"", True),
        (rb"\"nullCount\":{\"x\":0}", rb"\"nullCount\":{}", True),
        (rb"\"numRecords\":3", rb"\"numRecords\":4", False),
        (rb"\"numRecords\":3", rb"\"numRecords\":3.0", False),
        (rb"\"numRecords\":3,", b"", False),
        (rb'"{\"numRecords\"', rb'"{{\"numRecords\"', False),
    ],
)
def test_bounds_are_content_where_they_are_asked_for(old: bytes, new: bytes, same: bool) -> None:
    columns = StructType((StructField("x", "long"),))
    action = add_action(record({"x": (1, 2, 0)}), columns, changes=True)
    data = commit_lines(IDENTITY, SHOWN, [{"add": action}], operation="WRITE")
    assert data.count(old) == 1
    assert not same_content(data, data.replace(old, new))
    assert same_content(data, data.replace(old, new), bounds=False) is same


def test_who_removes_a_file_with_a_deletion_vector_removes_another_one() -> None:
    """Readers tell files apart by both: the rows would be there twice, in the file and in what took its place."""
    data = written()
    old, new = b'"dataChange":false', b'"dataChange":false,"deletionVector":{"storageType":"u"}'
    assert data.count(old) == 1
    assert not same_content(data, data.replace(old, new))


def test_other_words_for_the_same_table_are_the_same() -> None:
    other = written(operation="MERGE").replace(b'"engineInfo":"txnlog"', b'"engineInfo":"txnlog 9"')
    assert other != written()
    assert same_content(other, written())
    assert not same_content(written(ended=True), written())


# --- every history ----------------------------------------------------------------------------------------------------


@given(entries, st.integers(1, 4))
def test_published_versions_show_what_is_visible(todo: Any, most: int) -> None:
    """By the pure parts alone: from version to version the table has the visible segments, and each row is new once."""
    log = Log()
    topic = log.topic("orders", 2)
    for item in todo:
        append(log, item)
    segments = [item for item in log.state.segments.values() if item.topic == topic]
    removals = log.state.removals
    history = TopicHistory(log.state.topics[topic], segments, removals)
    oldest = log.state.head.oldest_readable
    shown, files, fresh = -1, set[int](), dict[tuple[int, int], int]()
    loud = False
    while True:
        version = history.next_version(shown, newest=log.version, oldest_readable=oldest, most_files=most)
        if version is None:
            break
        assert shown < version <= log.version
        assert (least := history.least_version(shown, newest=log.version, oldest_readable=oldest)) is not None
        assert least <= version
        change = history.difference(shown, version)
        loud = loud or change.loud
        added, removed = {item.number for item in change.added}, {item.number for item in change.removed}
        assert removed <= files
        assert not added & files
        files = files - removed | added
        assert files == {item.number for item in segments if is_visible(item, version, removals)}
        assert files == {item.number for item in history.visible(version)}
        for item in change.added:
            if item.number not in change.rearranged:
                for part in item.slices:
                    for offset in range(part.offset or 0, (part.offset or 0) + part.rows):
                        fresh[part.partition, offset] = fresh.get((part.partition, offset), 0) + 1
        shown = version
    if not loud:
        assert set(fresh.values()) <= {1}
        ends = {partition: log.state.ends.get((topic, partition), 0) for partition in range(2)}
        if oldest == 0:
            assert fresh.keys() == {(p, offset) for p, end in ends.items() for offset in range(end)}
