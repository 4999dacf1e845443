"""The fixtures of what maintains a namespace."""

from __future__ import annotations

from typing import Any

import pytest

import catalog as txn_catalog
from tests.client.backups import of_namespace, with_everything
from tests.client.maintenance.repairing import FOLDER, copied
from tests.client.support import Place
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS


@pytest.fixture
def whole(memory: Place) -> tuple[Any, dict[str, bytes], str]:
    """A namespace with some of everything, all that it has, and the address of a copy of that."""
    ns, _ = with_everything(memory, clock=ManualClock(START_MS))
    with txn_catalog.open(memory.root, clock=ManualClock(START_MS)) as cat:
        cat.publish(FOLDER, "orders")
    content = of_namespace(memory)
    return ns, content, copied(content)[0]
