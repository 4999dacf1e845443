"""Sequences (docs/guarantees.md, Producing): batches that are repeated, cut otherwise, or leave a gap."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import Place, Unchanged, begun, committed, raises, read, rows
from txnlog.errors import InvalidInputError, OutOfOrderSequence

# --- sequences --------------------------------------------------------------------------------------------------------


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
    committed(loader, 1, 2, partition=0, sequence=0)
    again = begun(loader, 1, 2, partition=0, sequence=0)
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


@pytest.mark.clause("P-51")
@pytest.mark.parametrize("flushed", [False, True])
def test_an_aborted_transaction_does_not_advance_sequences(ns: Any, flushed: bool) -> None:
    producer = ns.producer("loader")
    producer.produce("orders", rows(0), partition=0, sequence=0)
    txn = begun(producer, 1, 2, partition=0, sequence=1, flush=flushed)
    assert producer.last_sequence("orders", 0) == 0
    txn.abort()
    committed(producer, 1, 2, partition=0, sequence=1)
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
    txn = begun(producer, 1, 2, partition=0, sequence=10)
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


# --- a schema that grows ----------------------------------------------------------------------------------------------


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
