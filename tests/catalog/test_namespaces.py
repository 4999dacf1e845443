"""Namespaces of a root: listing, creating, dropping, and what a dropped one's folder may still do."""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import catalog as txn_catalog
import txnlog
from catalog import Catalog
from tests.client.support import wait_for
from tests.descriptors import descriptors
from tests.faults import Once, failing
from tests.forks import in_child
from txnlog.common.names import parse_namespace_name
from txnlog.engine.runtime import Runtime
from txnlog.errors import (
    InvalidInputError,
    InvalidTransactionState,
    NameNotAllowed,
    NamespaceNotFound,
    OutcomeUnknown,
    ReadOnly,
    StoreError,
)
from txnlog.format import keys
from txnlog.log.root_log import Root
from txnlog.store import Created, ForwardingStore, HookStore, MemoryStore, StoreCall
from txnlog.testing import ManualClock

SCHEMA = pa.schema([("x", pa.int64())])


@pytest.mark.parametrize("value", ["false", 0])
def test_what_is_neither_true_nor_false_is_refused_before_anything_is_done(tmp_path: Path, value: Any) -> None:
    with txn_catalog.open(str(tmp_path)) as cat:
        with pytest.raises(InvalidInputError, match="if_not_exists is True or False, not"):
            cat.create_namespace("sales", if_not_exists=value)
        assert cat.namespaces() == ()
        cat.create_namespace("sales")
        with pytest.raises(InvalidInputError, match="force is True or False, not"):
            cat.adopt_namespace("sales", force=value)
        with pytest.raises(InvalidInputError, match="replace is True or False, not"):
            cat.register(None, "sales", replace=value)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def cat(root: str) -> Catalog:
    return txn_catalog.open(root)


def test_a_root_without_anything_has_no_namespaces_and_looking_creates_none(cat: Catalog, root: str) -> None:
    assert cat.namespaces() == ()
    assert not Path(root).exists()


def test_the_path_of_a_namespace_is_no_root(cat: Catalog, root: str) -> None:
    cat.create_namespace("sales")
    inner = txn_catalog.open(f"{root}/sales")
    for look in (inner.namespaces, lambda: inner.namespace("sales")):
        with pytest.raises(InvalidInputError, match=r"is a namespace itself .*the root is the folder above it"):
            look()
    assert f"{root}/sales" in inner._repr_html_()


def test_created_namespaces_are_listed_and_can_be_opened(cat: Catalog, root: str) -> None:
    first = cat.create_namespace("sales")
    second = cat.create_namespace("audit")
    assert cat.namespaces() == ("audit", "sales")
    assert (first.coordinator, second.coordinator) == (0, 1)
    with txnlog.open(root, namespace="sales") as ns:
        ns.create_topic("orders", SCHEMA)
        assert ns._connection.coordinator == first.coordinator


def test_a_namespace_that_a_client_created_is_one_of_the_root(cat: Catalog, root: str) -> None:
    txnlog.open(root, namespace="sales", create=True).close()
    assert cat.namespaces() == ("sales",)
    assert cat.namespace("sales").coordinator == 0


def test_creating_twice_is_refused_unless_that_is_fine(cat: Catalog) -> None:
    made = cat.create_namespace("sales")
    with pytest.raises(InvalidInputError, match="exists"):
        cat.create_namespace("sales")
    assert cat.create_namespace("sales", if_not_exists=True) == made


def test_a_name_that_differs_in_case_only_is_refused(cat: Catalog) -> None:
    cat.create_namespace("sales")
    with pytest.raises(NameNotAllowed, match="case"):
        cat.create_namespace("Sales", if_not_exists=True)


@pytest.mark.parametrize("name", ["", "../x", "a/b", "_catalog", "a" * 101, None, 7])
def test_names_that_could_leave_the_root_are_refused(cat: Catalog, root: str, name: Any) -> None:
    for call in (cat.create_namespace, cat.drop_namespace, cat.namespace):
        with pytest.raises(NameNotAllowed):
            call(name)
    assert not Path(root).exists()


def test_an_unknown_name_is_answered_with_the_nearest_one(cat: Catalog) -> None:
    with pytest.raises(NamespaceNotFound, match="there is none; nothing was written"):
        cat.drop_namespace("sales")
    cat.create_namespace("sales")
    cat.create_namespace("sale-old")
    cat.drop_namespace("sale-old")
    with pytest.raises(NamespaceNotFound, match="did you mean 'sales'"):
        cat.namespace("sale")
    for call in (cat.drop_namespace, cat.publish, cat.repair):
        with pytest.raises(NamespaceNotFound, match=r"did you mean 'sales'.*; nothing was written"):
            call("sale")


def test_a_root_that_is_not_there_is_named_by_whoever_looks_for_a_namespace_in_it(cat: Catalog, root: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: cat.namespace("sales"),
        lambda: cat.drop_namespace("sales"),
        lambda: cat.register(None, "sales"),  # no session is needed to find out
        lambda: cat.publish("sales"),
        lambda: cat.repair("sales"),
        lambda: cat.published("sales", "orders"),
        lambda: cat.delta_version("sales", "orders", 0),
    ]
    for call in calls:
        with pytest.raises(NamespaceNotFound, match=rf"there is no namespace 'sales' at '{re.escape(root)}/sales' \("):
            call()
    assert not Path(root).exists()
    cat.create_namespace("audit")
    for call in calls:
        with pytest.raises(NamespaceNotFound, match=rf"there is no namespace 'sales' at '{re.escape(root)}/sales' \("):
            call()


def test_dropping_removes_the_registration_and_nothing_else(cat: Catalog, root: str) -> None:
    cat.create_namespace("sales")
    with txnlog.open(root, namespace="sales") as ns:
        ns.create_topic("orders", SCHEMA)
        ns.produce("orders", [{"x": 1}])
    assert cat.drop_namespace("sales") == f"{root}/sales"
    assert cat.namespaces() == ()
    with txnlog.open(root, namespace="sales", mode="r") as ns:
        assert ns.snapshot().read("orders").to_pylist() == [{"x": 1}]
        with pytest.raises(ReadOnly):
            ns.create_topic("more", SCHEMA)
    with pytest.raises(NamespaceNotFound):
        cat.drop_namespace("sales")


def test_a_drop_of_unknown_outcome_is_looked_for_and_not_advised_to_be_done_again(
    cat: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    cat.create_namespace("sales")

    def unheard(_: object) -> None:
        raise OutcomeUnknown("the store did not say")

    monkeypatch.setattr(cat._root.appender, "call", unheard)
    with pytest.raises(OutcomeUnknown, match=r"\(look whether it was done: namespaces\(\)"):
        cat.drop_namespace("sales")


def test_a_dropped_namespace_is_refused_at_open_except_for_reading(cat: Catalog, root: str) -> None:
    cat.create_namespace("sales")
    cat.create_namespace("audit")
    before = txnlog.open(root, namespace="sales")
    cat.drop_namespace("sales")
    threads = threading.active_count()
    with pytest.raises(NamespaceNotFound, match=r"'sales' was dropped.*mode=\"r\" reads it"):
        txnlog.open(root, namespace="sales")
    wait_for(lambda: threading.active_count() <= threads)  # fewer: an idle one ends
    txnlog.open(root, namespace="sales", mode="r").close()
    txnlog.open(root, namespace="audit").close()
    with before:
        assert before.topics() == (), "who has it open goes on"
        assert pickle.loads(pickle.dumps(before)).topics() == ()


def test_a_namespace_whose_root_log_cannot_be_read_is_opened_and_refuses_the_first_write() -> None:
    store = MemoryStore()
    with txn_catalog.open("memory://", store=store) as cat:
        cat.create_namespace("sales")
        cat.drop_namespace("sales")

    denied = failing(lambda: StoreError("access denied"), StoreCall.GET, where=lambda key: keys.kind_of(key) == "root")
    with txnlog.open("memory://", namespace="sales", store=denied(store)) as ns:
        assert ns.topics() == ()
        with pytest.raises(StoreError, match="access denied"):
            ns.create_topic("orders", SCHEMA)


def test_a_dropped_namespace_does_not_come_back_under_its_name(cat: Catalog, root: str) -> None:
    cat.create_namespace("sales")
    folder = cat.drop_namespace("sales")
    for flag in (False, True):
        with pytest.raises(InvalidInputError, match="dropped, or copied") as refused:
            cat.create_namespace("sales", if_not_exists=flag)
        assert folder in str(refused.value)
    with pytest.raises(NamespaceNotFound, match="was dropped"):
        txnlog.open(root, namespace="sales", create=True)
    assert cat.namespaces() == ()


def test_once_the_folder_is_gone_the_name_is_free_and_the_coordinator_id_is_not(cat: Catalog, root: str) -> None:
    first = cat.create_namespace("sales")
    folder = Path(cat.drop_namespace("sales"))
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    folder.rmdir()
    second = cat.create_namespace("sales")
    assert second.coordinator == first.coordinator + 1
    with txnlog.open(root, namespace="sales") as ns:
        ns.create_topic("orders", SCHEMA)
        assert ns.topics() == ("orders",)


def test_the_folder_of_a_dropped_namespace_is_refused_below_its_successors_registration(
    cat: Catalog, root: str
) -> None:
    cat.create_namespace("sales")
    folder = Path(cat.drop_namespace("sales"))
    folder.rename(folder.with_name("relic"))
    cat.create_namespace("sales")
    folder.rename(folder.with_name("successor"))
    folder.with_name("relic").rename(folder)
    with pytest.raises(InvalidInputError, match="another namespace, with coordinator id 0 instead of 1"):
        cat.create_namespace("sales", if_not_exists=True)


def test_a_creation_that_was_interrupted_is_finished_by_the_next_one() -> None:
    clock = ManualClock(1_000_000)
    store = MemoryStore()
    cat = txn_catalog.open("memory://", clock=clock, store=store)
    cat.create_namespace("other")
    runtime = Runtime(clock)
    record = Root(store, runtime).register(parse_namespace_name("sales"))  # the process ended here: no log was made
    assert "sales" in cat.namespaces()
    assert cat.create_namespace("sales").coordinator == record.coordinator
    with txnlog.open("memory://", namespace="sales", clock=clock, store=store) as ns:
        assert ns._connection.coordinator == record.coordinator


def test_a_creation_that_a_drop_overtook_says_what_to_do() -> None:
    """Paused between registration and log, its log takes the place of the one that was created after the drop."""
    store = MemoryStore()

    class Paused(ForwardingStore):
        def create(self, key: str, data: bytes) -> Created:
            if key.startswith("sales/_log/"):
                late.append((key, data))
                with txn_catalog.open("memory://", store=Overtaken(store)) as cat:
                    cat.drop_namespace("sales")
                    with pytest.raises(InvalidInputError, match=r"id 1 instead of 2.*remove the folder sales/"):
                        cat.create_namespace("sales")
            return super().create(key, data)

    class Overtaken(ForwardingStore):
        def create(self, key: str, data: bytes) -> Created:
            if key.startswith("sales/_log/"):
                store.create(*late.pop())
            return super().create(key, data)

    late: list[tuple[str, bytes]] = []
    txnlog.open("memory://", namespace="other", create=True, store=store).close()
    with (
        txnlog.open("memory://", namespace="sales", create=True, store=Paused(store)) as ns,
        pytest.raises(InvalidInputError, match="id 1 instead of 2"),
    ):
        ns.create_topic("orders", SCHEMA)
    for flag in (False, True):
        with txn_catalog.open("memory://", store=store) as cat, pytest.raises(InvalidInputError, match="instead of 2"):
            cat.create_namespace("sales", if_not_exists=flag)
    for info in list(store.list("sales/")):
        store.delete(info.key)
    with txn_catalog.open("memory://", store=store) as cat:
        assert cat.create_namespace("sales").coordinator == 2
    with txnlog.open("memory://", namespace="sales", store=store) as ns:
        ns.create_topic("orders", SCHEMA)
        assert ns.topics() == ("orders",)


@pytest.mark.parametrize("again", [False, True])
def test_a_namespace_is_described_as_it_was_created_whatever_becomes_of_it(again: bool) -> None:
    """It was registered and made: who drops it at the same time, or creates the name again, came after that."""
    store = MemoryStore()

    def drop() -> None:
        with txn_catalog.open("memory://", store=store) as rival:
            rival.drop_namespace("sales")
        if again:
            Root(store, Runtime()).register(parse_namespace_name("sales"))

    dropped = Once(lambda call, key: call is StoreCall.CREATE and key.startswith("sales/_log/"), drop)
    with txn_catalog.open("memory://", store=HookStore(store, after=dropped)) as cat:
        cat.create_namespace("other")
        info = cat.create_namespace("sales")
        assert (info.name, info.coordinator) == ("sales", 1)
        assert cat.namespaces() == (("other", "sales") if again else ("other",))


def test_a_closed_catalog_is_refused(cat: Catalog, root: str) -> None:
    cat.close()
    for call in (cat.namespaces, lambda: cat.create_namespace("sales"), lambda: cat.drop_namespace("sales")):
        with pytest.raises(InvalidTransactionState, match="closed"):
            call()
    assert not Path(root).exists()


def test_handles_of_two_processes_see_each_others_namespaces(root: str) -> None:
    with txn_catalog.open(root) as first, txn_catalog.open(root) as second:
        first.create_namespace("a")
        second.create_namespace("b")
        assert first.namespaces() == second.namespaces() == ("a", "b")
        first.drop_namespace("b")
        assert second.namespaces() == ("a",)


def test_a_relative_root_stays_where_it_was_when_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with txn_catalog.open("lake") as cat:
        monkeypatch.chdir("/")
        cat.create_namespace("sales")
        assert cat.namespaces() == ("sales",)
        assert cat.root == str(tmp_path / "lake")


@pytest.mark.clause("P-46")
def test_a_forked_child_is_a_writer_of_its_own(cat: Catalog, root: str) -> None:
    with txn_catalog.open(root) as other:
        for number in range(6):  # several entries are read at once, with threads
            other.create_namespace(f"n{number}")
        assert len(cat.namespaces()) == 6
        cat.drop_namespace("n0")
        writer = cat._root.appender.writer
        for number in range(6, 12):
            other.create_namespace(f"n{number}")

        def child() -> tuple[int, str]:
            cat.drop_namespace("n1")
            return len(cat.namespaces()), cat._root.appender.writer

        with cat._root.follower._changing():
            found, its_writer = in_child(child)
        assert found == 10
        assert its_writer != writer
        assert cat._root.appender.writer == writer
        assert len(cat.namespaces()) == 10


def test_a_closed_catalog_keeps_nothing_open_on_its_disk(cat: Catalog, root: str) -> None:
    cat.create_namespace("sales")
    cat.create_namespace("stock")
    assert descriptors(Path(root))
    cat.close()
    assert not descriptors(Path(root))


def test_a_closed_catalog_stays_closed_in_a_child(cat: Catalog) -> None:
    cat.close()
    with pytest.raises(InvalidTransactionState, match="closed"):
        in_child(cat.namespaces)


def test_reprs_name_the_root_and_its_namespaces_and_no_secret(root: str) -> None:
    cat = Catalog("memory://r", {}, store=MemoryStore())
    info = cat.create_namespace("sales")
    assert repr(cat) == "Catalog('memory://r')"
    assert "sales" in cat._repr_html_()
    assert "sales" in info._repr_html_()
    assert pickle.loads(pickle.dumps(info)) == info
    secret = Catalog("s3://bucket/lake", {"key": "AKIA-SECRET", "secret": "hush"})
    assert "hush" not in repr(secret) + repr(vars(secret)["_store"])
