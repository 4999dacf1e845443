"""Data files of the table of segments that are damaged: like all that is published they are compared, not trusted."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pytest


import catalog as txn_catalog
from tests.catalog.test_segments_table import SCHEMA, path, rows, segment_rows, told
from tests.client.support import Place



@pytest.mark.parametrize("damage", ["cut", "empty", "garbage of its size"])
@pytest.mark.parametrize("call", ["repair", "publish"])
def test_a_damaged_file_of_the_newest_version_is_there_again(place: Place, damage: str, call: str) -> None:
    ns = place.open()
    ns.create_topic("orders", SCHEMA)
    with txn_catalog.open(place.root) as cat:
        for number in range(2):
            ns.produce("orders", rows(number))
            cat.publish("sales")
        item = Path(deltalake.DeltaTable(str(path(place))).file_uris()[-1])
        commits = {found.name: found.read_bytes() for found in (path(place) / "_delta_log").glob("*.json")}
        data = item.read_bytes()
        item.write_bytes({"cut": data[:-9], "empty": b"", "garbage of its size": bytes(len(data))}[damage])
        getattr(cat, call)("sales")
        assert {name: (path(place) / "_delta_log" / name).read_bytes() for name in commits} == commits
        assert told(place) == segment_rows(ns, ns.snapshot().version)
