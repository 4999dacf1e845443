"""Transactional topics on object storage: exactly-once pipelines over many topics, on nothing but a bucket.

``txnlog.open(root, namespace=..., create=True)`` gives a handle; see :class:`txnlog.namespace.Namespace`.
Where everything is: ``docs/map.md`` has a line for every module.

Names are loaded at their first use, so that what runs on Spark's executors can import ``txnlog.segment_file`` without
the packages that only a client needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txnlog import errors, testing
    from txnlog.consumer import Consumer
    from txnlog.ids import TxnId
    from txnlog.messages import Messages
    from txnlog.namespace import Namespace
    from txnlog.namespace import open_namespace as open  # noqa: A004 - the public name, as in gzip.open
    from txnlog.producer import Producer
    from txnlog.results import Committed
    from txnlog.snapshot import Snapshot
    from txnlog.transaction import Transaction

_HOMES = {
    "Committed": ("txnlog.results", "Committed"),
    "Consumer": ("txnlog.consumer", "Consumer"),
    "Messages": ("txnlog.messages", "Messages"),
    "Namespace": ("txnlog.namespace", "Namespace"),
    "Producer": ("txnlog.producer", "Producer"),
    "Snapshot": ("txnlog.snapshot", "Snapshot"),
    "Transaction": ("txnlog.transaction", "Transaction"),
    "TxnId": ("txnlog.ids", "TxnId"),
    "errors": ("txnlog.errors", None),
    "open": ("txnlog.namespace", "open_namespace"),
    "testing": ("txnlog.testing", None),
}


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
    "errors",
    "open",
    "testing",
]
