"""Erasing rows: out of the newest version at once, out of every file in the end, and what is left is named."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import txnlog
from tests.client.maintenance.people import PEOPLE, people, positions, put, vacuumed
from tests.client.support import Place, raises, read
from txnlog.client import dead_letters
from txnlog.errors import InvalidInputError, TopicNotFound, UnsupportedFeature
from txnlog.format import schema as schemas
from txnlog.testing import ManualClock

START_MS = 1_700_000_000_000


def test_erased_rows_are_gone_and_the_others_are_where_they_were(place: Place) -> None:
    ns = people(place.open())
    put(ns, *range(20))
    put(ns, *range(20, 40))
    before, version = positions(ns), ns.snapshot().version
    gone = {3, 7, 21}
    done = ns.erase("orders", pc.field("id").isin(sorted(gone)))
    assert (done.erased_messages, done.rewritten_segments, done.is_complete) == (3, 2, False)
    left = {number: place for number, place in before.items() if number not in gone}
    for client in (ns, place.open(mode="r")):
        assert positions(client) == left
    assert len(ns.snapshot(version).read("orders")) == 40
    assert {item.why for item in done.waiting} == {"older versions show it"}
    assert sum(item.rows for item in done.waiting) == 3
    again = ns.erase("orders", pc.field("id").isin(sorted(gone)))
    assert (again.erased_messages, again.version, again.is_complete) == (0, None, False)
    assert again.waiting == done.waiting
    assert not [item for item in ns.fsck("deep").findings if item.severity != "note"]
    put(ns, 3)
    assert set(positions(ns)) == {*left, 3}


def test_no_byte_of_a_thousand_erased_rows_is_left(tmp_path: Path) -> None:
    """Behind the vacuum, in any file of the store: Parquet read as that, everything else as text."""
    clock = ManualClock(START_MS)
    place = Place("local", str(tmp_path / "lake"))
    ns = people(place.open(clock=clock), statistics="off")
    erased = {*range(0, 3_000, 3)}
    for first in range(0, 3_000, 250):
        put(ns, *range(first, first + 250))
        clock.advance(1_000)
        if first == 1_500:
            ns.checkpoint()
            assert ns.optimize("orders").merged_segments
    aborted = ns.begin()
    put(aborted, 0, 3, 6)
    aborted.flush()
    aborted.abort()
    ns.checkpoint()
    assert len(erased) == 1_000
    condition = pc.field("name").isin([f"person-{number}-secret" for number in sorted(erased)])
    done = ns.erase("orders", condition)
    assert done.erased_messages == 1_000
    assert done.bounds == ()
    assert {item.why for item in done.waiting} == {"older versions show it", "its transaction was aborted"}
    vacuumed(ns, clock)
    ns.checkpoint()
    last = ns.erase("orders", condition)
    assert last.is_complete
    assert last.waiting == ()
    assert len(positions(ns)) == 2_000
    secrets = {f"person-{number}-secret" for number in erased}
    for path in Path(place.root).rglob("*"):
        if path.is_file():
            assert not secrets & values(path), path
    place.close()


def values(path: Path) -> set[str]:
    """All texts in a file that an erased row could have."""
    if path.suffix == ".parquet":
        table = pq.read_table(path, partitioning=None)
        return {text for column in table.columns for text in map(str, column.to_pylist())}
    return set(path.read_text(errors="replace").replace('"', " ").replace(",", " ").split())


def test_bounds_in_the_log_are_named_where_the_topic_has_statistics(place: Place) -> None:
    ns = people(place.open())
    put(ns, 2, 4, 6, 8)
    assert ns.erase("orders", pc.field("name") == "person-2-secret", dry_run=True).bounds == ("id", "name")
    assert ns.erase("orders", pc.field("name") == "person-2-secret").bounds == ("id", "name")
    ns.alter_topic("orders", statistics="off")
    put(ns, 10)
    assert ns.erase("orders", pc.field("id") == 10).bounds == ()


def test_what_waits_for_a_transaction_is_named(place: Place) -> None:
    ns = people(place.open())
    put(ns, 1)
    txn = ns.begin()
    put(txn, 1, 2)
    txn.flush()
    done = ns.erase("orders", pc.field("id") == 1)
    assert done.erased_messages == 1
    assert {(item.why, item.rows) for item in done.waiting} == {
        ("older versions show it", 1),
        ("its transaction is open", 1),
    }
    txn.commit()
    assert ns.erase("orders", pc.field("id") == 1).erased_messages == 1
    assert set(positions(ns)) == {2}


def test_a_file_that_no_entry_names_is_named_here(memory: Place) -> None:
    ns = people(memory.open())
    put(ns, 1, 2)
    store = ns._connection.store
    (info, *_) = [item for item in store.list("orders/") if item.key.endswith(".parquet")]
    other = info.key.replace("_txnlog_segment=", "_txnlog_segment=9")
    store.put(other, store.get(info.key))
    found = ns.erase("orders", pc.field("id") >= 1, dry_run=True)
    assert [(item.key, item.why) for item in found.waiting] == [(other, "no entry names it")]
    assert not ns.erase("orders", pc.field("id") == 77, dry_run=True).waiting
    store.put(other, b"half of a fi")
    assert [item.rows for item in ns.erase("orders", pc.field("id") == 77, dry_run=True).waiting] == [1]


def test_dead_letters_lose_the_rows_as_well(place: Place) -> None:
    clock = ManualClock(START_MS)
    ns = people(place.open(clock=clock))
    ns.create_subscription(
        "orders", "audit", type="shared", lease_ms=1_000, max_redeliveries=1, dead_letter_topic="orders-dead"
    )
    put(ns, 1, 2)
    with ns.consumer("orders", subscription="audit") as consumer:
        for _ in range(4):
            consumer.receive(timeout_ms=0)
            consumer.redeliver_unacknowledged()
    assert sorted(read(ns, "orders-dead")) == [1, 2]
    done = ns.erase("orders", pc.field("id") == 2)
    assert [(item.topic, item.erased_messages) for item in (done, *done.dead_letters)] == [
        ("orders", 1),
        ("orders-dead", 1),
    ]
    assert read(ns, "orders-dead") == [1]
    assert not done.is_complete
    vacuumed(ns, clock)
    assert ns.erase("orders", pc.field("id") == 2).is_complete


def test_a_whole_topic_may_be_erased_and_goes_on(place: Place) -> None:
    ns = people(place.open())
    put(ns, *range(6))
    ends = ns.snapshot().end_offsets("orders")
    assert ns.erase("orders", pc.field("id") >= 0).erased_messages == 6
    assert positions(ns) == {}
    assert ns.snapshot().end_offsets("orders") == ends
    put(ns, 50)
    with ns.consumer("orders", subscription="audit") as consumer:
        assert consumer.receive().table.column("id").to_pylist() == [50]
    assert not [item for item in ns.fsck("deep").findings if item.severity != "note"]


def test_a_condition_that_older_rows_cannot_answer_is_refused(place: Place) -> None:
    ns = people(place.open())
    put(ns, 1)
    version = ns.alter_topic("orders", [("email", pa.string())])
    assert version
    before = ns.snapshot().version
    with raises(InvalidInputError, match="older rows of 'orders' do not have the column 'email'"):
        ns.erase("orders", pc.field("email") == "x")
    with raises(InvalidInputError, match="does not fit the columns"):
        ns.erase("orders", pc.field("nobody") == "x")
    with raises(InvalidInputError, match="does not fit the columns"):
        ns.erase("orders", pc.field("id"))
    with raises(InvalidInputError, match="where is a pyarrow.compute expression, not str"):
        ns.erase("orders", "id = 1")
    with raises(TopicNotFound):
        ns.erase("order", pc.field("id") == 1)
    assert ns.snapshot().version == before
    assert ns.erase("orders", pc.field("id") == 1).erased_messages == 1


def test_a_condition_by_places_is_refused(memory: Place) -> None:
    """A topic may take dead letters and have its columns, and the fields of structs, in another order."""
    ns = memory.open()
    ns.enable("holes")
    names = pa.struct([("first", pa.string()), ("last", pa.string())])
    ns.create_topic("orders", pa.schema([("customer", pa.string()), ("friend", pa.string()), ("names", names)]))
    columns = schemas.to_arrow(dead_letters.schema_of(ns._connection.topic_record("orders").schema))
    others = [field for field in columns if field.name not in {"customer", "friend", "names"}]
    turned = pa.field("names", pa.struct(list(names)[::-1]))
    ns.create_topic("letters", pa.schema([columns.field("friend"), columns.field("customer"), turned, *others]))
    ns.create_subscription("orders", "s", dead_letter_topic="letters")
    for customer, friend in (("C-17", "C-1"), ("C-1", "C-17")):
        row = {"customer": customer, "friend": friend, "names": {"first": customer, "last": friend}}
        ns.produce("letters", [{**row, "_source_topic": "orders"}])
    before = ns.snapshot().version
    for where in (
        pc.field(0) == "C-17",
        pc.field("names", 0) == "C-17",
        pc.struct_field(pc.field("names"), [0]) == "C-17",
        (pc.field("customer") == "x") | ~pc.field(1).isin(["C-17"]),
    ):
        with raises(InvalidInputError, match="goes by places of columns"):
            ns.erase("orders", where)
    assert ns.snapshot().version == before
    named = pc.struct_field(pc.field("names"), "first") == "C-17"
    ns.erase("orders", named & (pc.field("customer") != "FieldPath(0)"))
    assert ns.snapshot().read("letters").column("customer").to_pylist() == ["C-1"]


def test_an_erasure_needs_the_feature(place: Place) -> None:
    ns = place.open()
    ns.create_topic("orders", PEOPLE)
    with raises(UnsupportedFeature, match="an erasure needs the feature 'holes'"):
        ns.erase("orders", pc.field("id") == 1)


def test_a_dry_run_by_a_reader_writes_nothing(place: Place) -> None:
    ns = people(place.open())
    put(ns, 1, 2)
    version = ns.snapshot().version
    found = place.open(mode="r").erase("orders", pc.field("id") == 1, dry_run=True)
    assert (found.erased_messages, found.rewritten_segments, found.dry_run, found.is_complete) == (1, 1, True, False)
    assert ns.snapshot().version == version


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_statistics_are_in_the_log_only_where_the_topic_says_so(memory: Place, mode: str) -> None:
    ns = people(memory.open(), statistics=mode)
    for first in range(3):
        put(ns, first, first + 10)
    with ns.begin() as txn:
        put(txn, 7)
        txn.flush()
    ns.optimize("orders")
    records, _ = ns._connection.follower.segments(ns._connection.topic_record("orders").id)
    assert {bool(record.statistics) for record in records} == {mode == "auto"}
    assert isinstance(ns, txnlog.Namespace)
