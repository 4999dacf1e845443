"""What reading answers (docs/guarantees.md, Reading): snapshots, time travel, isolation, offsets, columns, filters."""

from __future__ import annotations

import datetime
import decimal
import pickle
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.client.support import SCHEMA, Place, Unchanged, begun, ids, kind_of, raises, read, rows, run_threads
from txnlog.data import segment_reader as reader
from txnlog.errors import (
    Durable,
    InvalidInputError,
    OffsetOutOfRange,
    SchemaMismatch,
    TopicNotFound,
    TxnLogError,
    VersionNotAvailable,
)
from txnlog.format.actions import DeleteRecords
from txnlog.log.commands import Simple
from txnlog.replies import reworded
from txnlog.store import HookStore
from txnlog.store.wrappers import StoreCall
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS


def at(milliseconds: int) -> datetime.datetime:
    """A time with a zone that is not UTC."""
    zone = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
    return datetime.datetime.fromtimestamp(0, zone) + datetime.timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda ns: ns.snapshot(version=99), "version 99 cannot be read (versions 0 to 2 can be read)"),
        (
            lambda ns: ns.subscription("orders", "bill"),
            "the topic 'orders' has no subscription 'bill' (did you mean 'billing'?)",
        ),
        (
            lambda ns: ns.snapshot().read("orders", offsets={7: (0, 1)}),
            "there is no partition 7 (partitions are 0 to 1)",
        ),
        (
            lambda ns: ns.snapshot().read("orders", offsets={0: (10, 5)}),
            (
                "partition 0: the start 10 is beyond the end 5 (offsets are (start, end), without the end; there are "
                "some between 0 and 0)"
            ),
        ),
        (
            lambda ns: ns.snapshot(version=0).read("orders"),
            "no topic 'orders' in the namespace 'sales' at version 0 (there is one from version 1 on)",
        ),
        (
            lambda ns: ns.snapshot(version=1).read("order"),
            "no topic 'order' in the namespace 'sales' at version 1 (did you mean 'orders'?)",
        ),
        (
            lambda ns: ns.snapshot(timestamp=START_MS // 1000),
            (
                f"the log begins after {START_MS // 1000} (epoch milliseconds) (these seem to be seconds: give epoch "
                "milliseconds, 1,000 times as many)"
            ),
        ),
    ],
)
def test_an_error_of_a_look_does_not_say_that_nothing_was_written(ns: Any, call: Any, told: str) -> None:
    ns.create_subscription("orders", "billing")
    with pytest.raises(TxnLogError) as caught:
        call(ns)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert [str(caught.value), str(copy), copy.durable] == [told, told, Durable.NOTHING]
    assert str(reworded(copy, durable=Durable.MAYBE)) == f"{told[:-1]}; data may be durable)"


@pytest.mark.clause("P-99", "P-124")
def test_a_version_shows_whole_transactions_over_all_topics(ns: Any, place: Place) -> None:
    ns.create_topic("audit", SCHEMA)
    versions = []
    for number in range(4):
        with ns.begin() as txn:
            txn.produce("orders", rows(number), partition=number % 2)
            txn.produce("audit", rows(number))
        versions.append(txn.result.version)
    other = place.open(mode="r")
    for count, version in enumerate(versions, start=1):
        for client in (ns, other):
            snapshot = client.snapshot(version=version)
            assert sorted(ids(snapshot.read("orders"))) == ids(snapshot.read("audit")) == list(range(count))
            assert sum(snapshot.end_offsets("orders").values()) == count
            assert snapshot.version == version


@pytest.mark.clause("P-34")
def test_time_travel_across_drops_and_creations_of_a_topic(sales: Any) -> None:
    sales.produce("orders", rows(1))
    first = sales.snapshot()
    sales.drop_topic("orders")
    gone = sales.snapshot()
    sales.create_topic("orders", pa.schema([pa.field("other", pa.string())]), partitions=3)
    sales.produce("orders", [{"other": "x"}], partition=2)
    second = sales.snapshot()
    sales.drop_topic("orders")
    assert ids(first.read("orders")) == [1]
    assert first.topics() == ("audit", "orders")
    assert gone.topics() == ("audit",)
    for call in (gone.read, gone.end_offsets, gone.scan, gone.plan):
        with raises(TopicNotFound):
            call("orders")
    assert second.read("orders").to_pylist() == [{"other": "x"}]
    assert second.end_offsets("orders") == {0: 0, 1: 0, 2: 1}
    assert first.end_offsets("orders") == {0: 1}
    assert first.read("orders").schema == SCHEMA


@pytest.mark.clause("P-103")
@pytest.mark.parametrize("version", [-1, 10_000, None])
def test_a_version_that_cannot_be_read_names_the_range(ns: Any, version: Any) -> None:
    if version is None:
        assert ns.snapshot(version=None).version == ns.snapshot().version
        return
    with raises(VersionNotAvailable) as caught:
        ns.snapshot(version=version)
    assert caught.value.advice == f"versions 0 to {ns.snapshot().version} can be read"


@pytest.mark.parametrize("version", ["1", 1.0, True, datetime.datetime(2026, 11, 29, tzinfo=datetime.UTC)])
def test_a_version_that_is_no_whole_number_is_a_wrong_call(ns: Any, version: Any) -> None:
    with raises(InvalidInputError) as caught:
        ns.snapshot(version=version)
    more = "" if isinstance(version, float | bool) else ", or a time as timestamp="
    shown = repr(version)[:40]
    assert str(caught.value).startswith(f"the version is a whole number, not {shown}")
    assert f"(give 0 to {ns.snapshot().version}{more})" in str(caught.value)


def test_a_time_is_the_newest_version_at_or_below_it(place: Place, clock: ManualClock) -> None:
    ns = place.orders(clock=clock)
    versions = []
    for number in range(8):
        clock.advance(1_000)
        versions.append(ns.produce("orders", rows(number)).version)
    for index, version in enumerate(versions):
        moment = START_MS + 1_000 * (index + 1)
        for given in (moment, at(moment), at(moment + 999), at(moment).isoformat()):
            assert ns.snapshot(timestamp=given).version == version
        assert ns.snapshot(timestamp=at(moment - 1)).version == version - 1
    assert ns.snapshot(timestamp=at(START_MS * 2)).version == versions[-1]
    with raises(VersionNotAvailable, match="begins after"):
        ns.snapshot(timestamp=at(START_MS - 1))
    with raises(VersionNotAvailable, match="epoch milliseconds"):
        ns.snapshot(timestamp=START_MS // 1000)
    with raises(InvalidInputError, match="not both"):
        ns.snapshot(version=1, timestamp=at(START_MS))


@pytest.mark.parametrize(
    "timestamp",
    [datetime.datetime(2026, 1, 1), "2026-01-01", "yesterday", 1.5, True, datetime.date(2026, 1, 1)],  # noqa: DTZ001
)
def test_a_time_without_a_zone_is_refused(ns: Any, timestamp: Any) -> None:
    with raises(InvalidInputError, match="zone"):
        ns.snapshot(timestamp=timestamp)


@pytest.mark.parametrize("milliseconds", [1, 7, 333, 999, 1_001])
def test_no_millisecond_is_lost_in_a_time(place: Place, milliseconds: int) -> None:
    clock = ManualClock(START_MS + milliseconds)
    ns = place.open(clock=clock)
    assert ns.snapshot(timestamp=at(START_MS + milliseconds)).version == 0
    with raises(VersionNotAvailable):
        ns.snapshot(timestamp=at(START_MS + milliseconds) - datetime.timedelta(microseconds=1))


# --- isolation and metadata -----------------------------------------------------------------------------------------


@pytest.mark.clause("P-99", "P-101", "P-102")
def test_both_isolation_levels(place: Place, clock: ManualClock) -> None:
    ns = place.orders(0, clock=clock)
    committed, open_one, aborted = ns.begin(), ns.begin(), ns.begin()
    for number, txn in enumerate((committed, open_one, aborted), start=1):
        txn.produce("orders", rows(number))
        txn.flush()
    pending = ns.snapshot()
    clock.advance(500)
    committed.commit()
    aborted.abort()
    assert read(ns) == [0, 1]
    assert ids(pending.read("orders")) == [0]
    table = ns.snapshot().read("orders", isolation_level="read_uncommitted", include_metadata=True)
    assert table.column_names[-2:] == ["_version", "_txn_state"]
    found = {
        row["id"]: (row["_txn_state"], row["_offset"], row["_version"], row["_timestamp"], row["_txn_id"])
        for row in table.to_pylist()
    }
    version = committed.result.version
    moment = datetime.datetime.fromtimestamp((START_MS + 500) / 1000, datetime.UTC)
    assert found[1] == ("COMMITTED", 1, version, moment, committed.id.to_bytes())
    assert found[2] == ("OPEN", None, None, None, open_one.id.to_bytes())
    assert found[3] == ("ABORTED", None, None, None, aborted.id.to_bytes())
    states = pending.read("orders", isolation_level="read_uncommitted", include_metadata=True).column("_txn_state")
    assert states.to_pylist() == ["COMMITTED", "OPEN", "OPEN", "OPEN"]
    plain = ns.snapshot().read("orders", isolation_level="read_uncommitted")
    assert (plain.column_names, sorted(ids(plain))) == (["id", "name"], [0, 1, 2, 3])
    with raises(InvalidInputError, match="read_comitted") as caught:
        ns.snapshot().read("orders", isolation_level="read_comitted")
    assert "read_committed" in caught.value.advice


def test_metadata_comes_from_the_log(ns: Any) -> None:
    one = ns.produce("orders", rows(0, 1), partition=1)
    with ns.begin() as txn:
        txn.produce("orders", rows(2), partition=0)
        txn.produce("orders", rows(3, 4), partition=1)
    table = ns.snapshot().read("orders", include_metadata=True)
    assert table.schema == pa.schema(
        [
            *SCHEMA,
            pa.field("_partition", pa.int32(), False),
            pa.field("_offset", pa.int64()),
            pa.field("_timestamp", pa.timestamp("us", "UTC")),
            pa.field("_txn_id", pa.binary(16), False),
            pa.field("_version", pa.int64()),
        ]
    )
    found = {
        row["id"]: (row["_partition"], row["_offset"], row["_version"], row["_txn_id"]) for row in table.to_pylist()
    }
    mine, other = (txn.result.version, txn.id.to_bytes()), (one.version, one.txn_id.to_bytes())
    assert found == {0: (1, 0, *other), 1: (1, 1, *other), 2: (0, 0, *mine), 3: (1, 2, *mine), 4: (1, 3, *mine)}


# --- offsets, columns, filters --------------------------------------------------------------------------------------


@pytest.fixture
def twenty(ns: Any) -> Any:
    """Twenty rows in two partitions, in entries of five: 0-9 in partition 0, 100-109 in partition 1."""
    for first in (0, 5):
        ns.produce("orders", rows(*range(first, first + 5)), partition=0)
        ns.produce("orders", rows(*range(100 + first, 105 + first)), partition=1)
    return ns


def test_offsets_choose_partitions_and_ranges(twenty: Any) -> None:
    snapshot = twenty.snapshot()
    assert sorted(read(twenty)) == [*range(10), *range(100, 110)]
    assert read(twenty, offsets={0: (3, 7)}) == [3, 4, 5, 6]
    assert sorted(read(twenty, offsets={0: (8, 10), 1: (0, 1)})) == [8, 9, 100]
    assert read(twenty, offsets={}) == read(twenty, offsets={1: (4, 4)}) == []
    assert len(snapshot.plan("orders", offsets={0: (0, 5)}).segments) == 1, "other files are not touched"
    wrong: Any
    for wrong in ({0: (0, 11)}, {2: (0, 0)}, {0: (5, 4)}, {0: (-1, 3)}):
        with raises(OffsetOutOfRange, match="partition"):
            snapshot.read("orders", offsets=wrong)
    for wrong in ({0: 5}, {0: (1,)}, {"0": (0, 1)}, {0: ("a", "b")}, [(0, 1)], "0", 7):
        with raises(InvalidInputError, match="offsets"):
            snapshot.read("orders", offsets=wrong)


def test_offsets_are_those_of_the_snapshots_version(twenty: Any) -> None:
    old = twenty.snapshot()
    twenty.produce("orders", rows(10), partition=0)
    with raises(OffsetOutOfRange):
        old.read("orders", offsets={0: (0, 11)})
    assert read(twenty, offsets={0: (10, 11)}) == [10]


@pytest.mark.clause("P-35", "P-99")
def test_deleted_records_are_not_read(twenty: Any) -> None:
    topic, before = twenty.topic("orders").id, twenty.snapshot()
    twenty._connection.appender.call(Simple(lambda _d, _a: [DeleteRecords(topic, ((0, 7),))], lambda _d, _a: None))
    assert sorted(read(twenty)) == [7, 8, 9, *range(100, 110)]
    for snapshot in (before, twenty.snapshot()):
        assert snapshot.start_offsets("orders") == {0: 7, 1: 0}
    with raises(OffsetOutOfRange, match="7 to 10"):
        twenty.snapshot().read("orders", offsets={0: (6, 10)})
    consumer = twenty.consumer("orders", "billing")
    assert sorted(ids(consumer.receive(timeout_ms=0).table)) == [7, 8, 9, *range(100, 110)]


def test_columns_are_chosen_in_the_order_asked_for(twenty: Any) -> None:
    snapshot = twenty.snapshot()
    assert snapshot.read("orders", columns=["name"]).column_names == ["name"]
    assert snapshot.read("orders", columns=["name", "id"]).column_names == ["name", "id"]
    table = snapshot.read("orders", columns=["name"], include_metadata=True, offsets={0: (0, 2)})
    assert table.column_names == ["name", "_partition", "_offset", "_timestamp", "_txn_id", "_version"]
    assert snapshot.read("orders", columns=[]).num_columns == 0
    wrong: Any
    for wrong, kind in (("nmae", "name"), ("_offset", "include_metadata")):
        with raises(InvalidInputError, match="no column") as caught:
            snapshot.read("orders", columns=[wrong])
        assert kind in caught.value.advice
    for wrong in ("id", 7, [7], [None]):
        with raises(InvalidInputError, match="column"):
            snapshot.read("orders", columns=wrong)


@pytest.mark.parametrize("cacheable", [reader._CACHEABLE_BYTES, 0])
def test_a_read_of_no_columns_has_the_number_of_rows(
    twenty: Any, monkeypatch: pytest.MonkeyPatch, cacheable: int
) -> None:
    monkeypatch.setattr(reader, "_CACHEABLE_BYTES", cacheable)
    _txn = begun(twenty, 1, 2, flush=True)
    snapshot = twenty.snapshot()

    def count(**options: Any) -> int:
        table = snapshot.read("orders", columns=[], **options)
        assert table.schema == snapshot.scan("orders", columns=[], **options).schema
        assert sum(batch.num_rows for batch in snapshot.scan("orders", columns=[], **options)) == table.num_rows
        return int(table.num_rows)

    assert (count(), count(isolation_level="read_uncommitted")) == (20, 22)
    assert count(offsets={0: (3, 7), 1: (2, 3)}) == 5
    assert (count(filter=pc.field("id") >= 105), count(filter=pc.field("id") > 1_000)) == (5, 0)
    assert count(include_metadata=True) == 20
    twenty.optimize("orders")
    assert twenty.snapshot().read("orders", columns=[]).num_rows == 20


def test_a_filter_chooses_rows(twenty: Any) -> None:
    snapshot = twenty.snapshot()
    big = pc.field("id") >= 105
    assert sorted(read(twenty, filter=big)) == [105, 106, 107, 108, 109]
    assert snapshot.read("orders", filter=big, columns=["name"]).column("name").to_pylist()[0] == "n105"
    assert sorted(ids(snapshot.read("orders", filter=pc.field("_offset") == 3, include_metadata=True))) == [3, 103]
    assert read(twenty, filter=pc.field("id") > 1_000) == []
    with raises(InvalidInputError, match="filter"):
        snapshot.read("orders", filter=pc.field("nope") > 1)
    for wrong in ("id > 3", True, lambda row: True, [True] * 20):
        with raises(InvalidInputError, match="filter"):
            snapshot.read("orders", filter=wrong)


@pytest.mark.parametrize("rows_there", [0, 1])
def test_a_filter_that_does_not_fit_is_refused_before_anything_is_read(sales: Any, rows_there: int) -> None:
    sales.create_topic("prices", pa.schema([("amount", pa.decimal128(10, 2)), ("at", pa.timestamp("us", "UTC"))]))
    sales.produce("prices", [{"amount": decimal.Decimal("1.50")}] * rows_there)
    snapshot = sales.snapshot()
    for wrong, said in (
        (pc.field("amount") > 1, r"'amount' is decimal128\(10, 2\); Precision .* should be at least 21 \(compare each"),
        (pc.field("at") > "2026", r"'at' is timestamp\[us, tz=UTC\]; .* \(compare each column with a value of its own"),
        (pc.field("amnt") > 1, r"there is no column 'amnt' \(did you mean 'amount'\?\)$"),
    ):
        with raises(InvalidInputError, match=f"the filter does not fit the columns: {said}"):
            snapshot.scan("prices", filter=wrong, columns=[])
    of_its_type = pa.scalar(decimal.Decimal(1), pa.decimal128(10, 2))
    assert snapshot.read("prices", filter=pc.field("amount") > of_its_type).num_rows == rows_there


@pytest.mark.parametrize("size", ["big", "small", "small, and very many"])
def test_a_scan_streams_a_few_segments_at_a_time(sales: Any, monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    """So many small ones as make a big one: what a step costs is shared by them."""
    step = {"big": reader._STEP_SEGMENTS, "small": 20, "small, and very many": 8}[size]
    if size == "big":
        monkeypatch.setattr(reader, "_STEP_BYTES", 1)
    elif size != "small":
        monkeypatch.setattr(reader, "_MOST_SEGMENTS", step)
    for number in range(20):
        sales.produce("orders", rows(number))
    fetched: list[str] = []
    inner = sales._connection.store.inner.inner.get

    def get(key: str) -> bytes:
        fetched.append(key)
        return inner(key)

    monkeypatch.setattr(sales._connection.store.inner.inner, "get", get)
    snapshot = sales.snapshot()
    fetched.clear()
    stream = snapshot.scan("orders")
    assert isinstance(stream, pa.RecordBatchReader)
    assert stream.schema == SCHEMA
    assert fetched == [], "nothing is read before it is asked for"
    first = ids(pa.Table.from_batches([stream.read_next_batch()]))
    assert len(fetched) == step
    assert first + ids(stream.read_all()) == list(range(20))
    assert len(fetched) == 20


def test_small_segments_are_kept_and_the_bound_is_kept_too(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoded, a segment has 11,200 bytes or some more: three of the six fit."""
    monkeypatch.setattr(reader, "_CACHED_BYTES", 40_000)
    ns = memory.orders()
    for number in range(6):
        ns.produce("orders", pa.table({"id": [number] * 100, "name": ["x" * 100] * 100}))
    snapshot = ns.snapshot()

    def fetched(offsets: tuple[int, int]) -> int:
        before = ns.store_requests.get(("get", "segment"), 0)
        expected = offsets[1] - offsets[0]
        results = run_threads(*[lambda: snapshot.read("orders", offsets={0: offsets}).num_rows] * 6)
        assert results == [expected] * 6
        return ns.store_requests.get(("get", "segment"), 0) - before

    assert fetched((400, 600)) >= 2
    assert fetched((400, 600)) == 0, "kept"
    assert fetched((0, 600)) >= 3
    assert fetched((0, 600)) >= 3, "no more than three are kept"


def test_a_snapshot_and_its_namespace_have_a_short_repr(ns: Any) -> None:
    version = ns.snapshot().version
    assert repr(ns.snapshot()) == f"Snapshot('sales', version={version})"
    assert repr(ns) == f"Namespace('sales', version={version}, mode='rw')"
    assert "orders" in ns.snapshot()._repr_html_()
    assert "orders" in ns._repr_html_()


@pytest.mark.clause("P-103")
def test_a_snapshot_stays_as_it_was(ns: Any) -> None:
    ns.produce("orders", rows(1), partition=0)
    old = ns.snapshot()
    with ns.begin() as txn:
        txn.produce("orders", rows(2), partition=0)
        txn.flush()
        assert ids(old.read("orders")) == [1]
    ns.checkpoint()
    assert ids(old.read("orders")) == [1]
    assert (old.end_offsets("orders"), ns.snapshot().end_offsets("orders")) == ({0: 1, 1: 0}, {0: 2, 1: 0})


@pytest.mark.clause("P-211")
def test_a_time_with_a_newer_entry_means_the_same_version_for_ever(memory: Place, clock: ManualClock) -> None:
    ns = memory.orders(clock=clock)
    clock.advance(1_000)
    moment = datetime.datetime.fromtimestamp((START_MS + 1_500) / 1_000, datetime.UTC)
    version = ns.produce("orders", rows(1)).version
    open_end = ns.snapshot(timestamp=moment)
    same_moment = ns.produce("orders", rows(2)).version
    assert (open_end.version, open_end.read("orders").num_rows) == (version, 1), "looked up once"
    assert ns.snapshot(timestamp=moment).version == same_moment, "a newer entry had the same time"
    clock.advance(1_000)
    for number in (3, 4):
        ns.produce("orders", rows(number))
        assert ids(memory.open(mode="r").snapshot(timestamp=moment).read("orders")) == [1, 2]
    with raises(VersionNotAvailable, match="begins after"):
        ns.snapshot(timestamp=START_MS - 1)


@pytest.mark.clause("P-212")
def test_offsets_that_retention_passed_are_refused_with_what_is_left(sales: Any, memory: Place) -> None:
    sales.produce("orders", rows(*range(10)))
    topic = sales.topic("orders").id
    sales._connection.appender.call(Simple(lambda _draft, _at: [DeleteRecords(topic, ((0, 4),))], lambda *_: None))
    snapshot = sales.snapshot()
    for wrong in ((0, 10), (3, 5), (4, 11), (10, 12)):
        with Unchanged(memory), raises(OffsetOutOfRange, match="holds offsets 4 to 10") as caught:
            snapshot.read("orders", offsets={0: wrong})
        assert "between 4 and 10" in caught.value.advice
    assert ids(snapshot.read("orders", offsets={0: (4, 10)})) == read(sales) == [4, 5, 6, 7, 8, 9]


@pytest.mark.clause("P-213")
def test_open_and_aborted_rows_cost_a_committed_reader_no_request(memory: Place) -> None:
    ns = memory.orders(1)
    for number in range(20):
        txn = begun(ns, 100 + number, flush=True)
        if number % 2:
            txn.abort()
    asked: list[str] = []

    def note(_call: StoreCall, key: str) -> None:
        if kind_of(key) == "segment":
            asked.append(key)

    reader = memory.open(mode="r", wrap=lambda store: HookStore(store, before=note))
    assert read(reader) == [1]
    assert len(set(asked)) == 1, "the one file of the committed row"


def test_a_metadata_column_among_the_columns_is_refused_with_the_way_to_it(ns: Any) -> None:
    with raises(InvalidInputError, match="include_metadata=True adds"):
        ns.snapshot().read("orders", columns=["id", "_offset"], include_metadata=True)


# --- types ------------------------------------------------------------------------------------------------------------

UTC = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")


@pytest.mark.parametrize(
    ("created", "shown", "value", "lost"),
    [
        (pa.timestamp("ns"), LOCAL, 1_000, 1),
        (pa.timestamp("s"), LOCAL, 1, 2**62),
        (pa.timestamp("ns", "Europe/Berlin"), UTC, 1_000, 1_001),
        (pa.timestamp("ms", "Asia/Tokyo"), UTC, 1, 2**61),
        (pa.list_(pa.timestamp("ns")), pa.list_(pa.field("element", LOCAL)), [1_000], [1]),
        (pa.dictionary(pa.int32(), pa.large_string()), pa.string(), "a", None),
        (pa.list_(pa.int64(), 2), pa.list_(pa.field("element", pa.int64())), [1, 2], None),
    ],
)
def test_a_column_is_returned_as_what_its_type_became_and_never_cut(
    place: Place, created: pa.DataType, shown: pa.DataType, value: Any, lost: Any
) -> None:
    """docs/python.md, "How rows become messages": wherever a program meets the column."""
    ns = place.open()
    schema = pa.schema([("c", created)])
    assert ns.create_topic("t", schema, delta="off").schema.field("c").type == shown
    assert ns.create_topic("t", schema, delta="off", if_not_exists=True) == ns.topic("t")
    written = pa.table({"c": pa.array([value], created)})
    ns.produce("t", written)
    found = [
        ns.snapshot().read("t"),
        pa.Table.from_batches(list(ns.snapshot().scan("t"))),
        ns.consumer("t", "s").receive(timeout_ms=0).table,
    ]
    assert [table.schema.field("c").type for table in found] == [shown] * 3
    assert all(table["c"].cast(shown) == written["c"].cast(shown) for table in found)
    if lost is not None:
        with Unchanged(place), raises(SchemaMismatch, match="without loss", durable=Durable.NOTHING):
            ns.produce("t", pa.table({"c": pa.array([lost], created)}))
