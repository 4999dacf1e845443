"""A topic on disk whose table grows version by version, and where its Delta log is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from catalog import Catalog, Published
from tests.by_hand import compact
from tests.catalog.stories import mergeable
from tests.client.support import Place, rows


def folder(place: Place, topic: str = "orders") -> Path:
    """Where the Delta log of a topic is."""
    return Path(place.root) / "sales" / topic / "_delta_log"


def commit(place: Place, version: int, topic: str = "orders") -> Path:
    """The file of a Delta version."""
    return folder(place, topic) / f"{version:020d}.json"


def grown(ns: Any, cat: Catalog, versions: int) -> Published:
    """A table of so many versions, with a merged one among them where there are four."""
    done = None
    for number in range(versions):
        if number == 3:
            ((partition, run),) = mergeable(ns, "orders")
            compact(ns, "orders", run[:2], partition)
        else:
            ns.produce("orders", rows(2 * number, 2 * number + 1), partition=0)
        done = cat.publish("sales", "orders")
        assert done.delta_version == number
        assert done.created == 1
    assert done is not None
    return done
