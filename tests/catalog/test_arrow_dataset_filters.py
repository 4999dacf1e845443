"""Rows that delta-rs finds in a published topic when it is asked with a filter as an Arrow dataset.

Where the statistics of a file name one bound, it takes each bound that is not named as null: no row meets that.
"""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import deltalake
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import catalog as txn_catalog
import txnlog
from catalog import Catalog
from catalog.publication import topic_versions
from tests.catalog.published import commit
from tests.client.support import Place
from txnlog.fold.state import SegmentRecord
from txnlog.format.schema import StructType

UTC = datetime.UTC
VALUES: dict[str, tuple[pa.DataType, list[Any], Any]] = {
    "boolean": (pa.bool_(), [True, False], True),
    "double with a NaN": (pa.float64(), [1.0, float("nan")], 1.0),
    "double without an end": (pa.float64(), [1.0, float("inf")], 1.0),
    "decimal of many digits": (pa.decimal128(38, 0), [Decimal(123456789012345678), Decimal(7)], Decimal(7)),
    "decimal that Python writes with an exponent": (pa.decimal128(15, 10), [Decimal(0), Decimal(7)], Decimal(7)),
    "time at the end of its year": (
        pa.timestamp("us", "UTC"),
        [datetime.datetime(2026, 1, 1, tzinfo=UTC), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)],
        datetime.datetime(2026, 1, 1, tzinfo=UTC),
    ),
    "text beyond the footer's": (pa.string(), ["a", "b" * 5_000], "a"),
    "binary": (pa.binary(), [b"a", b"b"], b"a"),
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_filter_finds_rows_of_a_column_whose_bounds_are_not_stated(ns: Any, cat: Catalog, kind: str) -> None:
    arrow, values, wanted = VALUES[kind]
    ns.create_topic("odd", schema=pa.schema([("id", pa.int64()), ("x", arrow)]))
    ns.produce("odd", pa.table({"id": [1, 2], "x": pa.array(values, arrow)}))
    done = cat.publish("sales", "odd")
    table = deltalake.DeltaTable(done.url)
    assert table.to_pyarrow_table().num_rows == 2
    condition = pc.field("x") == pa.scalar(wanted, arrow)
    assert table.to_pyarrow_dataset().to_table(filter=condition).num_rows == 1
    assert len(table.to_pandas(filters=condition)) == 1


def test_a_filter_finds_rows_of_a_column_behind_those_with_statistics(ns: Any, cat: Catalog) -> None:
    names = [f"c{number}" for number in range(34)]
    ns.create_topic("wide", schema=pa.schema([(name, pa.int64()) for name in names]))
    ns.produce("wide", pa.table({name: [1, 2] for name in names}))
    table = deltalake.DeltaTable(cat.publish("sales", "wide").url)
    assert table.to_pyarrow_dataset().to_table(filter=pc.field("c0") == 1).num_rows == 1
    assert table.to_pyarrow_dataset().to_table(filter=pc.field("c33") == 1).num_rows == 1


def test_a_filter_finds_the_rows_of_older_files_that_lack_a_column(ns: Any, cat: Catalog) -> None:
    ns.create_topic("odd", schema=pa.schema([("id", pa.int64())]))
    ns.produce("odd", pa.table({"id": [1]}))
    ns.alter_topic("odd", add_columns=pa.schema([("x", pa.int64())]))
    ns.produce("odd", pa.table({"id": [2], "x": [7]}))
    dataset = deltalake.DeltaTable(cat.publish("sales", "odd").url).to_pyarrow_dataset()
    x = pc.field("x")
    for condition, wanted in ((x.is_null(), [1]), (x.is_valid(), [2]), (x == 7, [2]), (x != 7, [])):
        assert dataset.to_table(filter=condition).column("id").to_pylist() == wanted
    for condition in (x == 7, pc.field("id") == 2):
        assert len(list(dataset.get_fragments(filter=condition))) == 1, "the older file is passed over"


def test_files_that_were_published_before_a_column_came_report_it_in_the_next_checkpoint(ns: Any, cat: Catalog) -> None:
    ns.create_topic("odd", schema=pa.schema([("id", pa.int64())]))
    ns.produce("odd", pa.table({"id": [1]}))
    cat.publish("sales", "odd")
    ns.alter_topic("odd", add_columns=pa.schema([("x", pa.int64())]))
    url = cat.publish("sales", "odd").url
    condition = pc.field("x").is_null()
    assert deltalake.DeltaTable(url).to_pyarrow_dataset().to_table(filter=condition).num_rows == 0, "a limit"
    assert cat.repair("sales", "odd").repaired == (), "nothing is wrong, but a repair makes a checkpoint"
    assert deltalake.DeltaTable(url).to_pyarrow_dataset().to_table(filter=condition).num_rows == 1


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (pc.field("a", "b") == 1, [1]),
        (pc.field("a").is_valid(), [1]),
        (pc.field("a").is_null(), [2]),
        (pc.field("deep").is_valid(), [2]),
        (pc.field("listed").is_valid(), [1]),
    ],
    ids=str,
)
def test_a_filter_on_a_struct(ns: Any, cat: Catalog, condition: Any, wanted: list[int]) -> None:
    inner = pa.struct([("b", pa.int64())])
    kinds = {"a": inner, "deep": pa.struct([("c", inner)]), "listed": pa.struct([("d", pa.list_(pa.int64()))])}
    schema = pa.schema([("id", pa.int64()), *kinds.items()])
    ns.create_topic("odd", schema=schema)
    rows = [
        {"id": 1, "a": {"b": 1}, "deep": None, "listed": {"d": [1]}},
        {"id": 2, "a": None, "deep": {"c": None}, "listed": None},
    ]
    ns.produce("odd", pa.Table.from_pylist(rows, schema))
    table = deltalake.DeltaTable(cat.publish("sales", "odd").url)
    assert table.to_pyarrow_dataset().to_table(filter=condition).column("id").to_pylist() == wanted


def _as_once(record: SegmentRecord, schema: StructType, own: StructType | None = None) -> str:
    """As statistics were told once: of a boolean no bounds."""
    low, high, nulls = record.statistics["id"]
    told = {"numRecords": record.rows, "minValues": {"id": low}, "maxValues": {"id": high}, "nullCount": {"id": nulls}}
    return json.dumps(told)


def test_statistics_that_were_stated_otherwise_are_stated_anew(
    ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no damage to what the table holds, but readers lose rows by them: a repair tells them anew.

    Publications leave them: the first one after an upgrade would write all versions again, and who still tells them as
    once would undo it.
    """
    ns.create_topic("odd", schema=pa.schema([("id", pa.int64()), ("flag", pa.bool_())]))
    with monkeypatch.context() as patched:
        patched.setattr(topic_versions, "statistics_json", _as_once)
        for number in range(3):
            ns.produce("odd", [{"id": number, "flag": True}])
            cat.publish("sales", "odd")
    url = str(place.root) + "/sales/odd"
    once = [commit(place, version, "odd").read_bytes() for version in range(3)]
    condition = pc.field("flag") == pa.scalar(True)
    assert deltalake.DeltaTable(url).to_pyarrow_dataset().to_table(filter=condition).num_rows == 0
    with txn_catalog.open(place.root) as other:
        for number in range(3, 6):
            ns.produce("odd", [{"id": number, "flag": False}])
            with monkeypatch.context() as patched:
                if number == 4:
                    patched.setattr(topic_versions, "statistics_json", _as_once)
                for each in (other, cat):
                    assert each.publish("sales", "odd").repaired == ()
        assert [commit(place, version, "odd").read_bytes() for version in range(3)] == once
        assert other.repair("sales", "odd").repaired == (0, 1, 2, 4)
        assert other.publish("sales", "odd").repaired == ()
    for version, before in enumerate(once):
        now = commit(place, version, "odd").read_bytes()
        assert _without_statistics(now) == _without_statistics(before)
    for table in (deltalake.DeltaTable(url), deltalake.DeltaTable(url, version=2)):
        assert table.to_pyarrow_dataset().to_table(filter=condition).num_rows == 3


def _without_statistics(data: bytes) -> list[Any]:
    lines = [json.loads(line) for line in data.splitlines()]
    for line in lines:
        line.get("add", {}).pop("stats", None)
    return lines


@pytest.mark.parametrize("folder", ["year=2026", "id=5", "_txnlog_segment=9"])
def test_below_a_folder_named_as_a_partition_polars_reads_as_an_arrow_dataset(
    tmp_path: Any, quick: None, folder: str
) -> None:
    root = tmp_path / folder / "lake"
    with txnlog.open(root, namespace="sales", create=True) as ns, txn_catalog.open(root) as cat:
        ns.create_topic("orders", schema=pa.schema([("id", pa.int64()), ("flag", pa.bool_())]))
        ns.produce("orders", [{"id": 1, "flag": True}, {"id": 2, "flag": False}])
        url = cat.publish("sales", "orders").url
    with pytest.raises(polars.exceptions.PolarsError):
        polars.scan_delta(url).collect()
    frame = polars.scan_delta(url, use_pyarrow=True)
    assert frame.filter(polars.col("flag")).select("id").collect().rows() == [(1,)]
