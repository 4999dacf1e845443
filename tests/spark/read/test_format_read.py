"""``spark.read.format("txnlog")``: exactly the rows of a snapshot, and typed errors for everything else."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import txnlog
from spark_ext.read.format_batch_reader import TopicBatchReader
from spark_ext.read.scan import open_scan, tasks_of
from spark_ext.read.task_reader import read_batches
from spark_ext.support.options import read_options
from tests.spark.support import path_of, plans_once
from tools.servers import SECRET_KEY, s3_server
from txnlog.errors import CorruptionError
from txnlog.format.actions import DeleteRecords
from txnlog.log.commands import Simple
from txnlog.testing import ManualClock
from txnlog.testing.conformance import cases_of
from txnlog.testing.scheduler import START_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txnlog.api.namespace import Namespace

ORDERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("customer", pa.string()), ("amount", pa.float64())])
METADATA = ["_partition", "_offset", "_timestamp", "_txn_id", "_version"]


def orders(*ids: int) -> list[dict[str, Any]]:
    return [{"id": i, "customer": f"c{i % 5}" if i % 7 else None, "amount": i / 4} for i in ids]


def load(spark: SparkSession, ns: Namespace, topic: str = "", **options: Any) -> DataFrame:
    return spark.read.format("txnlog").options(**options).load(path_of(ns, topic))


def listed(table: pa.Table) -> list[str]:
    """Rows as text in an order of their own: NaN equals itself, and everything can be compared."""
    return sorted(map(str, table.to_pylist()))


def same(df: DataFrame, table: pa.Table) -> bool:
    """Whether a DataFrame has the columns and rows of a table, and some rows at all."""
    assert df.columns == table.column_names
    assert table.num_rows
    return listed(df.toArrow()) == listed(table)


def ids(df: DataFrame) -> list[int]:
    return sorted(row["id"] for row in df.select("id").collect())


def refused(kind: str, problem: str) -> Any:
    """Spark shows an error of ours by its class and its text, and nothing of Python's or Java's before it."""
    return pytest.raises(PySparkException, match=rf"(?s)\A\s*[^\n]*[:.]\s+txnlog\.errors\.{kind}: [^\n]*{problem}")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """Topics with a history, one second an entry: nobody writes to it."""
    clock = ManualClock(START_MS)
    root = str(tmp_path_factory.mktemp("read") / "lake")
    with txnlog.open(root, namespace="sales", create=True, clock=clock) as ns:
        ns.create_topic("orders", ORDERS, partitions=3, key="customer")
        ns.create_topic("audit", ORDERS, partitions=2)
        ns.create_topic("empty", ORDERS, partitions=2)
        ns.create_topic("plain")
        ns.create_topic("gone", ORDERS)
        ns.produce("gone", orders(900, 901))
        versions = []
        for first in range(0, 40, 8):
            clock.advance(1_000)
            with ns.begin() as txn:
                txn.produce("orders", orders(*range(first, first + 8)))
                txn.produce("audit", orders(first), partition=first // 8 % 2)
            versions.append(txn.result.version)
        ns.produce("orders", orders(50, 51), partition=1)
        aborted, pending = ns.begin(), ns.begin(timeout_ms=900_000)
        for txn, number in ((aborted, 70), (pending, 80)):
            txn.produce("orders", orders(number, number + 1, number + 2))
            txn.flush()
        aborted.abort()
        before_drop = ns.snapshot().version
        ns.drop_topic("gone")
        ns.create_topic("gone", ORDERS)
        ns.produce("gone", orders(950))
        ns.produce("plain", [{"key": b"k", "value": b"\x00v", "headers": [("h", b"1")]}, {"value": None}])
        clock.advance(1_000)
        ns.produce("orders", orders(60), partition=2)
        yield SimpleNamespace(ns=ns, versions=versions, before_drop=before_drop, aborted=aborted, pending=pending)


# --- rows and columns -------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-99", "P-144")
@pytest.mark.parametrize("topic", ["orders", "audit", "gone", "plain"])
def test_rows_and_metadata_are_those_of_a_snapshot(spark: SparkSession, lake: Any, topic: str) -> None:
    table = lake.ns.snapshot().read(topic, include_metadata=True)
    assert table.column_names[-5:] == METADATA
    assert same(load(spark, lake.ns, topic, includeMetadata="true"), table)
    assert same(load(spark, lake.ns, topic), table.drop_columns(METADATA))


@pytest.mark.clause("P-99")
@pytest.mark.parametrize("least", ["1", "5", "20"])
def test_each_partition_comes_in_the_order_of_its_offsets_however_it_is_shared_out(
    spark: SparkSession, lake: Any, least: str
) -> None:
    df = load(spark, lake.ns, "orders", includeMetadata="true", minPartitions=least)
    rows = df.collect()
    assert len(rows) == 43
    assert df.rdd.getNumPartitions() >= min(int(least), len(rows))
    for partition, end in lake.ns.snapshot().end_offsets("orders").items():
        assert [row["_offset"] for row in rows if row["_partition"] == partition] == list(range(end))


def test_columns_are_chosen_by_name_and_come_in_that_order(spark: SparkSession, lake: Any) -> None:
    df = load(spark, lake.ns, "orders", columns="amount,id", includeMetadata="true")
    assert df.columns == ["amount", "id", *METADATA]
    assert same(df, lake.ns.snapshot().read("orders", columns=["amount", "id"], include_metadata=True))
    with refused("InvalidInputError", r"'columns' names 'amuont'.*did you mean 'amount'"):
        load(spark, lake.ns, "orders", columns="amuont")


def test_a_topic_without_rows_has_columns_and_counts_none(spark: SparkSession, lake: Any) -> None:
    df = load(spark, lake.ns, "empty", includeMetadata="true")
    assert df.columns == [*ORDERS.names, *METADATA]
    assert not df.schema["id"].nullable
    assert (df.count(), df.collect()) == (0, [])
    assert load(spark, lake.ns, "orders", versionAsOf=lake.versions[0] - 1).collect() == []


def test_what_spark_computes_on_top_is_right(spark: SparkSession, lake: Any) -> None:
    df = load(spark, lake.ns, "orders")
    table = lake.ns.snapshot().read("orders")
    assert df.count() == table.num_rows == 43
    amounts = dict.fromkeys(table["customer"].to_pylist(), 0.0)
    for row in table.to_pylist():
        amounts[row["customer"]] += row["amount"]
    assert {row["customer"]: row["x"] for row in df.groupBy("customer").agg(F.sum("amount").alias("x")).collect()} == (
        amounts
    )
    assert ids(df.where("id >= 36 AND customer IS NOT NULL")) == [36, 37, 38, 39, 50, 51, 60]


# --- versions, times, topics ------------------------------------------------------------------------------------------


@pytest.mark.clause("P-103")
def test_every_version_is_read_as_it_was_over_all_topics(spark: SparkSession, lake: Any) -> None:
    for count, version in enumerate(lake.versions, 1):
        snapshot = lake.ns.snapshot(version)
        for topic, rows in (("orders", 8 * count), ("audit", count)):
            df = load(spark, lake.ns, topic, versionAsOf=version, includeMetadata="true")
            table = snapshot.read(topic, include_metadata=True)
            assert table.num_rows == rows
            assert same(df, table)
    newest = lake.ns.snapshot().version
    with refused("VersionNotAvailable", rf"version {newest + 1} cannot be read \(versions 0 to {newest} can be read"):
        load(spark, lake.ns, "orders", versionAsOf=newest + 1)


def test_a_time_means_the_newest_version_that_is_not_younger(spark: SparkSession, lake: Any) -> None:
    at = START_MS + 2_000
    for text in (str(at), str(at + 999), datetime.datetime.fromtimestamp(at / 1000, datetime.UTC).isoformat()):
        assert ids(load(spark, lake.ns, "orders", timestampAsOf=text)) == list(range(16))
    assert ids(load(spark, lake.ns, "orders", timestampAsOf=at - 1)) == list(range(8))
    for early in (str(START_MS - 1), "2020-01-01T00:00:00Z", "2020-01-01 02:00:00.5+02:00"):
        with refused("VersionNotAvailable", rf"the log begins after {re.escape(early)} \("):
            load(spark, lake.ns, "orders", timestampAsOf=early)


def test_several_topics_come_together_and_say_which_they_are(spark: SparkSession, lake: Any) -> None:
    df = load(spark, lake.ns, subscribe="audit, orders", includeMetadata="true")
    assert df.columns == [*ORDERS.names, *METADATA, "_topic"]
    for topic in ("orders", "audit"):
        table = lake.ns.snapshot().read(topic, include_metadata=True)
        assert same(df.where(F.col("_topic") == topic).drop("_topic"), table)
    assert df.count() == 43 + 5
    assert load(spark, lake.ns, subscribe="audit,empty").count() == 5


@pytest.mark.some(4)
@pytest.mark.parametrize(
    ("topic", "options", "kind", "problem"),
    [
        ("", {}, "InvalidInputError", r"names the namespace 'sales' and no topic.*subscribe"),
        ("ordres", {}, "TopicNotFound", r"no topic 'ordres'.*did you mean 'orders'"),
        ("", {"subscribe": "orders,adit"}, "TopicNotFound", r"no topic 'adit'.*did you mean 'audit'"),
        ("orders", {"subscribe": "audit"}, "InvalidInputError", r"names the topic 'orders', and an option"),
        (
            "",
            {"subscribe": "orders,plain"},
            "SchemaMismatch",
            r"'orders' and 'plain' have different columns \(see 'id'",
        ),
        (
            "",
            {"subscribePattern": "o(.*"},
            "InvalidInputError",
            r"'subscribePattern' is a regular expression \(missing",
        ),
        (
            "",
            {"subscribePattern": "order"},
            "TopicNotFound",
            r"no topic of the namespace 'sales' matches 'order' \(a pat",
        ),
        ("", {"subscribePattern": "o.*|p.*"}, "SchemaMismatch", r"'orders' and 'plain' have different columns"),
        ("orders", {"subscribePattern": "o.*"}, "InvalidInputError", r"names the topic 'orders', and an option"),
        ("orders", {"versionAsof": "1", "timestampAsOf": "1"}, "InvalidInputError", r"exclude each other"),
        ("orders", {"startingVersion": "new"}, "InvalidInputError", r"'startingVersion' is a whole number from 0 on"),
        ("orders", {"mergeSchema": "true"}, "InvalidInputError", r"unknown option 'mergeschema'"),
    ],
)
def test_what_cannot_be_read_is_refused_before_a_dataframe_is_made(
    spark: SparkSession, lake: Any, topic: str, options: dict[str, str], kind: str, problem: str
) -> None:
    with refused(kind, problem):
        load(spark, lake.ns, topic, **options)


def test_a_path_that_holds_no_log_and_several_paths_are_refused(spark: SparkSession, lake: Any) -> None:
    reader = spark.read.format("txnlog")
    with refused("NamespaceNotFound", "did you mean 'sales'"):
        reader.load(f"{lake.ns.root}/saels/orders")
    with refused("InvalidInputError", "load takes one path"):
        reader.load([path_of(lake.ns, "orders"), path_of(lake.ns, "audit")])
    with refused("InvalidInputError", "the path is missing"):
        reader.load()
    for option in ("subscription", "topic"):
        with refused("InvalidInputError", f"the option '{option}' belongs to"):
            reader.option(option, "x").load(path_of(lake.ns, "orders")).collect()


def test_a_dropped_topic_is_gone_now_and_readable_where_it_was(
    spark: SparkSession, lake: Any, namespace: Namespace
) -> None:
    assert ids(load(spark, lake.ns, "gone")) == [950], "a new topic of that name has none of its rows"
    assert ids(load(spark, lake.ns, "gone", versionAsOf=lake.before_drop)) == [900, 901]
    namespace.create_topic("orders", ORDERS)
    version = namespace.produce("orders", orders(1)).version
    newest, fixed = load(spark, namespace, "orders"), load(spark, namespace, "orders", versionAsOf=version)
    namespace.drop_topic("orders")
    with refused("TopicNotFound", "no topic 'orders'"):
        newest.collect()
    assert ids(fixed) == [1]


def test_a_dataframe_keeps_the_version_of_its_first_action(spark: SparkSession, namespace: Namespace) -> None:
    namespace.create_topic("orders", ORDERS)
    df = load(spark, namespace, "orders")
    namespace.produce("orders", orders(1))
    assert ids(df) == [1], "it was made before, and had not run"
    namespace.produce("orders", orders(2))
    assert (ids(df), df.count()) == (([1], 1) if plans_once() else ([1, 2], 2)), "two actions on it agree"
    assert ids(load(spark, namespace, "orders")) == [1, 2]


# --- isolation --------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-99", "P-101", "P-102")
def test_open_and_aborted_rows_are_for_read_uncommitted_with_their_state(spark: SparkSession, lake: Any) -> None:
    committed = [*range(40), 50, 51, 60]
    assert ids(load(spark, lake.ns, "orders", isolationLevel="read_committed")) == committed
    df = load(spark, lake.ns, "orders", isolationLevel="Read_Uncommitted", includeMetadata="true")
    assert same(df, lake.ns.snapshot().read("orders", isolation_level="read_uncommitted", include_metadata=True))
    rows = {row["id"]: row for row in df.collect()}
    assert sorted(rows) == sorted([*committed, 70, 71, 72, 80, 81, 82])
    for txn, first, state in ((lake.aborted, 70, "ABORTED"), (lake.pending, 80, "OPEN")):
        for number in range(first, first + 3):
            row = rows[number]
            assert (row["_txn_state"], row["_offset"], row["_version"], row["_timestamp"]) == (state, None, None, None)
            assert bytes(row["_txn_id"]) == txn.id.to_bytes()
    assert {rows[number]["_txn_state"] for number in committed} == {"COMMITTED"}
    assert len(ids(load(spark, lake.ns, "orders", isolationLevel="read_uncommitted"))) == len(committed) + 6


@pytest.mark.clause("P-102")
def test_a_transaction_shows_when_it_is_committed_and_not_before(spark: SparkSession, namespace: Namespace) -> None:
    namespace.create_topic("orders", ORDERS)
    namespace.create_topic("audit", ORDERS)
    txn = namespace.begin()
    txn.produce("orders", orders(1))
    txn.flush()
    txn.produce("audit", orders(2))
    namespace.produce("orders", orders(3))
    assert ids(load(spark, namespace, subscribe="orders,audit")) == [3], "what is open holds back nobody"
    txn.commit()
    assert ids(load(spark, namespace, subscribe="orders,audit")) == [1, 2, 3]


# --- offsets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ({0: 0, 1: 0, 2: 0}, None),
        ({0: 3, 1: 5, 2: -2}, None),
        (None, {0: 4, 1: -1, 2: 0}),
        ({0: 2, 1: -2, 2: 1}, {0: 3, 1: 7, 2: -1}),
    ],
)
def test_a_range_of_offsets_gives_its_rows_and_no_others(
    spark: SparkSession, lake: Any, start: dict[int, int] | None, end: dict[int, int] | None
) -> None:
    ends = lake.ns.snapshot().end_offsets("orders")
    options: dict[str, Any] = {"includeMetadata": "true", "minPartitions": "4"}
    low, high = dict.fromkeys(ends, 0), dict(ends)
    if start is not None:
        options["startingOffsets"] = json.dumps({"orders": start})
        low = {p: max(0, offset) for p, offset in start.items()}
    if end is not None:
        options["endingOffsets"] = json.dumps({"orders": end})
        high = {p: ends[p] if offset == -1 else offset for p, offset in end.items()}
    wanted = {p: (low[p], high[p]) for p in ends}
    table = lake.ns.snapshot().read("orders", offsets=wanted, include_metadata=True)
    assert table.num_rows == sum(last - first for first, last in wanted.values())
    assert same(load(spark, lake.ns, "orders", **options), table)


def test_offsets_of_several_topics_and_of_an_old_version(spark: SparkSession, lake: Any) -> None:
    found = load(
        spark,
        lake.ns,
        subscribe="orders,audit",
        includeMetadata="true",
        versionAsOf=lake.versions[1],
        startingOffsets='{"orders": {"0": -2, "1": 0, "2": 0}, "audit": {"0": 1, "1": 0}}',
        endingOffsets='{"orders": {"0": 0, "1": 0, "2": 0}, "audit": {"0": -1, "1": -1}}',
    ).collect()
    assert [(row["_topic"], row["id"], row["_partition"], row["_offset"]) for row in found] == [("audit", 8, 1, 0)]
    everything = load(spark, lake.ns, "audit", startingOffsets="earliest", endingOffsets="latest")
    assert ids(everything) == [0, 8, 16, 24, 32]


@pytest.mark.some(4)
@pytest.mark.parametrize(
    ("options", "kind", "problem"),
    [
        (
            {"startingOffsets": "latest"},
            "InvalidInputError",
            r"'latest' \(-1\): a batch that begins behind all .*it out",
        ),
        (
            {"startingOffsets": '{"audit": {"0": -1, "1": 0}}'},
            "InvalidInputError",
            r"has 'latest' \(-1\): .* reads none \(leave",
        ),
        (
            {"endingOffsets": "earliest"},
            "InvalidInputError",
            r"'earliest' \(-2\): a batch that ends before all .*it out",
        ),
        (
            {"endingOffsets": '{"audit": {"0": -2, "1": 0}}'},
            "InvalidInputError",
            r"has 'earliest' \(-2\): .* reads none \(leave",
        ),
        ({"startingOffsets": '{"audit": {"0": 0}}'}, "InvalidInputError", r"leaves out partition 1.*partitions 0 to 1"),
        ({"endingOffsets": '{"audit": {"0": 0, "1": 0, "2": 0}}'}, "InvalidInputError", r"names partition 2 of the"),
        ({"startingOffsets": '{"audits": {"0": 0}}'}, "InvalidInputError", r"names the topic 'audits', which is not"),
        ({"endingOffsets": '{"audit": {"0": 4, "1": 0}}'}, "OffsetOutOfRange", r"holds offsets 0 to 3; 0 to 4 were"),
        (
            {"startingOffsets": '{"audit": {"0": 3, "1": 0}}', "endingOffsets": '{"audit": {"0": 2, "1": 0}}'},
            "OffsetOutOfRange",
            r"the start 3 is beyond the end 2 .give a start of at most 2, or an end of at least 3",
        ),
        (
            {"startingOffsets": "earliest", "isolationLevel": "read_uncommitted"},
            "InvalidInputError",
            r"'startingOffsets' needs read_committed",
        ),
    ],
)
def test_offsets_that_are_not_there_or_make_no_sense_are_refused(
    spark: SparkSession, lake: Any, options: dict[str, str], kind: str, problem: str
) -> None:
    with refused(kind, problem) as told:
        load(spark, lake.ns, "audit", **options).collect()
    assert "written" not in str(told.value), "it only reads"


def test_offsets_that_were_deleted_are_an_error_unless_data_loss_is_accepted(
    spark: SparkSession, namespace: Namespace
) -> None:
    namespace.create_topic("orders", ORDERS, partitions=2)
    for partition in (0, 1):
        namespace.produce("orders", orders(*range(10 * partition, 10 * partition + 6)), partition=partition)
    namespace._connection.appender.call(
        Simple(
            lambda _draft, _at: [DeleteRecords(namespace._connection.topic_record("orders").id, ((0, 4),))],
            lambda *_: None,
        )
    )
    left = [4, 5, 10, 11, 12, 13, 14, 15]
    assert ids(load(spark, namespace, "orders")) == left
    asked = {"startingOffsets": '{"orders": {"0": 1, "1": 2}}', "endingOffsets": '{"orders": {"0": 5, "1": 9}}'}
    with refused("OffsetOutOfRange", r"holds offsets 4 to 6; 1 to 5 were requested \(.*failOnDataLoss"):
        load(spark, namespace, "orders", **asked).collect()
    assert ids(load(spark, namespace, "orders", failOnDataLoss="false", **asked)) == [4, 12, 13, 14, 15]


# --- types and schemas ------------------------------------------------------------------------------------------------

ITEM = pa.struct([pa.field("at", pa.timestamp("us", "UTC")), pa.field("price", pa.decimal128(38, 18))])
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False]),
    "i8": (pa.int8(), [-128, 127]),
    "i16": (pa.int16(), [-32_768, 32_767]),
    "i32": (pa.int32(), [-(2**31), 2**31 - 1]),
    "i64": (pa.int64(), [-(2**63), 2**63 - 1]),
    "f32": (pa.float32(), [math.inf, 0.5]),
    "f64": (pa.float64(), [math.nan, -0.0]),
    "small": (pa.decimal128(4, 2), [Decimal("-99.99"), Decimal("0.01")]),
    "wide": (pa.decimal128(38, 0), [Decimal("9" * 38), Decimal(-1)]),
    "text": (pa.string(), ["", "ß🦆\x00\n"]),
    "bytes": (pa.binary(), [b"", bytes(range(256))]),
    "day": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    "at": (
        pa.timestamp("us", "UTC"),
        [
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, datetime.UTC),
            datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC),
        ],
    ),
    "local": (pa.timestamp("us"), [datetime.datetime(1582, 10, 4, 1), datetime.datetime(2026, 11, 21, 8, 0, 0, 1)]),  # noqa: DTZ001 - a type of its own
    "list": (pa.list_(pa.list_(pa.int32())), [[], [[1, None], None, []]]),
    "solid": (
        pa.list_(pa.field("element", pa.struct([pa.field("x", pa.int8(), nullable=False)]), nullable=False)),
        [[], [{"x": 1}, {"x": -1}]],
    ),
    "map": (pa.map_(pa.string(), pa.list_(pa.float64())), [[], [("a", [1.5, None]), ("b", None)]]),
    "items": (
        pa.list_(ITEM),
        [[None], [{"at": None, "price": Decimal("0.000000000000000001")}]],
    ),
    "nested": (
        pa.struct([("p", pa.string()), ("q", pa.struct([("r", pa.binary())]))]),
        [{"p": None, "q": None}, {"p": "x", "q": {"r": b"\xff"}}],
    ),
}


def test_every_type_a_topic_may_have_comes_back_as_it_was_produced(spark: SparkSession, namespace: Namespace) -> None:
    schema = pa.schema([(name, kind) for name, (kind, _) in TYPES.items()])
    rows = [{name: values[row] for name, (_, values) in TYPES.items()} for row in range(2)]
    produced = pa.Table.from_pylist([*rows, dict.fromkeys(TYPES)], schema)
    namespace.create_topic("types", schema, partitions=2, delta="off")
    namespace.produce("types", produced, partition=1)
    df = load(spark, namespace, "types", includeMetadata="true")
    assert same(df, namespace.snapshot().read("types", include_metadata=True))
    assert listed(df.drop(*METADATA).toArrow()) == listed(produced)
    assert [df.schema[name].dataType.simpleString() for name in ("local", "wide", "map", "items")] == [
        "timestamp_ntz",
        "decimal(38,0)",
        "map<string,array<double>>",
        "array<struct<at:timestamp,price:decimal(38,18)>>",
    ]
    assert not json.loads(df.schema["solid"].dataType.json())["containsNull"]
    # Spark itself agrees about the values, so it is not only our own reader that reads them so.
    probe = df.where("i8 = 127").selectExpr(
        "hex(bytes) = hex(X'00' || unhex(substr(hex(bytes), 3))) AND length(bytes) = 256",
        "text = 'ß🦆\\u0000\\n'",
        "at = timestamp'2026-11-21 00:00:00Z'",
        "local = timestamp_ntz'2026-11-21 08:00:00.000001'",
        "items[0].price = 1e-18BD",
        "map['a'][0] = 1.5D AND map['b'] IS NULL",
        "nested.q.r = X'FF'",
        "small = 0.01BD AND wide = -1",
        "day = date'9999-12-31'",
    )
    assert list(probe.first()) == [True] * 9


def test_a_schema_of_ones_own_chooses_columns_and_may_promise_less(spark: SparkSession, lake: Any) -> None:
    reader = spark.read.format("txnlog").option("includeMetadata", "true")
    df = reader.schema("_offset bigint, amount double, id bigint, _partition int").load(path_of(lake.ns, "orders"))
    table = lake.ns.snapshot().read("orders", include_metadata=True)
    assert same(df, table.select(["_offset", "amount", "id", "_partition"]))
    only = reader.schema("_partition int, _version bigint").load(path_of(lake.ns, "orders"))
    assert same(only, table.select(["_partition", "_version"])), "no column of the topic is asked for"


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("id bigint, custommer string", r"'custommer', which the topic does not have \(did you mean 'customer'"),
        ("id int", r"says int of the column 'id', the topic bigint.*cast afterwards"),
        ("id bigint, customer string NOT NULL", r"'customer' is never null, which the topic does not promise"),
        ("id bigint, _offset bigint", r"'_offset', which the topic does not have \(set the option includeMetadata"),
        ("ID bigint", r"'ID', which the topic does not have \(did you mean 'id'"),
    ],
)
def test_a_schema_that_the_topic_does_not_have_is_refused(
    spark: SparkSession, lake: Any, schema: str, problem: str
) -> None:
    with refused("SchemaMismatch", problem):
        spark.read.format("txnlog").schema(schema).load(path_of(lake.ns, "orders")).collect()


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(namespace: Namespace) -> tuple[Namespace, Path]:
    """A topic of one segment, and its file."""
    namespace.create_topic("orders", ORDERS)
    namespace.produce("orders", orders(*range(500)))
    (file,) = Path(path_of(namespace, "orders")).rglob("*.parquet")
    return namespace, file


@pytest.mark.some(2)
@pytest.mark.clause("P-106")
@pytest.mark.parametrize("damage", ["a flipped bit", "cut off", "longer", "empty", "missing", "another file"])
def test_a_damaged_segment_is_an_error_and_gives_no_row(
    spark: SparkSession, damaged: tuple[Namespace, Path], damage: str
) -> None:
    ns, file = damaged
    data = file.read_bytes()
    if damage == "a flipped bit":
        file.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    elif damage == "missing":
        file.unlink()
    elif damage == "another file":
        ns.produce("orders", orders(*range(1_000, 1_500)))
        other = next(path for path in file.parents[1].rglob("*.parquet") if path != file)
        file.write_bytes(other.read_bytes())
    else:
        file.write_bytes({"cut off": data[:-1], "longer": data + b"\0", "empty": b""}[damage])
    scan = open_scan(read_options({"path": path_of(ns, "orders")}, streaming=False))
    batches = read_batches(scan.job(scan.schema), tasks_of(scan.plan("orders", None)))
    with pytest.raises(CorruptionError, match=file.name):
        next(batches)
    with refused("CorruptionError", file.name):
        load(spark, ns, "orders").limit(1).collect()


@pytest.mark.clause("P-106")
def test_a_flipped_bit_is_found_wherever_it_is(damaged: tuple[Namespace, Path]) -> None:
    ns, file = damaged
    data = file.read_bytes()
    scan = open_scan(read_options({"path": path_of(ns, "orders")}, streaming=False))
    job, tasks = scan.job(scan.schema), tasks_of(scan.plan("orders", None))
    assert sum(batch.num_rows for batch in read_batches(job, tasks)) == 500
    for position in range(0, len(data), max(1, len(data) // 97)):
        file.write_bytes(data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :])
        with pytest.raises(CorruptionError):
            list(read_batches(job, tasks))


@pytest.mark.clause("P-106", "P-107", "P-219")
def test_executors_take_and_refuse_the_files_that_the_conformance_kit_takes_and_refuses() -> None:
    asked = [case for case in cases_of() if (case.golden, case.level) == ("segments", "read_committed")]
    assert len(asked) > 40
    for case in asked:
        path = str(case.root / case.namespace / case.topic)
        scan = open_scan(read_options({"path": path}, streaming=False))
        job, tasks = scan.job(scan.schema), tasks_of(scan.plan(case.topic, None))
        if case.expected.kind == "damaged":
            with pytest.raises(CorruptionError):
                list(read_batches(job, tasks))
        else:
            assert sum(batch.num_rows for batch in read_batches(job, tasks)) == len(case.expected.rows), case.name


@pytest.mark.clause("P-100", "P-123")
def test_a_read_changes_nothing_on_the_store_and_takes_no_file_that_no_entry_names(
    spark: SparkSession, damaged: tuple[Namespace, Path]
) -> None:
    ns, file = damaged
    stray = file.parent.parent / "_txnlog_segment=999" / file.name
    stray.parent.mkdir()
    stray.write_bytes(file.read_bytes())
    before = {path: path.stat().st_mtime_ns for path in Path(ns.root).rglob("*")}
    assert ids(load(spark, ns, "orders")) == list(range(500))
    assert {path: path.stat().st_mtime_ns for path in Path(ns.root).rglob("*")} == before


# --- SQL --------------------------------------------------------------------------------------------------------------


def test_a_temporary_view_answers_queries_and_is_brought_up_to_date_by_making_it_again(
    spark: SparkSession, namespace: Namespace
) -> None:
    namespace.create_topic("orders", ORDERS, partitions=2)
    namespace.produce("orders", orders(*range(10)))
    view = (
        f"CREATE OR REPLACE TEMPORARY VIEW read_orders USING txnlog OPTIONS (path '{path_of(namespace, 'orders')}', "
        "includeMetadata true, columns 'id')"
    )
    query = "SELECT count(*) n, max(id) m, count(DISTINCT _version) v FROM read_orders WHERE id % 2 = 0"
    spark.sql(view)
    assert spark.table("read_orders").columns == ["id", *METADATA]
    assert spark.sql(query).first().asDict() == {"n": 5, "m": 8, "v": 1}
    namespace.produce("orders", orders(20))
    kept = {"n": 5, "m": 8, "v": 1} if plans_once() else {"n": 6, "m": 20, "v": 2}
    assert spark.sql(query).first().asDict() == kept, "as a DataFrame: at one version"
    spark.sql(view)
    assert spark.sql(query).first().asDict() == {"n": 6, "m": 20, "v": 2}
    spark.catalog.dropTempView("read_orders")


def test_a_table_is_refused_with_the_way_out(spark: SparkSession, lake: Any) -> None:
    with refused("InvalidInputError", r"cannot be created.*CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE read_table USING txnlog LOCATION '{path_of(lake.ns, 'orders')}'")


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_secrets_reach_executors_and_no_plan_no_repr_and_no_error(spark: SparkSession) -> None:
    with (
        s3_server() as server,
        txnlog.open(
            server.url("lake"), namespace="sales", create=True, storage_options=server.storage_options
        ) as namespace,
    ):
        namespace.create_topic("orders", ORDERS)
        namespace.produce("orders", orders(*range(20)))

        def reader(**changes: Any) -> Any:
            storage = json.dumps({**server.storage_options, **changes})
            return spark.read.format("txnlog").option("storageOptions", storage)

        df = reader().load(server.url("lake/sales/orders"))
        assert ids(df) == list(range(20))
        execution = df._jdf.queryExecution()
        shown = [execution.toString(), execution.optimizedPlan().toJSON(), repr(df), repr(df.schema)]
        given = {"path": server.url("lake/sales/orders"), "storageOptions": json.dumps(server.storage_options)}
        options = read_options(given, streaming=False)
        scan = open_scan(options)
        shown += [repr(options), repr(scan), repr(scan.job(scan.schema)), repr(TopicBatchReader(options, scan.schema))]
        for path, changes in (("lake/sales/ordres", {}), ("lake/none/x", {}), ("lake/sales/orders", {"nonsense": 1})):
            with pytest.raises(PySparkException) as caught:
                reader(**changes).load(server.url(path))
            shown.append(str(caught.value))
        segment = txnlog.store.open_store(server.url("lake"), server.storage_options)
        _, task = tasks_of(namespace.snapshot().plan("orders"))[0]
        segment.put(f"sales/{task.key}", b"damage")
        with refused("CorruptionError", "segment") as caught:
            df.collect()
        shown.append(str(caught.value))
    assert "txnlog" in shown[0]
    for text in shown:
        assert SECRET_KEY not in text
