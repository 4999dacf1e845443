"""Options of a store that are secret are shown nowhere."""

from __future__ import annotations

import logging
import pickle
import traceback
from typing import Any

import pytest

import txnlog
from tests.client.support import SCHEMA, FaultyStore, Place, begun, objects, raises
from txnlog.client import session_owner
from txnlog.errors import Durable, OutcomeUnknown
from txnlog.store import Store


def test_storage_options_appear_nowhere(memory: Place, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    secret = "hunter2-storage-secret"
    store = memory.store()
    seen: list[Any] = []

    def open_store(url: str, options: Any) -> Store:
        seen.append(options)
        return FaultyStore(store)

    monkeypatch.setattr(session_owner, "open_store", open_store)
    caplog.set_level(logging.DEBUG)
    ns = txnlog.open("memory://secret", "sales", create=True, storage_options={"key": secret, "nested": {"a": secret}})
    assert seen == [{"key": secret, "nested": {"a": secret}}]
    ns.create_topic("orders", SCHEMA)
    txn = begun(ns, 1)
    faulty: Any = ns._connection.store
    while not isinstance(faulty, FaultyStore):
        faulty = faulty.inner
    ns._connection.appender.create_attempts = 2
    faulty.forever = "broken"
    with raises(OutcomeUnknown, durable=Durable.MAYBE) as caught:
        txn.commit()
    faulty.forever = None
    txn.commit()
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    shown = [
        repr(ns),
        ns._repr_html_(),
        str(ns),
        repr(txn),
        repr(txn.result),
        repr(consumer),
        repr(messages),
        repr(ns.snapshot()),
        repr(ns.producer("loader")),
        repr(ns.topic("orders")),
        repr(ns._connection.store),
        caplog.text,
        str(caught.value),
        repr(caught.value),
        "".join(traceback.format_exception(caught.value)),
        repr(pickle.loads(pickle.dumps(ns))),
    ]
    stored = b"".join(store.get(key) for key in objects(store))
    assert not [text for text in shown if secret in text]
    assert secret.encode() not in stored
    ns.close()
