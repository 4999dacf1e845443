"""What producing answers (docs/guarantees.md, Producing): forms of data, partitions, producers, sequences, topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.client.support import SCHEMA, Place, Unchanged, ids, raises, read, rows
from txnlog.client import transaction_buffer
from txnlog.data.partitioner import partition_of_key
from txnlog.errors import (
    InvalidInputError,
    InvalidTransactionState,
    NameNotAllowed,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ProducerFenced,
    SchemaMismatch,
    TopicExists,
    TopicNotFound,
)
from txnlog.format.actions import AlterTopic
from txnlog.log.commands import Simple

# --- topics ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-9", "P-34")
def test_a_topic_is_what_it_was_created_as(place: Place) -> None:
    ns = place.open()
    info = ns.create_topic("orders", SCHEMA, partitions=4, key="name", properties={"user.owner": "billing"})
    assert (info.name, info.schema, info.partitions, info.key) == ("orders", SCHEMA, 4, "name")
    assert info.properties == {"user.owner": "billing"}
    assert info.id == ns.snapshot().version
    ns.create_topic("audit")
    assert ns.topics() == place.open().topics() == ("audit", "orders")
    assert ns.topic("orders") == place.open().topic("orders") == info
    assert [field.name for field in ns.topic("audit").schema] == ["key", "value", "headers"]
    assert "orders" in info._repr_html_()


@pytest.mark.clause("P-7")
def test_a_topic_exists_once(ns: Any, place: Place) -> None:
    with Unchanged(place), raises(TopicExists, match="orders"):
        ns.create_topic("orders", SCHEMA, partitions=2)
    with Unchanged(place), raises(NameNotAllowed, match="case"):
        ns.create_topic("Orders", SCHEMA)
    with Unchanged(place):
        assert ns.create_topic("orders", SCHEMA, partitions=2, if_not_exists=True).partitions == 2
    with Unchanged(place), raises(TopicExists, match="partitions: 2 instead of 3"):
        ns.create_topic("orders", SCHEMA, partitions=3, if_not_exists=True)
    with Unchanged(place), raises(TopicExists, match="key: None instead of 'id'"):
        ns.create_topic("orders", SCHEMA, partitions=2, key="id", if_not_exists=True)
    with Unchanged(place), raises(TopicExists, match="columns: id: int64, name: string instead of key: binary"):
        ns.create_topic("orders", partitions=2, if_not_exists=True)


@pytest.mark.clause("P-33", "P-34")
def test_a_dropped_topic_is_gone_and_one_made_again_is_another(ns: Any, place: Place) -> None:
    ns.produce("orders", rows(1), partition=0)
    old = ns.snapshot()
    first = ns.topic("orders").id
    ns.drop_topic("orders")
    assert ns.topics() == ()
    for call in (
        lambda: ns.topic("orders"),
        lambda: ns.produce("orders", rows(2)),
        lambda: ns.snapshot().read("orders"),
        lambda: ns.drop_topic("orders"),
        lambda: ns.consumer("orders", "billing"),
        lambda: ns.subscriptions("orders"),
    ):
        with Unchanged(place), raises(TopicNotFound, match="orders"):
            call()
    second = ns.create_topic("orders", SCHEMA, partitions=1)
    assert second.id > first
    assert read(ns) == []
    ns.produce("orders", rows(3))
    assert (ids(old.read("orders")), read(ns)) == ([1], [3])
    assert ids(place.open().snapshot(version=old.version).read("orders")) == [1]


def test_a_topic_that_does_not_exist_offers_the_nearest(ns: Any, place: Place) -> None:
    ns.create_topic("audit", SCHEMA)
    with Unchanged(place), raises(TopicNotFound) as caught:
        ns.produce("ordres", rows(1))
    assert caught.value.advice == "did you mean 'orders'?"
    assert caught.value.__context__ is None, "it is told once"
    with raises(TopicNotFound) as caught:
        ns.topic("nothing-like-it")
    assert "audit, orders" in caught.value.advice


def test_a_topic_made_by_another_client_is_known_when_it_is_used(ns: Any, place: Place) -> None:
    other = place.open()
    ns.create_topic("late", SCHEMA)
    assert other.produce("late", rows(1)).offsets == {("late", 0): range(1)}


# --- forms of data --------------------------------------------------------------------------------------------------

TABLE = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["n1", "n2"]})


def _generator() -> Iterator[dict[str, Any]]:
    yield from rows(1, 2)


@pytest.mark.parametrize(
    "data",
    [
        rows(1, 2),
        tuple(rows(1, 2)),
        _generator(),
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_batches(),
        pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches()),
        TABLE.select(["name", "id"]),
        pd.DataFrame({"id": [1, 2], "name": ["n1", "n2"]}),
        pd.DataFrame({"id": [1, 2], "name": ["n1", "n2"]}, index=["a", "b"]),
        pl.DataFrame({"id": [1, 2], "name": ["n1", "n2"]}),
        pa.table({"id": pa.array([1, 2], pa.int32()), "name": pa.array(["n1", "n2"]).dictionary_encode()}),
    ],
    ids=lambda data: type(data).__name__,
)
def test_every_form_of_data_gives_the_same_rows(sales: Any, data: Any) -> None:
    assert sales.produce("orders", data).offsets == {("orders", 0): range(2)}
    assert sales.snapshot().read("orders").to_pylist() == rows(1, 2)
    with sales.begin() as txn:
        txn.produce("audit", TABLE)
    assert sales.snapshot().read("audit").equals(TABLE)


def test_a_single_row_is_a_dict(sales: Any) -> None:
    sales.produce("orders", {"id": 1, "name": "n1"})
    assert read(sales) == [1]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([{"id": 1, "nmae": "x"}], "'nmae'"),
        ([{"id": "one"}], "'id'"),
        ([{"id": 1.5}], "'id'"),
        (pa.table({"id": [1], "name": [2]}), "'name'"),
        (pa.table({"id": [1 << 40], "other": [1]}), "'other'"),
        (pd.DataFrame({"id": ["x"], "name": ["y"]}), "'id'"),
        ([1, 2], "row"),
        (7, "int"),
        ("text", "str"),
        (None, "NoneType"),
    ],
)
def test_rows_that_do_not_fit_are_refused_naming_the_column(ns: Any, place: Place, data: Any, words: str) -> None:
    with Unchanged(place), raises(SchemaMismatch, match=words):
        ns.produce("orders", data)
    txn = ns.begin()
    with Unchanged(place), raises(SchemaMismatch, match=words):
        txn.produce("orders", data)
    txn.produce("orders", rows(1))
    txn.commit()
    assert read(ns) == [1]


def test_nothing_to_produce_is_fine(ns: Any, place: Place) -> None:
    with Unchanged(place):
        result = ns.produce("orders", [])
    assert (dict(result.offsets), result.version) == ({}, ns.snapshot().version)


def test_later_changes_of_the_callers_data_do_not_reach_the_log(sales: Any) -> None:
    data = rows(1)
    frame = pd.DataFrame({"id": [2], "name": ["n2"]})
    with sales.begin() as txn:
        txn.produce("orders", data)
        txn.produce("orders", frame)
        data[0]["id"] = 99
        frame.loc[0, "id"] = 99
    assert read(sales) == [1, 2]


# --- partitions -----------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-110")
def test_rows_of_a_keyed_topic_go_where_their_key_says(place: Place) -> None:
    ns = place.open()
    ns.create_topic("orders", SCHEMA, partitions=4, key="name")
    ns.produce("orders", rows(*range(50)))
    with ns.begin() as txn:
        for number in range(50, 60):
            txn.produce("orders", rows(number))
    table = ns.snapshot().read("orders", include_metadata=True)
    wanted = [partition_of_key(name, pa.string(), 4) for name in table.column("name").to_pylist()]
    assert table.column("_partition").to_pylist() == wanted
    assert len(set(wanted)) == 4
    for partition in range(4):
        found = [i for i, p in zip(ids(table), wanted, strict=True) if p == partition]
        assert found == sorted(found), "rows of a partition keep their order"
    ns.produce("orders", [{"id": 100, "name": None}])
    ns.produce("orders", [{"id": 101, "name": "n1"}], partition=2)
    last = ns.snapshot().read("orders", include_metadata=True).to_pylist()
    assert {row["id"]: row["_partition"] for row in last if row["id"] >= 100} == {100: 42 % 4, 101: 2}


def test_without_a_key_partitions_take_turns(place: Place) -> None:
    ns = place.open()
    ns.create_topic("orders", SCHEMA, partitions=3)
    for number in range(9):
        ns.produce("orders", rows(number))
    assert ns.snapshot().end_offsets("orders") == {0: 3, 1: 3, 2: 3}
    ns.produce("orders", pa.table({"id": range(30_000), "name": ["x"] * 30_000}))
    assert sum(ns.snapshot().end_offsets("orders").values()) == 30_009
    assert min(ns.snapshot().end_offsets("orders").values()) >= 10_000, "a big call is spread"


@pytest.mark.parametrize(
    ("partition", "kind"),
    [
        (2, OffsetOutOfRange),
        (10**30, OffsetOutOfRange),
        (-1, InvalidInputError),
        ("0", InvalidInputError),
        (0.0, InvalidInputError),
        (True, InvalidInputError),
    ],
)
def test_a_partition_that_is_not_there_is_refused(ns: Any, place: Place, partition: Any, kind: Any) -> None:
    txn = ns.begin()
    with Unchanged(place):
        for call in (ns.produce, txn.produce):
            with raises(kind, match="partition"):
                call("orders", rows(1), partition=partition)
    assert txn.state == "OPEN"


@pytest.mark.parametrize(
    ("data", "options", "kind"),
    [
        ([{"id": "no number"}], {}, SchemaMismatch),
        ([{"unknown": 1}], {}, SchemaMismatch),
        (rows(1), {"partition": 2}, OffsetOutOfRange),
        (rows(1), {"partition": True}, InvalidInputError),
        (iter(rows(1)), {"partition": -1}, InvalidInputError),
        (rows(1), {"sequence": 1}, InvalidInputError),
        (iter(rows(1)), {"partition": 0, "sequence": -1}, InvalidInputError),
    ],
)
def test_what_is_wrong_with_a_call_is_reported_also_while_the_store_is_away(
    memory: Place, data: Any, options: Any, kind: Any
) -> None:
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA, partitions=2)
    producer = ns.producer("loader")
    txn = producer.begin()
    producer.produce("orders", rows(0), 0)
    store.reads_forever = "broken"
    for call in (producer.produce, txn.produce):
        with raises(kind):
            call("orders", data, **options)


# --- producers ------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-47", "P-48", "P-49")
def test_a_new_producer_fences_its_predecessor_at_every_operation(ns: Any, place: Place) -> None:
    old = ns.producer("loader")
    flushed, buffered, empty, other_one = (old.begin() for _ in range(4))
    flushed.produce("orders", rows(1))
    flushed.flush()
    buffered.produce("orders", rows(2))
    other = place.open()
    new = other.producer("loader")
    assert new.epoch > old.epoch
    assert (ns.transaction(flushed.id).state, ns.transaction(flushed.id).reason) == ("ABORTED", "fenced")
    version = other.snapshot().version
    for call in (
        flushed.commit,
        flushed.flush,
        lambda: flushed.produce("orders", rows(3)),
        lambda: other_one.produce("orders", rows(3)),
        buffered.commit,
        buffered.flush,
        lambda: buffered.produce("orders", rows(3)),
        empty.commit,
        lambda: old.produce("orders", rows(4)),
        old.begin,
        lambda: old.last_sequence("orders", 0),
    ):
        with raises(ProducerFenced, match="loader"):
            call()
    flushed.abort()
    buffered.abort()
    old.close()
    assert other.snapshot().version == version
    new.produce("orders", rows(5))
    assert read(ns) == [5]


@pytest.mark.clause("P-49")
@pytest.mark.parametrize("call", ["commit", "flush", "plain", "last_sequence", "flushed commit", "commit_async"])
def test_a_fenced_producer_hears_of_it_from_the_log(ns: Any, place: Place, call: str) -> None:
    """The first operation that asks the log tells it, though this client has not looked since."""
    old = ns.producer("loader")
    txn = old.begin()
    txn.produce("orders", rows(1))
    if call == "flushed commit":
        txn.flush()
    place.open().producer("loader")
    calls = {
        "commit": txn.commit,
        "flushed commit": txn.commit,
        "flush": txn.flush,
        "plain": lambda: old.produce("orders", rows(2)),
        "last_sequence": lambda: old.last_sequence("orders", 0),
        "commit_async": lambda: txn.commit_async().result(30),
    }
    for _ in range(2):
        with Unchanged(place), raises(ProducerFenced, match="loader"):
            calls[call]()
    assert read(ns) == []


@pytest.mark.clause("P-48")
def test_an_open_transaction_is_aborted_when_its_producer_starts_again(ns: Any) -> None:
    consumer = ns.consumer("orders", "billing")
    ns.produce("orders", rows(0), partition=0)
    with raises(ProducerFenced), ns.producer("loader") as old, old.begin() as txn:
        txn.produce("orders", rows(1))
        txn.acknowledge(consumer.receive(timeout_ms=0))
        txn.flush()
        ns.producer("loader")
    assert read(ns) == [0]
    assert ids(consumer.receive(timeout_ms=0).table) == [0], "what it held is delivered again"


@pytest.mark.clause("P-47")
def test_an_administrators_fence_takes_the_name_away(ns: Any, place: Place) -> None:
    producer = ns.producer("loader")
    txn = producer.begin()
    txn.produce("orders", rows(1))
    txn.flush()
    epoch = place.open().fence("loader", by="ada")
    assert epoch > producer.epoch
    with raises(ProducerFenced):
        txn.commit()
    with raises(ProducerFenced, match="ada"):
        producer.produce("orders", rows(2))
    with Unchanged(place), raises(InvalidInputError, match="no producer 'loadr'"):
        ns.fence("loadr")
    assert ns.producer("loader").epoch > epoch


def test_anonymous_producers_fence_nobody(ns: Any) -> None:
    one, two = ns.producer(), ns.producer()
    assert (one.name, one.epoch) == (None, None)
    with one.begin() as txn:
        txn.produce("orders", rows(1))
    two.produce("orders", rows(2))
    assert sorted(read(ns)) == [1, 2]
    with raises(InvalidInputError, match="anonymous"):
        one.last_sequence("orders", 0)
    with raises(InvalidInputError, match="named producer"):
        one.produce("orders", rows(1), partition=0, sequence=1)


def test_a_closed_producer_is_refused_and_its_transactions_are_aborted(ns: Any) -> None:
    with ns.producer("loader") as producer:
        txn = producer.begin()
        txn.produce("orders", rows(1))
        txn.flush()
    producer.close()
    assert (txn.state, ns.transaction(txn.id).state) == ("ABORTED", "ABORTED")
    for call in (
        producer.begin,
        lambda: producer.produce("orders", rows(1)),
        lambda: producer.last_sequence("orders", 0),
    ):
        with raises(InvalidTransactionState, match="closed"):
            call()
    assert repr(producer).startswith("Producer('loader'")


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 257, "\ud800", 7, b"loader", ["loader"]])
def test_a_producers_name_is_a_label(ns: Any, place: Place, name: Any) -> None:
    with Unchanged(place), raises(NameNotAllowed):
        ns.producer(name)


# --- sequences ------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-54")
def test_a_repeated_batch_gives_its_original_offsets_and_writes_nothing(ns: Any, place: Place) -> None:
    producer = ns.producer("loader")
    first = producer.produce("orders", rows(1, 2), partition=0, sequence=10)
    second = producer.produce("orders", rows(3), partition=0, sequence=12)
    assert not first.duplicate
    with Unchanged(place):
        again = producer.produce("orders", rows(1, 2), partition=0, sequence=10)
        part = producer.produce("orders", rows(2), partition=0, sequence=11)
    assert (again.duplicate, again.offsets, again.version, again.txn_id) == (
        True,
        first.offsets,
        first.version,
        first.txn_id,
    )
    assert (part.duplicate, part.offsets) == (True, {("orders", 0): range(1, 2)})
    assert second.offsets == {("orders", 0): range(2, 3)}
    assert producer.last_sequence("orders", 0) == 12
    assert producer.last_sequence("orders", 1) is None
    assert read(ns) == [1, 2, 3]


@pytest.mark.clause("P-54", "P-113", "P-125")
def test_old_batches_are_found_after_a_checkpoint_and_in_a_new_process(ns: Any, place: Place) -> None:
    producer = ns.producer("loader")
    results = [producer.produce("orders", rows(n), partition=0, sequence=n) for n in range(12)]
    ns.checkpoint()
    producer.produce("orders", rows(12), partition=0, sequence=12)
    fresh = place.open()
    assert fresh._connection.follower.base is not None
    for client in (ns, fresh):
        again = client.producer("loader")
        assert again.last_sequence("orders", 0) == 12
        for sequence in (0, 5, 11):
            with Unchanged(place):
                found = again.produce("orders", rows(sequence), partition=0, sequence=sequence)
            assert (found.duplicate, found.offsets) == (True, results[sequence].offsets)
            assert found.version == results[sequence].version
        again.produce("orders", rows(12), partition=0, sequence=12)
    assert read(ns) == list(range(13))


@pytest.mark.clause("P-50", "P-54")
@pytest.mark.parametrize(("sequence", "count"), [(9, 1), (3, 5), (0, 9), (5, 2)])
def test_a_gap_or_a_part_of_a_batch_is_refused(ns: Any, place: Place, sequence: int, count: int) -> None:
    producer = ns.producer("loader")
    producer.produce("orders", rows(0, 1, 2, 3, 4, 5), partition=0, sequence=0)
    with Unchanged(place), raises(OutOfOrderSequence, match="sequence 5") as caught:
        producer.produce("orders", rows(*range(count)), partition=0, sequence=sequence)
    told = "last_sequence" if sequence > 5 else "leave out its rows up to sequence 5: only those from 6 on are new"
    assert told in caught.value.advice
    producer.produce("orders", rows(6), partition=0, sequence=6)


@pytest.mark.clause("P-54")
@pytest.mark.parametrize("cold", [False, True], ids=["hot", "cold"])
def test_rows_below_the_first_sequence_were_never_there_and_are_no_repetition(
    ns: Any, place: Place, *, cold: bool
) -> None:
    """What was is found in history wherever it lies, so what is not found would be lost with a duplicate's answer."""
    producer = ns.producer("loader")
    first = producer.produce("orders", rows(100, 101), partition=0, sequence=100)
    for sequence in range(102, 112):
        producer.produce("orders", rows(sequence), partition=0, sequence=sequence)
    if cold:
        ns.checkpoint()
        ns.create_topic("later")  # whose entry names the checkpoint
        ns = place.open()
        producer = ns.producer("loader")
        assert not ns._connection.follower.state.batches
    for sequence, last in ((1, 2), (98, 101), (99, 99)):
        with Unchanged(place), raises(OutOfOrderSequence, match="began above"):
            producer.produce("orders", rows(*range(sequence, last + 1)), partition=0, sequence=sequence)
    repeated = producer.produce("orders", rows(100, 101), partition=0, sequence=100)
    assert (repeated.duplicate, repeated.offsets) == (True, first.offsets)
    assert producer.produce("orders", rows(*range(100, 112)), partition=0, sequence=100).duplicate
    assert read(ns) == list(range(100, 112))


@pytest.mark.clause("P-50")
def test_who_repeats_rows_hears_which_and_not_to_go_on_with_them_behind_the_last(sales: Any) -> None:
    loader = sales.producer("loader")
    loader.produce("orders", rows(10), partition=0, sequence=10)
    for sequence in range(11, 20):
        loader.produce("orders", rows(sequence), partition=0, sequence=sequence)

    def refusal(first: int, last: int) -> OutOfOrderSequence:
        with raises(OutOfOrderSequence) as caught, loader.begin() as txn:
            txn.produce("orders", rows(*range(first, last + 1)), partition=0, sequence=first)
        return caught.value

    part = refusal(18, 21)
    assert "18 to 19 were committed before" in part.message
    assert part.advice == "leave out its rows up to sequence 19: only those from 20 on are new"
    assert refusal(19, 19).message.endswith("19 to 19 were committed before")
    assert "unless this producer began above them" in refusal(3, 4).message
    assert "last_sequence" in refusal(22, 22).advice


@pytest.mark.clause("P-50", "P-54")
@pytest.mark.parametrize("flushed", [False, True])
def test_a_repeated_batch_in_a_transaction_is_refused_with_its_other_work(sales: Any, flushed: bool) -> None:
    """It has other work too, which may be new: neither all of it, nor a part, may be taken for done."""
    loader = sales.producer("loader")
    with loader.begin() as txn:
        txn.produce("orders", rows(1, 2), partition=0, sequence=0)
    again = loader.begin()
    again.produce("orders", rows(1, 2), partition=0, sequence=0)
    again.produce("audit", rows(7))
    with raises(OutOfOrderSequence, match="0 does not follow it: 0 to 1 were committed before [(]") as caught:
        (again.flush if flushed else again.commit)()
        again.commit()
    told = "do not write these rows again; new ones begin at sequence 2"
    assert caught.value.advice == told, "whoever goes on with them behind the last has them twice"
    assert (read(sales), read(sales, "audit"), loader.last_sequence("orders", 0)) == ([1, 2], [], 1)
    assert loader.produce("orders", rows(1, 2), partition=0, sequence=0).duplicate


@pytest.mark.clause("P-54")
@pytest.mark.parametrize("restarted", [False, True])
def test_a_repeat_that_is_cut_otherwise_gives_its_original_offsets(sales: Any, memory: Place, restarted: bool) -> None:
    loader = sales.producer("loader")
    sales.produce("orders", rows(1))
    results = [loader.produce("orders", rows(n, n + 1), 0, sequence=n) for n in range(0, 24, 2)]
    sales.checkpoint()
    if restarted:
        loader = memory.open().producer("loader")
    results += [loader.produce("orders", rows(n, n + 1), 0, sequence=n) for n in range(24, 28, 2)]
    for first, last in ((24, 27), (0, 27), (3, 8), (20, 25), (0, 3)):
        with Unchanged(memory):
            again = loader.produce("orders", rows(*range(first, last + 1)), 0, sequence=first)
        assert (again.duplicate, again.offsets) == (True, {("orders", 0): range(first + 1, last + 2)})
        assert (again.version, again.txn_id) == (results[last // 2].version, None), "several transactions brought it"
    one = loader.produce("orders", rows(6, 7), 0, sequence=6)
    assert (one.version, one.txn_id, one.offsets) == (results[3].version, results[3].txn_id, results[3].offsets)


def test_a_repeat_that_spans_two_batches_is_not_given_the_offsets_of_others(sales: Any) -> None:
    """Somebody else's row lies between the two: one range would claim it."""
    loader = sales.producer("loader")
    loader.produce("orders", rows(1, 2), 0, sequence=0)
    sales.produce("orders", rows(3))
    loader.produce("orders", rows(4, 5), 0, sequence=2)
    repeated = loader.produce("orders", rows(1, 2, 4, 5), 0, sequence=0)
    assert repeated.duplicate
    assert repeated.offsets is None
    assert loader.produce("orders", rows(5), 0, sequence=3).offsets == {("orders", 0): range(4, 5)}


@pytest.mark.clause("P-50")
def test_sequences_begin_anywhere_and_belong_to_a_partition(ns: Any) -> None:
    producer = ns.producer("loader")
    producer.produce("orders", rows(1), partition=0, sequence=1_000_000)
    producer.produce("orders", rows(2), partition=1, sequence=7)
    assert [producer.last_sequence("orders", p) for p in (0, 1)] == [1_000_000, 7]
    ns.producer("other").produce("orders", rows(3), partition=0, sequence=0)


def test_sequences_are_assigned_where_they_are_left_out(ns: Any, place: Place) -> None:
    producer = ns.producer("loader")
    producer.produce("orders", rows(1, 2), partition=0)
    producer.produce("orders", rows(3), partition=0)
    assert producer.last_sequence("orders", 0) == 2
    with Unchanged(place):
        assert producer.produce("orders", rows(3), partition=0, sequence=2).duplicate
    assert ns.producer("loader").last_sequence("orders", 0) == 2, "of any epoch"


@pytest.mark.clause("P-51")
@pytest.mark.parametrize("flushed", [False, True])
def test_an_aborted_transaction_does_not_advance_sequences(ns: Any, flushed: bool) -> None:
    producer = ns.producer("loader")
    producer.produce("orders", rows(0), partition=0, sequence=0)
    txn = producer.begin()
    txn.produce("orders", rows(1, 2), partition=0, sequence=1)
    if flushed:
        txn.flush()
    assert producer.last_sequence("orders", 0) == 0
    txn.abort()
    with producer.begin() as txn:
        txn.produce("orders", rows(1, 2), partition=0, sequence=1)
    assert producer.last_sequence("orders", 0) == 2
    assert read(ns) == [0, 1, 2]


@pytest.mark.clause("P-50")
def test_transactions_with_sequences_must_commit_in_their_order(ns: Any) -> None:
    producer = ns.producer("loader")
    producer.produce("orders", rows(0), partition=0, sequence=0)
    first, second, third = producer.begin(), producer.begin(), producer.begin()
    first.produce("orders", rows(1), partition=0, sequence=1)
    second.produce("orders", rows(2), partition=0, sequence=2)
    third.produce("orders", rows(2), partition=0, sequence=2)
    with raises(OutOfOrderSequence):
        second.commit()
    assert second.state == "ABORTED"
    first.commit()
    third.commit()
    assert read(ns) == [0, 1, 2]


@pytest.mark.clause("P-50")
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("second", [13, 11, None])
def test_a_gap_inside_one_transaction_is_refused(sales: Any, flushed: bool, second: int | None) -> None:
    """Rows that are written into one file keep their own sequences: a gap between two calls does not vanish."""
    producer = sales.producer("loader")
    txn = producer.begin()
    txn.produce("orders", rows(1, 2), partition=0, sequence=10)
    txn.produce("orders", rows(3), partition=0, sequence=second)
    txn.produce("orders", rows(4), partition=0, sequence=12 if second is None else second + 1)
    if flushed:
        txn.flush()
    if second is None:
        txn.commit()
        assert producer.last_sequence("orders", 0) == 12
        assert producer.produce("orders", rows(4), partition=0, sequence=12).offsets == {("orders", 0): range(3, 4)}
    else:
        with raises(OutOfOrderSequence):
            txn.commit()
        assert read(sales) == []


@pytest.mark.parametrize("flushed", [False, True])
def test_one_transaction_may_bring_several_batches_of_a_partition(
    sales: Any, monkeypatch: pytest.MonkeyPatch, flushed: bool
) -> None:
    producer = sales.producer("loader")
    txn = producer.begin()
    for number in range(6):
        txn.produce("orders", rows(2 * number, 2 * number + 1), partition=0, sequence=2 * number)
        if flushed and number % 2:
            txn.flush()
    txn.commit()
    assert producer.last_sequence("orders", 0) == 11
    assert producer.produce("orders", rows(4, 5), partition=0, sequence=4).offsets == {("orders", 0): range(4, 6)}


@pytest.mark.parametrize(("sequence", "partition"), [(-1, 0), (1.0, 0), ("1", 0), (True, 0), (1 << 63, 0), (5, None)])
def test_a_sequence_that_makes_no_sense_is_refused(ns: Any, place: Place, sequence: Any, partition: Any) -> None:
    producer = ns.producer("loader")
    with Unchanged(place), raises(InvalidInputError, match="sequence"):
        producer.produce("orders", rows(1), partition=partition, sequence=sequence)


@pytest.mark.parametrize("partition", [-1, 2, "0", None, True])
def test_the_last_sequence_is_of_a_partition_that_is_there(ns: Any, partition: Any) -> None:
    with pytest.raises(InvalidInputError, match="partition"):
        ns.producer("loader").last_sequence("orders", partition)


# --- a schema that grows --------------------------------------------------------------------------------------------

WIDER = pa.schema([*SCHEMA, pa.field("note", pa.string())])


def widen(ns: Any) -> None:
    """What the catalog will do: a nullable column more."""
    from txnlog.format import schema

    topic = ns.topic("orders").id
    ns._connection.appender.call(
        Simple(lambda _draft, _at: [AlterTopic(topic, schema.from_arrow(WIDER))], lambda _draft, _at: None)
    )


@pytest.mark.parametrize("flushed", [False, True])
def test_rows_produced_before_and_after_a_column_was_added_go_together(sales: Any, flushed: bool) -> None:
    txn = sales.begin()
    txn.produce("orders", rows(1))
    widen(sales)
    txn.produce("orders", [{"id": 2, "name": "n2", "note": "new"}])
    if flushed:
        txn.flush()
    txn.commit()
    assert sales.snapshot().read("orders").to_pylist() == [
        {"id": 1, "name": "n1", "note": None},
        {"id": 2, "name": "n2", "note": "new"},
    ]


def test_a_client_that_has_not_heard_of_a_new_column_goes_on(sales: Any, memory: Place) -> None:
    other = memory.open()
    other.produce("orders", rows(1))
    widen(sales)
    other.produce("orders", rows(2))
    with raises(SchemaMismatch, match="note"):
        memory.open().produce("orders", [{"note": 7}])
    assert [row["note"] for row in sales.snapshot().read("orders").to_pylist()] == [None, None]
    assert other.produce("orders", [{"id": 3, "note": "x"}]).offsets == {("orders", 0): range(2, 3)}


def test_commits_of_one_entry_with_rows_of_several_schemas_share_a_segment(sales: Any) -> None:
    old = sales.begin()
    old.produce("orders", rows(1))
    widen(sales)
    new = sales.begin()
    new.produce("orders", [{"id": 2, "note": "x"}])
    for future in [old.commit_async(), new.commit_async()]:
        future.result(30)
    assert sorted(read(sales)) == [1, 2]


def test_big_writes_take_segments_of_their_own(sales: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_buffer, "SMALL_PRODUCE_BYTES", 1_000)
    with sales.begin() as txn:
        txn.produce("orders", rows(*range(200)))
        txn.produce("audit", rows(1))
    plan = sales.snapshot().plan("orders")
    assert [segment.txn for segment in plan.segments] == [txn.id.number]
    assert [segment.txn for segment in sales.snapshot().plan("audit").segments] == [None]
    assert (read(sales), read(sales, "audit")) == (list(range(200)), [1])


def test_who_was_fenced_by_an_administrator_is_notified(sales: Any) -> None:
    loader = sales.producer("loader")
    sales.fence("loader", by="ops")
    with raises(ProducerFenced, match="fenced by 'ops'") as caught:
        loader.produce("orders", rows(1))
    assert "newer" not in str(caught.value)


def test_who_is_overtaken_in_his_sequences_does_not_hear_that_his_rows_are_there(sales: Any) -> None:
    """Two transactions of one name may be open, and a name's first batch may begin anywhere: they never were."""
    producer = sales.producer("loader")
    first, second = producer.begin(), producer.begin()
    first.produce("orders", rows(0, 1, 2), partition=0, sequence=0)
    second.produce("orders", rows(3, 4), partition=0, sequence=3)
    second.commit()
    with raises(OutOfOrderSequence, match="unless this producer began above them") as caught:
        first.commit()
    assert "read the topic for these rows" in caught.value.advice
    assert "do not write" not in str(caught.value)
    assert read(sales) == [3, 4]
