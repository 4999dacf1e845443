"""What a process that has a namespace open may still do after somebody dropped it, and where that goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import catalog as txn_catalog
import txnlog
from catalog import Catalog
from tests.client.support import SCHEMA, Place, memory_place, raises, read, rows
from txnlog.cli.maintenance import adopt
from txnlog.errors import CoordinatorFenced, CorruptionError, Durable, NamespaceNotFound

__all__ = ["memory_place"]  # a fixture


@pytest.fixture
def ns(place: Place) -> Any:
    """A handle that has written."""
    handle = place.open()
    handle.create_topic("orders", SCHEMA)
    handle.produce("orders", rows(0))
    return handle


@pytest.fixture
def cat(place: Place) -> Iterator[Catalog]:
    with txn_catalog.open(place.root) as handle:
        yield handle


def test_a_handle_that_has_written_commits_into_a_dropped_namespace_and_adoption_brings_it_back(
    place: Place, ns: Any, cat: Catalog
) -> None:
    before = ns.begin()
    before.produce("orders", rows(1))
    reader = place.open(mode="r", create=False)
    cat.drop_namespace("sales")
    assert before.commit().version == 3, "a success, though the root lists the namespace no more"
    consumer = ns.consumer("orders", "billing")
    consumer.acknowledge(consumer.receive(timeout_ms=0))
    assert read(ns) == read(reader) == [0, 1]
    with raises(NamespaceNotFound, match="was dropped; only its folder is still there"):
        place.open(create=False)
    unended = ns.begin()
    unended.produce("orders", rows(2))
    cat.adopt_namespace("sales")
    with raises(CoordinatorFenced, durable=Durable.NOTHING):
        unended.commit()
    with place.open(create=False) as again:
        assert read(again) == [0, 1]
        assert again.lag("orders", "billing")[0].behind_messages == 0


def test_a_handle_that_has_not_written_is_refused_at_its_first_write(place: Place, ns: Any, cat: Catalog) -> None:
    quiet = place.open(create=False)
    cat.drop_namespace("sales")
    with raises(NamespaceNotFound, match="'sales' was dropped", durable=Durable.NOTHING):
        quiet.produce("orders", rows(1))
    assert read(ns) == [0]


def test_on_an_object_store_a_commit_after_the_folder_was_removed_is_a_success_that_nobody_can_read(
    memory: Place, quick: None
) -> None:
    """Documented at ``drop_namespace``: a writer at work looks at its log only after an idle minute."""
    ns = memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0))
    store = memory.store()
    with txn_catalog.open(memory.root) as cat:
        cat.drop_namespace("sales")
        for info in list(store.list("sales/")):
            store.delete(info.key)
        assert ns.produce("orders", rows(1)).version == 3
        with raises(CorruptionError, match=r"files of a namespace 'sales' .* entry 0 of its log is missing"):
            cat.create_namespace("sales")
    with raises(NamespaceNotFound):
        txnlog.open(memory.root, namespace="sales", mode="r")


def test_users_read_of_it_where_they_drop_and_adopt() -> None:
    said = " ".join((Catalog.drop_namespace.__doc__ or "").split())
    assert "Handles that are open are not closed: one that has written goes on, and its commits succeed" in said
    assert "A namespace that was dropped comes back" in " ".join((adopt.help or "").split())
