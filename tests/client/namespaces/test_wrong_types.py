"""Whatever is passed to whatever parameter of the API: what does not fit is refused before anything is written.

The calls and their parameters are those of the classes, so that a new one is in the test without a word.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pytest

import catalog
import txnlog
from catalog import Catalog
from txnlog.api.consumer import Consumer
from txnlog.api.messages import Messages
from txnlog.api.namespace import Namespace
from txnlog.api.producer import Producer
from txnlog.api.snapshot import Snapshot
from txnlog.api.transaction import Transaction
from txnlog.errors import Durable, TxnLogError
from txnlog.store.base import ObjectInfo
from txnlog.store.memory import MemoryStore

OWNERS: Final = (Namespace, Catalog, Consumer, Producer, Transaction, Snapshot)
CALLS: Final = [
    pytest.param(owner, name, id=f"{owner.__name__}.{name}")
    for owner in OWNERS
    for name in sorted(dir(owner))
    if not name.startswith("_")
    and callable(getattr(owner, name))
    and len(inspect.signature(getattr(owner, name)).parameters) > 1
]

WRONG: Final = (5, None, object())

FITS: Final = {
    (Consumer, "receive", "max_messages"),
    (Consumer, "receive", "timeout_ms"),
    (Namespace, "begin", "timeout_ms"),
    (Namespace, "alter_topic", "delete_retention_ms"),
    (Namespace, "alter_topic", "min_compaction_lag_ms"),
    (Namespace, "alter_topic", "message_ttl_ms"),
    (Namespace, "alter_topic", "retention_bytes"),
    (Namespace, "alter_topic", "retention_ms"),
    (Namespace, "create_topic", "delete_retention_ms"),
    (Namespace, "create_topic", "min_compaction_lag_ms"),
    (Namespace, "create_topic", "message_ttl_ms"),
    (Namespace, "create_topic", "partitions"),
    (Namespace, "create_topic", "retention_bytes"),
    (Namespace, "create_topic", "retention_ms"),
    (Namespace, "compact", "max_bytes"),
    (Namespace, "history", "limit"),
    (Namespace, "maintain", "target_size_bytes"),
    (Namespace, "maintain", "max_bytes"),
    (Namespace, "optimize", "target_size_bytes"),
    (Namespace, "optimize", "max_bytes"),
    (Namespace, "snapshot", "version"),
    (Namespace, "table", "limit"),
    (Namespace, "transactions", "min_age_ms"),
    (Producer, "begin", "timeout_ms"),
    (Catalog, "published", "limit"),
    (txnlog, "open", "min_commit_interval_ms"),
}
"""What takes the number 5."""


class Lake:
    """A root with a namespace, of which there is one of everything, and what each parameter takes."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.namespace = txnlog.open("memory://wrong-types", "sales", create=True, store=self.store)
        self.namespace.create_topic("orders", pa.schema([("id", pa.int64())]))
        self.namespace.produce("orders", [{"id": number} for number in range(5)])
        self.namespace.create_subscription("orders", "billing")
        consumer = self.namespace.consumer("orders", "billing")
        messages = consumer.receive(timeout_ms=0)
        self.catalog = catalog.open("memory://wrong-types", store=self.store)
        self.owners: dict[Any, Any] = {
            Namespace: self.namespace,
            Catalog: self.catalog,
            Consumer: consumer,
            Messages: messages,
            Producer: self.namespace.producer("loader"),
            Snapshot: self.namespace.snapshot(),
            Transaction: self.namespace.begin(),
            txnlog: txnlog,
            catalog: catalog,
        }
        self.takes: dict[str, Any] = {
            "data": [{"id": 1}],
            "messages": messages,
            "name": "other",
            "namespace": "sales",
            "position": "earliest",
            "producer": "loader",
            "root": "memory://wrong-types",
            "spark": self,
            "subscription": "billing",
            "topic": "orders",
            "topics": "orders",
            "txn_app_id": "app",
            "work": lambda _txn: None,
        }

    def sql(self, text: str) -> None:
        """As a session of Spark, which nothing gets to."""
        raise AssertionError(text)

    def content(self) -> list[ObjectInfo]:
        """Every object, with its time and size."""
        return list(self.store.list(""))


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    lake = Lake()
    yield lake
    lake.catalog.close()
    lake.namespace.close()


def refused(lake: Lake, owner: Any, name: str, call: Callable[..., Any]) -> int:
    """How often a call was refused: with each wrong value in place of each parameter."""
    parameters = [
        item
        for item in inspect.signature(call).parameters.values()
        if item.kind not in {item.VAR_KEYWORD, item.VAR_POSITIONAL}
    ]
    needed = {item.name: lake.takes.get(item.name) for item in parameters if item.default is item.empty}
    count = 0
    for item in parameters:
        for value in WRONG:
            if item.default is value or (value == 5 and (owner, name, item.name) in FITS):
                continue
            before = lake.content()
            with pytest.raises(TxnLogError) as caught:
                call(**needed | {item.name: value})
            assert lake.content() == before, f"{item.name}={value!r} wrote something"
            assert caught.value.durable is Durable.NOTHING
            count += 1
    return count


@pytest.mark.parametrize(("owner", "name"), CALLS)
def test_a_wrong_type_is_refused_before_anything_is_written(lake: Lake, owner: Any, name: str) -> None:
    assert refused(lake, owner, name, getattr(lake.owners[owner], name))
    lake.owners[Transaction].acknowledge(lake.owners[Messages][0:0])  # it is open, and unharmed


@pytest.mark.parametrize("package", [txnlog, catalog])
def test_nothing_is_opened_with_a_wrong_type(lake: Lake, package: Any) -> None:
    assert refused(lake, package, "open", package.open) >= 8


@pytest.mark.parametrize("chosen", [None, object(), 5])
def test_a_wrong_type_chooses_no_messages(lake: Lake, chosen: Any) -> None:
    with pytest.raises(TxnLogError):
        lake.owners[Messages][chosen]


def test_there_are_calls_to_make() -> None:
    assert len(CALLS) > 45
    assert {owner for item in CALLS for owner in item.values[:1]} == set(OWNERS)
