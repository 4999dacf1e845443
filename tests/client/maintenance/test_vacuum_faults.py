"""A vacuum that stops anywhere, or whose store fails, costs no row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.support import Place, Unchanged, raises, read, run_threads
from tests.client.vacuums import WEEK_MS, check_every_version, compacted, concerns, counts, files, hooked, littered
from txnlog.errors import Durable, OutcomeUnknown, StoreError
from txnlog.results import Vacuumed
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

__all__ = ["compacted"]  # fixtures


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.clause("P-130", "P-131", "P-132")
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("kind", ["killed", "refused"])
def test_wherever_a_vacuum_stops_nothing_is_lost_and_the_next_one_finishes(
    memory: Place, clock: ManualClock, side: str, kind: str
) -> None:
    for point in itertools.count():
        place = Place("memory", f"{memory.root}-{point}")
        own = ManualClock(START_MS)
        expected = littered(place, own)
        ns, store = hooked(place, own)
        calls = itertools.count()

        def stop(call: str, key: str, calls: Iterator[int] = calls, point: int = point) -> None:
            if concerns(key) and next(calls) == point:
                if kind == "killed":
                    raise Killed
                # Whether the entry exists is asked until it is known, so that a failed create is no failed vacuum.
                raise StoreError("gone", durable=Durable.MAYBE if call == "create" else Durable.NOTHING)

        setattr(store, side, stop)
        try:
            ns.vacuum()
            stopped = False
        except (Killed, StoreError):
            stopped = True
        store.before = store.after = lambda _call, _key: None
        check_every_version(place, own)
        again = place.open(clock=own)
        again.vacuum()
        assert counts(again.vacuum(dry_run=True)) == (0, 0, 0)
        assert read(again) == expected
        (held,) = again.transactions(state="PREPARED")
        again.complete(held.txn_id, commit=True)
        assert read(again) == [*expected, 6]
        assert len(files(again)) == 3
        place.close()
        if next(calls) <= point:
            assert point >= 7, "the entry, the listing and five deletions were each stopped at"
            assert not stopped
            return


@pytest.mark.clause("P-118", "P-132")
@pytest.mark.parametrize("fate", ["lost", "dropped", "late"])
def test_an_announcement_of_unknown_outcome_deletes_nothing(memory: Place, clock: ManualClock, fate: str) -> None:
    expected = littered(memory, clock)
    ns, store = memory.faulty(clock=clock)
    ns._connection.appender.create_attempts = 2
    before = files(ns)
    store.script.extend([lambda: store.reads.extend(["broken", "broken"]), fate, "dropped"])
    with raises(OutcomeUnknown, durable=Durable.MAYBE) as caught:
        ns.vacuum()
    assert "nothing was deleted" in caught.value.advice
    assert files(ns) == before
    store.land()
    assert counts(ns.vacuum()) == (1, 2, 2)
    assert read(ns) == expected
    check_every_version(memory, clock)


def test_a_vacuum_that_cannot_look_for_delta_tables_writes_and_deletes_nothing(
    compacted: Any, memory: Place, clock: ManualClock
) -> None:
    clock.advance(WEEK_MS)
    ns, store = hooked(memory, clock)

    def stop(call: str, key: str) -> None:
        if call == "list" and "_delta_log" in key:
            raise StoreError("gone")

    store.before = stop
    with Unchanged(memory), raises(StoreError, durable=Durable.NOTHING):
        ns.vacuum()


@pytest.mark.parametrize("point", ["list", "delete"])
def test_a_vacuum_that_fails_behind_its_announcement_does_not_say_that_nothing_was_written(
    memory: Place, clock: ManualClock, point: str
) -> None:
    """Versions that could be read before cannot by now."""
    expected = littered(memory, clock)
    ns, store = hooked(memory, clock)

    def refuse(call: str, key: str) -> None:
        if call == point and "_log/" not in key:  # the log, and whether there is a Delta table, is looked at before
            raise StoreError(f"{call} of {key}: access denied", durable=Durable.NOTHING)

    store.before = refuse
    with raises(StoreError, durable=Durable.MAYBE) as caught:
        ns.vacuum()
    assert (
        caught.value.advice == f"{StoreError._default_advice}; then call ns.vacuum(...) again, with the same arguments"
    )
    assert ns._connection.follower.state.head.oldest_readable > 0
    if point == "list":
        with raises(StoreError):
            ns.vacuum(dry_run=True)
    store.before = lambda _call, _key: None
    assert counts(ns.vacuum()) == (1, 2, 2)
    assert read(ns) == expected


def test_vacuums_at_once_do_each_others_work(memory: Place, clock: ManualClock) -> None:
    expected = littered(memory, clock)
    handles = [memory.open(clock=clock) for _ in range(4)]
    for result in run_threads(*[handle.vacuum for handle in handles]):
        assert isinstance(result, Vacuumed), result
    assert read(handles[0]) == expected
    assert len(files(handles[0])) == 3
    check_every_version(memory, clock)
