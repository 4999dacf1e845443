"""Opening a namespace: making it, arguments, and stores and clocks that must not be trusted."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import catalog
import txnlog
from tests.client.support import SCHEMA, Place, Unchanged, objects, raises, read, rows, run_threads
from tests.faults import Once, failing
from txnlog.engine.runtime import SystemClock
from txnlog.errors import (
    ClockSkew,
    CorruptionError,
    Durable,
    InvalidInputError,
    NameNotAllowed,
    NamespaceNotFound,
    StoreError,
    TxnLogError,
    UnsafeStore,
)
from txnlog.log import root_log as root
from txnlog.store import Created, ForwardingStore, HookStore, MemoryStore, StoreCall
from txnlog.store.base import ObjectNotFound
from txnlog.testing import ManualClock

# --- opening --------------------------------------------------------------------------------------------------------


def test_a_namespace_is_made_once_and_opened_again(place: Place) -> None:
    with place.open() as ns:
        ns.create_topic("orders", SCHEMA)
        ns.produce("orders", rows(1))
    again = txnlog.open(f"{place.root}/sales")
    assert (again.name, read(again)) == ("sales", [1])
    again.close()
    assert read(place.open()) == [1]


def test_a_namespace_that_does_not_exist_offers_the_nearest(place: Place) -> None:
    with raises(NamespaceNotFound, match="'sales'"):
        place.open(create=False)
    place.open("sales")
    for mode in ("r", "rw"):
        with raises(NamespaceNotFound, match="'slaes'") as caught:
            place.open("slaes", create=False, mode=mode)
        assert "did you mean 'sales'?" in caught.value.advice
    assert not [key for key in objects(place.store()) if key.startswith("slaes")]


@pytest.mark.parametrize("names", [["sales"], []], ids=["with a namespace", "empty"])
def test_a_root_is_not_made_a_namespace_where_its_namespace_was_not_named(tmp_path: Path, names: list[str]) -> None:
    txnlog.open(tmp_path / "lake", "sales", create=True).close()
    if not names:
        with catalog.open(tmp_path / "lake") as root:
            root.drop_namespace("sales")
    before = sorted(tmp_path.rglob("*"))
    for above, name in ((tmp_path / "lake", None), (tmp_path, "lake")):  # the second is one folder too high
        with raises(InvalidInputError, match="is a root, a folder of namespaces") as caught:
            txnlog.open(above, name, create=True)
        assert caught.value.durable is Durable.NOTHING
        assert (names or ["there is none"])[0] in caught.value.advice
    assert sorted(tmp_path.rglob("*")) == before


def test_namespaces_of_a_root_have_ids_of_their_own(place: Place) -> None:
    one, two = place.open("one"), place.open("two")
    assert (one._connection.coordinator, two._connection.coordinator) == (0, 1)
    one.create_topic("orders", SCHEMA)
    two.create_topic("orders", SCHEMA)
    assert one.begin().id != two.begin().id
    one.produce("orders", rows(1))
    assert read(two) == []
    with raises(NameNotAllowed, match="case|only"):
        place.open("ONE")


def test_two_who_make_one_namespace_get_the_same(memory: Place) -> None:
    found = run_threads(*[lambda: memory.open("sales") for _ in range(8)])
    assert len({ns._connection.coordinator for ns in found}) == 1  # type: ignore[attr-defined]
    found[0].create_topic("orders", SCHEMA)  # type: ignore[attr-defined]
    assert all(ns.topics() == ("orders",) for ns in found)  # type: ignore[attr-defined]


def test_a_namespace_whose_making_was_cut_short_is_made_by_the_next(memory: Place) -> None:
    memory.open("first")
    cut = failing(KeyboardInterrupt, StoreCall.CREATE, where=lambda key: "second/_log" in key)
    with pytest.raises(KeyboardInterrupt):
        memory.open("second", wrap=cut)
    again = memory.open("second")
    assert again._connection.coordinator == 1
    assert again.snapshot().version == 0


def test_a_namespace_that_was_registered_and_not_made_is_not_reported_as_nothing(memory: Place) -> None:
    memory.open("first")
    full = failing(
        lambda: StoreError("no space left", durable=Durable.NOTHING),
        StoreCall.CREATE,
        where=lambda key: "second/_log" in key,
    )
    with raises(StoreError, durable=Durable.MAYBE) as caught:
        memory.open("second", wrap=full)
    assert caught.value.advice == f"{StoreError._default_advice}; then open it again"
    assert catalog.open(memory.root).namespaces() == ("first", "second")
    assert memory.open("second")._connection.coordinator == 1


def test_a_namespace_is_no_root(place: Place) -> None:
    """A path that is one part too long: `sales/orders` is a topic, and the vacuum of `sales` knows no such files."""
    place.open().create_topic("orders", SCHEMA)
    inner = f"{place.root}/sales"
    with raises(NamespaceNotFound) as caught:
        txnlog.open(inner, namespace="orders", storage_options=place.storage_options)
    assert "the folder above it is a namespace itself" in caught.value.advice
    with Unchanged(place), raises(InvalidInputError, match="its folder is a namespace itself"):
        txnlog.open(inner, namespace="orders", create=True, storage_options=place.storage_options)
    assert not [key for key in objects(place.store()) if "/_catalog/" in key]


@pytest.mark.parametrize("gone", ["sales/", "sales/_log/"])
def test_a_namespace_whose_log_was_removed_is_not_offered_to_be_made_again(place: Place, gone: str) -> None:
    """An empty log beside the files of the old one would look like the namespace, and hide what happened to it."""
    ns = place.orders(1)
    ns.close()
    store = place.store()
    for key in list(objects(store, gone)):
        store.delete(key)
    left = list(objects(store, "sales/"))
    lost = "the root lists the namespace 'sales', but its log at"
    for mode in ("r", "rw"):
        with (
            raises(CorruptionError, match="entry 0 of its log is missing")
            if left
            else raises(NamespaceNotFound, match=lost)
        ):
            place.open(create=False, mode=mode)
    for _ in range(2 if left else 0):
        with raises(CorruptionError, match="entry 0 of its log is missing"):
            place.open()
        assert list(objects(store, "sales/")) == left
        with catalog.open(place.root, storage_options=place.storage_options) as root, contextlib.suppress(TxnLogError):
            root.drop_namespace("sales")  # which does not make them another's
    for key in left:
        store.delete(key)
    with catalog.open(place.root, storage_options=place.storage_options) as root:
        root.create_namespace("sales")
    assert place.open().snapshot().version == 0


def test_create_true_fills_no_empty_namespace_into_the_place_of_one_whose_folder_is_away(place: Place) -> None:
    clock = ManualClock(1_700_000_000_000)
    ns = place.orders(clock=clock)
    ns.close()
    store = place.store()
    moved = {key: store.get(key) for key in objects(store, "sales/")}
    for key in moved:
        store.delete(key)
    clock.advance(10_001)
    how = r"bring its folder back.*catalog.open\(root\).create_namespace\('sales'\)"
    for _ in range(2):
        with raises(NamespaceNotFound, match=how, durable=Durable.NOTHING):
            place.open(clock=clock)
    assert not list(objects(store, "sales/"))
    for key, data in moved.items():
        store.put(key, data)
    assert place.open(clock=clock).topics() == ("orders",)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"root": 7}, InvalidInputError),
        ({"root": None}, InvalidInputError),
        ({"root": b"/data"}, InvalidInputError),
        ({"root": ""}, InvalidInputError),
        ({"root": "s3:/bucket"}, InvalidInputError),
        ({"namespace": ".."}, NameNotAllowed),
        ({"namespace": "a/b"}, NameNotAllowed),
        ({"namespace": ""}, NameNotAllowed),
        ({"namespace": "_catalog"}, NameNotAllowed),
        ({"namespace": "a\x00b"}, NameNotAllowed),
        ({"namespace": "x" * 10_000}, NameNotAllowed),
        ({"namespace": 7}, NameNotAllowed),
        ({"mode": "w"}, InvalidInputError),
        ({"mode": None}, InvalidInputError),
        ({"mode": ["r"]}, InvalidInputError),
        ({"mode": "r", "create": True}, InvalidInputError),
        ({"min_commit_interval_ms": -1}, InvalidInputError),
        ({"min_commit_interval_ms": "5"}, InvalidInputError),
        ({"min_commit_interval_ms": 10**400}, InvalidInputError),
        ({"clock": 7}, InvalidInputError),
        ({"store": 7}, InvalidInputError),
        ({"store": {"key": "secret"}}, InvalidInputError),
        ({"storage_options": "key=secret"}, InvalidInputError),
        ({"storage_options": {"key": "secret"}}, InvalidInputError),
    ],
)
def test_bad_arguments_of_open_are_refused(tmp_path: Path, options: Any, kind: Any) -> None:
    with raises(kind) as caught:
        txnlog.open(
            **{"root": str(tmp_path / "lake"), "namespace": "sales", "create": "mode" not in options, **options}
        )
    assert "secret" not in str(caught.value)
    assert not (tmp_path / "lake").exists()


def test_an_option_that_open_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="storage_option"):
        txnlog.open(str(tmp_path), "sales", storage_option={})  # type: ignore[call-arg]


# --- a store that must not be trusted -------------------------------------------------------------------------------


class LooksFirst(ForwardingStore):
    """A store that looks, and then writes."""

    def create(self, key: str, data: bytes) -> Created:
        try:
            self.inner.get(key)
        except ObjectNotFound:
            time.sleep(0.001)
            self.inner.put(key, data)
            return Created.CREATED
        return Created.UNKNOWN


class Overwrites(ForwardingStore):
    """A store that ignores the condition."""

    def create(self, key: str, data: bytes) -> Created:
        self.inner.put(key, data)
        return Created.CREATED


@pytest.mark.clause("P-122")
@pytest.mark.real_probe
@pytest.mark.parametrize("kind", [Overwrites, LooksFirst])
def test_a_store_without_a_safe_create_is_refused_and_nothing_is_left_behind(
    kind: type[ForwardingStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    with raises(UnsafeStore):
        txnlog.open("memory://unsafe", "sales", create=True, store=kind(store))
    assert list(objects(store)) == []


def test_a_store_that_refuses_the_probe_says_that_it_was_tried(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise StoreError("write of _catalog/probe/1: no space left on device")

    monkeypatch.setattr(root, "probe", full)
    with raises(StoreError, match="tried before it is trusted with anything, and failed: write of"):
        memory.open()
    assert list(objects(memory.store())) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_without_room_for_the_probe_hears_how_much_it_needs(
    memory: Place, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def full(*_: Any) -> Any:
        raise StoreError("no room", advice="free space") from OSError(code, os.strerror(code))

    monkeypatch.setattr(root, "probe", full)
    with raises(StoreError, match=r"\(free space: this test, once for a root, needs up to 7 MB, which it frees again"):
        memory.open()


@pytest.mark.clause("P-122")
@pytest.mark.real_probe
def test_a_store_is_probed_once(place: Place) -> None:
    _, counting = place.counted()
    assert counting.counts()["create", "root"] > 8
    other, counting = place.counted(namespace="other")
    other.create_topic("orders", SCHEMA)
    assert counting.counts()["create", "root"] == 1, "its registration; the verdict is in the root log"
    assert not [key for key in objects(place.store()) if "probe" in key]


@pytest.mark.clause("P-122")
def test_a_namespace_copied_to_another_store_is_probed_there(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.orders()
    copy = MemoryStore("a-copy")
    for key in objects(memory.store()):
        copy.put(key, memory.store().get(key))

    def refuse(*_: Any, **__: Any) -> None:
        raise UnsafeStore("the other store looks first")

    monkeypatch.setattr(root, "probe", refuse)
    moved = txnlog.open("memory://copy", "sales", store=copy)
    assert read(moved) == [], "readers never probe"
    with raises(UnsafeStore):
        moved.produce("orders", rows(1))
    moved.close()


@pytest.mark.clause("P-112")
@pytest.mark.parametrize(("ahead_ms", "refused"), [(61_000, False), (61_001, True), (-(10**9), False)])
def test_a_clock_far_ahead_of_the_stores_may_not_append(
    ahead_ms: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than a minute: a store whose times are cut to whole seconds may be one second further than it says."""
    now_ms = 1_795_000_000_000
    monkeypatch.setattr(SystemClock, "now_ms", lambda _clock: now_ms)
    store = MemoryStore(clock_ms=lambda: now_ms - ahead_ms)
    ns = txnlog.open("memory://skewed", "sales", create=True, store=store)
    before = list(objects(store))
    if refused:
        with raises(ClockSkew, match="ahead"):
            ns.create_topic("orders", SCHEMA)
        assert list(objects(store)) == before, "nothing was left behind"
    else:
        ns.create_topic("orders", SCHEMA)
        assert not [key for key in objects(store) if "clock" in key]
    ns.close()


def test_a_dry_run_promises_nothing_that_the_clock_of_the_next_call_forbids(monkeypatch: pytest.MonkeyPatch) -> None:
    """A month ahead everything is old enough to go."""
    now_ms = [1_795_000_000_000]
    monkeypatch.setattr(SystemClock, "now_ms", lambda _clock: now_ms[0])
    store = MemoryStore(clock_ms=lambda: 1_795_000_000_000)
    ns = txnlog.open("memory://skewed-later", "sales", create=True, store=store)
    ns.create_topic("orders", SCHEMA)
    ns.vacuum(dry_run=True)
    now_ms[0] += 30 * 86_400_000
    before = list(objects(store))
    for dry_run in (False, True):
        with raises(ClockSkew, match="ahead"):
            ns.vacuum(dry_run=dry_run)
        assert list(objects(store)) == before
    ns.close()


@pytest.mark.clause("P-3", "P-112")
def test_looking_at_the_stores_clock_touches_no_log(memory: Place) -> None:
    """A bucket may forbid deleting below _log, and everywhere: that must not stop a writer."""

    class NoDeletes(ForwardingStore):
        def delete(self, key: str) -> None:
            assert "_log/" not in key
            raise StoreError("deleting is forbidden")

        def put(self, key: str, data: bytes) -> None:
            assert "_log/" not in key or "checkpoints" in key
            super().put(key, data)

    ns = memory.orders(wrap=NoDeletes)
    assert ns.produce("orders", rows(1)).offsets == {("orders", 0): range(1)}


@pytest.mark.clause("P-112")
def test_a_clock_that_was_injected_is_trusted(memory: Place) -> None:
    ns = memory.orders(clock=ManualClock(4_000_000_000_000))
    assert ns.produce("orders", rows(1)).version == 2


@pytest.mark.clause("P-22", "P-111")
def test_log_time_never_goes_back(memory: Place, clock: ManualClock) -> None:
    ahead, behind = memory.open(clock=clock), memory.open(clock=ManualClock(5))
    ahead.create_topic("orders", SCHEMA)
    ahead.produce("orders", rows(1))
    behind.produce("orders", rows(2))
    clock.advance(-10_000)
    ahead.produce("orders", rows(3))
    times = [
        ahead._connection.follower.log.entry(version).header.timestamp_ms
        for version in range(ahead.snapshot().version + 1)
    ]
    assert times == sorted(times)
    assert read(ahead) == [1, 2, 3]


@pytest.mark.parametrize("again", [False, True], ids=["removed", "made again"])
def test_an_idle_writer_of_a_removed_namespace_does_not_write_into_the_one_made_again(
    memory: Place, clock: ManualClock, *, again: bool
) -> None:
    """Its next slot may be free there: an entry of the old log would be the end of the new one."""
    old = memory.orders(1, clock=clock)
    store = memory.store()
    with catalog.open(memory.root, clock=clock) as root:
        root.drop_namespace("sales")
        for key in list(objects(store, "sales/")):
            store.delete(key)
        if again:
            root.create_namespace("sales")
    new: Any = None
    if again:
        new = memory.orders(7, clock=clock)
    clock.advance(61_000)
    before = sorted(objects(store, "sales/"))
    for _ in range(2):
        with raises(NamespaceNotFound, match="another one" if again else "gone"):
            old.produce("orders", rows(9))
    assert sorted(objects(store, "sales/")) == before
    if again:
        new.produce("orders", rows(8))
        assert read(memory.open(clock=clock)) == [7, 8]


def test_a_writer_looks_at_its_log_again_after_an_idle_minute_and_not_at_work(
    memory: Place, clock: ManualClock
) -> None:
    ns, counting = memory.counted(clock=clock)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0))
    counting.reset()
    for number in range(3):
        clock.advance(59_000)
        ns.produce("orders", rows(number))
    assert ("get", "entry") not in counting.counts()
    for step in (61_000, -61_000):
        clock.advance(step)
        ns.produce("orders", rows(0))
    assert counting.counts()["get", "entry"] == 2


def test_a_namespace_that_is_made_while_somebody_looks_for_it_is_found(memory: Place) -> None:
    made = Once(lambda call, key: call is StoreCall.GET and key.startswith("sales/"), lambda: memory.open("sales"))
    memory.open("other")
    slow = partial(HookStore, after=made)
    assert memory.open("sales", create=False, wrap=slow).snapshot().version == 0
    assert made.came


def test_a_dropped_name_whose_files_are_being_removed_is_made_by_nobody(place: Place) -> None:
    """Of two who make it at once neither may be advised to drop what the other makes."""
    with place.open() as ns:
        ns.create_topic("orders", SCHEMA)
        ns.produce("orders", rows(1))
    with catalog.open(place.root, storage_options=place.storage_options) as root:
        root.drop_namespace("sales")
    store = place.store()
    for key in list(objects(store, "sales/_log/")):
        store.delete(key)
    for _ in range(2):
        with raises(CorruptionError, match="entry 0 of its log is missing") as caught:
            place.open()
        assert "remove the folder, once nobody has it open" in caught.value.advice
        assert "drop" not in caught.value.advice


def test_a_folder_with_files_of_somebody_else_is_no_damaged_namespace(place: Place) -> None:
    place.store().put("sales/mine.txt", b"mine")
    for _ in range(2):
        with raises(InvalidInputError, match=r"files that are none of txnlog's \(mine.txt\), and no namespace"):
            place.open()
    with raises(NamespaceNotFound):
        place.open(create=False)


def test_a_file_is_made_no_namespace(place: Place) -> None:
    place.store().put("sales", b"mine")
    for _ in range(2):
        with raises(InvalidInputError, match="is a file, and a namespace is a folder"):
            place.open()
    with catalog.open(place.root, storage_options=place.storage_options) as root:
        assert root.namespaces() == ()
