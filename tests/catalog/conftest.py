"""Foreign engines, and namespaces on the local disk that are made quickly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import catalog as txn_catalog
from catalog import Catalog
from tests.catalog.engines import Engines, engines_in
from tests.client.conftest import local, ns
from tests.client.support import FakeRuntime, Place, trusting_probe
from txnlog.api.namespace import Namespace
from txnlog.client import auto_merger, session_owner
from txnlog.log import root_log

__all__ = ["local", "ns"]  # fixtures


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting, no probing, and no merges in the background: each has tests of its own."""
    monkeypatch.setattr(auto_merger, "AUTO_MERGE_SEGMENTS", 1 << 30)
    monkeypatch.setattr(session_owner, "Runtime", FakeRuntime)
    monkeypatch.setattr(root_log, "probe", trusting_probe)


@pytest.fixture
def place(local: Place, quick: None) -> Place:
    """An empty root on disk."""
    return local


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
