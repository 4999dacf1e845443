"""The option ``filters``: the rows that ``where`` would leave, and files that cannot hold one are not read."""

from __future__ import annotations

import datetime
import itertools
import json
import math
import operator
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txnlog
from spark_ext.read import filters
from spark_ext.read.conditions import OPERATORS, Condition, Span
from spark_ext.read.scan import _conditions, open_scan
from spark_ext.read.task_reader import _batches, _decode
from spark_ext.support import option_parsing as values
from spark_ext.support.options import read_options
from tests.by_hand import compact
from tests.spark.runs import Row, Run, batch, batch_reader
from tests.spark.support import path_of
from txnlog.errors import InvalidInputError
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace

START = datetime.datetime.fromtimestamp(START_MS / 1000, datetime.UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int8()),
        ("real", pa.float64()),
        ("single", pa.float32()),
        ("price", pa.decimal128(9, 2)),
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("data", pa.binary()),
        ("list", pa.list_(pa.int32())),
    ]
)
LONG = "é" * 31
"""Statistics keep 32 characters: these differ behind the cut, or at it."""
TEXTS = [
    "",
    "a",
    "A",
    "ab",
    f"{LONG}a",
    f"{LONG}aa",
    f"{LONG}ab",
    f"{LONG}\U0010ffff",
    f"{LONG}\U0010ffffz",
    "zz",
    "\U0001f986",
]
REALS = [0.0, -0.0, 0.1, 1.5, -2.25, 1e300, -1e300, math.inf, -math.inf, math.nan]
SINGLES = [0.0, -0.0, 0.5, float(pa.scalar(0.1, pa.float32()).as_py()), 3e38, math.inf, math.nan]


def value_of(chance: random.Random, kind: pa.DataType, step: int) -> Any:
    """A value of a type; small ranges that move with ``step``, so that segments can be told apart."""
    near = step * 10 + chance.randrange(10)
    if pa.types.is_binary(kind):
        return bytes([near % 256])
    if pa.types.is_list(kind):
        return [near]
    return {
        pa.int64(): near,
        pa.int8(): near % 100 - 50,
        pa.float64(): chance.choice([*REALS, near / 8, near / 8, near / 8]),
        pa.float32(): chance.choice([*SINGLES, near / 8, near / 8, near / 8]),
        pa.decimal128(9, 2): Decimal(near) / 4,
        pa.string(): chance.choice([*TEXTS, f"t{near:04}", f"t{near:04}"]),
        pa.bool_(): chance.random() < step / 10,
        pa.date32(): datetime.date(2026, 1, 1) + datetime.timedelta(days=near),
        pa.timestamp("us", "UTC"): START + datetime.timedelta(hours=near, microseconds=chance.randrange(3)),
        pa.timestamp("us"): START.replace(tzinfo=None) + datetime.timedelta(hours=near),
    }[kind]


def rows_of(chance: random.Random, step: int, count: int) -> pa.Table:
    """Rows of one transaction: some columns are all null, or free of null."""
    nulls = {name: chance.choice([0, 0, 0.2, 0.2, 1]) for name in SCHEMA.names}
    if step % 3 == 0:
        nulls["real"] = nulls["single"] = 0.2
    rows = [
        {
            field.name: None if chance.random() < nulls[field.name] else value_of(chance, field.type, step)
            for field in SCHEMA
        }
        for _ in range(count)
    ]
    if step % 3 == 0:
        for row in rows:  # segments with bounds in spite of floating point numbers
            row["real"] = None if row["real"] is None else step + (row["id"] or 0) % 3
            row["single"] = None if row["single"] is None else step / 4
    return pa.Table.from_pylist(rows, SCHEMA)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A topic of many small segments of all kinds: merged, shared, of open and aborted transactions."""
    clock, chance = ManualClock(START_MS), random.Random(20261121)
    root = str(tmp_path_factory.mktemp("filters") / "lake")
    with txnlog.open(root, namespace="sales", create=True, clock=clock) as ns:
        ns.create_topic("orders", SCHEMA, partitions=3, delta="off")
        ns.create_topic("audit", SCHEMA, delta="off")
        for step in range(24):
            clock.advance(1_000)
            with ns.begin() as txn:
                for partition in chance.sample(range(3), chance.choice([1, 1, 2])):
                    txn.produce("orders", rows_of(chance, step, chance.randrange(1, 7)), partition=partition)
        ns.produce("audit", rows_of(chance, 3, 5))
        aborted, opened = ns.begin(), ns.begin(timeout_ms=900_000)
        for txn in (aborted, opened):
            txn.produce("orders", rows_of(chance, 5, 4), partition=1)
            txn.flush()
        aborted.abort()
        alone = [s.number for s in ns.snapshot().plan("orders").segments if [p.partition for p in s.slices] == [2]]
        merged = next([a, b] for a, b in itertools.pairwise(alone) if neighbours(ns, a, b))
        compact(ns, "orders", merged, 2)
        rows = {
            level: ns.snapshot().read("orders", include_metadata=True, isolation_level=level).to_pylist()
            for level in ("read_committed", "read_uncommitted")
        }
        assert len(rows["read_uncommitted"]) == len(rows["read_committed"]) + 8
        yield SimpleNamespace(ns=ns, rows=rows["read_committed"], uncommitted=rows["read_uncommitted"])


def neighbours(ns: Namespace, first: int, second: int) -> bool:
    spans = {s.number: s.slices[0] for s in ns.snapshot().plan("orders").segments}
    assert spans[first].offset is not None
    return bool(spans[first].offset + spans[first].rows == spans[second].offset)


# --- what a condition means, said a second time -----------------------------------------------------------------------

KINDS = {field.name: field.type for field in SCHEMA} | {
    "_partition": pa.int32(),
    "_offset": pa.int64(),
    "_version": pa.int64(),
    "_timestamp": pa.timestamp("us", "UTC"),
    "_txn_state": pa.string(),
}
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def key(value: Any) -> Any:
    """Spark's order: NaN is above all numbers and equals itself; texts are compared by their bytes."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def satisfies(row: Row, name: str, op: str, value: Any) -> bool:
    found = row[name]
    if op in ("is null", "is not null"):
        return (found is None) == (op == "is null")
    if found is None:
        return False
    if op in ("in", "not in"):
        return (key(found) in [key(item) for item in value]) == (op == "in")
    if op in ("=", "!="):
        return (key(found) == key(value)) == (op == "=")
    return ORDERS[op](key(found), key(value))


def as_json(value: Any) -> Any:
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, datetime.date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def text_of(conditions: list[tuple[Any, ...]]) -> str:
    return json.dumps([[name, op, *map(as_json, rest)] for name, op, *rest in conditions])


@st.composite
def a_condition(draw: Any, known: dict[str, list[Any]]) -> tuple[Any, ...]:
    """One that may be true of something: with values that stand in a column, and their neighbours."""
    name = draw(st.sampled_from(sorted(known)))
    kind = KINDS[name]
    if pa.types.is_binary(kind) or pa.types.is_nested(kind):
        return (name, draw(st.sampled_from(["is null", "is not null"])))
    ops = [op for op in OPERATORS if op not in ORDERS or not pa.types.is_boolean(kind)]
    op = draw(st.sampled_from(ops))
    if op in ("is null", "is not null"):
        return (name, op)
    value = st.sampled_from(known[name])
    return (name, op, draw(st.lists(value, max_size=4) if op in ("in", "not in") else value))


def known_values(rows: list[Row], *, uncommitted: bool) -> dict[str, list[Any]]:
    """By column some values to compare with: those that are there, and some that are not."""
    result: dict[str, list[Any]] = {}
    for name, kind in KINDS.items():
        if name == "_txn_state" and not uncommitted:
            continue
        found = {repr(row[name]): row[name] for row in rows if row[name] is not None}
        some = [item for item in found.values() if not (isinstance(item, float) and not math.isfinite(item))]
        if pa.types.is_floating(kind):
            some += [0.1, 1e308, -5.5]
        elif pa.types.is_string(kind):
            some += [*TEXTS, "OPEN", "t0055x"]
        elif pa.types.is_integer(kind):
            some += [-7, 99]
        elif pa.types.is_timestamp(kind):
            some += [item + datetime.timedelta(microseconds=1) for item in some[:5]]
        result[name] = some
    return result


class Files:
    """A planned read whose files are decoded once, so that many conditions can be tried on them."""

    def __init__(self, ns: Namespace, level: str) -> None:
        given = {"path": path_of(ns, "orders"), "includeMetadata": "true", "isolationLevel": level}
        self.scan = open_scan(read_options(given, streaming=False))
        self.job = self.scan.job(self.scan.schema)
        store = ns._connection.store
        plan = self.scan.plan("orders", None)
        self.tables = {segment.number: _decode(store, self.job, (plan.topic, segment)) for segment in plan.segments}

    def read(self, text: str) -> tuple[list[Row], int]:
        """The rows that satisfy some conditions, and how many files were looked at for them."""
        conditions = _conditions(replace(self.scan.options, filters=values.filters(text)), self.scan.columns)
        plan = replace(self.scan, conditions=conditions).plan("orders", None)
        job = replace(self.job, conditions=conditions)
        found: list[Row] = []
        for segment in plan.segments:
            for item in _batches(job, ("orders", segment), self.tables[segment.number]):
                found += item.to_pylist()
        return found, len(plan.segments)


@pytest.mark.some(1)
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_a_read_with_filters_is_the_whole_read_filtered_afterwards(lake: Any, level: str) -> None:
    rows = lake.rows if level == "read_committed" else lake.uncommitted
    known = known_values(rows, uncommitted=level == "read_uncommitted")
    counts = {"nothing": 0, "some": 0, "pruned": 0}
    files = Files(lake.ns, level)

    @settings(max_examples=300, deadline=None, database=None, derandomize=True)
    @given(st.lists(a_condition(known), min_size=1, max_size=3))
    def check(conditions: list[tuple[Any, ...]]) -> None:
        text = text_of(conditions)
        found, looked_at = files.read(text)
        wanted = [row for row in rows if all(satisfies(row, n, op, *(rest or [None])) for n, op, *rest in conditions)]
        assert sorted(map(str, found)) == sorted(map(str, wanted)), text
        counts["some" if wanted else "nothing"] += 1
        counts["pruned"] += looked_at < len(files.tables)

    check()
    assert min(counts.values()) > 30, f"the conditions were too much alike: {counts}"


def tasks(ns: Namespace, topic: str = "orders", **options: Any) -> list[Any]:
    """The parts of files that a read decodes."""
    return [task for part in batch_reader(ns, topic, **options).partitions() for task in part.tasks]  # type: ignore[attr-defined]  # ours


# --- what is not read -------------------------------------------------------------------------------------------------


def test_files_that_cannot_hold_a_row_are_not_looked_at(namespace: Namespace) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("day", pa.date32())])
    namespace.create_topic("orders", schema, partitions=2)
    for step in range(6):
        rows = [{"id": 10 * step + i, "text": f"t{step}", "day": datetime.date(2026, 1, step + 1)} for i in range(3)]
        namespace.produce("orders", rows, partition=step % 2)
    versions = sorted({row["_version"] for row in batch(namespace, "orders")})
    cases: list[tuple[list[list[Any]], list[int]]] = [
        ([["id", ">", 29], ["id", "<=", 40]], [30, 31, 32, 40]),
        ([["text", "=", "t5"]], [50, 51, 52]),
        ([["day", "in", ["2026-01-02", "2027-01-01"]]], [10, 11, 12]),
        ([["_partition", "=", 1], ["id", "<", 12]], [10, 11]),
        ([["_version", ">=", versions[-1]]], [50, 51, 52]),
        ([["_partition", "=", 0], ["_offset", ">=", 7]], [41, 42]),
        ([["_offset", "<", 0]], []),
        ([["id", "is null"]], []),
    ]
    for conditions, wanted in cases:
        kept = {task[1].key for task in tasks(namespace, filters=json.dumps(conditions))}
        assert len(kept) <= max(1, len({number // 10 for number in wanted}))
        gone = [path for path in Path(path_of(namespace, "orders")).rglob("*.parquet") if not key_of(path, kept)]
        moved = [(path, path.rename(path.with_suffix(".away"))) for path in gone]
        assert len(moved) >= 4
        assert [row["id"] for row in batch(namespace, "orders", filters=json.dumps(conditions))] == wanted
        for path, away in moved:
            away.rename(path)


def key_of(path: Path, kept: set[str]) -> bool:
    return any(str(path).endswith(item) for item in kept)


def test_nothing_that_may_hold_is_left_out_where_the_log_does_not_know_enough() -> None:
    for op in OPERATORS:
        condition = Condition("x", op, () if op.startswith("is") else (5,))
        assert condition.may_hold(Span())
        assert condition.may_hold(Span(low=None, high=9)) or op == "is null"
    assert Condition("x", ">", (5,)).may_hold(Span(low=1, high=None))
    assert Condition("x", "!=", (5,)).may_hold(Span(5, 6))
    assert not Condition("x", "!=", (5,)).may_hold(Span(5, 5))
    assert not Condition("x", "in").may_hold(Span(1, 9))
    assert Condition("x", "not in").may_hold(Span(1, 9))


@pytest.mark.parametrize(
    ("kind", "bound"),
    [
        (pa.int64(), "7"),
        (pa.string(), 7),
        (pa.bool_(), 1),
        (pa.decimal128(9, 2), 7),
        (pa.decimal128(9, 2), "seven"),
        (pa.date32(), "yesterday"),
        (pa.timestamp("us", "UTC"), "2026-01-01T00:00:00.000000"),
        (pa.timestamp("us"), "2026-01-01T00:00:00.000000Z"),
        (pa.float64(), "1.5"),
        (pa.int64(), 1.5),
    ],
)
def test_a_bound_in_a_form_that_is_not_ours_says_nothing(kind: pa.DataType, bound: Any) -> None:
    assert filters._bound(bound, kind) is None


# --- around it --------------------------------------------------------------------------------------------------------


def test_columns_that_are_not_asked_for_are_filtered_by_as_well(lake: Any) -> None:
    wanted = sorted(row["id"] or 0 for row in lake.rows if row["_partition"] == 1 and (row["small"] or -99) > 0)
    text = json.dumps([["small", ">", 0], ["_partition", "==", 1]])
    found = batch(lake.ns, "orders", columns="id", includeMetadata="false", filters=text)
    assert sorted(row["id"] or 0 for row in found) == wanted
    assert found[0].keys() == {"id"}
    both = json.dumps([["_topic", "=", "audit"], ["id", "IS  NOT NULL"]])
    rows = batch(lake.ns, subscribe="orders,audit", columns="id", includeMetadata="false", filters=both)
    audit = lake.ns.snapshot().read("audit").column("id").to_pylist()
    assert [row["id"] for row in rows] == [number for number in audit if number is not None]


@pytest.mark.parametrize("merged", [False, True])
def test_the_columns_of_dead_letters_are_a_topics_own_whatever_their_names_begin_with(
    namespace: Namespace, merged: bool
) -> None:
    ns = namespace
    ns.create_topic("orders", pa.schema([("id", pa.int64())]))
    ns.create_subscription("orders", "billing", dead_letter_topic="dead")
    for number in range(6):
        reason = None if number == 2 else f"no {number}"
        letter = {"id": number, "_dead_reason": reason, "_source_topic": "orders", "_source_offset": 10 * number}
        ns.produce("dead", [letter])
    if merged:
        ns.optimize("dead")
    for condition, wanted in (
        (["_dead_reason", "=", "no 3"], [3]),
        (["_dead_reason", "is null"], [2]),
        (["_source_offset", ">=", 40], [4, 5]),
        (["_redeliveries", "is not null"], []),
        (["_offset", "<", 1], [0]),
    ):
        found = batch(ns, "dead", filters=json.dumps([condition]))
        assert sorted(row["id"] for row in found) == wanted, condition


def test_filters_go_with_bounds_and_an_empty_list_is_none(lake: Any) -> None:
    version = lake.rows[len(lake.rows) // 2]["_version"]
    text = json.dumps([["_partition", "!=", 0]])
    found = batch(lake.ns, "orders", startingVersion=version, filters=text)
    wanted = [row for row in lake.rows if row["_version"] >= version and row["_partition"] != 0]
    assert sorted(map(str, found)) == sorted(map(str, wanted))
    assert len(batch(lake.ns, "orders", filters="[]")) == len(lake.rows)


def test_a_stream_leaves_out_rows_and_goes_on_behind_them(namespace: Namespace) -> None:
    namespace.create_topic("orders", pa.schema([("id", pa.int64())]), partitions=2)
    run = Run(namespace, "orders", filters='[["id", ">=", 100]]', subscription="billing")
    for first in (0, 100, 20):
        namespace.produce("orders", [{"id": first + i} for i in range(3)], partition=0)
    assert [row["id"] for row in run.all()] == [100, 101, 102]
    namespace.produce("orders", [{"id": 5}], partition=1)
    assert run.batch() == [], "a batch without a row"
    run.reader.commit(run.log[-1])
    namespace._connection.follower.refresh()
    assert [item.cursor for item in namespace.subscription("orders", "billing").cursors] == [9, 1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", r"is a JSON list like \[\[\"amount\""),
        ("{}", "is a JSON list"),
        ('["id", ">", 1]', "is a JSON list"),
        ('[["id"]]', "is a JSON list"),
        ('[["id", ">", 1, 2]]', "is a JSON list"),
        ('[[1, ">", 1]]', "is a JSON list"),
        ('[["id", ">", NaN]]', "is a JSON list|a whole number of 64 bits is wanted"),
        ("[" * 100_000, "is a JSON list"),
        ('[["idd", ">", 1]]', r"names 'idd', which the topic does not have \(did you mean 'id'"),
        ('[["_txn_state", "=", "OPEN"]]', r"names '_txn_state', which the topic does not have"),
        ('[["id", "~", 1]]', r"has no operator '~' \(use =, !=, in, not in, <, <=, >, >=, is null, is not null"),
        ('[["id", "="]]', r"on the column 'id' \(int64\): '=' takes a value"),
        ('[["id", "is null", 1]]', r"'is null' takes no value"),
        ('[["id", "in", 1]]', r"'in' takes a list of values, not 1"),
        ('[["id", "=", [1]]]', r"a whole number of 64 bits is wanted, not \[1\]"),
        ('[["id", "=", "1"]]', r"a whole number of 64 bits is wanted, not '1'"),
        ('[["id", "=", 1.0]]', r"a whole number of 64 bits is wanted"),
        ('[["id", "=", true]]', r"a whole number of 64 bits is wanted, not True"),
        ('[["small", "=", 128]]', r"a whole number of 8 bits is wanted, not 128"),
        ('[["id", "=", null]]', r"null is compared by 'is null'"),
        ('[["id", "in", [1, null]]]', r"null is compared by 'is null'"),
        ('[["real", ">", "1"]]', r"a number is wanted, not '1'"),
        ('[["real", ">", 1e999]]', r"a number is wanted"),
        ('[["price", ">", 1.005]]', r"a number with at most 2 decimals is wanted"),
        ('[["price", ">", "NaN"]]', r"a number with at most 2 decimals is wanted"),
        ('[["text", "=", 1]]', r"a text is wanted, not 1"),
        ('[["text", "=", "\\ud800"]]', r"a text is wanted"),
        ('[["flag", ">", true]]', r"true and false have no order"),
        ('[["flag", "=", 1]]', r"true or false is wanted, not 1"),
        ('[["day", "=", "2026-11-21T00:00:00"]]', r"a day like 2026-11-21 is wanted"),
        ('[["at", "=", "2026-11-21T08:00:00"]]', r"a time with its zone, like 2026-11-21T08:00:00Z is wanted"),
        ('[["local", "=", "2026-11-21T08:00:00Z"]]', r"a time like 2026-11-21T08:00:00 is wanted"),
        ('[["data", "=", "x"]]', r"it can be tested for null only"),
        ('[["list", "=", [1]]]', r"it can be tested for null only"),
    ],
)
def test_conditions_that_make_no_sense_are_refused_with_the_column_and_what_is_wanted(
    lake: Any, text: str, problem: str
) -> None:
    for read in (batch, Run):
        with pytest.raises(InvalidInputError, match=f"the option 'filters' .*(?:{problem})"):
            read(lake.ns, "orders", filters=text)


# --- beside Spark -----------------------------------------------------------------------------------------------------


def test_spark_agrees_what_conditions_mean(spark: SparkSession, lake: Any) -> None:
    path = path_of(lake.ns, "orders")
    frame = spark.read.format("txnlog").option("includeMetadata", "true").load(path).cache()
    cases = {
        "real > 1.5D": [["real", ">", 1.5]],
        "real <= 0D": [["real", "<=", 0]],
        "real = 0D": [["real", "=", 0]],
        "real NOT IN (0D, 1.5D)": [["real", "not in", [0, 1.5]]],
        "single >= 0.1D": [["single", ">=", 0.1]],
        "single != 0.1D": [["single", "!=", 0.1]],
        "price IN (7.50BD, 12.25BD)": [["price", "in", [7.5, "12.25"]]],
        f"text > '{LONG}aa'": [["text", ">", f"{LONG}aa"]],
        "text < 'a'": [["text", "<", "a"]],
        "NOT flag": [["flag", "!=", True]],
        "day >= date'2026-03-01' AND list IS NULL": [["day", ">=", "2026-03-01"], ["list", "is null"]],
        "at <= timestamp'2026-01-04 05:00:00Z'": [["at", "<=", "2026-01-04T05:00:00Z"]],
        "local > timestamp_ntz'2026-01-03 05:00:00'": [["local", ">", "2026-01-03T05:00:00"]],
        "_timestamp < timestamp'2026-01-01 00:00:07Z' AND _partition != 1": [
            ["_timestamp", "<", "2026-01-01T00:00:07Z"],
            ["_partition", "!=", 1],
        ],
    }
    try:
        wanted = frame.selectExpr("_partition", "_offset", *(f"{sql} AS c{i}" for i, sql in enumerate(cases))).collect()
    finally:
        frame.unpersist()
    for number, (sql, conditions) in enumerate(cases.items()):
        found = batch(lake.ns, "orders", filters=json.dumps(conditions))
        places = sorted((row["_partition"], row["_offset"]) for row in found)
        assert places == sorted((row[0], row[1]) for row in wanted if row[number + 2]), sql
        assert 0 < len(places) < len(lake.rows), sql


def test_spark_gives_right_rows_with_its_own_push_down_on_and_off(spark: SparkSession, lake: Any) -> None:
    """Spark 4.2 keeps one plan for all queries on a DataFrame: what one of them pushed would bind the others."""
    text = json.dumps([["_partition", "=", 1]])
    setting = "spark.sql.python.filterPushdown.enabled"
    counts = {p: sum(row["_partition"] == p for row in lake.rows) for p in range(3)}
    for state in ("true", "false"):
        spark.conf.set(setting, state)
        try:
            df = spark.read.format("txnlog").option("includeMetadata", "true").load(path_of(lake.ns, "orders"))
            assert df.where("_partition = 0").count() == counts[0]
            assert df.count() == len(lake.rows), "the query before has not narrowed it"
            both = df.where("_partition = 0").unionAll(df.where("_partition = 1"))
            assert both.count() == counts[0] + counts[1]
            reader = spark.read.format("txnlog").option("filters", text)
            assert reader.load(path_of(lake.ns, "orders")).count() == counts[1]
        finally:
            spark.conf.unset(setting)
