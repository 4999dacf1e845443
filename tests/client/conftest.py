"""Roots in memory and on disk, a runtime that never waits, and the probe out of the way where it is not the point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.merging import soon  # noqa: F401 - a fixture
from tests.client.support import (
    SCHEMA,
    FakeRuntime,
    FaultyStore,
    Place,
    memory_place,  # noqa: F401 - a fixture
    rows,
    trusting_probe,
    unique_name,
)
from tools.servers import s3_server
from txnlog.client import auto_merger, session_owner
from txnlog.log import root_log
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS


@pytest.fixture(autouse=True)
def _fast(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting, no probing, and no merges in the background: each has tests of its own."""
    monkeypatch.setattr(auto_merger, "AUTO_MERGE_SEGMENTS", 1 << 30)
    if request.node.get_closest_marker("real_runtime") is None:
        monkeypatch.setattr(session_owner, "Runtime", FakeRuntime)
    if request.node.get_closest_marker("real_probe") is None:
        monkeypatch.setattr(root_log, "probe", trusting_probe)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Place]:
    """An empty root on disk."""
    place = Place("local", str(tmp_path / "lake"))
    yield place
    place.close()


_A_PUSH_TAKES_ONE = pytest.mark.some(1, of="place")


@pytest.fixture(params=[pytest.param(kind, marks=_A_PUSH_TAKES_ONE) for kind in ("memory", "local")])
def place(request: pytest.FixtureRequest) -> Place:
    """An empty root of each kind in turn."""
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def s3_root() -> Iterator[Any]:
    """An S3 server that honours create-if-absent."""
    with s3_server("txnlog-client") as server:
        yield server


@pytest.fixture
def s3(s3_root: Any) -> Iterator[Place]:
    """An empty root in S3."""
    place = Place("s3", s3_root.url(unique_name()), s3_root.storage_options)
    yield place
    place.close()


@pytest.fixture(params=["memory", "local", pytest.param("s3", marks=pytest.mark.long)])
def fresh_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Place]:
    """Makes empty roots of each kind in turn, for models that are run many times."""
    kind: str = request.param
    server = request.getfixturevalue("s3_root") if kind == "s3" else None

    def fresh() -> Place:
        name = unique_name()
        if server is not None:
            return Place(kind, server.url(name), server.storage_options)
        return Place(kind, f"memory://{name}" if kind == "memory" else str(tmp_path / name))

    return fresh


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands at the first moment of 2026."""
    return ManualClock(START_MS)


@pytest.fixture
def ns(place: Place) -> Any:
    """A namespace with the topic ``orders`` of two partitions, on each kind of root."""
    return place.orders(partitions=2)


@pytest.fixture
def sales(memory: Place) -> Any:
    """A namespace in memory with the topics ``orders`` and ``audit`` of one partition."""
    handle = memory.orders()
    handle.create_topic("audit", SCHEMA)
    return handle


@pytest.fixture
def ten(place: Place) -> Any:
    """A namespace whose topic ``orders`` has ten messages in one partition, on each kind of root."""
    ns = place.orders()
    ns.create_topic("audit", SCHEMA)
    ns.produce("orders", rows(*range(10)))
    return ns


@pytest.fixture
def lake(memory: Place, clock: ManualClock) -> Any:
    """A namespace with the topic ``orders`` of one partition, and a clock to move."""
    return memory.orders(clock=clock)


@pytest.fixture
def pair(memory: Place) -> tuple[Any, FaultyStore, Any]:
    """A client on a store that misbehaves when told, and a rival on an honest one."""
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    ns.create_topic("audit", SCHEMA)
    ns.produce("orders", rows(0))
    rival = memory.open()
    rival.produce("audit", rows(0))
    ns.snapshot()
    store.calls.clear()
    return ns, store, rival
