"""What a user reads where the folder of a namespace, or the root's folder of its log, was removed or renamed."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import catalog as txn_catalog
import txnlog
from catalog import Catalog
from tests.catalog.publishers import publications
from tests.client.support import SCHEMA, Place, raises, read, received, rows
from txnlog.errors import AccessDenied, CorruptionError, Durable, InvalidInputError, NamespaceNotFound
from txnlog.format import keys
from txnlog.store import ForwardingStore, Store
from txnlog.store.base import ObjectNotFound
from txnlog.testing import ManualClock

START_MS = 1_700_000_000_000


def with_orders(place: Place, name: str = "sales", **options: Any) -> Any:
    ns = place.open(name, **options)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0))
    return ns


def test_a_folder_that_is_removed_is_made_again_only_while_its_creation_may_be_under_way(place: Place) -> None:
    """Whoever registered the namespace may be about to write its first entry, which has the same bytes for all."""
    assert "first ten seconds" in (txnlog.open.__doc__ or "")
    clock = ManualClock(START_MS)
    with_orders(place, clock=clock).close()
    folder = Path(place.root) / "sales"
    shutil.rmtree(folder)
    clock.advance(10_000)
    with place.open(clock=clock) as again:
        assert again.topics() == ()
        assert again._connection.coordinator == 0, "its TxnIDs are those that the removed one gave"
    shutil.rmtree(folder)
    clock.advance(1)
    with raises(NamespaceNotFound, match="its log .* is missing", durable=Durable.NOTHING):
        place.open(clock=clock)


# --- the folder _catalog ----------------------------------------------------------------------------------------------

NO_ROOT = (
    "the root .* has no folder _catalog, .*: it was removed, or not copied with the others; nothing in sales/ is lost"
)
HOW_ADOPTED = r"catalog.open\(root\).adopt_namespace\('sales'\) in Python, or txnlog .*sales' adopt on the command line"


@pytest.fixture
def rootless(place: Place) -> Place:
    """A root with two namespaces whose folder _catalog is gone."""
    with_orders(place).close()
    with_orders(place, "audit").close()
    shutil.rmtree(Path(place.root) / "_catalog")
    return place


def test_a_namespace_whose_root_lost_its_list_says_so_and_is_read_and_adopted(rootless: Place) -> None:
    for create in (False, True):
        with raises(InvalidInputError, match=f"{NO_ROOT}.*bring _catalog back.*{HOW_ADOPTED}", durable=Durable.NOTHING):
            rootless.open(create=create)
    with rootless.open(mode="r", create=False) as ns:
        assert read(ns) == [0]
    with txn_catalog.open(rootless.root) as cat:
        assert cat.adopt_namespace("sales").name == "sales"
    with rootless.open(create=False) as ns:
        ns.produce("orders", rows(1))
        assert read(ns) == [0, 1]


CALLS: dict[str, Callable[[Catalog], object]] = {
    "look": lambda cat: cat.namespace("sales"),
    "drop": lambda cat: cat.drop_namespace("sales"),
    "publish": lambda cat: cat.publish("sales"),
    "create": lambda cat: cat.create_namespace("sales"),
    "create if it is not there": lambda cat: cat.create_namespace("sales", if_not_exists=True),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_catalog_that_is_asked_for_a_namespace_says_that_its_list_is_gone(rootless: Place, call: str) -> None:
    with txn_catalog.open(rootless.root) as cat:
        kind = NamespaceNotFound if call in {"look", "drop"} else InvalidInputError
        with raises(kind, match=f"{NO_ROOT}.*{HOW_ADOPTED}"):
            CALLS[call](cat)
        assert not (Path(rootless.root) / "_catalog").exists()


def test_a_listing_of_a_root_that_lost_its_list_warns(rootless: Place, caplog: pytest.LogCaptureFixture) -> None:
    with txn_catalog.open(rootless.root) as cat:
        with caplog.at_level(logging.WARNING, "txnlog.root"):
            assert cat.namespaces() == ()
        assert re.search("has no folder _catalog.*'audit'.*adopt_namespace", caplog.text)
        caplog.clear()
        cat.adopt_namespace("sales")
        assert cat.namespaces() == ("sales",)
        assert not caplog.records


def test_a_new_namespace_in_a_root_that_lost_its_list_warns(rootless: Place, caplog: pytest.LogCaptureFixture) -> None:
    """It makes a new list, which has only this one in it."""
    with caplog.at_level(logging.WARNING, "txnlog.root"):
        rootless.open("new").close()
        assert re.search("has no folder _catalog.*'audit'.*adopt_namespace", caplog.text)
        caplog.clear()
        rootless.open("newer").close()
        assert not caplog.records


@pytest.mark.parametrize("what", ["nothing", "files of others", "no right to list"])
def test_a_listing_of_what_is_no_root_warns_of_nothing(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    if what == "files of others":
        for number in range(3):
            (tmp_path / f"folder{number}" / "_log").mkdir(parents=True)
            (tmp_path / f"folder{number}" / "_log" / "run.txt").write_text("x")
        (tmp_path / "readme.txt").write_text("x")

    class Forbidden(ForwardingStore):
        def list(self, prefix: str) -> Any:
            raise AccessDenied(f"LIST {prefix} is not allowed")

    store: Store = txn_catalog.open(tmp_path)._root._whole
    with txn_catalog.open(tmp_path, store=Forbidden(store) if what == "no right to list" else store) as cat:
        assert cat.namespaces() == ()
    assert not caplog.records


def test_a_root_log_without_its_first_entry_is_reported_by_whoever_looks_for_namespaces(place: Place) -> None:
    with_orders(place).close()
    next((Path(place.root) / "_catalog" / "_log").rglob("*00000.json")).unlink()
    match = "the first entry of the root log is missing"
    with txn_catalog.open(place.root) as cat:
        calls: list[Callable[[], object]] = [
            cat.namespaces,
            lambda: cat.namespace("sales"),
            lambda: cat.namespace("absent"),
            lambda: cat.drop_namespace("sales"),
            lambda: cat.create_namespace("sales"),
            lambda: place.open("absent", create=False),
        ]
        for call in calls:
            with raises(CorruptionError, match=match):
                call()


# --- the folder of a namespace ----------------------------------------------------------------------------------------

RENAMED = "the folder sold/ holds the log of the namespace 'sales', .* sales/ has none: it was renamed; nothing is lost"


@pytest.fixture
def renamed(place: Place) -> Place:
    with_orders(place).close()
    with_orders(place, "audit").close()
    (Path(place.root) / "sales").rename(Path(place.root) / "sold")
    return place


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_renamed_folder_is_distinguished_from_a_copy_and_both_ways_on_are_named(renamed: Place, mode: str) -> None:
    way = (
        r"rename it to sales/ again; or, to keep the new name, .*adopt_namespace\('sold'\).*adopt on the command line, "
        r"and then catalog.open\(root\).drop_namespace\('sales'\)"
    )
    with raises(InvalidInputError, match=f"{RENAMED}.*{way}", durable=Durable.NOTHING):
        renamed.open("sold", mode=mode, create=False)
    with txn_catalog.open(renamed.root) as cat:
        with raises(NamespaceNotFound, match=RENAMED):
            cat.namespace("sold")
        with raises(NamespaceNotFound, match=RENAMED):
            cat.drop_namespace("sold")
        with raises(InvalidInputError, match=RENAMED):
            cat.create_namespace("sold")


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_opening_the_old_name_says_that_the_folder_may_have_been_renamed(renamed: Place, mode: str) -> None:
    match = (
        "the root lists the namespace 'sales', but its log .* is missing: its folder was removed, renamed or moved, or "
        ".*where it was renamed or moved, nothing is lost: give it its name and place again"
    )
    with raises(NamespaceNotFound, match=match, durable=Durable.NOTHING):
        renamed.open(mode=mode, create=False)


def test_a_renamed_folder_works_again_under_either_name(renamed: Place) -> None:
    folder = Path(renamed.root) / "sold"
    folder.rename(folder.with_name("sales"))
    with renamed.open(create=False) as ns:
        assert read(ns) == [0]
    folder.with_name("sales").rename(folder)
    with txn_catalog.open(renamed.root) as cat:
        cat.adopt_namespace("sold")
        cat.drop_namespace("sales")
        assert cat.namespaces() == ("audit", "sold")
    with renamed.open("sold", create=False) as ns:
        ns.produce("orders", rows(1))
        assert read(ns) == [0, 1]


def test_of_a_renamed_folder_and_the_namespace_made_anew_it_is_said_which_has_more(place: Place) -> None:
    """Both have the same first entry: who registers a name twice in a moment makes the same log."""
    with with_orders(place) as ns:
        version = ns.snapshot().version
    root = Path(place.root)
    (root / "sales").rename(root / "sold")
    place.open().close()  # within ten seconds of the first one: it may be the client that was to make the log
    with raises(
        InvalidInputError,
        match=rf"sold/ is a copy of the namespace 'sales'.*: sales/ ends at version 0, sold/ at version {version} "
        r"\(sold/ has more entries: perhaps it was renamed, .*; to make the copy a namespace of its own: ",
    ):
        place.open("sold", create=False)
    place.open().create_topic("one", SCHEMA)
    shutil.copytree(root / "sales", root / "third")
    with place.open() as ns:
        ns.create_topic("two", SCHEMA)
    with raises(InvalidInputError, match=r"third/ is a copy .*third/ at version 1 \(open 'sales'; to make the copy"):
        place.open("third", create=False)


def test_a_copy_is_still_called_one_also_where_the_original_cannot_be_looked_at(place: Place) -> None:
    with_orders(place).close()
    root = Path(place.root)
    shutil.copytree(root / "sales", root / "sold")
    with raises(InvalidInputError, match="sold/ is a copy of the namespace 'sales'"):
        place.open("sold", create=False)
    shutil.rmtree(root / "sales")

    class OwnFolderOnly(ForwardingStore):
        def get(self, key: str) -> bytes:
            if key.startswith("sales/"):
                raise AccessDenied(f"GET {key} is not allowed")
            return super().get(key)

    with raises(InvalidInputError, match="sold/ is a copy of the namespace 'sales'"):
        place.open("sold", create=False, wrap=OwnFolderOnly)


def test_an_open_handle_whose_folder_was_renamed_says_so_when_it_reads_and_writes(place: Place) -> None:
    with with_orders(place) as ns, place.open(mode="r", create=False) as reader:
        (Path(place.root) / "sales").rename(Path(place.root) / "sold")
        why = "its folder was removed, renamed or replaced"
        with raises(NamespaceNotFound, match=why, durable=Durable.NOTHING):
            ns.produce("orders", rows(1))
        for handle in (ns, reader):
            with raises(NamespaceNotFound, match=why, durable=Durable.NOTHING):
                read(handle)


# --- a handle that only reads -----------------------------------------------------------------------------------------


def gone(root: Path) -> None:
    (root / "sales").rename(root / "sold")


def dropped_and_gone(root: Path) -> None:
    with txn_catalog.open(str(root)) as cat:
        cat.drop_namespace("sales")
    shutil.rmtree(root / "sales")


def made_anew(root: Path) -> None:
    dropped_and_gone(root)
    with txnlog.open(str(root / "sales"), create=True) as ns:
        ns.create_topic("orders", SCHEMA)


def made_anew_and_longer(root: Path) -> None:
    made_anew(root)
    with txnlog.open(str(root / "sales")) as ns:
        for number in range(20):
            ns.produce("orders", rows(number))


REMOVALS = [gone, dropped_and_gone, made_anew, made_anew_and_longer]


@pytest.mark.parametrize("removed", REMOVALS)
def test_who_waits_for_messages_hears_that_the_namespace_is_gone(place: Place, removed: Callable[[Path], None]) -> None:
    """It is looked for every few seconds: nothing new ever comes in a folder that is not there."""
    with with_orders(place) as ns, place.open(create=False) as other:
        consumer = ns.consumer("orders", "billing")
        consumer.acknowledge(consumer.receive(timeout_ms=0))
        other.snapshot()
        removed(Path(place.root))
        with raises(NamespaceNotFound, match="no longer the one that this handle has open", durable=Durable.NOTHING):
            consumer.receive(timeout_ms=30_000)
        other._connection.runtime.sleep_ms(6_000)
        with raises(NamespaceNotFound, match="no longer the one that this handle has open"):
            other.snapshot()


@pytest.mark.parametrize("removed", REMOVALS)
def test_no_message_is_skipped_and_nothing_restored_where_the_namespace_is_gone(
    place: Place, removed: Callable[[Path], None]
) -> None:
    with with_orders(place) as ns, place.open(mode="r", create=False) as reader:
        consumer, snapshot = ns.consumer("orders", "billing"), reader.snapshot()
        removed(Path(place.root))
        for call in (
            lambda: consumer.receive(timeout_ms=0),
            lambda: snapshot.read("orders"),
            ns.vacuum,
            ns.checkpoint,
        ):
            with raises(NamespaceNotFound, match="open the namespace again", durable=Durable.NOTHING):
                call()


@pytest.mark.parametrize("removed", [gone, dropped_and_gone])
def test_a_topic_of_a_namespace_that_is_gone_is_not_published_and_not_damaged(
    place: Place, removed: Callable[[Path], None]
) -> None:
    with with_orders(place) as ns:
        removed(Path(place.root))
        with raises(NamespaceNotFound, match="no longer the one that this handle has open"):
            publications(ns).publish(ns._connection.topic_record("orders").id)
        assert not (Path(place.root) / "sales").exists()


def test_a_topic_is_published_though_the_entry_that_made_it_is_shown_late(place: Place) -> None:
    """A cache of names may be behind: an entry that must be there is looked at again before it is called missing."""
    late: list[str] = []

    class Late(ForwardingStore):
        def get(self, key: str) -> bytes:
            if key in late:
                late.remove(key)
                raise ObjectNotFound(key)
            return super().get(key)

    with with_orders(place, wrap=Late) as ns:
        topic = ns._connection.topic_record("orders").id
        late.extend([f"sales/{keys.entry_key(topic)}"] * 2)
        assert publications(ns).publish(topic).delta_version == 0
        assert not late


def test_a_damaged_newest_entry_is_damage_and_not_another_namespace(place: Place) -> None:
    with with_orders(place) as ns:
        path = Path(place.root) / "sales" / keys.entry_key(ns._connection.follower.version)
        path.write_bytes(path.read_bytes()[:-40])
        with raises(CorruptionError, match="entry 2"):
            ns.produce("orders", rows(1))


def test_a_topic_whose_folder_was_renamed_is_named_before_anybody_skips_its_messages(place: Place) -> None:
    with with_orders(place) as ns:
        ns.produce("orders", rows(1))
        folder = Path(place.root) / "sales" / "orders"
        folder.rename(folder.with_name("old"))
        consumer = ns.consumer("orders", "billing")
        match = "so is every other object of the topic, whose folder may have been renamed"
        with raises(CorruptionError, match=match):
            consumer.receive(timeout_ms=0)
        with raises(CorruptionError, match=match):
            read(ns)
        folder.with_name("old").rename(folder)
        assert read(ns) == received(consumer) == [0, 1]
