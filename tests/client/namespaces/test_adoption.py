"""A copied folder is no second namespace: two logs would give the same TxnIDs. Adopted, it gives others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import catalog as txn_catalog
import txnlog
from catalog import NamespaceInfo
from tests.by_hand import append
from tests.client.copies import adopt, copy, create, remove, replace, with_orders
from tests.client.support import (
    SCHEMA,
    Place,
    Unchanged,
    begun,
    busy,
    from_zero,
    ids,
    kind_of,
    prepared,
    raises,
    read,
    rows,
    unique_name,
)
from tests.faults import Once, failing
from tests.memory_log import tables_of
from txnlog.api.adoption import adopt_namespace
from txnlog.common.ids import TxnId
from txnlog.common.names import parse_namespace_name
from txnlog.engine.runtime import Runtime
from txnlog.errors import (
    CoordinatorFenced,
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    NameNotAllowed,
    NamespaceNotFound,
    OutcomeUnknown,
    StoreError,
    TransactionNotFound,
    TxnLogError,
)
from txnlog.format.actions import Adopt, Register
from txnlog.log import root_log as txnlog_root
from txnlog.log.commands import effect
from txnlog.log.root_log import Root
from txnlog.store import CountingStore, Created, ForwardingStore, HookStore, Store, StoreCall
from txnlog.testing import ManualClock

HOW = r"adopt_namespace\({!r}\) in Python, or txnlog .* adopt on the command line"


@pytest.fixture
def other() -> Iterator[Place]:
    """Another root in memory, empty."""
    place = Place("memory", f"memory://{unique_name()}")
    yield place
    place.close()


def names(place: Place) -> tuple[str, ...]:
    with txn_catalog.open(place.root) as cat:
        return cat.namespaces()


def txn_ids(ns: Any, topic: str = "orders") -> list[TxnId]:
    table = ns.snapshot().read(topic, include_metadata=True).sort_by([("id", "ascending")])
    return [TxnId.from_bytes(value) for value in table.column("_txn_id").to_pylist()]


def refused(place: Place, name: str, match: str, modes: tuple[str, ...] = ("r", "rw")) -> None:
    """Opening is refused, and the others of these modes are not."""
    for mode in ("r", "rw"):
        if mode in modes:
            with raises(InvalidInputError, match=match):
                place.open(name, mode=mode, create=False)
        else:
            place.open(name, mode=mode, create=False).close()
    if "rw" in modes:
        with raises(InvalidInputError, match=match):
            place.open(name, create=True)


# --- at open ----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-232")
def test_a_copy_in_the_same_root_is_refused_for_reading_and_writing(memory: Place) -> None:
    ns = with_orders(memory)
    copy(memory, "sales", memory, "copy")
    refused(memory, "copy", r"copy/ is a copy of the namespace 'sales'.*open 'sales'; to make .*" + HOW.format("copy"))
    with txn_catalog.open(memory.root) as cat:
        assert cat.namespaces() == ("sales",)
        with raises(NamespaceNotFound):
            cat.namespace("copy")
        with raises(InvalidInputError, match="does not have: it was dropped, or copied there.*adopt_namespace"):
            cat.create_namespace("copy", if_not_exists=True)
        for call in (cat.publish, cat.repair):
            with raises(InvalidInputError, match="is a copy of"):
                call("copy")
    with memory.open("sales", mode="r") as again:
        assert read(again) == read(ns) == [0]


@pytest.mark.clause("P-232")
def test_the_folder_of_another_namespace_is_refused_under_a_name(memory: Place) -> None:
    with_orders(memory, "sales")
    with_orders(memory, "audit")
    replace(memory, "audit", memory, "sales")
    refused(memory, "sales", r"sales/ holds the log of another namespace, with coordinator id 1 instead of 0")
    with raises(InvalidInputError, match="drop_namespace"):
        adopt(memory, "sales")
    with txn_catalog.open(memory.root) as cat:
        for flag in (False, True):
            with raises(InvalidInputError, match="another namespace, with coordinator id 1 instead of 0"):
                cat.create_namespace("sales", if_not_exists=flag)
        cat.drop_namespace("sales")
        assert cat.adopt_namespace("sales").coordinator == 2
    assert read(memory.open("sales")) == read(memory.open("audit")) == [0]


@pytest.mark.clause("P-232")
@pytest.mark.parametrize("name", ["sales", "audit"])
def test_a_log_of_another_root_is_distinguished_from_one_with_the_same_name_and_coordinator_id(
    memory: Place, other: Place, name: str
) -> None:
    with_orders(memory, "sales")
    with_orders(other, name)
    replace(other, name, memory, "sales")
    refused(memory, "sales", "another first entry" if name == "sales" else "with the name 'audit'")


@pytest.mark.clause("P-232")
@pytest.mark.parametrize("has_root", [False, True])
def test_a_copy_in_another_root_is_read_at_once_and_refused_for_writing(
    memory: Place, other: Place, has_root: bool
) -> None:
    with_orders(memory)
    if has_root:
        other.open("first")
    copy(memory, "sales", other)
    why = (
        "a namespace that its root does not list" if has_root else "has no folder _catalog, which lists its namespaces"
    )
    refused(other, "sales", f"{why}.*" + HOW.format("sales"), modes=("rw",))
    with other.open("sales", mode="r") as ns:
        assert read(ns) == [0]
    assert names(other) == (("first",) if has_root else ())


@pytest.mark.clause("P-232")
@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_namespace_whose_root_cannot_be_read_is_opened(memory: Place, mode: str) -> None:
    with_orders(memory).close()
    denied = failing(lambda: StoreError("access denied"), StoreCall.GET, where=lambda key: kind_of(key) == "root")
    with memory.open("sales", mode=mode, create=False, wrap=denied) as ns:
        assert read(ns) == [0]
        if mode == "rw":
            with raises(StoreError, match="access denied"):
                ns.produce("orders", rows(1))


def test_a_copy_that_was_opened_unseen_is_refused_its_first_write(memory: Place) -> None:
    with_orders(memory).close()
    copy(memory, "sales", memory, "copy")
    denied = ["denied"]
    first = failing(
        lambda: StoreError(denied.pop()), StoreCall.GET, where=lambda key: kind_of(key) == "root" and bool(denied)
    )
    with memory.open("copy", create=False, wrap=first) as ns:
        assert not denied
        with raises(InvalidInputError, match="is a copy of the namespace 'sales'"):
            ns.produce("orders", rows(1))


def test_a_namespace_that_an_older_version_registered_is_opened_and_its_copy_is_not(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(txnlog_root, "Register", lambda name, coordinator, _log: Register(name, coordinator))
    with_orders(memory)
    monkeypatch.undo()
    with memory.open("sales", create=False) as ns:
        ns.produce("orders", rows(1))
    copy(memory, "sales", memory, "copy")
    refused(memory, "copy", "is a copy of the namespace 'sales'")
    assert adopt(memory, "copy") == NamespaceInfo("copy", 1)
    assert read(memory.open("copy")) == read(memory.open("sales")) == [0, 1]


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize(("namespaces", "entries", "expected"), [(1, 1, 16), (1, 30, 50), (10, 1, 25)])
def test_opening_reads_each_entry_once(memory: Place, mode: str, namespaces: int, entries: int, expected: int) -> None:
    for number in range(namespaces - 1):
        memory.open(f"other-{number}")
    ns = memory.orders(namespace="sales")
    for number in range(entries):
        ns.produce("orders", rows(number))
    ns.close()
    ns, store = memory.wrapped(partial(CountingStore, classify=lambda key: key), mode=mode, create=False)
    with ns:
        counts = {key: count for (call, key), count in store.counts().items() if call == "get"}
    for key in memory.store().list(""):
        assert counts.get(key.key, 0) <= 1, key.key
    assert sum(counts.values()) == expected


# --- the log that a registration means --------------------------------------------------------------------------------


@pytest.mark.clause("P-230")
def test_a_registration_names_the_first_entry_of_its_log(memory: Place) -> None:
    for name in ("sales", "audit"):
        ns = memory.open(name)
        root = Root(memory.store(), Runtime())
        (record,) = [item for item in root.namespaces() if item.name == name]
        first = ns._connection.follower.log.entry(0)
        assert record.log == first.digest
        registered = root.follower.log.entry(record.id).header
        assert (first.header.writer, first.header.timestamp_ms) == (registered.writer, registered.timestamp_ms)


@pytest.mark.clause("P-230")
def test_a_creation_that_was_interrupted_is_finished_with_the_registered_entry(memory: Place) -> None:
    memory.open("first")
    record = Root(memory.store(), Runtime()).register(parse_namespace_name("sales"))
    with memory.open("sales") as ns:
        assert ns._connection.session.beginning == record.log
        ns.create_topic("orders", SCHEMA)
    memory.open("sales", mode="r").close()


def test_a_creation_that_another_version_interrupted_says_so(memory: Place) -> None:
    memory.open("first")
    root = Root(memory.store(), Runtime())
    append_to(root, Register("sales", 1, "0" * 32))
    with raises(InvalidInputError, match="registered by another version of txnlog.*drop it", durable=Durable.NOTHING):
        memory.open("sales")
    with txn_catalog.open(memory.root) as cat:
        cat.drop_namespace("sales")
        assert cat.create_namespace("sales").coordinator == 2


def test_a_folder_that_was_removed_and_made_again_is_another_namespace(memory: Place) -> None:
    """Its TxnIDs, tokens and first entry are others: a Delta table that has batches of the lost one takes new ones."""
    clock = ManualClock(1_700_000_000_000)
    ns = with_orders(memory, clock=clock)
    lost, token, beginning = txn_ids(ns), prepared(ns, 1), ns._connection.follower.log.entry(0).digest
    ns.close()
    remove(memory, "sales")
    clock.advance(10_001)
    create(memory, "sales", clock)
    again = with_orders(memory, clock=clock)
    assert not set(lost) & set(txn_ids(again))
    assert prepared(again, 1) != token
    assert again._connection.follower.log.entry(0).digest != beginning


def test_what_is_made_under_the_name_of_a_folder_that_moved_shares_nothing_with_it(memory: Place) -> None:
    clock = ManualClock(1_700_000_000_000)
    ns = with_orders(memory, clock=clock)
    ns.close()
    copy(memory, "sales", memory, "moved")
    remove(memory, "sales")
    clock.advance(10_001)
    adopt(memory, "moved")
    create(memory, "sales", clock)
    made, moved = with_orders(memory, clock=clock), memory.open("moved")
    assert not set(txn_ids(moved)) & set(txn_ids(made))
    assert moved._connection.follower.log.entry(0).digest != made._connection.follower.log.entry(0).digest


def append_to(root: Root, *actions: Any) -> None:
    root.follower.refresh()
    root.appender.call(effect(lambda _draft, _at: list(actions)))


# --- adopting ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-231", "P-233")
@pytest.mark.parametrize("same_root", [True, False])
def test_an_adopted_copy_gives_no_txn_id_of_the_original_and_old_ones_keep_their_meaning(
    memory: Place, other: Place, same_root: bool
) -> None:
    target, name = (memory, "copy") if same_root else (other, "sales")
    ns = with_orders(memory)
    token = prepared(ns, 1)
    open_one = begun(ns, 2, flush=True)
    copy(memory, "sales", target, name)

    info = adopt(target, name)
    assert info == NamespaceInfo(name, 1)
    with txn_catalog.open(target.root) as cat:
        assert cat.namespace(name) == info
    with target.open(name, create=False) as copied:
        assert copied._connection.coordinator == 1
        assert [item.txn_id for item in copied.transactions("PREPARED")] == [TxnId.parse(token)]
        assert [item.txn_id for item in copied.transactions("OPEN")] == [open_one.id]
        before = txn_ids(ns)
        for number in (10, 11, 12):
            assert prepared(ns, number) != prepared(copied, number)
        assert (
            copied.complete(token, commit=True).txn_id == ns.complete(token, commit=True).txn_id == TxnId.parse(token)
        )
        assert copied.transaction(token).state == "COMMITTED"
        assert txn_ids(copied) == txn_ids(ns) == [*before, TxnId.parse(token)]
        given = {handle: [handle.produce("orders", rows(20)).txn_id for _ in range(5)] for handle in (ns, copied)}
        assert {item.coordinator for item in given[ns]} == {0}
        assert {item.coordinator for item in given[copied]} == {1}
        assert txn_ids(copied)[2:] == given[copied]
        mixed = TxnId(0, given[copied][0].number)
        with raises(InvalidInputError, match="coordinator id 0, this one has 1"):
            copied.transaction(mixed)
    with raises(InvalidInputError, match="coordinator id 1, this one has 0"):
        ns.transaction(given[copied][0])


@pytest.mark.clause("P-41", "P-231")
def test_numbers_that_the_original_had_reserved_are_not_used_in_the_copy(memory: Place, other: Place) -> None:
    ns = with_orders(memory)
    pending = ns.begin()
    copy(memory, "sales", other)
    adopt(other, "sales")
    copied = other.open("sales")
    state = copied._connection.follower.state
    assert not state.blocks
    assert not state.used
    with raises(TransactionNotFound):
        copied.abort(pending.id)
    pending.produce("orders", rows(1))
    assert pending.commit().txn_id == pending.id
    assert copied.produce("orders", rows(1)).txn_id.number >= state.head.adoptions[0][0]


@pytest.mark.clause("P-233")
def test_the_new_coordinator_id_is_none_that_the_log_ever_had(memory: Place, other: Place) -> None:
    """Of root to root and back: the next id of a root may be one that the log had elsewhere."""
    memory.open("first")
    with_orders(memory)
    copy(memory, "sales", other)
    assert adopt(other, "sales").coordinator == 0
    copied = other.open("sales")
    copied.produce("orders", rows(1))
    copied.close()
    assert copied._connection is not None
    third = Place("memory", f"memory://{unique_name()}")
    copy(other, "sales", third, "again")
    assert adopt(third, "again").coordinator == 2
    with third.open("again") as ns:
        ns.produce("orders", rows(2))
        assert [item.coordinator for item in txn_ids(ns)] == [1, 0, 2]
        assert ns._connection.coordinators.spans[0] == (0, 1)
        assert adopt(third, "again", force=True).coordinator == 3
        ns.create_topic("more", SCHEMA)
        assert ns._connection.coordinators.newest == 3
    assert third.open("next")._connection.coordinator == 4
    third.close()


def test_what_is_merged_and_what_a_checkpoint_holds_keeps_its_txn_ids(memory: Place, other: Place) -> None:
    with_orders(memory)
    copy(memory, "sales", other)
    adopt(other, "sales")
    with other.open("sales") as ns:
        for number in range(1, 12):
            ns.produce("orders", rows(number))
        before = txn_ids(ns)
        assert {item.coordinator for item in before} == {0, 1}
        assert ns.optimize("orders").merged_segments == 12
        ns.checkpoint()
        ns.produce("orders", rows(12))
        assert txn_ids(ns)[:12] == before
        with other.open("sales") as again:
            assert again._connection.follower.base is not None
            assert again._connection.coordinators == ns._connection.coordinators
            assert txn_ids(again)[:12] == before
            assert again.begin().id.coordinator == 1


def test_a_busy_namespace_is_adopted_and_goes_on(memory: Place, other: Place) -> None:
    ns = memory.open()
    busy(ns, 1)
    before = txn_ids(ns)
    copy(memory, "sales", other)
    adopt(other, "sales")
    with other.open("sales") as copied:
        assert txn_ids(copied) == before
        busy(copied, 2)
        copied.vacuum(retain_ms=0, grace_ms=3_600_000, allow_short_retention=True)
        assert sorted(before) == sorted(item for item in txn_ids(copied) if item.coordinator == 0)
        assert tables_of(from_zero(copied)) == tables_of(copied._connection.follower.state)


def test_a_namespace_of_its_root_is_adopted_by_force_alone(memory: Place) -> None:
    """As of a copy of a whole root, which nothing tells from its original."""
    ns = with_orders(memory)
    begun = ns.begin()
    with Unchanged(memory), raises(InvalidInputError, match=r"is a namespace of its root already.*force=True"):
        adopt(memory, "sales")
    assert adopt(memory, "sales", force=True) == NamespaceInfo("sales", 1)
    begun.produce("orders", rows(1))
    with pytest.raises(CoordinatorFenced):
        begun.commit()
    assert ns.produce("orders", rows(1)).txn_id.coordinator == 1
    assert [item.coordinator for item in txn_ids(memory.open("sales"))] == [0, 1]
    assert names(memory) == ("sales",)


def test_a_dropped_namespace_comes_back_by_adoption(memory: Place) -> None:
    with_orders(memory).close()
    with txn_catalog.open(memory.root) as cat:
        cat.drop_namespace("sales")
        with raises(NamespaceNotFound, match="was dropped.*" + HOW.format("sales")):
            memory.open("sales")
        assert cat.adopt_namespace("sales").coordinator == 1
    with memory.open("sales", create=False) as ns:
        ns.produce("orders", rows(1))
        assert [item.coordinator for item in txn_ids(ns)] == [0, 1]


def test_an_adoption_that_was_interrupted_is_done_again(memory: Place, other: Place) -> None:
    with_orders(memory)
    copy(memory, "sales", other)
    cut = failing(KeyboardInterrupt, StoreCall.CREATE, where=lambda key: kind_of(key) == "entry")
    with pytest.raises(KeyboardInterrupt):
        adopt_namespace(other.root, "sales", store=cut(other.store()))
    refused(other, "sales", r"if its adoption was interrupted, repeat it: .*" + HOW.format("sales"))
    assert adopt(other, "sales").coordinator == 2, "what the interrupted one was given is not given again"
    assert with_orders(other, create=False)._connection.coordinators.newest == 2


@pytest.mark.parametrize("durable", Durable)
def test_an_adoption_whose_entry_failed_says_what_to_do(memory: Place, other: Place, durable: Durable) -> None:
    with_orders(memory)
    copy(memory, "sales", other)
    other.open("first")
    with pytest.raises(TxnLogError) as caught:
        adopt_namespace(other.root, "sales", store=Failing(other.store(), durable))
    assert caught.value.durable is Durable.MAYBE
    assert isinstance(caught.value, OutcomeUnknown) or "adopt it again" in caught.value.advice
    assert adopt(other, "sales", force=durable is Durable.MAYBE).name == "sales"
    with_orders(other, create=False)


class Failing(ForwardingStore):
    """A store with no space for entries, which may say so too late."""

    def __init__(self, inner: Store, durable: Durable) -> None:
        super().__init__(inner)
        self._durable = durable

    def create(self, key: str, data: bytes) -> Created:
        if kind_of(key) == "entry":
            if self._durable is Durable.MAYBE:
                super().create(key, data)
            raise StoreError("no space left", durable=self._durable)
        return super().create(key, data)

    def get(self, key: str) -> bytes:
        data = super().get(key)
        if self._durable is Durable.MAYBE and kind_of(key) == "entry" and b'"adopt"' in data:
            raise StoreError("not now")
        return data


def test_of_two_who_adopt_at_once_one_is_refused_and_the_log_has_what_the_root_lists(
    memory: Place, other: Place
) -> None:
    with_orders(memory)
    copy(memory, "sales", other)

    rival = Once(lambda call, key: call is StoreCall.CREATE and kind_of(key) == "entry", lambda: adopt(other, "sales"))
    with raises(InvalidTransactionState, match="somebody else adopted", durable=Durable.MAYBE):
        adopt_namespace(other.root, "sales", store=HookStore(other.store(), before=rival))
    assert with_orders(other, create=False)._connection.coordinator == 2


def test_what_cannot_be_adopted_says_why(memory: Place) -> None:
    with raises(NamespaceNotFound):
        adopt(memory, "sales")
    with_orders(memory)
    copy(memory, "sales", memory, "SALES")
    with raises(NameNotAllowed):
        adopt(memory, "SALES")
    with raises(NameNotAllowed):
        adopt(memory, "a/b")
    assert names(memory) == ("sales",)
    with txn_catalog.open(memory.root) as cat:
        cat.close()
        with raises(InvalidTransactionState, match="closed"):
            cat.adopt_namespace("sales")


@pytest.mark.clause("P-231")
def test_an_adoption_that_is_laid_by_hand_is_followed_by_every_handle(memory: Place) -> None:
    ns = with_orders(memory)
    reader = memory.open(mode="r")
    append(ns, Adopt("sales", 9))
    assert ids(reader.snapshot().read("orders")) == [0]
    assert reader._connection.coordinator == ns._connection.coordinator == 9
    with pytest.raises(CoordinatorFenced):
        ns.produce("orders", rows(1))
    assert ns.produce("orders", rows(1)).txn_id.coordinator == ns.begin().id.coordinator == 9
    refused(memory, "sales", "with coordinator id 9 instead of 0")


def test_handles_of_a_namespace_and_of_its_copy_are_of_two_namespaces(memory: Place, other: Place) -> None:
    ns = with_orders(memory)
    copy(memory, "sales", other)
    adopt(other, "sales")
    copied = other.open("sales")
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    with copied.begin() as txn, pytest.raises(InvalidInputError):
        txn.acknowledge(messages)
    assert txnlog.open(other.root, "sales", mode="r")._connection.same_namespace(copied._connection)


def test_a_backup_in_the_place_of_the_original_gives_no_txn_id_again_once_it_is_adopted(local: Place) -> None:
    """The error for who adopts without force names the case."""
    ns = local.orders(1)
    ns.close()
    folder = Path(local.root) / "sales"
    shutil.copytree(folder, folder.with_name("backup"))
    ns = local.open()
    later = ns.produce("orders", rows(2)).txn_id
    ns.close()
    shutil.rmtree(folder)
    folder.with_name("backup").rename(folder)
    root = txn_catalog.open(local.root)
    with raises(InvalidInputError, match="backup that was put back"):
        root.adopt_namespace("sales")
    root.adopt_namespace("sales", force=True)
    ns = local.open()
    ids = {ns.produce("orders", rows(number)).txn_id for number in range(3, 6)}
    assert later not in ids
    with raises(TransactionNotFound):
        ns.abort(later)
    assert read(ns) == [1, 3, 4, 5]
