"""Foreign engines, and namespaces on the local disk that are made quickly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import catalog as txn_catalog
from catalog import Catalog
from tests.catalog.engines import Engines, engines_in
from tests.client.support import SCHEMA, FakeRuntime, Place
from txnlog import connection, root
from txnlog.namespace import Namespace
from txnlog.store import identity_of
from txnlog.store.base import Store
from txnlog.store.probe import Passed


def _trusting_probe(store: Store, prefix: str, **_: Any) -> Passed:
    return Passed(identity_of(store), 1, 1, 0)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting, and no probing: both have tests of their own."""
    monkeypatch.setattr(connection, "Runtime", FakeRuntime)
    monkeypatch.setattr(root, "probe", _trusting_probe)


@pytest.fixture
def place(tmp_path: Path, quick: None) -> Iterator[Place]:
    """An empty root on disk."""
    found = Place("local", str(tmp_path / "lake"))
    yield found
    found.close()


@pytest.fixture
def ns(place: Place) -> Namespace:
    """A namespace with the topic ``orders``, of two partitions."""
    handle = place.open()
    handle.create_topic("orders", SCHEMA, partitions=2)
    return handle


@pytest.fixture
def cat(place: Place, ns: Namespace) -> Iterator[Catalog]:
    """The catalog of its root."""
    with txn_catalog.open(place.root) as handle:
        yield handle


@pytest.fixture(scope="session")
def fast_engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """deltalake, Polars and DuckDB in a process without txnlog."""
    yield from engines_in(tmp_path_factory.mktemp("engines"), spark=False)


@pytest.fixture(scope="session")
def all_engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """The same, and Spark with Delta."""
    yield from engines_in(tmp_path_factory.mktemp("engines"), spark=True)
