"""``ns.fsck``: healthy namespaces are clean whatever happened there, and what cannot be checked is never clean."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from tests.by_hand import append, lay
from tests.client.support import Place, busy, raises, rows
from tests.damage import healthy
from tests.effort import every, tries
from tests.histories import history
from tests.unit.random_entries import entries
from txnlog.api.checking import check_namespace
from txnlog.data.segment_file import encode
from txnlog.errors import AccessDenied, InvalidInputError, NamespaceNotFound, ReadOnly, StoreError
from txnlog.format import keys
from txnlog.format.actions import Begin, DeleteRecords, Replace
from txnlog.results import FsckReport
from txnlog.store import ForwardingStore, HookStore, MemoryStore, Store, StoreCall
from txnlog.testing import ManualClock
from txnlog.testing.conformance.cases import GOLDEN, cases_of
from txnlog.testing.workloads import WORKLOADS

LEVELS = ("quick", "full", "deep")
HOUR_MS = 3_600_000


def clean(report: FsckReport) -> FsckReport:
    assert [item for item in report.findings if item.severity != "note"] == []
    assert report.is_clean
    return report


def found(report: FsckReport, severity: str) -> list[Any]:
    return [item for item in report.findings if item.severity == severity]


# --- healthy ones -----------------------------------------------------------------------------------------------------


def test_a_busy_namespace_is_clean_at_every_level_from_every_kind_of_handle(place: Place, clock: ManualClock) -> None:
    ns = place.open(clock=clock)
    for seed in range(3):
        busy(ns, seed)
        ns.checkpoint()
        ns.optimize("orders")
    append(ns, DeleteRecords(ns._connection.topic_record("orders").id, ((0, 3),)))
    reader = place.open(mode="r", clock=clock)
    for handle in (ns, reader):
        for level in LEVELS:
            report = clean(handle.fsck(level))
            assert (report.level, report.version) == (level, ns.snapshot().version)
    deep = reader.fsck("deep")
    assert deep.checked["row"] > 50
    assert deep.checked["checkpoint"] >= 3
    with raises(ReadOnly):
        reader.checkpoint()


def test_topics_of_every_shape_are_clean(memory: Place, clock: ManualClock) -> None:
    ns = memory.open(clock=clock)
    kinds = [pa.int32(), pa.float32(), pa.string(), pa.binary(), pa.bool_(), pa.date32(), pa.decimal128(9, 2)]
    kinds += [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.list_(pa.int64()), pa.struct([("a", pa.int64())])]
    schema = pa.schema([(f"c{place}", kind) for place, kind in enumerate(kinds)])
    ns.create_topic("shapes", schema, partitions=3, delta="off")
    values = [
        7,
        1.5,
        "x" * 50,
        b"\x00",
        True,
        datetime.date(2026, 1, 2),
        decimal.Decimal("1.25"),
        10,
        10,
        [1],
        {"a": 1},
    ]
    arrays = [pa.array([None, value, value], field.type) for field, value in zip(schema, values, strict=True)]
    table = pa.table(arrays, schema=schema)
    for partition in range(3):
        ns.produce("shapes", table, partition=partition)
        ns.produce("shapes", table.slice(0, 1), partition=partition)
    ns.alter_topic("shapes", widen={"c0": pa.int64(), "c1": pa.float64()}, add_columns=[pa.field("new", pa.string())])
    ns.produce("shapes", table, partition=0)
    clean(ns.fsck("deep"))
    assert ns.optimize("shapes").merged_segments
    assert clean(ns.fsck("deep")).checked["row"] > 12


def test_a_vacuum_leaves_a_clean_namespace_and_one_that_runs_meanwhile_is_no_finding(
    memory: Place, clock: ManualClock
) -> None:
    ns = memory.orders(clock=clock)
    for number in range(6):
        ns.produce("orders", rows(number))
    ns.optimize("orders")
    clock.advance(30 * 24 * HOUR_MS)
    ns.produce("orders", rows(9))

    def while_it_runs(store: Store) -> Store:
        done: list[int] = []

        def before(call: StoreCall, key: str) -> None:
            if call is StoreCall.LIST and keys.SEGMENT_COLUMN in key and not done:
                done.append(1)
                assert ns.vacuum().replaced_files

        return HookStore(store, before=before)

    report = memory.open(mode="r", wrap=while_it_runs, clock=clock).fsck("deep")
    clean(report)
    assert report.version < ns.snapshot().version
    clean(ns.fsck("deep"))


def test_entries_that_are_appended_meanwhile_are_no_finding(memory: Place) -> None:
    ns = memory.orders(1)
    ns.checkpoint()

    def writing(store: Store) -> Store:
        def before(call: StoreCall, key: str) -> None:
            if call in {StoreCall.LIST, StoreCall.GET} and ns.snapshot().version < 40:
                ns.produce("orders", rows(1))
                ns.checkpoint()

        return HookStore(store, before=before)

    reader = memory.open(mode="r")
    version = ns.snapshot().version
    report = check_namespace("x", "sales", level="deep", store=writing(memory.store()))
    clean(report)
    assert report.version >= version
    assert reader.fsck().is_clean


def test_whoever_listens_hears_how_far_it_is(memory: Place) -> None:
    heard: list[tuple[str, int, int]] = []
    memory.orders(1, 2).fsck("deep", progress=lambda *what: heard.append(what))
    assert {kind for kind, _, _ in heard} >= {"entry", "segment", "file"}
    assert all(done <= known for _, done, known in heard)


@pytest.mark.parametrize("seed", [pytest.param(s, marks=pytest.mark.long if s >= 5 else ()) for s in range(200)])
def test_what_a_simulation_leaves_is_clean_at_every_level(seed: int) -> None:
    """Random histories of every workload, with faults, crashes, merges, deletions and vacuums, at rest.

    What was damaged on purpose was put back. `make healthy` checks 1,000 of them.
    """
    found = healthy.checked(seed)
    assert found.failures == ()
    assert found.findings == ()
    assert found.looked_at["row"] > 0
    assert found.workload == WORKLOADS[seed % len(WORKLOADS)]


@settings(max_examples=tries(300, 20), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(entries)
def test_the_entries_of_a_random_log_are_clean(todo: Any) -> None:
    """Its segments were never written, and nothing else is missing."""
    store = MemoryStore()
    for version, data in enumerate(history(todo).stored):
        store.put(f"sales/{keys.entry_key(version)}", data)
    for report in (
        check_namespace("x", "sales", level="quick", store=store, clock=ManualClock(0)),
        check_namespace("x", "sales", level="full", store=store, clock=ManualClock(0)),
    ):
        damage = {item.kind for item in report.findings if item.severity != "warning"}  # a transaction may be overdue
        assert damage <= {"segment"}, report.findings


GOLDEN_ROOTS = sorted({(case.golden, case.root, case.namespace) for case in cases_of(GOLDEN)})
FAULTS_OF_THE_KIT = {
    # Its rows of partition 2 lie in another order than the commits claim them, which no writer leaves.
    ("produces", "sales"),
    # Files that the kit names without writing them, or fills with the rows of others.
    ("unusual", "end_of_63_bits"),
    ("unusual", "replace_without_deleted_rows"),
}


def test_golden_roots_are_clean_where_readers_get_rows_and_only_there(tmp_path: Path) -> None:
    wrong: list[object] = []
    first, step = every(4)
    for golden, root, namespace in GOLDEN_ROOTS[first::step]:
        answers = {case.expected.kind for case in cases_of(GOLDEN) if (case.root, case.namespace) == (root, namespace)}
        if (golden, namespace) in FAULTS_OF_THE_KIT or not (root / namespace / "_log").is_dir():
            continue
        report = check_namespace(root, namespace, level="deep", clock=ManualClock(0))
        damaged = bool(answers & {"damaged", "unsupported"})
        if damaged != bool(found(report, "damage") + found(report, "unchecked")) and golden != "lost":
            wrong.append((golden, namespace, answers, report.findings[:3]))
    assert wrong == []


# --- what is not right ------------------------------------------------------------------------------------------------


def test_an_overdue_transaction_is_a_warning_that_says_how_to_end_it(lake: Any, clock: ManualClock) -> None:
    txn = lake.begin(timeout_ms=1_000)
    txn.produce("orders", rows(1))
    txn.flush()
    assert lake.fsck().is_clean
    clock.advance(60_000)
    (finding,) = lake.fsck().findings
    assert (finding.severity, finding.kind, finding.key) == ("warning", "transaction", str(txn.id))
    assert "ns.abort(" in finding.advice
    txn.abort()


def test_files_that_no_entry_names_are_a_note(lake: Any, memory: Place) -> None:
    memory.store().put(f"sales/{keys.segment_key('orders', 5, 'a' * 32 + '.parquet')}", b"x" * 10)
    report = lake.fsck()
    (finding,) = report.findings
    assert (finding.severity, finding.kind) == ("note", "segment")
    assert "10 bytes" in finding.message
    assert report.is_clean


def test_a_file_under_a_number_that_no_entry_reserved_shows_a_lost_end(lake: Any, memory: Place) -> None:
    beyond = lake._connection.next_number
    memory.store().put(f"sales/{keys.segment_key('orders', beyond, 'a' * 32 + '.parquet')}", b"x")
    (finding,) = found(lake.fsck(), "warning")
    assert f"the number {beyond}, which no entry gave to a writer" in finding.message


class _NoListing(ForwardingStore):
    def list(self, prefix: str) -> Any:
        raise AccessDenied(f"no right to list {prefix}", right="list", url=prefix)


def _refusing(kind: str) -> Callable[[Store], Store]:
    def before(call: StoreCall, key: str) -> None:
        if call is StoreCall.GET and keys.kind_of(key) == kind and "_log/0000000000" not in key:
            raise StoreError("the store is away for a moment")

    return lambda store: HookStore(store, before=before)


def test_what_cannot_be_listed_is_unchecked_and_not_clean(memory: Place) -> None:
    ns = memory.orders(1, 2)
    ns.checkpoint()
    report = check_namespace("x", "sales", level="deep", store=_NoListing(memory.store()))
    assert not report.is_clean
    assert {item.severity for item in report.findings} == {"unchecked"}
    assert {item.kind for item in report.findings} == {"entry", "checkpoint", "segment"}
    assert report.version == ns.snapshot().version


@pytest.mark.parametrize("kind", ["segment", "checkpoint"])
def test_what_the_store_does_not_return_is_unchecked_and_not_clean(memory: Place, kind: str) -> None:
    ns = memory.orders(1, 2)
    ns.checkpoint()
    report = check_namespace("x", "sales", level="full", store=_refusing(kind)(memory.store()))
    assert {(item.severity, item.kind) for item in report.findings} == {("unchecked", kind)}
    assert "away for a moment" in report.findings[0].message


def test_a_listing_that_is_behind_loses_nothing(memory: Place) -> None:
    ns = memory.orders(1, 2)
    ns.checkpoint()

    class Behind(ForwardingStore):
        def list(self, prefix: str) -> Any:
            return iter(list(self.inner.list(prefix))[:-1])

    clean(check_namespace("x", "sales", level="full", store=Behind(memory.store())))


def test_a_folder_that_is_gone_is_no_damage(memory: Place) -> None:
    ns = memory.orders(1)
    store = memory.store()
    for info in list(store.list("sales/")):
        store.delete(info.key)
    with raises(NamespaceNotFound):
        ns.fsck()


def test_an_unknown_level_is_refused_with_the_nearest(memory: Place) -> None:
    with raises(InvalidInputError, match="'deep'"):
        memory.orders(1).fsck("dep")


# --- only the deep check sees -----------------------------------------------------------------------------------------


def _replaced_by(ns: Any, table: pa.Table, **change: Any) -> FsckReport:
    """The deep check after the two segments of ``orders`` were replaced by this file, whose checksum is right."""
    record = ns._connection.topic_record("orders")
    plan = ns.snapshot().plan("orders").segments
    number, txn = ns._connection.reserve_block(2)[:2]
    merged = lay(ns, "orders", number, encode(table), txn, {0: table.num_rows}, compacted=True)
    merged = msgspec.structs.replace(merged, **change)
    append(ns, Begin(txn), merged, Replace(record.id, txn, tuple(item.number for item in plan), (0,)))
    assert ns.fsck("full").is_clean, "all bytes are as recorded"
    return ns.fsck("deep")


def _merged(ns: Any) -> pa.Table:
    """What a merge of both segments of ``orders`` writes."""
    table = ns.snapshot().read("orders", include_metadata=True)
    txns = [int.from_bytes(value[2:], "big") for value in table["_txn_id"].to_pylist()]
    stored = [
        (pa.field("_txn", pa.int64(), False), pa.array(txns, pa.int64())),
        (pa.field("_version", pa.int64(), False), table["_version"].cast(pa.int64())),
        (pa.field("_timestamp", pa.timestamp("us", "UTC"), False), table["_timestamp"]),
    ]
    table = table.select(["id", "name"])
    for field, column in stored:
        table = table.append_column(field, column)
    return table


@pytest.fixture
def two(lake: Any, clock: ManualClock) -> Any:
    """Two segments of one message each."""
    for number in (1, 2):
        clock.advance(1_000)
        lake.produce("orders", rows(number))
    return lake


def test_a_right_merge_is_clean(two: Any) -> None:
    clean(_replaced_by(two, _merged(two)))


@pytest.mark.parametrize(("column", "said"), [("_txn", "transactions"), ("_version", "versions or times")])
def test_a_merged_file_with_rows_of_others_is_found_by_the_deep_check(two: Any, column: str, said: str) -> None:
    table = _merged(two)
    place = table.schema.get_field_index(column)
    swapped = table.set_column(place, table.schema.field(place), table[column].take(pa.array([1, 0])))
    (finding,) = found(_replaced_by(two, swapped), "damage")
    assert f"its rows are of other {said} than the log says" in finding.message


@pytest.mark.parametrize(
    "statistics", [{"id": (2, 9, 0)}, {"id": (0, 1, 0)}, {"id": (1, 2, 1)}, {"name": ("\U0010ffff", None, 0)}]
)
def test_statistics_that_do_not_hold_are_found_by_the_deep_check(two: Any, statistics: Any) -> None:
    (finding,) = found(_replaced_by(two, _merged(two), statistics=statistics), "damage")
    assert f"in its column {next(iter(statistics))!r}" in finding.message
