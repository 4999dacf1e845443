"""Restores and adoptions that pause, or that others make at the same time."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow.compute as pc
import pytest

import catalog as txn_catalog
from tests.client.backups import Killed, back_up, before_first, folder, objects, of_namespace, restore, with_everything
from tests.client.maintenance.people import people, put, vacuumed
from tests.client.support import SCHEMA, Place, read, rows, unique_name
from txnlog.errors import Durable, InvalidInputError, InvalidTransactionState, StoreError, TxnLogError
from txnlog.format import keys
from txnlog.store import HookStore, PrefixStore, StoreCall
from txnlog.testing import ManualClock


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place("memory", f"memory://{unique_name()}")
    yield place
    place.close()


def test_a_restore_that_ends_well_can_be_opened_although_another_one_was_killed_meanwhile(place: Place) -> None:
    """LIES, BLOCKS: one has registered its id, and pauses before the adoption; another one registers the next id, and
    is killed before its own. The first wakes up, appends its adoption, deletes the mark, and says that it restored; the
    root lists the other id, so the namespace cannot be opened."""
    with_everything(place)
    backups = folder()
    version = back_up(place, backups).version
    adoption = f"copy/{keys.entry_key(version + 1)}"

    def die() -> None:
        raise Killed

    def other() -> None:
        with pytest.raises(Killed):
            restore(place, backups, "copy", store=before_first(place.store(), StoreCall.CREATE, adoption, die))

    done = restore(place, backups, "copy", store=before_first(place.store(), StoreCall.CREATE, adoption, other))
    with place.open("copy", create=False) as ns:
        ns.produce("audit", rows(900))
        assert 900 in read(ns, "audit")
    assert done.version == version


def test_a_restore_that_wakes_up_puts_no_file_of_erased_rows_back(place: Place) -> None:
    """RESURRECTS: one pauses before it puts a segment; another one restores the same, rows are erased from what it
    restored, and vacuumed, and the erasure says that nothing is left. The first wakes up, puts its segments into the
    folder of the live namespace, and says that it restored it."""
    clock = ManualClock(time.time_ns() // 1_000_000)
    ns = people(place.open(clock=clock))
    put(ns, *range(20))
    backups = folder()
    back_up(place, backups)
    segment = next(key for key in objects(backups) if isinstance(keys.parse_key(key), keys.SegmentKey))
    erased = pc.field("id") == 3

    def live() -> None:
        restore(place, backups, "copy")
        with place.open("copy", create=False, clock=clock) as copy:
            copy.erase("orders", erased)
            vacuumed(copy, clock)
            vacuumed(copy, clock)
            assert copy.erase("orders", erased).is_complete
        assert segment not in objects(PrefixStore(place.store(), "copy"))

    asleep = before_first(place.store(), StoreCall.PUT, segment, live)
    with contextlib.suppress(InvalidInputError):  # a refusal would be right
        restore(place, backups, "copy", store=asleep)
    assert segment not in objects(PrefixStore(place.store(), "copy"))


def test_a_dry_run_does_not_say_that_an_adoption_is_left_that_was_made(place: Place) -> None:
    """LIES: the last request of a restore was refused, which is passed over; the namespace is adopted and listed, and a
    dry run says that "only its last step, the adoption, is left"."""
    with_everything(place)
    backups = folder()
    back_up(place, backups)

    def refused(call: StoreCall, key: str) -> None:
        if call is StoreCall.DELETE and key.endswith(keys.RESTORE_KEY):
            raise StoreError("slow down", durable=Durable.NOTHING)

    restore(place, backups, "copy", store=HookStore(place.store(), before=refused))
    place.open("copy", create=False, mode="r")
    with pytest.raises(InvalidInputError) as caught:
        restore(place, backups, "copy", dry_run=True)
    assert "the adoption, is left" not in str(caught.value)


def test_two_restores_at_the_same_time_leave_a_namespace_that_can_be_opened(place: Place) -> None:
    """BLOCKS: nobody is killed. The first one has registered its id; the second one looks at root and log; the first
    one appends its adoption, sees its own id in the root, and says that it restored. Then the second one registers
    the next id, and its adoption is refused: the root lists an id that the log never had, and nobody
    can open the namespace."""
    with_everything(place)
    backups = folder()
    version = back_up(place, backups).version
    adoption = f"copy/{keys.entry_key(version + 1)}"
    registered, go_on = threading.Event(), threading.Event()
    restored: list[Any] = []

    def pause() -> None:
        registered.set()
        assert go_on.wait(30)

    def first() -> None:
        store = before_first(place.store(), StoreCall.CREATE, adoption, pause)
        restored.append(restore(place, backups, "copy", store=store))

    thread = threading.Thread(target=first)
    thread.start()
    assert registered.wait(30)

    def let_it_end() -> None:
        go_on.set()
        thread.join(30)
        with place.open("copy", create=False) as ns:  # so far all is well
            ns.produce("audit", rows(900))

    store = before_first(place.store(), StoreCall.CREATE, keys.CATALOG_FOLDER, let_it_end)
    with contextlib.suppress(TxnLogError):
        restore(place, backups, "copy", store=store)
    assert restored, "the first one said that it restored"
    with place.open("copy", create=False) as ns:
        assert 900 in read(ns, "audit")


def test_an_adoption_that_was_made_is_not_made_again_because_another_one_came_behind_it(place: Place) -> None:
    """LOSES work: an adoption is made, and pauses before it looks at the root again. Somebody adopts the folder
    once more, whole, and a writer works in it. The first one wakes up, adopts over that, and fences the writer."""
    with_everything(place)
    with place.open("sales", create=False) as ns:
        version = ns._connection.follower.state.head.version
    adoption = f"sales/{keys.entry_key(version + 1)}"
    ids: list[Any] = []
    work: list[Any] = []

    def once_more(call: StoreCall, key: str, _result: object) -> None:
        if call is StoreCall.CREATE and key == adoption and not ids:
            ids.append(None)
            with txn_catalog.open(place.root, store=place.store()) as cat:
                ids.append(cat.adopt_namespace("sales", force=True).coordinator)
            txn = place.open("sales", create=False).begin()
            txn.produce("audit", rows(700))
            work.append(txn)

    with (
        txn_catalog.open(place.root, store=HookStore(place.store(), after=once_more)) as cat,
        pytest.raises(InvalidTransactionState),
    ):
        cat.adopt_namespace("sales", force=True)
    work[0].commit()
    with place.open("sales", create=False) as ns:
        assert 700 in read(ns, "audit")
        assert ns._connection.follower.state.head.coordinators.newest == ids[1]


def test_an_adoption_that_was_made_is_not_said_to_be_undone_by_a_look_at_the_root(place: Place) -> None:
    """LIES: registered and adopted; the look behind it at the root gets no answer. The advice is to adopt it again,
    which is refused, since all was done."""
    place.open("sales").create_topic("orders", SCHEMA)
    content = of_namespace(place)
    for key, data in content.items():
        PrefixStore(place.store(), "copy").put(key, data)
    adopted: list[str] = []

    def after(call: StoreCall, key: str, _result: object) -> None:
        if call is StoreCall.CREATE and key.startswith("copy/_log/"):
            adopted.append(key)

    def before(call: StoreCall, key: str) -> None:
        if adopted and key.startswith(f"{keys.CATALOG_FOLDER}/"):
            raise StoreError("timed out", durable=Durable.MAYBE)

    store = HookStore(place.store(), before=before, after=after)
    said: list[TxnLogError] = []
    with txn_catalog.open(place.root, store=store) as cat:
        try:
            cat.adopt_namespace("copy")
        except TxnLogError as error:
            said.append(error)
    with place.open("copy", create=False) as ns:
        assert ns.topics()
    if said:
        assert "adopt it again" in said[0].advice
        with txn_catalog.open(place.root, store=place.store()) as cat:
            cat.adopt_namespace("copy")  # as the advice says


def created_meanwhile(place: Place, topic: str | None) -> TxnLogError:
    """An application opens the name with create=True in the moment before the mark of a restore is there."""
    with_everything(place)
    backups = folder()
    back_up(place, backups)

    def create() -> None:
        with place.open("copy") as ns:
            if topic is not None:
                ns.create_topic(topic, SCHEMA)
                ns.produce(topic, rows(1))

    store = before_first(place.store(), StoreCall.CREATE, f"copy/{keys.RESTORE_KEY}", create)
    with pytest.raises(TxnLogError) as caught:
        restore(place, backups, "copy", store=store)
    return caught.value


def test_a_restore_under_a_name_that_was_just_created_does_not_say_that_its_first_entry_is_damaged(
    place: Place,
) -> None:
    """LIES: it looks for what is over in a log that is none of its own. Before, the answer was that somebody else put
    entry 0; now it is that entry 0 is damaged, and that the one of the backup be put over it."""
    error = created_meanwhile(place, None)
    assert isinstance(error, InvalidInputError), error


def test_a_restore_under_a_name_that_was_just_created_leaves_what_was_committed_there(place: Place) -> None:
    """LOSES, BLOCKS: the restore is refused, rightly. But by then it has put its checkpoint and entries behind those
    of the application, which cannot open its namespace any more: the log begins with its own entries, and goes on with
    those of the backup."""
    assert isinstance(created_meanwhile(place, "own"), InvalidInputError)
    with place.open("copy") as ns:
        assert read(ns, "own") == [1]
