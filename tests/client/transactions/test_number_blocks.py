"""Blocks of numbers: closing one is a fence, and no number is handed out twice."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import SCHEMA, begun, close_blocks, raises, read, rows, run_threads
from txnlog.common.ids import TxnId
from txnlog.errors import (
    CoordinatorFenced,
    InvalidInputError,
)
from txnlog.format.actions import Close
from txnlog.log import segment_builder
from txnlog.log.commands import Simple


def _segments_made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of segments that are encoded from here on."""
    made: list[int] = []
    make = segment_builder.make

    def counting(*given: Any) -> Any:
        made.append(given[3])
        return make(*given)

    monkeypatch.setattr(segment_builder, "make", counting)
    return made


@pytest.mark.clause("P-41", "P-43")
def test_a_transaction_whose_block_was_closed_is_refused(pair: Any) -> None:
    ns, _, rival = pair
    rival.snapshot()
    txn = begun(ns, 1)
    close_blocks(rival, ns._connection.appender.writer)
    with raises(CoordinatorFenced):
        txn.commit()
    with raises(CoordinatorFenced):
        txn.commit()
    assert read(rival) == [0]


@pytest.mark.clause("P-41", "P-44")
def test_a_handle_whose_block_was_closed_goes_on_with_another(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ns, _, rival = pair
    rival.snapshot()
    made = _segments_made(monkeypatch)
    close_blocks(rival, ns._connection.appender.writer)
    with raises(CoordinatorFenced):
        ns.produce("orders", rows(1))
    ns.produce("orders", rows(2))
    assert read(ns) == [0, 2]
    assert len(made) <= 4, "numbers of the closed block are not tried one after the other"


@pytest.mark.clause("P-41", "P-44")
def test_files_of_a_closed_block_are_written_again_under_other_numbers(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction's own block is open, that of its files was closed while they were written."""
    ns, store, rival = pair
    txn = begun(ns, 1)
    opened = ns.begin()  # keeps the first block open, as a transaction that the log shows does
    opened.produce("orders", rows(2))
    opened.flush()
    ns._connection.appender.take_numbers(ns._connection.appender.numbers._left)
    ns.create_topic("more", SCHEMA)  # brings the second block
    second = max(block.first for block in ns._connection.follower.state.blocks.values())
    rival.snapshot()
    made = _segments_made(monkeypatch)

    def close_second() -> None:
        rival._connection.appender.call(Simple(lambda _draft, _at: [Close(second)], lambda _draft, _at: None))

    store.script.append(close_second)
    assert txn.commit().offsets == {("orders", 0): range(1, 2)}
    assert len(made) == 2, "once in vain, once for good"
    assert made[0] >= second
    assert made[1] > made[0]
    opened.commit()
    assert read(ns) == read(rival) == [0, 1, 2]


@pytest.mark.clause("P-57")
def test_a_number_that_was_used_up_from_outside_before_it_was_given_out_fails_nobody(pair: Any) -> None:
    """An administrator who mistypes a TxnID hits a number that its writer has in stock: it would be the next file's."""
    ns, _, rival = pair
    first, second = ns.begin(), ns.begin()
    for txn in (first, second):
        txn.produce("orders", rows(txn.id.number))
    rival.abort(TxnId(second.id.coordinator, second.id.number + 1), by="ada", why="a typing error")
    first.commit()
    rival.abort(TxnId(second.id.coordinator, second.id.number + 10), by="ada", why="another")
    second.commit()
    assert second.id.number + 10 not in [ns.begin().id.number for _ in range(20)]
    assert sorted(read(rival)) == [0, first.id.number, second.id.number]


@pytest.mark.clause("P-41")
def test_a_block_closed_between_data_and_entry_refuses_those_files(pair: Any) -> None:
    ns, store, rival = pair
    rival.snapshot()
    store.script.append(lambda: close_blocks(rival, ns._connection.appender.writer))
    with raises(CoordinatorFenced):
        ns.produce("orders", rows(1))
    ns.produce("orders", rows(2))
    assert read(ns) == read(rival) == [0, 2]


@pytest.mark.clause("P-40", "P-42", "P-44")
def test_numbers_run_out_and_come_again(pair: Any) -> None:
    ns, _, _ = pair
    taken = [number for _ in range(40) for number in ns._connection.appender.take_numbers(300)]
    assert len(set(taken)) == len(taken) == 12_000
    assert {ns.begin().id for _ in range(10)}.isdisjoint(taken)


@pytest.mark.clause("P-40")
def test_threads_never_get_one_number_twice(pair: Any) -> None:
    ns, _, _ = pair
    found = run_threads(*[lambda: [ns._connection.appender.take_numbers(7) for _ in range(60)] for _ in range(8)])
    numbers = [number for batches in found for batch in batches for number in batch]  # type: ignore[attr-defined]
    assert len(set(numbers)) == len(numbers) == 8 * 60 * 7


def test_a_block_for_a_job_is_its_own(pair: Any) -> None:
    ns, _, rival = pair
    blocks = [ns._connection.reserve_block(1), rival._connection.reserve_block(1000), ns._connection.reserve_block(256)]
    assert [len(block) for block in blocks] == [256, 1024, 256]
    numbers = [number for block in blocks for number in block]
    assert len(set(numbers)) == len(numbers)
    with raises(InvalidInputError):
        ns._connection.reserve_block(0)
