"""``published`` and ``delta_version`` write damaged newest versions again: their errors say so."""

from __future__ import annotations

from typing import Any

import pytest

from catalog import Catalog
from tests.catalog.published import commit
from tests.client.support import Place, rows
from txnlog.errors import CorruptionError, Durable


@pytest.mark.parametrize("call", ["published", "delta_version"])
def test_a_look_that_repaired_one_version_and_met_another_says_that_it_wrote(
    place: Place, cat: Catalog, ns: Any, call: str
) -> None:
    """A false error: the newest commit was written again, an older one was missing: "nothing was written"."""
    version = -1
    for number in range(3):
        version = ns.produce("orders", rows(number)).version
        cat.publish("sales", "orders")
    newest, older = commit(place, 2), commit(place, 1)
    newest.unlink()
    older.unlink()
    arguments = () if call == "published" else (version,)
    with pytest.raises(CorruptionError) as caught:
        getattr(cat, call)("sales", "orders", *arguments)
    assert newest.exists(), "it was repaired"
    assert caught.value.durable is Durable.MAYBE, caught.value
