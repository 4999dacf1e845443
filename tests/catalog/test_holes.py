"""A topic that was compacted by key, as a Delta table: every engine sees the messages that stayed, at every version."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import catalog as txn_catalog
from tests.catalog.engines import FAST, Engines, assert_same
from tests.client.support import Place

SCHEMA = pa.schema([("name", pa.string()), ("id", pa.int64())])


@pytest.mark.parametrize("engine", FAST)
def test_engines_see_what_snapshots_see(tmp_path: Path, fast_engines: Engines, engine: str) -> None:
    place = Place("local", str(tmp_path / "lake"))
    ns = place.open()
    ns.enable("holes")
    ns.create_topic("prices", SCHEMA, partitions=2, key="name", cleanup_policy="compact")
    path = f"{place.root}/sales/prices"
    shown: list[int] = []
    with txn_catalog.open(place.root) as cat:
        for number in range(4):
            ns.produce("prices", [{"name": f"k{key}", "id": 10 * number + key} for key in range(6)])
            shown.append(cat.publish("sales", "prices").version)
            ns.compact("prices")
            shown.append(cat.publish("sales", "prices").version)
            if number == 1:
                ns.optimize("prices")
        published = cat.published("sales", "prices")
        assert {item.version for item in published} >= set(shown)
        for item in published:
            found = fast_engines.read(engine, path, item.delta_version)
            assert_same(found, ns.snapshot(item.version).read("prices"))
        cat.publish("sales")
    assert len(ns.snapshot().read("prices")) == 6
    segments = deltalake.DeltaTable(f"{place.root}/sales/_delta/segments").to_pyarrow_table().to_pylist()
    with_holes = [item for item in segments if item["base_offset"] is None]
    assert with_holes
    assert {item["version"] for item in with_holes} == {None}
    place.close()
