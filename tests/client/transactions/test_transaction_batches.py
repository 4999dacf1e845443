"""Idempotent batches: a version of an application is committed once (docs/guarantees.md, Transactions)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, Unchanged, begun, committed, raises, read, rows
from txnlog.errors import (
    InvalidInputError,
    NameNotAllowed,
    OutcomeUnknown,
)


@pytest.mark.clause("P-67", "P-69")
@pytest.mark.parametrize("flushed", [False, True])
def test_a_batch_that_was_committed_before_is_skipped(ns: Any, place: Place, flushed: bool) -> None:
    first = committed(ns, 1, txn_app_id="nightly", txn_version=7)
    assert ns.last_txn_version("nightly") == 7
    for version in (7, 6):
        again = place.open().begin(txn_app_id="nightly", txn_version=version)
        assert again.skipped
        again.produce("orders", rows(2))
        if flushed:
            again.flush()
        result = again.commit()
        assert result.skipped
        assert (result.version, result.txn_id) == (first.result.version, first.id)
        assert again.commit() is result
        assert again.state == "COMMITTED"
    assert ns.transactions(state="OPEN") == ()
    assert read(ns) == [1]
    with ns.begin(txn_app_id="nightly", txn_version=8) as next_one:
        assert not next_one.skipped
        next_one.produce("orders", rows(3))
    assert not next_one.result.skipped
    assert sorted(read(ns)) == [1, 3]


@pytest.mark.clause("P-69")
def test_an_empty_one_of_a_batch_that_was_committed_before_is_skipped_too(ns: Any, place: Place) -> None:
    first = committed(ns, 1, txn_app_id="job", txn_version=3)
    assert not first.skipped, "its own commit is none before it"
    with Unchanged(place), ns.begin(txn_app_id="job", txn_version=3) as again:
        assert again.skipped
    assert again.skipped
    assert (again.result.skipped, again.result.version) == (True, first.result.version)


@pytest.mark.parametrize("how", ["asked", "done all the same", "done without asking", "not done"])
def test_work_that_is_dropped_for_a_larger_version_is_not_dropped_silently(
    ns: Any, place: Place, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """One mistyped number, and every later run ends well and writes nothing."""
    committed(ns, 1, txn_app_id="nightly", txn_version=20261127)
    other = place.open()
    for version in (20261127, 20261128, 2026):
        caplog.clear()
        with other.begin(txn_app_id="nightly", txn_version=version) as txn:
            if "asked" in how or "same" in how:
                assert txn.skipped == txn.skipped == (version != 20261128)
            if how.startswith("done") or version == 20261128:
                txn.produce("orders", rows(2))
        said = [item.getMessage() for item in caplog.records if item.name == "txnlog.transaction"]
        assert len(said) == (version == 2026 and how != "not done")
        for text in said:
            assert "txn_version 2026 of the txn_app_id 'nightly' was skipped, and its work was dropped" in text
            assert "txn_version 20261128 was committed before" in text
            assert "ns.last_txn_version('nightly')" in text
            assert "ns.forget_app('nightly')" in text


def test_a_skipped_batch_writes_nothing(ns: Any, place: Place) -> None:
    committed(ns, 1, txn_app_id="nightly", txn_version=7)
    with Unchanged(place), ns.begin(txn_app_id="nightly", txn_version=7) as txn:
        txn.produce("orders", rows(1))
    assert txn.result.skipped


@pytest.mark.clause("P-67", "P-69")
def test_the_second_of_two_runs_finds_the_first_in_the_log(memory: Place) -> None:
    ns, store = memory.faulty()
    rival = memory.open()
    ns.create_topic("orders", SCHEMA)

    def run(client: Any, number: int) -> Any:
        txn = begun(client, number, txn_app_id="nightly", txn_version=1)
        return txn.commit()

    results: list[Any] = []
    store.script.append(lambda: results.append(run(rival, 1)))
    mine = run(ns, 2)
    assert mine.skipped
    assert mine.version == results[0].version
    assert read(ns) == [1]


@pytest.mark.clause("P-62")
def test_a_commit_whose_answer_was_lost_is_not_said_to_have_been_skipped(memory: Place) -> None:
    """A checkpoint let go of the outcome, and the application's version says that somebody brought it: ourselves."""
    ns, store = memory.faulty_orders()
    ns._connection.appender.create_attempts = 1
    txn = begun(ns, 1, txn_app_id="nightly", txn_version=3)
    store.script.extend(["broken-after"])
    store.reads.extend(["broken"])
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    ns.produce("orders", rows(2))
    ns.checkpoint()
    result = txn.commit()
    assert not result.skipped
    assert result.offsets == {("orders", 0): range(1)}
    assert read(ns) == [1, 2]


@pytest.mark.clause("P-113")
def test_an_application_is_remembered_until_it_is_forgotten(ns: Any, place: Place) -> None:
    assert ns.last_txn_version("nightly") is None
    committed(ns, 1, txn_app_id="nightly", txn_version=0)
    ns.checkpoint()
    assert place.open().last_txn_version("nightly") == 0
    with Unchanged(place), raises(InvalidInputError, match="did you mean 'nightly'"):
        ns.forget_app("nightyl")
    ns.forget_app("nightly")
    with Unchanged(place), raises(InvalidInputError, match="nothing to forget"):
        ns.forget_app("nightly")
    assert place.open().last_txn_version("nightly") is None
    committed(ns, 2, txn_app_id="nightly", txn_version=0)
    assert sorted(read(ns)) == [1, 2]


def test_an_empty_batch_does_not_move_the_application(ns: Any, place: Place) -> None:
    with Unchanged(place), ns.begin(txn_app_id="nightly", txn_version=3):
        pass
    assert ns.last_txn_version("nightly") is None


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"txn_app_id": "nightly"}, InvalidInputError),
        ({"txn_version": 1}, InvalidInputError),
        ({"txn_app_id": "nightly", "txn_version": -1}, InvalidInputError),
        ({"txn_app_id": "nightly", "txn_version": 1.0}, InvalidInputError),
        ({"txn_app_id": "nightly", "txn_version": True}, InvalidInputError),
        ({"txn_app_id": "nightly", "txn_version": 1 << 63}, InvalidInputError),
        ({"txn_app_id": "", "txn_version": 1}, NameNotAllowed),
        ({"txn_app_id": "a\nb", "txn_version": 1}, NameNotAllowed),
        ({"txn_app_id": 7, "txn_version": 1}, NameNotAllowed),
    ],
)
def test_half_an_application_or_none_is_refused_at_begin(ns: Any, options: Any, kind: Any) -> None:
    with raises(kind):
        ns.begin(**options)
