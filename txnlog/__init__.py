"""Transactional topics on object storage: exactly-once pipelines over many topics, on nothing but a bucket.

``txnlog.open(root, namespace=..., create=True)`` gives a handle; see :class:`txnlog.api.namespace.Namespace`.
Where everything is: ``docs/map.md`` has a line for every folder.

Names are loaded at their first use, so that what runs on Spark's executors can import ``txnlog.data.segment_file``
without the packages that only a client needs.
"""

from __future__ import annotations

import concurrent.futures.thread as _thread_pools
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txnlog import errors, testing
    from txnlog.api.backups import backup, restore
    from txnlog.api.consumer import Consumer
    from txnlog.api.messages import Messages
    from txnlog.api.namespace import Namespace
    from txnlog.api.opening import open_namespace as open  # noqa: A004 - the public name, as in gzip.open
    from txnlog.api.producer import Producer
    from txnlog.api.snapshot import Snapshot
    from txnlog.api.transaction import Transaction
    from txnlog.common.ids import TxnId
    from txnlog.results import Committed

_HOMES = {
    "Committed": ("txnlog.results", "Committed"),
    "Consumer": ("txnlog.api.consumer", "Consumer"),
    "Messages": ("txnlog.api.messages", "Messages"),
    "Namespace": ("txnlog.api.namespace", "Namespace"),
    "Producer": ("txnlog.api.producer", "Producer"),
    "Snapshot": ("txnlog.api.snapshot", "Snapshot"),
    "Transaction": ("txnlog.api.transaction", "Transaction"),
    "TxnId": ("txnlog.common.ids", "TxnId"),
    "backup": ("txnlog.api.backups", "backup"),
    "errors": ("txnlog.errors", None),
    "open": ("txnlog.api.opening", "open_namespace"),
    "restore": ("txnlog.api.backups", "restore"),
    "testing": ("txnlog.testing", None),
}


# Python imports it no more once the script has ended, and pandas and asyncio need it: so before a thread that outlives
# the script does the first call.
del _thread_pools


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'txnlog' has no attribute {name!r}")
    module = importlib.import_module(home[0])
    value = module if home[1] is None else getattr(module, home[1])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


__all__ = [
    "Committed",
    "Consumer",
    "Messages",
    "Namespace",
    "Producer",
    "Snapshot",
    "Transaction",
    "TxnId",
    "backup",
    "errors",
    "open",
    "restore",
    "testing",
]
