"""A backup and a restore that end anywhere and are called again end as if they had never been interrupted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import catalog as txn_catalog
import txnlog
from tests.client.backups import (
    Killed,
    all_shown,
    back_up,
    folder,
    objects,
    restore,
    shown,
    stopping,
    with_everything,
)
from tests.client.support import Place, read, rows, unique_name
from txnlog.errors import Durable, InvalidInputError, OutcomeUnknown, StoreError, TxnLogError
from txnlog.format import keys
from txnlog.results import BackedUp, Restored

ERRORS: dict[str, Callable[[], BaseException]] = {
    "killed": Killed,
    "refused": lambda: StoreError("gone", durable=Durable.NOTHING),
}
STOPPED = (Killed, StoreError, OutcomeUnknown)

EVERY = pytest.mark.parametrize(
    ("kind", "side", "first", "step"),
    [
        pytest.param(kind, side, first, step, marks=[pytest.mark.long] if step == 1 else [], id=f"{kind}-{side}-{step}")
        for step, firsts in ((6, (0, 1, 3, 4)), (1, (0, 0, 0, 0)))
        for (kind, side), first in zip(itertools.product(ERRORS, ("before", "after")), firsts, strict=True)
    ],
)
"""A push ends the work at every sixth request, each kind at others, `make test-all` at every one."""


@pytest.fixture(scope="module")
def original() -> Iterator[tuple[Place, dict[str, bytes], int, dict[str, Any]]]:
    """A namespace, its backup, the version, and what it shows."""
    place = Place("memory", f"memory://{unique_name()}")
    ns, _ = with_everything(place)
    backups = folder()
    made = back_up(place, backups)
    version = ns.snapshot().version
    assert made.version == version
    yield place, objects(backups), version, shown(ns)
    place.close()


@EVERY
def test_wherever_a_backup_ends_the_next_call_finishes_it(
    original: Any, kind: str, side: str, first: int, step: int
) -> None:
    place, expected, _, _ = original
    for point in itertools.count(first, step):
        backups, calls = folder(), itertools.count()
        store = stopping(place.store(), calls, point, side, ERRORS[kind])
        try:
            back_up(place, stopping(backups, calls, point, side, ERRORS[kind]), store=store)
            stopped = False
        except STOPPED:
            stopped = True
        sealed = [key for key in objects(backups) if keys.backup_version(key) is not None]
        if sealed:
            assert objects(backups) == expected, "a manifest is there, and not all that it names"
        assert isinstance(back_up(place, backups), BackedUp)
        assert objects(backups) == expected
        if next(calls) <= point:
            assert point > 60, "requests of both stores were each stopped at"
            assert not stopped
            return


@pytest.mark.parametrize("side", ["before", "after"])
def test_wherever_the_next_backup_ends_the_one_before_stays(side: str) -> None:
    place = Place("memory", f"memory://{unique_name()}")
    ns, _ = with_everything(place)
    earlier = folder()
    first = back_up(place, earlier)
    before = all_shown(place, first.version)
    for number in (70, 71):
        ns.produce("audit", rows(number))
    ns.checkpoint()
    for point in itertools.count(1, 6):
        backups, calls = folder(), itertools.count()
        for info in earlier.list(""):
            backups.put(info.key, earlier.get(info.key))
        try:
            back_up(place, stopping(backups, calls, point, side, Killed))
        except Killed:
            other = Place("memory", f"memory://{unique_name()}")
            restore(other, backups, version=first.version)
            assert all_shown(other, first.version) == before
        back_up(place, backups)
        if next(calls) <= point:
            break
    place.close()


@EVERY
def test_wherever_a_restore_ends_the_next_call_finishes_it(
    original: Any, kind: str, side: str, first: int, step: int
) -> None:
    _, content, version, expected = original
    backups = folder()
    for key, data in whole(original).items():
        backups.put(key, data)
    ended_late = 0
    for point in itertools.count(first, step):
        place, calls = Place("memory", f"memory://{unique_name()}"), itertools.count()
        root = stopping(place.store(), calls, point, side, ERRORS[kind])
        try:
            restore(place, stopping(backups, calls, point, side, ERRORS[kind]), store=root)
            stopped = False
        except STOPPED:
            stopped = True
        is_visible = keys.entry_key(0) in {info.key.removeprefix("sales/") for info in place.store().list("sales/")}
        if is_visible:  # and then all of it is
            check_shown(place, version, expected)
        else:
            with pytest.raises(TxnLogError):
                place.open(mode="r")
        if is_visible and not any(info.key.endswith(keys.RESTORE_KEY) for info in place.store().list("")):
            ended_late += stopped
            with pytest.raises(InvalidInputError, match="where a namespace is"):
                restore(place, backups)
        else:
            assert isinstance(restore(place, backups), Restored)
        with place.open(create=False) as ns:
            assert shown(ns, version) == expected
            ns.produce("audit", rows(900))
            assert 900 in read(ns, "audit")
            coordinator = ns.begin().id.coordinator
        with txn_catalog.open(place.root) as cat:
            assert cat.namespaces() == ("sales",)
            assert cat.namespace("sales").coordinator == coordinator != 0
        kept = {info.key.removeprefix("sales/") for info in place.store().list("sales/")}
        assert {key for key in content if not key.startswith(keys.BACKUP_FOLDER)} <= kept
        assert not {key for key in kept if key.startswith("_restore")}
        place.close()
        if next(calls) <= point:
            assert point > 80, "requests of both stores were each stopped at"
            assert ended_late <= 1, "only the last request"
            assert not stopped
            return


def check_shown(place: Place, version: int, expected: dict[str, Any]) -> None:
    """What is visible is whole; where only the adoption is under way, whoever opens it hears of that."""
    ns, text = None, ""
    try:
        ns = place.open(mode="r")
    except InvalidInputError as error:
        text = str(error)
    if ns is None:
        assert "if its adoption was interrupted, repeat it" in text
    else:
        assert shown(ns, version) == expected


def whole(original: Any) -> dict[str, bytes]:
    """The objects of a backup as they are."""
    place = original[0]
    backups = folder()
    back_up(place, backups)
    return {info.key: backups.get(info.key) for info in backups.list("")}


def test_two_backups_at_once_make_one(original: Any) -> None:
    place, expected, _, _ = original
    backups = folder()
    other = iter([True])

    def come_first(_call: Any, key: str) -> None:
        if key.endswith(".parquet") and next(other, False):
            back_up(place, backups)

    back_up(place, txnlog.store.HookStore(backups, before=come_first))
    assert objects(backups) == expected
